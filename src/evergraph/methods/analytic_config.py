"""Settings of the analytic learner."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from evergraph.closed_form import FeatureConfig, readable_hops
from evergraph.methods.replay import BufferConfig


class AnalyticConfig(FeatureConfig, BufferConfig):
    """Settings of the analytic learner: those of its rows, and what it keeps of them.

    Attributes:
        hops: As for the rows, or ``auto``: chosen on the first task by leaving one out
            (:mod:`evergraph.closed_form.hops`), then fixed, since statistics need one kind of row.
        rows: ``smoothed`` features, or embeddings of an ``encoder`` that is trained on the first
            task by gradient descent and then frozen.
        statistics: ``follow`` moves all classes as the nodes seen before moved on average while
            the graph grew; ``arrival`` keeps every row as it was when it arrived; ``refresh`` moves
            each class as a buffer of its nodes moved. Only then are ``buffer_size``, ``selector``
            and ``r`` used.
        strength: Ridge strength λ; ``auto`` leaves one out on the current training nodes.
        share: Share of a node's scores that comes from its neighbours' scores; ``auto`` judges
            it by leaving one out on the current training nodes.
        beliefs: Whether nodes then hear what their neighbours are believed to be (``on``) or not
            (``off``); ``auto`` judges it by leaving out groups of the current training nodes.
        rank: Most directions kept of a class's scatter; None keeps all.
        precision: Precision of what is kept; computation is in double precision.
    """

    hops: str = "auto"
    rows: Literal["smoothed", "encoder"] = "smoothed"
    statistics: Literal["follow", "arrival", "refresh"] = "follow"
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = "auto"
    share: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = "auto"
    beliefs: Literal["auto", "on", "off"] = "auto"
    rank: int | None = Field(default=None, ge=1)
    precision: Literal["double", "single"] = "double"
    selector: str = "cd"

    @field_validator("hops", mode="before")
    @classmethod
    def _readable_hops(cls, value: object) -> str:
        return "auto" if value == "auto" else readable_hops(value)
