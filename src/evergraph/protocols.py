"""The protocol that a method has on a dataset unless the user sets another."""

from __future__ import annotations

from evergraph.methods import method_class
from evergraph.stream import Protocol, protocol_for

#: What is held out of each class for a method that needs validation nodes, unless it is set.
NEEDED_VALIDATION = 0.1


def usual_protocol(dataset: str, method: str) -> Protocol:
    """Returns the paper's protocol, with validation nodes where the method needs some."""
    protocol = protocol_for(dataset)
    if "validation" in method_class(method).needs and not protocol.validation_fraction:
        return protocol.model_copy(update={"validation_fraction": NEEDED_VALIDATION})
    return protocol
