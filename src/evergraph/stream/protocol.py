"""Protocol: how a static graph becomes tasks; frozen and hashed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.stream.features import Scaling
from evergraph.stream.graph import Graph
from evergraph.validation import Config, load_yaml

Share = Annotated[float, Field(gt=0, lt=1)]
#: Streams by the form that their name takes; what may be left out has a default.
STREAMS = {
    "class": r"class",
    "time": r"time",
    "blurry": r"blurry:(0|0?\.\d+)",
    "task-free": r"task-free:([1-9]\d{0,8})",
    "domain": r"domain:([2-9]|[1-9]\d{1,5})",
}
#: Nodes of a batch and parts of a graph where a stream says no more than its name.
DEFAULT_AMOUNTS = {"task-free": "task-free:100", "domain": "domain:5"}
#: What helps where a task has too few nodes, by the kind of stream.
REMEDIES = {
    "class": "raise classes_per_task",
    "blurry": "raise classes_per_task",
    "time": "leave that time step out",
    "task-free": "take larger batches",
    "domain": "take fewer parts",
}


class Protocol(Config):
    """What arrives when, how nodes are split, and what accuracy is measured on.

    Attributes:
        name: ``dslr`` for the paper's presets, ``default`` otherwise.
        classes_per_task: ``c``, in class streams; a smaller last task takes the remainder.
        order: Class order: ``label``, ``alphabetical`` or ``random:SEED``; in time streams, that
            of the classes that arrive in the same step.
        min_class_size: Only classes with more nodes than this are kept.
        max_classes: Keep at most this many classes, the largest.
        test_share: Share of test nodes, one for all or one per kept class in label order.
        pooled: Draw the test nodes of all classes with the same share together, so that
            only the pool keeps the share exactly (the authors' Cora and Citeseer splits).
        features: ``row-sum`` divides each feature row by its sum; ``none`` leaves it as it is.
        feature_scaling: ``auto`` scales features robustly, as measured on the first task's nodes,
            unless they are binary or normalised; ``robust`` always, ``none`` never.
        validation_fraction: Part of each class's training nodes held out, at least one.
        evaluate: Nodes that the accuracy matrix is measured on.
        split_seed: Fixes the split; None draws it from the run's seed.
        stream: ``class`` makes tasks out of classes. ``time`` makes them out of the graph's time
            steps: nodes and edges arrive when they did, of old or new classes, and nodes are split
            within each class and step, with at least one for training. ``blurry:P`` is a class
            stream in which a share P of every class arrives in other tasks, ``task-free[:SIZE]``
            brings batches of about SIZE nodes whose classes drift, ``domain[:K]`` K parts of the
            graph with whatever classes they have (``arrival.py``).
    """

    name: str = "default"
    classes_per_task: int = Field(default=2, ge=1)
    order: str = "label"
    min_class_size: int = Field(default=0, ge=0)
    max_classes: int | None = Field(default=None, ge=1)
    test_share: Share | tuple[Share, ...] = 0.3
    pooled: bool = False
    features: Literal["row-sum", "none"] = "none"
    feature_scaling: Scaling = "none"
    validation_fraction: float = Field(default=0.0, ge=0, le=0.5)
    evaluate: Literal["test", "validation"] = "test"
    split_seed: int | None = Field(default=None, ge=0)
    stream: str = "class"

    @field_validator("stream")
    @classmethod
    def _name_stream(cls, text: str) -> str:
        """Writes equal streams alike, so that their hashes are equal."""
        full = DEFAULT_AMOUNTS.get(text, text)
        if not any(re.fullmatch(form, full) for form in STREAMS.values()):
            raise InputError(
                "Expected 'stream' class, time, blurry:P with P in [0, 1), task-free[:SIZE] or "
                f"domain[:K] with K of at least 2 (got '{text}'); write for example blurry:0.3."
            )
        name, _, amount = full.partition(":")
        return f"{name}:{float(amount)}" if name == "blurry" else full

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
        if self.stream == "time" and self.pooled:
            raise InputError(
                "Expected 'pooled' false in a time stream, whose nodes are split class by class "
                "(got true); change one of them."
            )
        return self

    @property
    def hash(self) -> str:
        """Identifies the protocol: equal hashes mean comparable numbers."""
        content = self.model_dump_json(exclude=self.unhashed)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def unhashed(self) -> set[str]:
        """Fields that 0.1.0 had not, where they do what it did: its runs keep their hashes."""
        former = {"stream": "class", "feature_scaling": "none"}
        return {name for name, value in former.items() if getattr(self, name) == value}

    @property
    def kind(self) -> str:
        """The stream's name; known classes come again in all but ``class``."""
        return self.stream.partition(":")[0]

    @property
    def amount(self) -> float:
        """What stands behind the stream's name: a share, nodes of a batch, or parts."""
        return float(self.stream.partition(":")[2] or 0)

    @property
    def unused(self) -> frozenset[str]:
        """Fields that change nothing: steps, batches and parts bring the classes that they have."""
        return frozenset(() if self.kind in {"class", "blurry"} else {"classes_per_task"})


_FILE = resources.files("evergraph.stream").joinpath("datasets", "catalogue.yaml")
#: The datasets by name, as the file has them.
CATALOGUE: dict[str, dict[str, Any]] = load_yaml(_FILE.read_text("utf-8"), "catalogue.yaml")
#: Those with a protocol of their own, among them the paper's.
PROTOCOLS = {
    name: Protocol(**entry["protocol"]) for name, entry in CATALOGUE.items() if "protocol" in entry
}


def protocol_for(dataset: str) -> Protocol:
    """Returns the protocol of a named dataset, the default for any other.

    Features of a user's file are brought to one scale: nobody has done so yet.
    """
    scaling: Scaling = "auto" if dataset.endswith(".npz") else "none"
    other = Protocol(feature_scaling=scaling)
    return PROTOCOLS.get(dataset, other)


class Split(NamedTuple):
    """Disjoint node sets, each ascending."""

    train: Tensor
    validation: Tensor
    test: Tensor


def choose_classes(graph: Graph, protocol: Protocol) -> list[int]:
    """Lists the original labels of the classes kept, in order of arrival."""
    sizes = torch.bincount(graph.y, minlength=len(graph.class_names)).tolist()
    kept = [c for c, size in enumerate(sizes) if size > protocol.min_class_size]
    if protocol.max_classes is not None:
        largest = sorted(kept, key=lambda c: (-sizes[c], c))[: protocol.max_classes]
        kept = sorted(largest)
    if not kept:
        raise InputError(
            f"Expected 'min_class_size' to leave a class of '{graph.name}' (got "
            f"{protocol.min_class_size}, largest class {max(sizes)}); lower it."
        )
    if protocol.order == "alphabetical":
        kept.sort(key=lambda c: graph.class_names[c].encode())
    elif protocol.order.startswith("random:"):
        seed = int(protocol.order.removeprefix("random:"))
        shuffle = torch.randperm(len(kept), generator=make_generator(seed, "class order"))
        kept = [kept[i] for i in shuffle.tolist()]
    return kept


def split_nodes(
    labels: Tensor,
    original_ids: Tensor,
    kept: list[int],
    protocol: Protocol,
    generator: torch.Generator,
    *,
    steps: Tensor | None = None,
) -> Split:
    """Draws test nodes by share, then validation nodes per class from the rest.

    ``labels [n]`` and ``kept`` are in order of arrival; the draw depends on the original ids and
    not on that order. In a time stream, where ``steps [n]`` are given, each class is split step by
    step and keeps a training node in each.
    """
    least = 0 if steps is None else 1
    # Draw in the order of original ids, so that another class order keeps the same split.
    by_id = torch.argsort(original_ids)
    shuffled = by_id[torch.randperm(by_id.numel(), generator=generator)]
    test, rest = [], []
    for pool, share in _pools(kept, protocol):
        members = shuffled[torch.isin(labels[shuffled], torch.tensor(pool))]
        for group in _by_step(members, steps):
            cut = min(round(share * group.numel()), group.numel() - least)
            test.append(group[:cut])
            rest.append(group[cut:])
    train = torch.cat(rest)
    validation = [torch.empty(0, dtype=torch.int64)]
    if protocol.validation_fraction:
        for label in range(len(kept)):
            for group in _by_step(train[labels[train] == label], steps):
                count = max(1, round(protocol.validation_fraction * group.numel()))
                validation.append(group[: min(count, group.numel() - least)])
    held_out = torch.cat(validation)
    train = train[~torch.isin(train, held_out)]
    return Split(*(torch.sort(part).values for part in (train, held_out, torch.cat(test))))


def check_train(labels: Tensor, names: Sequence[str], graph: str) -> None:
    """Refuses a class of fewer than two training nodes."""
    for name, count in zip(names, torch.bincount(labels, minlength=len(names)), strict=True):
        if count < 2:
            raise InputError(
                f"Expected class '{name}' of '{graph}' to have at least 2 training nodes (got "
                f"{int(count)}); add nodes, drop the class with min_class_size, or lower "
                "test_share."
            )


def _by_step(nodes: Tensor, steps: Tensor | None) -> list[Tensor]:
    """Parts nodes by their time step, if there are any, in the order that they have."""
    if steps is None:
        return [nodes]
    return [nodes[steps[nodes] == step] for step in torch.unique(steps[nodes]).tolist()]


def _pools(kept: list[int], protocol: Protocol) -> list[tuple[list[int], float]]:
    """Groups classes whose test nodes are drawn together, with their share, by label."""
    share = protocol.test_share
    shares = [share] * len(kept) if isinstance(share, float) else list(share)
    if len(shares) != len(kept):
        raise InputError(
            f"Expected 'test_share' as one number or {len(kept)}, one per kept class "
            f"(got {len(shares)}); correct the list."
        )
    arrival = sorted(range(len(kept)), key=lambda position: kept[position])
    by_label = list(zip(arrival, shares, strict=True))
    if not protocol.pooled:
        return [([position], value) for position, value in by_label]
    return [
        ([position for position, other in by_label if other == value], value)
        for value in dict.fromkeys(shares)
    ]
