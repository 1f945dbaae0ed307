"""Our attention layers against PyTorch Geometric's, weight for weight."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import GATConv

from evergraph.errors import InputError
from evergraph.nn.encoders import GAT, GATLayer
from evergraph.stream import Adjacency
from evergraph.stream.adjacency import Arcs
from layers import GRAPHS, IN, features, sparse
from support import adjacency, seeded

CHANNELS, HEADS = 3, 2


def reference(layer: GATLayer) -> GATConv:
    """PyG's layer with the same weights."""
    conv = GATConv(layer.weight.shape[0], layer.channels, heads=layer.heads, add_self_loops=True)
    conv = conv.to(layer.weight.dtype)
    with torch.no_grad():
        conv.lin.weight.copy_(layer.weight.T)
        conv.att_src.copy_(layer.att_src)
        conv.att_dst.copy_(layer.att_dst)
        conv.bias.copy_(layer.bias)
    return conv


def make_layer(in_dim: int = IN, dtype: torch.dtype = torch.float32) -> GATLayer:
    layer = GATLayer(in_dim, CHANNELS, HEADS, seeded(7)).to(dtype)
    with torch.no_grad():  # the bias starts at zero, which would hide a missing one
        layer.bias.copy_(torch.linspace(-1, 1, HEADS * CHANNELS))
    return layer


def make_gat(num_layers: int = 2, drop: float = 0.0) -> GAT:
    return GAT(IN, channels=[CHANNELS] * num_layers, heads=HEADS, drop=drop, generator=seeded(7))


def edge_index(graph: Adjacency) -> torch.Tensor:
    return torch.stack([graph.src, graph.dst])


def pairs_of(layer: GATLayer, conv: GATConv):
    """Each of our parameters' gradients with PyG's, in our layout."""
    yield layer.weight.grad, conv.lin.weight.grad.T
    yield layer.att_src.grad, conv.att_src.grad
    yield layer.att_dst.grad, conv.att_dst.grad
    yield layer.bias.grad, conv.bias.grad


def test_layer_by_hand():
    # One head, one channel, W = 1: node 1 hears itself and node 0.
    layer = GATLayer(1, 1, 1, seeded())
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.att_src.fill_(1)
        layer.att_dst.fill_(-1)
        layer.bias.fill_(10)
    x = torch.tensor([[0.0], [1.0], [5.0]])
    graph = adjacency(3, [(0, 1)])
    out, (alpha,) = layer(x, graph, "plain")
    torch.testing.assert_close(layer(x, graph, "fused")[0], out)
    # Scores src − dst, leaky: into 0 from 0: 0, from 1: 1; into 1 from 0: −0.2, from 1: 0.
    one, fifth = torch.tensor(1.0).exp(), torch.tensor(-0.2).exp()
    into_0 = one / (1 + one)
    into_1 = 1 / (1 + fifth)
    torch.testing.assert_close(out.flatten(), torch.stack([10 + into_0, 10 + into_1, 15 + 0 * one]))
    # Edges by (destination, source), self-loops included: 0→0, 1→0, 0→1, 1→1, 2→2.
    expected = torch.stack([1 - into_0, into_0, 1 - into_1, into_1, torch.tensor(1.0)])
    torch.testing.assert_close(alpha.flatten(), expected)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("path", ["plain", "fused"])
def test_layer_equals_pyg(name, kind, path):
    graph = GRAPHS[name]
    x = features(graph.num_nodes)
    layer = make_layer()
    conv = reference(layer)
    out, alpha = layer(x if kind == "dense" else sparse(x), graph, path)
    expected, (index, attention) = conv(x, edge_index(graph), return_attention_weights=True)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    order = torch.argsort(index[1] * graph.num_nodes + index[0])
    if path == "plain":
        torch.testing.assert_close(alpha[0], attention[order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_layer_gradient_equals_pyg(name, kind):
    graph = GRAPHS[name]
    x = features(graph.num_nodes)
    target = torch.randn(graph.num_nodes, HEADS * CHANNELS, generator=seeded(9))
    layer = make_layer()
    conv = reference(layer)
    ((layer(x if kind == "dense" else sparse(x), graph)[0] - target) ** 2).mean().backward()
    ((conv(x, edge_index(graph)) - target) ** 2).mean().backward()
    for ours, theirs in pairs_of(layer, conv):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_layer_gradient_of_input_equals_pyg(name):
    graph = GRAPHS[name]
    layer = make_layer()
    conv = reference(layer)
    ours, theirs = (features(graph.num_nodes).requires_grad_() for _ in range(2))
    (layer(ours, graph)[0] ** 2).sum().backward()
    (conv(theirs, edge_index(graph)) ** 2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_two_layers_equal_pyg_with_gradient(name, kind):
    graph = GRAPHS[name]
    x = features(graph.num_nodes)
    gat = make_gat()
    convs = [reference(layer) for layer in gat.layers]
    h, _ = gat(x if kind == "dense" else sparse(x), graph)
    inner = functional.relu(convs[0](x, edge_index(graph)))
    expected = convs[1](inner, edge_index(graph))  # no activation after the last layer
    torch.testing.assert_close(h, expected, atol=1e-5, rtol=1e-5)
    attention = gat(x, graph, path="plain")[1]
    assert [a.shape for a in attention] == [(graph.num_edges + graph.num_nodes, HEADS)] * 2
    target = torch.randn(h.shape, generator=seeded(9))
    ((h - target) ** 2).mean().backward()
    ((expected - target) ** 2).mean().backward()
    for layer, conv in zip(gat.layers, convs, strict=True):
        for ours, theirs in pairs_of(layer, conv):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_plain_path_equals_the_fast_one_with_gradient(name):
    graph = GRAPHS[name]
    x = features(graph.num_nodes)
    results = []
    for path in ("fused", "plain"):
        gat = make_gat()
        h, attention = gat(x, graph, path=path)
        assert len(attention) == (2 if path == "plain" else 0)
        (h**2).mean().backward()
        results.append([h.detach(), *(p.grad for p in gat.parameters())])
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_gradient_penalty_equals_pyg(kind):
    graph = GRAPHS["isolated"]
    x = features(graph.num_nodes).double()
    layer = make_layer(dtype=torch.float64)
    conv = reference(layer)
    for model, out in (
        (layer, layer(x if kind == "dense" else sparse(x), graph, path="plain")[0]),
        (conv, conv(x, edge_index(graph))),
    ):
        parameters = list(model.parameters())
        gradients = torch.autograd.grad((out**2).sum(), parameters, create_graph=True)
        sum((g**2).sum() for g in gradients).backward()
    for ours, theirs in pairs_of(layer, conv):
        assert ours.abs().max() > 0
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("power", [1, 2])
def test_fast_path_refuses_a_second_derivative(power):
    """The attention's own path to the weights would otherwise give a part of it, silently."""
    layer, graph = make_layer(), GRAPHS["random"]
    weights = list(layer.parameters())[:3]

    def second() -> tuple[torch.Tensor, ...]:
        loss = (layer(features(20), graph)[0] ** power).sum()
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in gradients), weights)

    with pytest.raises(InputError, match="twice"):
        second()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_layer_second_derivatives_by_finite_differences(kind):
    graph = adjacency(4, [(0, 1), (1, 2)])
    x = torch.randn(4, 2, generator=seeded(4), dtype=torch.float64)
    layer = GATLayer(2, 2, 1, seeded(5)).double()
    names = [name for name, _ in layer.named_parameters()]

    def run(*values):
        given = dict(zip(names, values, strict=True))
        data = x if kind == "dense" else sparse(x)
        return torch.func.functional_call(layer, given, (data, graph, "plain"))[0]

    values = tuple(p.detach().clone().requires_grad_() for p in layer.parameters())
    assert torch.autograd.gradcheck(run, values)
    assert torch.autograd.gradgradcheck(run, values)


def test_gat_penalty_reaches_every_parameter():
    gat = make_gat()
    graph = GRAPHS["random"]
    h, _ = gat(sparse(features(graph.num_nodes)), graph, path="plain")
    gradients = torch.autograd.grad((h**2).mean(), list(gat.parameters()), create_graph=True)
    sum(g.abs().sum() for g in gradients).backward()  # TWP's penalty
    for parameter in gat.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0


def test_attention_sums_to_one_over_each_node():
    graph = GRAPHS["hub"]
    _, attention = make_gat()(features(graph.num_nodes), graph, path="plain")
    for alpha in attention:
        sums = torch.zeros(graph.num_nodes, HEADS).index_add_(0, graph.with_self_loops.dst, alpha)
        torch.testing.assert_close(sums, torch.ones_like(sums))


def test_initial_weights_are_glorot_with_zero_bias():
    layer = GATLayer(300, 8, 4, seeded(1))
    assert layer.weight.shape == (300, 32)
    for weight, bound in (
        (layer.weight, (6 / (300 + 32)) ** 0.5),
        (layer.att_src, (6 / (4 + 8)) ** 0.5),
        (layer.att_dst, (6 / (4 + 8)) ** 0.5),
    ):
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.8 * bound
    assert layer.bias.tolist() == [0] * 32


def test_gat_depth_and_widths():
    gat = make_gat(num_layers=3)
    assert [tuple(layer.weight.shape) for layer in gat.layers] == [(6, 6), (6, 6), (6, 6)]
    assert gat.out_dim == 6
    h, attention = gat(features(20), GRAPHS["random"], path="plain")
    assert h.shape == (20, 6)
    assert len(attention) == 3


def test_gat_dropout_only_with_generator():
    x, graph = features(20), GRAPHS["random"]
    dropping, plain = make_gat(drop=0.5), make_gat(drop=0.0)
    assert torch.equal(dropping(x, graph)[0], plain(x, graph)[0])
    assert not torch.equal(dropping(x, graph, seeded(1))[0], plain(x, graph)[0])
    assert torch.equal(dropping(x, graph, seeded(1))[0], dropping(x, graph, seeded(1))[0])


def test_forward_leaves_inputs_untouched():
    x, graph = features(20), GRAPHS["random"]
    before = x.clone(), graph.src.clone(), graph.dst.clone()
    make_gat(drop=0.5)(x, graph, seeded(1))
    assert all(torch.equal(a, b) for a, b in zip(before, (x, graph.src, graph.dst), strict=True))


def directed(one_way: torch.Tensor, num_nodes: int) -> Adjacency:
    """A graph whose edges ``[2, E]`` lead one way; no two join the same nodes."""
    both = torch.cat([one_way, one_way.flip(0)], dim=1)
    there = torch.tensor([1.0, 0.0]).expand(one_way.shape[1], 2)
    arcs = Arcs(torch.cat([there, there.flip(1)]), directed=True)
    return Adjacency.from_edges(both, num_nodes, arcs=arcs)


ONE_WAY = torch.tensor([[0, 2, 3, 1, 4, 5], [1, 1, 1, 4, 3, 2]])


@pytest.mark.parametrize("path", ["plain", "fused"])
def test_heads_of_directed_edges_equal_pyg_on_either_direction(path):
    """Of three heads one hears who leads to a node, two hear whom it leads to."""
    layer = GATLayer(IN, CHANNELS, 3, seeded(7))
    x, seed = features(7), torch.randn(7, 3 * CHANNELS, generator=seeded(1))
    h, shown = layer(x, directed(ONE_WAY, 7), path)
    (h * seed).sum().backward()
    found, grads = [], []
    for ends, heads in ((ONE_WAY, slice(0, 1)), (ONE_WAY.flip(0), slice(1, 3))):
        columns = slice(heads.start * CHANNELS, heads.stop * CHANNELS)
        part = GATLayer(IN, CHANNELS, heads.stop - heads.start, seeded())
        with torch.no_grad():
            part.weight.copy_(layer.weight[:, columns])
            part.att_src.copy_(layer.att_src[:, heads])
            part.att_dst.copy_(layer.att_dst[:, heads])
        conv = reference(part)
        found.append(conv(x, ends))
        (found[-1] * seed[:, columns]).sum().backward()
        grads.append(conv.lin.weight.grad.T)
    assert torch.allclose(h, torch.cat(found, dim=1), atol=1e-6)
    assert torch.allclose(layer.weight.grad, torch.cat(grads, dim=1), atol=1e-5)
    assert torch.allclose(layer.gather(layer.lift(x), directed(ONE_WAY, 7), path), h, atol=1e-6)
    assert [alpha.shape[1] for alpha in shown] == ([1, 2] if path == "plain" else [])


def test_a_single_head_hears_both_ways():
    layer, x = GATLayer(IN, CHANNELS, 1, seeded(7)), features(7)
    graph = directed(ONE_WAY, 7)
    undirected = Adjacency.from_edges(edge_index(graph), 7)
    assert torch.equal(layer(x, graph)[0], layer(x, undirected)[0])
