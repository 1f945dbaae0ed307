"""The classifier and its growing head."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.kernels.ops import dropout
from evergraph.nn import ENCODERS, ModelConfig, NodeClassifier
from evergraph.nn.model import Adam, GrowingHead
from evergraph.stream import Adjacency
from evergraph.validation import parse

SMALL = ModelConfig(channels=4, heads=2, dropout=0.5)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module", params=["dense", "sparse"])
def data(request, make_graph):
    graph = make_graph(30, sparse=request.param == "sparse")
    both = torch.cat([graph.edges, graph.edges.flip(0)], dim=1)
    return graph.x, Adjacency.from_edges(both, graph.num_nodes)


# The head


def test_head_by_hand():
    head = GrowingHead(2, "uniform")
    head.grow(2, seeded())
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        head.bias.copy_(torch.tensor([10.0, 20.0]))
    assert head(torch.tensor([[1.0, -1.0]])).tolist() == [[9, 19]]


@pytest.mark.parametrize("init", ["uniform", "default"])
def test_head_grows_and_keeps_old_rows(init):
    head = GrowingHead(5, init)
    assert head.num_classes == 0
    generator = seeded(1)
    head.grow(2, generator)
    with torch.no_grad():
        head.bias.copy_(torch.tensor([7.0, 8.0]))
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    head.grow(5, generator)
    assert head.num_classes == 5
    assert head.weight.shape == (5, 5)
    assert torch.equal(head.weight[:2], weight)
    assert torch.equal(head.bias[:2], bias)
    assert not torch.equal(head.weight[2:4], weight)  # new rows are new draws
    assert head.weight.requires_grad
    assert {name for name, _ in head.named_parameters()} == {"weight", "bias"}


@pytest.mark.parametrize("num_classes", [3, 2, 0])
def test_head_growing_to_no_more_rows_changes_nothing(num_classes):
    head = GrowingHead(4, "uniform")
    generator = seeded(1)
    head.grow(3, generator)
    weight, state = head.weight, generator.get_state()
    head.grow(num_classes, generator)
    assert head.weight is weight
    assert torch.equal(generator.get_state(), state)


def test_head_uniform_init_is_in_zero_one_with_zero_bias():
    head = GrowingHead(200, "uniform")
    head.grow(50, seeded(2))
    assert head.weight.min() >= 0
    assert head.weight.max() < 1
    assert abs(head.weight.mean().item() - 0.5) < 0.02
    assert head.weight.min() < 0.01
    assert head.weight.max() > 0.99
    assert head.bias.tolist() == [0] * 50


def test_head_default_init_is_within_one_over_root_d():
    head = GrowingHead(100, "default")  # 1 / √100 = 0.1
    head.grow(200, seeded(2))
    for drawn in (head.weight, head.bias):
        assert drawn.abs().max() <= 0.1
        assert drawn.max() > 0.09
        assert drawn.min() < -0.09


@pytest.mark.parametrize("init", ["uniform", "default"])
def test_head_same_generator_same_rows(init):
    heads = [GrowingHead(6, init) for _ in range(3)]
    for head, seed in zip(heads, (3, 3, 4), strict=True):
        head.grow(4, seeded(seed))
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert torch.equal(heads[0].bias, heads[1].bias)
    assert not torch.equal(heads[0].weight, heads[2].weight)


# The network


def test_NodeClassifier_is_deterministic_by_generator_and_nothing_else():
    torch.manual_seed(1)
    first = NodeClassifier(SMALL, 8, 3, seeded(5)).state_dict()
    torch.manual_seed(2)
    again = NodeClassifier(SMALL, 8, 3, seeded(5)).state_dict()
    other = NodeClassifier(SMALL, 8, 3, seeded(6)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    assert not torch.equal(first["encoder.layers.0.weight"], other["encoder.layers.0.weight"])
    assert first["head.weight"].shape == (3, 8)


def test_NodeClassifier_has_the_paper_shape_by_default():
    model = NodeClassifier(ModelConfig(), 11, 2, seeded())
    shapes = [tuple(layer.weight.shape) for layer in model.encoder.layers]
    assert shapes == [(11, 256), (256, 256)]
    assert model.head.weight.shape == (2, 256)


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_backbone_changes_the_encoder_alone(data, backbone):
    x, graph = data
    config = SMALL.model_copy(update={"backbone": backbone})
    model = NodeClassifier(config, x.shape[1], 3, seeded())
    assert type(model.encoder) is ENCODERS[backbone]
    assert model.head.weight.shape == (3, 8)
    output = model(x, graph)
    assert (output.h < 0).any()  # h comes before the ReLU
    torch.testing.assert_close(output.logits, model.head(functional.relu(output.h)))
    assert output.attention == model(x, graph, plain=True).attention == []


def test_unknown_backbone_is_refused_in_one_sentence():
    with pytest.raises(InputError) as caught:
        parse(ModelConfig, {"backbone": "gin"})
    assert str(caught.value) == (
        "Expected 'backbone' to be 'gat', 'gcn' or 'sage' (got 'gin'); change its value."
    )


def test_logits_are_linear_in_relu_of_embedding(data):
    x, graph = data
    model = NodeClassifier(SMALL, x.shape[1], 3, seeded())
    output = model(x, graph)
    h, _ = model.encoder(x, graph)
    assert torch.equal(output.h, h)
    assert (output.h < 0).any()  # h comes before the ReLU
    torch.testing.assert_close(output.logits, model.head(functional.relu(h)))
    assert output.attention == []
    assert len(model(x, graph, plain=True).attention) == 2


def test_nodes_subset_equals_slicing(data):
    x, graph = data
    model = NodeClassifier(SMALL, x.shape[1], 3, seeded())
    whole = model(x, graph)
    for chosen in ([4, 1, 1, 29], [], list(range(30))):
        nodes = torch.tensor(chosen, dtype=torch.int64)
        part = model(x, graph, nodes=nodes)
        torch.testing.assert_close(part.logits, whole.logits[nodes])
        assert torch.equal(part.h, whole.h[nodes])


def test_dropout_is_applied_on_both_layer_inputs_and_the_head(data):
    """The network written out; a mask too many or too few shifts all later draws."""
    x, graph = data
    model = NodeClassifier(SMALL, x.shape[1], 3, seeded())
    generator = seeded(8)
    first, _ = model.encoder.layers[0](dropout(x, 0.5, generator), graph)
    h, _ = model.encoder.layers[1](dropout(functional.relu(first), 0.5, generator), graph)
    logits = model.head(dropout(functional.relu(h), 0.5, generator))
    output = model(x, graph, generator=seeded(8))
    assert torch.equal(output.h, h)
    assert torch.equal(output.logits, logits)
    assert not torch.equal(output.logits, model(x, graph).logits)


@pytest.mark.parametrize("mode", [True, False])
def test_dropout_depends_on_the_generator_not_on_the_mode(data, mode):
    x, graph = data
    model = NodeClassifier(SMALL, x.shape[1], 3, seeded()).train(mode)
    plain = NodeClassifier(SMALL.model_copy(update={"dropout": 0.0}), x.shape[1], 3, seeded())
    assert torch.equal(model(x, graph).logits, plain(x, graph).logits)
    assert torch.equal(plain(x, graph, generator=seeded(1)).logits, plain(x, graph).logits)
    assert not torch.equal(model(x, graph, generator=seeded(1)).logits, plain(x, graph).logits)


def test_growing_leaves_old_logits(data):
    x, graph = data
    model = NodeClassifier(SMALL, x.shape[1], 2, seeded())
    before = model(x, graph).logits
    model.head.grow(4, seeded(1))
    after = model(x, graph).logits
    assert after.shape == (30, 4)
    torch.testing.assert_close(after[:, :2], before)


def test_one_isolated_node():
    graph = Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 1)
    output = NodeClassifier(SMALL, 3, 2, seeded())(torch.ones(1, 3), graph)
    assert output.logits.shape == (1, 2)
    assert torch.isfinite(output.logits).all()


def test_Adam_moves_weights_as_the_class_of_PyTorch_does():
    start, x, found = (
        torch.randn(5, 3, generator=seeded()),
        torch.randn(9, 5, generator=seeded(1)),
        [],
    )
    for make in (Adam, lambda *a, **k: torch.optim.Adam(*a, **k, fused=True)):
        weights = [torch.nn.Parameter(start.clone()), torch.nn.Parameter(torch.zeros(3))]
        optimizer = make(weights, 0.1, weight_decay=0.01)
        for step in range(6):
            loss = (x @ weights[0]).square().sum()
            loss = loss + weights[1].cos().sum() if step > 2 else loss  # has no gradient before
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found.append(weights)
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs)
