"""Protocol: how a static graph becomes tasks; frozen, hashed, with the paper's presets."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from evergraph.errors import InputError
from evergraph.validation import Config

Share = Annotated[float, Field(gt=0, lt=1)]


class Protocol(Config):
    """Which classes come when, how nodes are split, and what accuracy is measured on.

    Attributes:
        name: ``dslr`` for the paper's presets, ``default`` otherwise.
        classes_per_task: ``c``; a last smaller task takes the remainder.
        order: Class order: ``label``, ``alphabetical`` or ``random:SEED``.
        min_class_size: Classes must have more nodes than this to be kept.
        max_classes: Keep at most this many classes, the largest.
        test_share: Share of test nodes, one for all or one per kept class in label order.
        pooled: Draw the test nodes of all classes with the same share together, so that
            only the pool keeps the share exactly (the authors' Cora and Citeseer splits).
        features: ``row-sum`` divides each feature row by its sum; ``none`` leaves it.
        validation_fraction: Part of each class's training nodes held out, at least one.
        evaluate: Nodes that the accuracy matrix is measured on.
        split_seed: Fixes the split; None draws it from the run's seed.
    """

    name: str = "default"
    classes_per_task: int = Field(default=2, ge=1)
    order: str = "label"
    min_class_size: int = Field(default=0, ge=0)
    max_classes: int | None = Field(default=None, ge=1)
    test_share: Share | tuple[Share, ...] = 0.3
    pooled: bool = False
    features: Literal["row-sum", "none"] = "none"
    validation_fraction: float = Field(default=0.0, ge=0, le=0.5)
    evaluate: Literal["test", "validation"] = "test"
    split_seed: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check(self) -> Protocol:
        if not re.fullmatch(r"label|alphabetical|random:\d+", self.order):
            raise InputError(
                f"Expected 'order' label, alphabetical or random:SEED (got '{self.order}'); "
                "write for example random:0."
            )
        if self.evaluate == "validation" and self.validation_fraction == 0:
            raise InputError(
                "Expected 'validation_fraction' above 0 to evaluate on validation nodes "
                "(got 0); set it to 0.1."
            )
        return self

    @property
    def hash(self) -> str:
        """Identifies the protocol: equal hashes mean comparable numbers."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


AMAZON_SHARES = (0.3, 0.75, 0.65, 0.3, 0.9, 0.3, 0.4, 0.75)
ARXIV_SHARES = (0.3, 0.3, 0.3, 0.3, 0.35, 0.85, 0.2, 0.2, 0.8, 0.3, 0.3, 0.8, 0.4, 0.35, 0.25)

#: Classes, order and split from the authors' code; Reddit's are ours (method.md, section 1).
DSLR_PROTOCOLS: dict[str, Protocol] = {
    "cora": Protocol(
        name="dslr", order="alphabetical", min_class_size=200, pooled=True, features="row-sum"
    ),
    "citeseer": Protocol(
        name="dslr",
        order="alphabetical",
        test_share=(0.15, 0.6, 0.6, 0.6, 0.6, 0.6),
        pooled=True,
        features="row-sum",
    ),
    "amazon-computers": Protocol(
        name="dslr", min_class_size=400, test_share=AMAZON_SHARES, features="row-sum"
    ),
    "ogbn-arxiv": Protocol(
        name="dslr", classes_per_task=3, min_class_size=2830, test_share=ARXIV_SHARES
    ),
    "reddit": Protocol(name="dslr", classes_per_task=5, max_classes=40),
}


def protocol_for(dataset: str) -> Protocol:
    """Returns the paper's protocol for its datasets, the default for any other."""
    return DSLR_PROTOCOLS.get(dataset, Protocol())
