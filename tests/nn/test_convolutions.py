"""GCN and GraphSAGE against PyTorch Geometric's layers and dense matrices, weight for weight."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import GCNConv, SAGEConv

from evergraph.nn.encoders import GCN, SAGE, GCNLayer, SAGELayer, propagate
from evergraph.nn.receptive_field import sample_field
from evergraph.stream import Adjacency
from layers import GRAPHS, IN, features, sparse
from support import adjacency, seeded

CHANNELS, HEADS = 3, 2
WIDTH = CHANNELS * HEADS

# 0 and 3 hear others; 1 and 2 only speak.
DIRECTED = Adjacency.from_edges(
    torch.tensor([[1, 2, 3, 1, 0], [0, 0, 0, 3, 3]]), 5, symmetric=False
)
LAYERS = {"gcn": GCNLayer, "sage": SAGELayer}
ENCODERS = {"gcn": GCN, "sage": SAGE}


def given(x: torch.Tensor, kind: str):
    return x if kind == "dense" else sparse(x)


def make_layer(name: str, dtype: torch.dtype = torch.float32):
    layer = LAYERS[name](IN, WIDTH, seeded(7)).to(dtype)
    with torch.no_grad():  # the bias starts at zero, which would hide a missing one
        layer.bias.copy_(torch.linspace(-1, 1, WIDTH))
    return layer


def make_encoder(name: str, num_layers: int = 2, drop: float = 0.0):
    channels = [CHANNELS] * num_layers
    return ENCODERS[name](IN, channels=channels, heads=HEADS, drop=drop, generator=seeded(7))


def reference(layer):
    """PyG's layer with the same weights."""
    in_dim, out_dim = layer.weight.shape
    with torch.no_grad():
        if isinstance(layer, GCNLayer):
            conv = GCNConv(in_dim, out_dim).to(layer.weight.dtype)
            conv.lin.weight.copy_(layer.weight.T)
            conv.bias.copy_(layer.bias)
        else:
            conv = SAGEConv(in_dim, out_dim, aggr="mean").to(layer.weight.dtype)
            conv.lin_l.weight.copy_(layer.weight.T)
            conv.lin_l.bias.copy_(layer.bias)
            conv.lin_r.weight.copy_(layer.weight_self.T)
    return conv


def pairs_of(layer, conv) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Gradients of ours and of PyG's, side by side."""
    if isinstance(layer, GCNLayer):
        return [(layer.weight.grad, conv.lin.weight.grad.T), (layer.bias.grad, conv.bias.grad)]
    return [
        (layer.weight.grad, conv.lin_l.weight.grad.T),
        (layer.weight_self.grad, conv.lin_r.weight.grad.T),
        (layer.bias.grad, conv.lin_l.bias.grad),
    ]


def edge_index(graph: Adjacency) -> torch.Tensor:
    return torch.stack([graph.src, graph.dst])


def symmetric(graph: Adjacency, rows: torch.Tensor) -> torch.Tensor:
    return propagate(graph.with_self_loops, graph.symmetric_weights, rows)


def mean(graph: Adjacency, rows: torch.Tensor) -> torch.Tensor:
    return propagate(graph, graph.mean_weights, rows)


# Operators by hand.


def test_operators_by_hand():
    # 0 - 1 - 2 and 3 alone; with self-loops the degrees are 2, 3, 2, 1.
    graph = adjacency(4, [(0, 1), (1, 2)])
    a, b, c = 1 / 2, 1 / 3, 6**-0.5
    expected = [[a, c, 0, 0], [c, b, c, 0], [0, c, a, 0], [0, 0, 0, 1]]
    torch.testing.assert_close(symmetric(graph, torch.eye(4)), torch.tensor(expected))
    expected = [[0, 1, 0, 0], [a, 0, a, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(mean(graph, torch.eye(4)), torch.tensor(expected).float())


def test_operators_of_a_directed_part_read_sources():
    third, half = 1 / 3, 1 / 2
    means = [[0, third, third, third, 0], [0] * 5, [0] * 5, [half, half, 0, 0, 0], [0] * 5]
    torch.testing.assert_close(mean(DIRECTED, torch.eye(5)), torch.tensor(means).float())
    # Edges that arrive, self-loops included: 4, 1, 1, 3, 1.
    root = torch.tensor([4.0, 1, 1, 3, 1]).rsqrt()
    hears = torch.eye(5)
    hears[DIRECTED.dst, DIRECTED.src] = 1
    expected = root[:, None] * hears * root
    torch.testing.assert_close(symmetric(DIRECTED, torch.eye(5)), expected)


def test_symmetric_operator_of_a_part_takes_degrees_of_the_whole():
    # Node 0 has six neighbours of which three were drawn: each stands for two.
    part = replace(DIRECTED, whole_degree=torch.tensor([6, 1, 3, 2, 8]))
    row = symmetric(part, torch.eye(5))[0]
    expected = [1 / 7, 2 / (7 * 2) ** 0.5, 2 / (7 * 4) ** 0.5, 2 / (7 * 3) ** 0.5, 0]
    torch.testing.assert_close(row, torch.tensor(expected))


def test_sampled_convolution_is_right_on_average():
    graph, x = GRAPHS["hub"], features(15, seed=8)
    whole = symmetric(graph, x)[0]
    generator, total = seeded(2), torch.zeros(IN)
    for _ in range(3000):
        field = sample_field(x, graph, torch.tensor([0]), 1, fanout=3, generator=generator)
        total += symmetric(field.graphs, field.features)[field.rows[0]]
    torch.testing.assert_close(total / 3000, whole, atol=0.05, rtol=0)
    assert whole.abs().max() > 0.3


@pytest.mark.parametrize("make", [symmetric, mean])
@pytest.mark.parametrize("graph", [GRAPHS["isolated"], DIRECTED], ids=["whole", "part"])
def test_propagate_derivatives_by_finite_differences(make, graph):
    rows = torch.randn(graph.num_nodes, 2, generator=seeded(4), dtype=torch.float64)
    rows.requires_grad_()
    assert torch.autograd.gradcheck(lambda r: make(graph, r), rows)
    assert torch.autograd.gradgradcheck(lambda r: make(graph, r) ** 2, rows)


# Layers against PyG.


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_pyg_with_gradient(name, kind, graph):
    graph = GRAPHS[graph]
    x = features(graph.num_nodes)
    layer = make_layer(name)
    conv = reference(layer)
    target = torch.randn(graph.num_nodes, WIDTH, generator=seeded(9))
    out, expected = layer(given(x, kind), graph), conv(x, edge_index(graph))
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    ((out - target) ** 2).mean().backward()
    ((expected - target) ** 2).mean().backward()
    for ours, theirs in pairs_of(layer, conv):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_gradient_of_input_equals_pyg(name, graph):
    graph = GRAPHS[graph]
    layer = make_layer(name)
    ours, theirs = (features(graph.num_nodes).requires_grad_() for _ in range(2))
    (layer(ours, graph) ** 2).sum().backward()
    (reference(layer)(theirs, edge_index(graph)) ** 2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", LAYERS)
def test_two_layers_equal_pyg_with_gradient(name, kind, graph):
    graph = GRAPHS[graph]
    x = features(graph.num_nodes)
    encoder = make_encoder(name)
    convs = [reference(layer) for layer in encoder.layers]
    h, attention = encoder(given(x, kind), graph)
    assert attention == []
    inner = functional.relu(convs[0](x, edge_index(graph)))
    expected = convs[1](inner, edge_index(graph))  # no activation after the last layer
    torch.testing.assert_close(h, expected, atol=1e-5, rtol=1e-5)
    target = torch.randn(h.shape, generator=seeded(9))
    ((h - target) ** 2).mean().backward()
    ((expected - target) ** 2).mean().backward()
    for layer, conv in zip(encoder.layers, convs, strict=True):
        for ours, theirs in pairs_of(layer, conv):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_sage_layer_of_a_directed_part_equals_pyg():
    layer, x = make_layer("sage"), features(5)
    torch.testing.assert_close(layer(x, DIRECTED), reference(layer)(x, edge_index(DIRECTED)))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", LAYERS)
def test_gradient_penalty_equals_pyg(name, kind):
    graph = GRAPHS["isolated"]
    x = features(graph.num_nodes).double()
    layer = make_layer(name, torch.float64)
    conv = reference(layer)
    for model, out in (
        (layer, layer(given(x, kind), graph)),
        (conv, conv(x, edge_index(graph))),
    ):
        parameters = list(model.parameters())
        gradients = torch.autograd.grad((out**2).sum(), parameters, create_graph=True)
        sum((g**2).sum() for g in gradients).backward()
    for ours, theirs in pairs_of(layer, conv):
        assert ours.abs().max() > 0
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("graph", [adjacency(5, [(0, 1), (1, 2)]), DIRECTED], ids=["whole", "part"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_derivatives_by_finite_differences(name, graph, kind):
    x = torch.randn(5, 2, generator=seeded(4), dtype=torch.float64)
    layer = LAYERS[name](2, 2, seeded(5)).double()
    names = [parameter for parameter, _ in layer.named_parameters()]

    def run(*values):
        weights = dict(zip(names, values, strict=True))
        return torch.func.functional_call(layer, weights, (given(x, kind), graph)) ** 2

    values = tuple(p.detach().clone().requires_grad_() for p in layer.parameters())
    assert torch.autograd.gradcheck(run, values)
    assert torch.autograd.gradgradcheck(run, values)


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_penalty_reaches_every_parameter_with_dropout(name):
    encoder, graph = make_encoder(name, drop=0.3), GRAPHS["random"]
    h, _ = encoder(sparse(features(20)), graph, seeded(1), "plain")
    gradients = torch.autograd.grad((h**2).mean(), list(encoder.parameters()), create_graph=True)
    sum(g.abs().sum() for g in gradients).backward()
    for parameter in encoder.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0


# Shape, initial values, dropout.


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_depth_and_widths(name):
    encoder = make_encoder(name, num_layers=3)
    assert [tuple(layer.weight.shape) for layer in encoder.layers] == [(IN, WIDTH), (6, 6), (6, 6)]
    assert encoder.out_dim == WIDTH
    assert encoder(features(20), GRAPHS["random"])[0].shape == (20, WIDTH)


@pytest.mark.parametrize("name", LAYERS)
def test_initial_weights_are_glorot_with_zero_bias(name):
    layer = LAYERS[name](300, 32, seeded(1))
    bound = (6 / (300 + 32)) ** 0.5
    weights = [p for p in layer.parameters() if p.ndim == 2]
    assert len(weights) == {"gcn": 1, "sage": 2}[name]
    for weight in weights:
        assert weight.shape == (300, 32)
        assert 0.98 * bound < weight.abs().max() <= bound
    assert layer.bias.tolist() == [0] * 32


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_drops_the_input_of_each_layer_only_with_a_generator(name, kind):
    from evergraph.kernels.ops import dropout

    x, graph = given(features(20), kind), GRAPHS["random"]
    encoder, plain = make_encoder(name, drop=0.5), make_encoder(name, drop=0.0)
    assert torch.equal(encoder(x, graph)[0], plain(x, graph)[0])
    generator = seeded(8)
    first = encoder.layers[0](dropout(x, 0.5, generator), graph)
    h = encoder.layers[1](dropout(functional.relu(first), 0.5, generator), graph)
    for path in ("auto", "plain"):
        torch.testing.assert_close(encoder(x, graph, seeded(8), path)[0], h)
    assert not torch.equal(h, plain(x, graph)[0])


@pytest.mark.parametrize("name", ENCODERS)
def test_forward_leaves_inputs_untouched(name):
    x, graph = features(20), GRAPHS["random"]
    before = x.clone(), graph.src.clone(), graph.dst.clone()
    make_encoder(name, drop=0.5)(x, graph, seeded(1))
    assert all(torch.equal(a, b) for a, b in zip(before, (x, graph.src, graph.dst), strict=True))
