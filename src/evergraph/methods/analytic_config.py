"""Settings of the analytic learner, those of 0.1.0 included."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator

from evergraph.closed_form.features import Combine, FeatureConfig, Normalisation
from evergraph.closed_form.projection import fitting_columns, readable_bytes
from evergraph.closed_form.selection import Metric
from evergraph.errors import InputError
from evergraph.methods.context import ClassWeight, TrainConfig
from evergraph.methods.replay import BufferConfig
from evergraph.nn import ModelConfig

PRECISIONS = {"double": torch.float64, "single": torch.float32}
#: Settings that 0.1.0 had under another name; its share was 1 − teleport.
FORMER = {"teleport": "share", "mean_field": "beliefs"}
#: Rows to choose from: hops, how they are combined, the normalisation of edges, and whether their
#: directions count. Used are the first unless others are better by more than the noise; from a
#: node's own features alone to its surroundings alone.
ROWS = (
    ("0+1+2", "sum", "symmetric", False),
    ("0", "sum", "symmetric", False),
    ("0+1", "sum", "symmetric", False),
    ("0+1+2+3", "sum", "symmetric", False),
    ("2+3", "sum", "symmetric", False),
    ("0+1+2", "concatenate", "mean", False),
    ("0+1", "concatenate", "mean", True),
    ("0+1+2", "concatenate", "mean", True),
)
#: Most columns of hops side by side, for to solve takes columns³.
SIDE_BY_SIDE = 1_536


class AnalyticConfig(FeatureConfig, BufferConfig):
    """Settings of the analytic learner: those of its rows, and what it keeps of them."""

    former: ClassVar[Mapping[str, Any]] = {
        "memory": None,
        "class_weight": "balanced",
        "metric": "accuracy",
        "constant": False,
        "direction": False,
    }
    #: Powers of the propagation matrix, joined by ``+``, or ``auto``: chosen on the first task by
    #: cross-validated loss (:mod:`evergraph.closed_form.selection`), then fixed, since moments need
    #: one kind of row.
    hops: str = "auto"
    #: Whether hops are put side by side (``concatenate``), added up (``sum``), or ``auto``: chosen
    #: with the hops.
    combine: Combine = "auto"
    normalisation: Normalisation = "auto"
    #: ``smoothed`` features, or embeddings of an ``encoder`` that is trained on the first task by
    #: gradient descent and then frozen.
    rows: Literal["smoothed", "encoder"] = "smoothed"
    #: ``follow`` moves all classes as the nodes seen before moved on average while the graph grew;
    #: ``arrival`` keeps every row as it was when it arrived; ``refresh`` moves each class as a
    #: buffer of its nodes moved; only then are ``buffer_size``, ``selector`` and ``r`` used.
    #: ``exact`` keeps all training nodes with their labels, 16 bytes each, and begins anew from
    #: them at every task: nothing is left of what is taken back. ``auto``, the estimator's default,
    #: is ``exact`` on graphs of up to 50,000 nodes; on a larger one it keeps no training nodes and
    #: goes on as ``follow``.
    statistics: Literal["follow", "arrival", "refresh", "exact", "auto"] = "follow"
    #: Ridge strength λ; ``auto`` chooses by leave-one-out error.
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    #: Teleport probability α of score propagation; 1 propagates nothing, ``auto`` chooses by
    #: cross-validated loss.
    teleport: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = "auto"
    #: Whether mean-field inference follows; ``auto`` chooses by cross-validated loss.
    mean_field: Literal["auto", True, False] = "auto"
    #: Most directions kept of the scatter for each class seen; None keeps all.
    rank: int | None = Field(default=None, ge=1)
    #: Precision of what is kept; computation is in double precision.
    precision: Literal["double", "single"] = "single"
    selector: str = "cd"
    #: Whether every row weighs the same (``natural``) or every class (``balanced``); ``auto``
    #: chooses by what leave-one-out predictions are worth. Or weights by the names of classes, 1
    #: for others.
    class_weight: Literal["natural", "balanced", "auto"] | dict[str, ClassWeight] = "auto"
    metric: Metric = "accuracy"  # what ``auto`` is to raise
    #: Bytes that the scatter and the directions of a projection may take, as a number or as 64MB.
    #: Where the features have too many columns for that, they are projected on as many directions
    #: as fit, learned on the first task. None sets no limit.
    memory: str | int | None = "64MB"
    share: Any = Field(default=None, exclude=True, deprecated=True)
    beliefs: Any = Field(default=None, exclude=True, deprecated=True)

    @field_validator("memory")
    @classmethod
    def _readable_memory(cls, value: str | int | None) -> str | int | None:
        if value is not None:
            readable_bytes(value)
        return value

    @field_validator("mean_field", mode="before")
    @classmethod
    def _on_or_off(cls, value: object) -> object:
        return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Takes the names of 0.1.0 for one more release."""
        found = dict(values)
        for new, old in FORMER.items():
            if old not in found:
                continue
            if new in found:
                raise InputError(f"Expected '{new}' alone (got '{old}' too); leave '{old}' out.")
            text = f"The setting '{old}' of 'analytic' is deprecated; set '{new}' instead."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            found[new] = _translated(found.pop(old))
        return found

    @model_validator(mode="after")
    def _exact_needs_features(self) -> AnalyticConfig:
        if self.statistics == "exact" and self.rows == "encoder":
            raise InputError(
                "Expected 'rows' smoothed beside 'statistics' exact (got encoder, which does not "
                "forget what it was trained on); change one of them."
            )
        return self

    @model_validator(mode="after")
    def _directions_stand_beside_hops(self) -> AnalyticConfig:
        if self.direction is True and not self._has_directed:
            raise InputError(
                "Expected 'combine' concatenate, 'hops' beyond 0 and 'rows' smoothed beside "
                f"'direction' (got {self.combine}, {self.hops} and {self.rows}); change one of "
                "them."
            )
        return self

    @property
    def _has_directed(self) -> bool:
        """Whether there are rows with directions to choose from."""
        beside = self.combine != "sum" and self.hops != "0" and self.rows == "smoothed"
        return self.direction is not False and beside

    @property
    def begins_exact(self) -> bool:
        """Whether training nodes are kept from the first task on; an encoder forgets none."""
        return self.statistics in {"exact", "auto"} and self.rows == "smoothed"

    @property
    def kinds(self) -> list[FeatureConfig]:
        """The rows to choose from, as far as they are not given; the usual ones first.

        Where a constant is chosen, the first two are there with one as well.
        """
        names = ("hops", "combine", "normalisation", "direction")
        given = {name: getattr(self, name) for name in names[:3] if getattr(self, name) != "auto"}
        shared = self.model_dump(include=set(FeatureConfig.model_fields))
        shared |= {"constant": self.constant is True}
        allowed = {False: self.direction is not True, True: self._has_directed}
        found: dict[str, FeatureConfig] = {}
        for usual in ROWS:
            if allowed[usual[-1]]:
                kind = FeatureConfig(**{**shared, **dict(zip(names, usual, strict=True)), **given})
                found.setdefault(kind.name, kind)
        kinds = list(found.values())
        if self.constant == "auto":
            kinds += [kind.model_copy(update={"constant": True}) for kind in kinds[:2]]
        return kinds

    def columns(self, num_features: int, kind: FeatureConfig) -> int:
        """Returns how many columns a hop of some rows may have, ``num_features`` at most."""
        most = num_features
        if self.memory is not None:
            item = PRECISIONS[self.precision].itemsize
            most = fitting_columns(readable_bytes(self.memory), num_features, kind.blocks, item)
        if kind.blocks > 1 and self.combine == "auto":
            most = min(most, max(1, SIDE_BY_SIDE // kind.blocks))
        return most

    def unused(self) -> frozenset[str]:
        """Names the network's settings where there is none, and the buffer's likewise."""
        own = {"class_weight", "metric"}
        network = {*TrainConfig.model_fields, *ModelConfig.model_fields} - own
        unused = set() if self.class_weight == "auto" else {"metric"}
        unused |= network if self.rows == "smoothed" else set()
        unused |= {"direction"} if self.direction == "auto" and not self._has_directed else set()
        buffer = super().unused() if self.statistics == "refresh" else BufferConfig.model_fields
        return frozenset(unused | set(buffer))

    @classmethod
    def hashed_as(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings as 0.1.0 wrote them, so that its runs are known by their hash."""
        return {
            FORMER.get(key, key): _translated(value) if key in FORMER else value
            for key, value in super().hashed_as(settings).items()
        }


def _translated(value: Any) -> Any:
    """Turns a value of 0.1.0's ``share`` or ``beliefs`` into today's, or back."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return round(1 - value, 12) if isinstance(value, int | float) else value
