"""ER-GNN: experience replay for graphs (Zhou and Cao, AAAI 2021).

The loss is β·CE(current) + (1 − β)·CE(buffer) with β = |B| / (|B| + |D|), |D| the training
nodes of the current task: the smaller the buffer, the more its nodes weigh. The paper keeps
nodes by mean of features (MF, the default here), coverage (CM) or influence maximisation (IM);
any other selector may be set.
"""

from __future__ import annotations

from typing import ClassVar

from evergraph.methods.base import SearchSpace
from evergraph.methods.replay import Beta, ReplayBase, ReplayConfig


class ERGNNConfig(ReplayConfig):
    """Settings of ER-GNN: those of replay with the paper's β and selector."""

    selector: str = "mf"
    beta: Beta = "share"


class ERGNN(ReplayBase[ERGNNConfig]):
    """Replay whose current nodes weigh as much as the buffer's share."""

    Config = ERGNNConfig
    summary = "experience replay weighed by the buffer's share, nodes by MF, CM or IM"
    paper = (
        "Zhou and Cao, Overcoming Catastrophic Forgetting in Graph Neural Networks with "
        "Experience Replay"
    )
    year = 2021
    search: ClassVar[SearchSpace] = {
        "selector": ("mf", "cm", "im"),
        "replay_weights": ("none", "balanced"),
    }
