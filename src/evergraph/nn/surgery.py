"""Surgery: neurons of a trained network's hidden layers are deleted and added.

A neuron of a layer is one channel of every head, so that heads stay equally wide. What leaves
it are its rows of the next layer, or its columns of the linear head, and its own attention
weights. Where all of them are zero, the network does not see it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from evergraph.nn.gat import GAT, glorot_bound
from evergraph.nn.model import NodeClassifier


@dataclass(frozen=True)
class _Change:
    """Which channels stay, how many come after them, and what draws their weights."""

    kept: Tensor
    add: int
    generator: torch.Generator

    def apply(self, value: Tensor, dim: int, bound: float = 0.0) -> Tensor:
        """Keeps some channels along ``dim`` and appends new ones from U(−bound, bound).

        New ones are drawn by a CPU generator, so that every device starts alike.
        """
        old = value.detach().index_select(dim, self.kept)
        shape = [*old.shape[:dim], self.add, *old.shape[dim + 1 :]]
        new = torch.zeros(shape)
        if bound:
            new.uniform_(-bound, bound, generator=self.generator)
        return torch.cat([old, new.to(old.device)], dim)


def _gat(model: NodeClassifier) -> GAT:
    """Returns the encoder, which must be the one whose layers can be resized."""
    assert isinstance(model.encoder, GAT)
    return model.encoder


def resize_layer(
    model: NodeClassifier, depth: int, *, delete: int, add: int, generator: torch.Generator
) -> None:
    """Deletes the weakest neurons of a layer, then adds new ones after the kept, in place.

    At least one of the old neurons stays, however many are to be deleted. New neurons have
    Glorot-uniform weights, as the layer at first, and a bias of zero; so have their outgoing
    weights, in the linear head as well. Parameters are replaced: an optimiser must be made anew.

    Args:
        model: The network.
        depth: Which layer, from 0.
        delete: How many neurons go, those of the smallest :func:`outgoing_norm`.
        add: How many come.
        generator: On the CPU, draws new weights.
    """
    layer = _gat(model).layer(depth)
    heads, channels, in_dim = layer.heads, layer.channels, layer.weight.shape[0]
    change = _Change(surviving_channels(model, depth, delete), add, generator)
    width = change.kept.numel() + add
    bound = glorot_bound(in_dim, heads * width)
    weight = change.apply(layer.weight.view(in_dim, heads, channels), 2, bound)
    layer.weight = nn.Parameter(weight.reshape(in_dim, heads * width))
    bound = glorot_bound(heads, width)
    layer.att_src = nn.Parameter(change.apply(layer.att_src, 2, bound))
    layer.att_dst = nn.Parameter(change.apply(layer.att_dst, 2, bound))
    layer.bias = nn.Parameter(change.apply(layer.bias.view(heads, channels), 1).flatten())
    # [heads, channels, out], whichever way the next layer stores it
    following = _outgoing(model, depth)
    out_dim = following.shape[2]
    bound = glorot_bound(heads * width, out_dim)
    following = change.apply(following, 1, bound).reshape(heads * width, out_dim)
    layer.channels = width
    if depth + 1 < len(_gat(model).layers):
        _gat(model).layer(depth + 1).weight = nn.Parameter(following)
    else:
        model.head.weight = nn.Parameter(following.t().contiguous())


def surviving_channels(model: NodeClassifier, depth: int, delete: int) -> Tensor:
    """Returns the channels that stay, ascending; ties go to the lowest channel."""
    norm = outgoing_norm(model, depth)
    delete = min(delete, norm.numel() - 1)
    return torch.sort(torch.argsort(norm, stable=True)[delete:]).values


def outgoing_norm(model: NodeClassifier, depth: int) -> Tensor:
    """Measures each neuron of a layer by the norm of all that leaves it, ``[channels]``."""
    layer = _gat(model).layer(depth)
    squares = _outgoing(model, depth).square().sum(dim=(0, 2))
    attention = layer.att_src.square() + layer.att_dst.square()
    return (squares + attention.sum(dim=(0, 1))).sqrt().detach()


def _outgoing(model: NodeClassifier, depth: int) -> Tensor:
    """Returns the weights from a layer's channels to what follows, ``[heads, channels, out]``."""
    layer, encoder = _gat(model).layer(depth), _gat(model)
    last = depth + 1 == len(encoder.layers)
    weight = model.head.weight.t() if last else encoder.layer(depth + 1).weight
    return weight.reshape(layer.heads, layer.channels, weight.shape[1])
