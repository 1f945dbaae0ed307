"""Settings of structure learning, with the variants that the experiments compare."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from evergraph.errors import InputError
from evergraph.validation import Config


class StructureConfig(Config):
    """How the neighbourhood of replayed nodes is refined (sections 4.2.1 to 4.2.3).

    Attributes:
        structure: ``learned`` is the paper's; ``none`` leaves the graph; ``homophily`` only
            adds each replayed node's nearest training nodes of its class (ablation row 5).
        lam: λ, weight of the link loss against the node loss; 1 is link only, 0 node only.
        tau: τ, edges of replayed nodes with a score of at most this are deleted.
        num_neighbors: N, edges added to each replayed node.
        num_candidates: K, nearest nodes considered for addition.
        candidates: ``nearest`` considers K nodes, ``entire`` all nodes seen.
        addition: ``top`` adds the N best, ``threshold`` every candidate scoring above τ.
        deletion: ``threshold`` deletes by τ, ``lowest`` the N lowest-scoring neighbours.
        sl_ratio: Share of the buffer, drawn at random, that is refined.
        link_epochs: Epochs of the link predictor.
        link_lr: Its learning rate.
    """

    structure: Literal["learned", "none", "homophily"] = "learned"
    lam: float = Field(default=0.5, ge=0, le=1)
    tau: float = Field(default=0.8, ge=0, le=1)
    num_neighbors: int = Field(default=5, ge=0)
    num_candidates: int = Field(default=50, ge=1)
    candidates: Literal["nearest", "entire"] = "nearest"
    addition: Literal["top", "threshold"] = "top"
    deletion: Literal["threshold", "lowest"] = "threshold"
    sl_ratio: float = Field(default=1.0, ge=0, le=1)
    link_epochs: int = Field(default=100, ge=0)
    link_lr: float = Field(default=0.01, gt=0)

    @model_validator(mode="after")
    def _check_counts(self) -> StructureConfig:
        if self.candidates == "nearest" and self.num_neighbors > self.num_candidates:
            raise InputError(
                f"Expected 'num_neighbors' of at most 'num_candidates', {self.num_candidates} "
                f"(got {self.num_neighbors}); lower N or raise K."
            )
        return self
