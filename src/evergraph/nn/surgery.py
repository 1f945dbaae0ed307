"""Surgery: neurons of a trained network's hidden layers are deleted and added.

A neuron of a layer is one channel of every head, so that heads stay equally wide. What leaves
it are its rows of the next layer, or its columns of the linear head, and its own attention
weights. Where all of them are zero, the network does not see it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from evergraph.nn.encoders import GATLayer, glorot_bound
from evergraph.nn.model import NodeClassifier


def resize_layer(
    model: NodeClassifier, depth: int, *, delete: int, add: int, generator: torch.Generator
) -> None:
    """Deletes the weakest neurons of a layer, then adds new ones after the kept, in place.

    The weakest have the smallest :func:`outgoing_norm`; at least one of the old neurons stays,
    however many are to be deleted. New neurons have Glorot-uniform weights, as the layer at first,
    and a bias of zero; so have their outgoing weights, in the linear head as well. A CPU generator
    draws them, so that every device starts alike. Parameters are replaced: an optimiser must be
    made anew.
    """
    layer, kept = _layer(model, depth), surviving_channels(model, depth, delete)
    heads, channels, in_dim = layer.heads, layer.channels, layer.weight.shape[0]
    width = kept.numel() + add

    def resized(value: Tensor, dim: int, bound: float = 0.0) -> Tensor:
        """Keeps some channels along ``dim`` and appends new ones from U(−bound, bound)."""
        old = value.detach().index_select(dim, kept)
        new = torch.zeros([*old.shape[:dim], add, *old.shape[dim + 1 :]])
        if bound:
            new.uniform_(-bound, bound, generator=generator)
        return torch.cat([old, new.to(old.device)], dim)

    bound = glorot_bound(in_dim, heads * width)
    weight = resized(layer.weight.view(in_dim, heads, channels), 2, bound)
    layer.weight = nn.Parameter(weight.reshape(in_dim, heads * width))
    bound = glorot_bound(heads, width)
    layer.att_src = nn.Parameter(resized(layer.att_src, 2, bound))
    layer.att_dst = nn.Parameter(resized(layer.att_dst, 2, bound))
    layer.bias = nn.Parameter(resized(layer.bias.view(heads, channels), 1).flatten())
    # [heads, channels, out], whichever way the next layer stores it
    following = _outgoing(model, depth)
    out_dim = following.shape[2]
    bound = glorot_bound(heads * width, out_dim)
    following = resized(following, 1, bound).reshape(heads * width, out_dim)
    layer.channels = model.encoder.channels[depth] = width
    if depth + 1 < len(model.encoder.layers):
        _layer(model, depth + 1).weight = nn.Parameter(following)
    else:
        model.head.weight = nn.Parameter(following.t().contiguous())


def surviving_channels(model: NodeClassifier, depth: int, delete: int) -> Tensor:
    """Returns the channels that stay, ascending; ties go to the lowest channel."""
    norm = outgoing_norm(model, depth)
    delete = min(delete, norm.numel() - 1)
    return torch.sort(torch.argsort(norm, stable=True)[delete:]).values


def outgoing_norm(model: NodeClassifier, depth: int) -> Tensor:
    """Measures each neuron of a layer by the norm of all that leaves it, ``[channels]``."""
    layer = _layer(model, depth)
    squares = _outgoing(model, depth).square().sum(dim=(0, 2))
    attention = layer.att_src.square() + layer.att_dst.square()
    return (squares + attention.sum(dim=(0, 1))).sqrt().detach()


def _outgoing(model: NodeClassifier, depth: int) -> Tensor:
    """Returns the weights from a layer's channels to what follows, ``[heads, channels, out]``."""
    layer, last = _layer(model, depth), depth + 1 == len(model.encoder.layers)
    weight = model.head.weight.t() if last else _layer(model, depth + 1).weight
    return weight.reshape(layer.heads, layer.channels, weight.shape[1])


def _layer(model: NodeClassifier, depth: int) -> GATLayer:
    """Returns a layer, which must be of the kind that can be resized."""
    layer = model.encoder.layers[depth]
    assert isinstance(layer, GATLayer)
    return layer
