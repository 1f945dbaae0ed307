r"""What nodes' own features tell of beliefs that came from elsewhere.

The beliefs of all nodes, labelled or not, are regressed on the nodes' features alone, as they
stand, and every node is told what the *others* make of it: with :math:`h_i` its leverage, node
:math:`i`'s residual :math:`e_i` becomes :math:`e_i / (1 - h_i)`. Nothing of it is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.closed_form.features import RowSource
from evergraph.closed_form.gram import Gram, GramFactor

#: Ridge strength; unit rows weigh one in all. Between 5e-4 and 1e-2 it makes no difference.
STRENGTH = 5e-3
#: Most nodes that the regression is made on, evenly spaced.
MOST_NODES = 5_000


class OwnFeatures:
    """Regression on the features of the nodes of one graph, decomposed once for any beliefs.

    Args:
        source: The nodes' features as rows of length one.
        num_nodes: Number of nodes.
        device: Where they are.
    """

    def __init__(self, source: RowSource, num_nodes: int, device: torch.device) -> None:
        self.source = source
        step = max(1, -(-num_nodes // MOST_NODES))
        self.nodes = torch.arange(0, num_nodes, step, device=device)
        system = Gram(source.rows(self.nodes) / self.nodes.numel() ** 0.5)
        self.factor = GramFactor(system, STRENGTH, system.lower(STRENGTH))
        self.stays = 1 - self.factor.own_leverage()

    def tell(self, beliefs: Tensor) -> Tensor:
        """Returns what features say instead of the beliefs of all nodes, ``[n, k]``."""
        targets = beliefs[self.nodes]
        weights = self.factor.regress(targets / self.nodes.numel() ** 0.5)
        told = self.source.times(weights)
        told[self.nodes] = targets - (targets - told[self.nodes]) / self.stays[:, None]
        return told
