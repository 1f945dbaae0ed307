"""The classifier: an encoder, a linear head that grows, their optimiser and what they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adam import adam

from evergraph.device import make_generator, size_text
from evergraph.errors import InputError
from evergraph.kernels.attention import AttentionPath
from evergraph.kernels.ops import relu_dropout
from evergraph.nn.encoders import GAT, GCN, SAGE, Encoder
from evergraph.nn.receptive_field import Graphs
from evergraph.stream.features import Features
from evergraph.validation import Config

HeadInit = Literal["uniform", "default"]
Backbone = Literal["gat", "gcn", "sage"]
ENCODERS: dict[Backbone, type[Encoder]] = {"gat": GAT, "gcn": GCN, "sage": SAGE}


#: Bytes per directed edge: the graph with and without self-loops, and the link predictor's draws.
BYTES_PER_EDGE = 120
#: Rows of the width of a layer that one layer holds at its peak, forward and backward.
ROWS_PER_LAYER = 10
#: The same per edge on the plain path: 3.9 were measured with second derivatives, 2.7 without.
PLAIN_ROWS_PER_EDGE = 5


class ModelConfig(Config):
    """Shape and regularisation of the network."""

    backbone: Backbone = "gat"  # kind of encoder: gat, gcn or sage
    channels: int = Field(default=64, ge=1)  # width of one attention head
    #: Attention heads per layer; without attention a layer is as wide as all of them.
    heads: int = Field(default=4, ge=1)
    num_layers: int = Field(default=2, ge=1)  # depth of the encoder
    #: Rate on the input of every layer and of the head.
    dropout: float = Field(default=0.5, ge=0, lt=1)
    #: New head rows: ``uniform`` draws weights from U[0, 1) as the authors' code does, ``default``
    #: draws weights and bias from U(−1/√d, 1/√d) (decision 0005).
    head_init: HeadInit = "uniform"
    #: ``fused`` takes compiled kernels, ``plain`` PyTorch's operations, ``auto`` the kernels
    #: wherever there are any (decision 0012).
    attention: AttentionPath = "auto"


class Output(NamedTuple):
    """What one forward pass gives."""

    logits: Tensor  # [m, k]
    h: Tensor  # [m, d]
    attention: list[Tensor]  # per layer [E + n, heads]; empty unless GAT's path is plain


class GrowingHead(nn.Module):
    """A linear layer whose rows, one per class, are added as classes appear."""

    def __init__(self, in_dim: int, init: HeadInit) -> None:
        super().__init__()
        self.init = init
        self.weight = nn.Parameter(torch.empty(0, in_dim))
        self.bias = nn.Parameter(torch.empty(0))

    @property
    def num_classes(self) -> int:
        """Counts the rows."""
        return self.bias.numel()

    def grow(self, num_classes: int, generator: torch.Generator) -> None:
        """Adds rows up to ``num_classes``; existing rows keep their values.

        New rows are drawn by a CPU generator, so that every device starts alike.
        """
        extra = num_classes - self.num_classes
        if extra <= 0:
            return
        dim = self.weight.shape[1]
        weight, bias = torch.empty(extra, dim), torch.zeros(extra)
        if self.init == "uniform":
            weight.uniform_(0, 1, generator=generator)
        else:
            bound = dim**-0.5
            weight.uniform_(-bound, bound, generator=generator)
            bias.uniform_(-bound, bound, generator=generator)
        device = self.weight.device
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), weight.to(device)]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), bias.to(device)]))

    def forward(self, h: Tensor) -> Tensor:
        """Maps ``[m, d]`` to logits ``[m, k]``."""
        return functional.linear(h, self.weight, self.bias)


class NodeClassifier(nn.Module):
    """Encoder and growing head: logits are linear in the ReLU of the embedding.

    A CPU generator draws the weights; ``channels`` is the width of one head per layer where surgery
    has changed it.
    """

    def __init__(
        self,
        config: ModelConfig,
        in_dim: int,
        num_classes: int,
        generator: torch.Generator,
        channels: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder: Encoder = ENCODERS[config.backbone](
            in_dim,
            channels=channels or [config.channels] * config.num_layers,
            heads=config.heads,
            drop=config.dropout,
            generator=generator,
        )
        self.head = GrowingHead(self.encoder.out_dim, config.head_init)
        self.head.grow(num_classes, generator)

    @property
    def resized_channels(self) -> list[int] | None:
        """The width of one head per layer, None as long as it is what the configuration says."""
        channels = self.encoder.channels
        return None if channels == [self.config.channels] * self.config.num_layers else channels

    def forward(
        self,
        x: Features,
        adjacency: Graphs,
        nodes: Tensor | None = None,
        generator: torch.Generator | None = None,
        plain: bool = False,
    ) -> Output:
        """Runs the network on the graph, or one for each layer, and keeps the given nodes ``[m]``.

        All are kept by default. Without a generator there is no dropout; only the plain path can be
        differentiated twice.
        """
        path = "plain" if plain else self.config.attention
        h, attention = self.encoder(x, adjacency, generator, path)
        if nodes is not None:
            h = h.index_select(0, nodes)
        return Output(self.classify(h, generator, plain), h, attention)

    def classify(
        self, h: Tensor, generator: torch.Generator | None = None, plain: bool = False
    ) -> Tensor:
        """Returns the logits ``[m, k]`` of embeddings ``[m, d]``; arguments as in a call."""
        fused = not plain and self.config.attention != "plain"
        logits: Tensor = self.head(relu_dropout(h, self.config.dropout, generator, fused))
        return logits


def training_bytes(
    num_nodes: int,
    num_edges: int,
    num_feature_values: int,
    config: ModelConfig,
    *,
    channels: int | None = None,
    plain: bool = False,
) -> int:
    """Estimates the peak of training on the whole graph, whose edges are counted both ways.

    ``channels`` is the width of one head where a method may grow it, ``plain`` the attention that
    can be differentiated twice.
    """
    width = (channels or config.channels) * config.heads
    rows = num_nodes * ROWS_PER_LAYER
    if plain and config.backbone == "gat":
        rows += (num_edges + num_nodes) * PLAIN_ROWS_PER_EDGE
    return BYTES_PER_EDGE * num_edges + 4 * (
        rows * width * config.num_layers + 3 * num_feature_values
    )


def check_network(config: ModelConfig, num_features: int, memory: int) -> None:
    """Refuses a network whose weights, gradients and Adam's averages do not fit in the memory."""
    width = config.channels * config.heads
    weights = width * (num_features + width * (config.num_layers - 1))
    if 16 * weights > memory:
        raise InputError(
            f"Expected 'channels', 'heads' and 'num_layers' of a network that fits in "
            f"{size_text(memory)} (got one of {size_text(16 * weights)}); lower them."
        )


def restore_model(
    config: ModelConfig, weights: Mapping[str, Tensor], channels: list[int] | None
) -> NodeClassifier:
    """Makes the network that weights were taken from; those of another one raise anything.

    ``channels`` is the width of one head per layer where it is not the configuration's.
    """
    in_dim, num_classes = weights["encoder.layers.0.weight"].shape[0], weights["head.bias"].numel()
    _check_size(config, in_dim, channels, weights)
    # Its first weights are overwritten at once.
    model = NodeClassifier(config, in_dim, num_classes, make_generator(0, "restored"), channels)
    model.load_state_dict(weights)
    return model


def _check_size(
    config: ModelConfig, in_dim: int, channels: list[int] | None, weights: Mapping[str, Tensor]
) -> None:
    """Refuses a configuration of a larger network than is stored, before it is allocated."""
    stored = sum(weight.numel() for weight in weights.values())
    if channels is None:
        if config.num_layers > stored:
            raise ValueError("more layers than weights")
        channels = [config.channels] * config.num_layers
    declared = 0
    for width in (heads * config.heads for heads in channels):
        declared += in_dim * width
        in_dim = width
    if declared > stored or any(width < 1 for width in channels):
        raise ValueError("more weights declared than stored")


#: What Adam keeps of a parameter.
NAMES = ("mean", "square", "steps")


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) by PyTorch's function: on the same bits as its class.

    The class imports all of PyTorch's compiler, 150 MB of memory that nothing here uses.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, *, weight_decay: float = 0.0
    ) -> None:
        self.parameters = list(parameters)
        self.lr, self.weight_decay = lr, weight_decay
        self._averages: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {}  # of g, of g², steps

    def state_dict(self) -> list[dict[str, Tensor]]:
        """Returns the averages of every parameter, in order."""
        found = (self._averages.get(p, ()) for p in self.parameters)
        return [dict(zip(NAMES, part, strict=False)) for part in found]

    def load_state_dict(self, state: Sequence[Mapping[str, Tensor]]) -> None:
        """Takes back what :meth:`state_dict` returned."""
        for p, part in zip(self.parameters, state, strict=True):
            if part:
                mean, square, steps = (
                    part[name].to(p.device) for name in ("mean", "square", "steps")
                )
                self._averages[p] = (mean, square, steps)

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Moves the parameters that have a gradient."""
        moved = [p for p in self.parameters if p.grad is not None]
        for p in moved:
            if p not in self._averages:
                step = torch.zeros((), device=p.device)
                self._averages[p] = (torch.zeros_like(p), torch.zeros_like(p), step)
        means, squares, steps = ([self._averages[p][at] for p in moved] for at in range(3))
        adam(
            moved,
            [p.grad for p in moved if p.grad is not None],
            means,
            squares,
            [],
            steps,
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=0.9,
            beta2=0.999,
            eps=1e-8,
            lr=self.lr,
            weight_decay=self.weight_decay,
        )
