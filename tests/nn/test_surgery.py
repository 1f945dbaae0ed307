"""Surgery: shapes and values by hand, and kept neurons keep their function."""

from __future__ import annotations

import copy

import pytest
import torch

from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.nn.surgery import outgoing_norm, resize_layer, surviving_channels
from evergraph.stream import Adjacency

SHAPES = [(2, 2), (1, 3), (3, 1)]  # layers, heads


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(num_layers: int = 2, heads: int = 2, channels: int = 4) -> NodeClassifier:
    """A network whose every parameter, biases too, is something."""
    config = ModelConfig(channels=channels, heads=heads, num_layers=num_layers)
    model = NodeClassifier(config, 5, 3, seeded())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=seeded(parameter.numel())))
    return model


def logits(model: NodeClassifier) -> torch.Tensor:
    generator = seeded(3)
    edges = torch.randint(0, 12, (2, 30), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    graph = Adjacency.from_edges(torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1), 12)
    with torch.no_grad():
        return model(torch.randn(12, 5, generator=generator), graph).logits


def following(model: NodeClassifier, depth: int) -> torch.Tensor:
    """A layer's outgoing weights [heads, channels, out], written to reach the parameter itself."""
    layer = model.encoder.layers[depth]
    if depth + 1 < len(model.encoder.layers):
        weight = model.encoder.layers[depth + 1].weight
    else:
        weight = model.head.weight.t()
    return weight.unflatten(0, (layer.heads, layer.channels))


def mute(model: NodeClassifier, depth: int, channels: list[int]) -> None:
    """Sets all that leaves some neurons to zero."""
    layer = model.encoder.layers[depth]
    with torch.no_grad():
        layer.att_src[:, :, channels] = 0
        layer.att_dst[:, :, channels] = 0
        following(model, depth)[:, channels] = 0


def test_resize_layer_by_hand():
    model = network(num_layers=1, heads=2, channels=3)
    layer = model.encoder.layers[0]
    with torch.no_grad():
        # Columns are head-major: channels 0, 1, 2 of head 0, then those of head 1.
        layer.weight.copy_(torch.arange(6.0).expand(5, 6))
        layer.bias.copy_(torch.arange(6.0))
        layer.att_src.copy_(torch.tensor([[[1.0, 0, 1], [1, 0, 1]]]))
        layer.att_dst.copy_(torch.tensor([[[10.0, 1, 20], [30, 1, 40]]]))
        model.head.weight.copy_(torch.tensor([5.0, 1, 5, 5, 1, 5]).expand(3, 6))
    resize_layer(model, 0, delete=1, add=1, generator=seeded())  # channel 1 is the weakest
    columns = [0, 1, 3, 4]  # of kept channels; 2 and 5 are new
    assert layer.channels == 3
    assert layer.weight[0, columns].tolist() == [0, 2, 3, 5]
    assert layer.bias.tolist() == [0, 2, 0, 3, 5, 0]
    assert layer.att_dst[0, :, :2].tolist() == [[10, 20], [30, 40]]
    assert model.head.weight[:, columns].tolist() == [[5] * 4] * 3
    for weight, bound in (
        (layer.weight[:, [2, 5]], (6 / (5 + 6)) ** 0.5),
        (layer.att_dst[:, :, 2], (6 / (2 + 3)) ** 0.5),
        (model.head.weight[:, [2, 5]], (6 / (6 + 3)) ** 0.5),
    ):
        assert weight.abs().min() > 0
        assert weight.abs().max() <= bound


def test_outgoing_norm_by_hand():
    model = network(num_layers=1, heads=1, channels=2)
    layer = model.encoder.layers[0]
    with torch.no_grad():
        layer.att_src.copy_(torch.tensor([[[1.0, 0]]]))
        layer.att_dst.copy_(torch.tensor([[[2.0, 0]]]))
        model.head.weight.copy_(torch.tensor([[2.0, 0], [0, 3], [4, 4]]))
    assert outgoing_norm(model, 0).tolist() == [5, 5]  # √(1 + 4 + 4 + 16), √(9 + 16)
    assert surviving_channels(model, 0, 1).tolist() == [1]  # the lowest goes on ties


@pytest.mark.parametrize(("num_layers", "heads"), SHAPES)
def test_added_neurons_that_say_nothing_change_nothing(num_layers, heads):
    for depth in range(num_layers):
        model = network(num_layers, heads)
        before = logits(model)
        resize_layer(model, depth, delete=0, add=3, generator=seeded(1))
        assert not torch.allclose(logits(model), before)  # as they come they speak
        mute(model, depth, [4, 5, 6])
        torch.testing.assert_close(logits(model), before, atol=1e-4, rtol=1e-4)
        assert model.encoder.channels == [7 if d == depth else 4 for d in range(num_layers)]


@pytest.mark.parametrize(("num_layers", "heads"), SHAPES)
def test_deleted_neurons_that_said_nothing_change_nothing(num_layers, heads):
    for depth in range(num_layers):
        model = network(num_layers, heads)
        mute(model, depth, [0, 2])
        before = logits(model)
        assert surviving_channels(model, depth, 2).tolist() == [1, 3]
        resize_layer(model, depth, delete=2, add=0, generator=seeded(1))
        torch.testing.assert_close(logits(model), before, atol=1e-4, rtol=1e-4)
        assert model.encoder.channels == [2 if d == depth else 4 for d in range(num_layers)]
        resize_layer(model, depth, delete=1, add=0, generator=seeded(1))
        assert not torch.allclose(logits(model), before)


@pytest.mark.parametrize("depth", [0, 1])
def test_added_and_deleted_again_is_the_same_network(depth):
    model = network()
    before = copy.deepcopy(model.state_dict())
    resize_layer(model, depth, delete=0, add=2, generator=seeded(1))
    mute(model, depth, [4, 5])
    resize_layer(model, depth, delete=2, add=0, generator=seeded(1))
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model.resized_channels is None


def test_resize_layer_leaves_one_neuron():
    model = network()
    strongest = int(outgoing_norm(model, 0).argmax())
    kept = model.encoder.layers[0].bias.view(2, 4)[:, strongest].clone()
    resize_layer(model, 0, delete=9, add=0, generator=seeded())
    assert model.encoder.channels == [1, 4]
    assert torch.equal(model.encoder.layers[0].bias, kept)
    assert logits(model).isfinite().all()


@pytest.mark.parametrize("head_rows", [3, 5])
def test_resized_network_learns_and_grows_its_head(head_rows):
    model = network()
    for depth in (0, 1):
        resize_layer(model, depth, delete=1, add=3, generator=seeded(depth))
    assert model.resized_channels == [6, 6]
    assert model.encoder.out_dim == 12
    model.head.grow(head_rows, seeded())
    assert model.head.weight.shape == (head_rows, 12)
    assert all(p.is_leaf and p.requires_grad and p.is_contiguous() for p in model.parameters())
    names = {name for name, _ in network().named_parameters()}
    assert {name for name, _ in model.named_parameters()} == names
    x, graph = torch.ones(1, 5), Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 1)
    model(x, graph).logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_resize_layer_draws_from_its_generator_alone():
    results = []
    for noise, seed in ((1, 5), (2, 5), (1, 6)):
        torch.manual_seed(noise)
        model = network()
        resize_layer(model, 0, delete=1, add=2, generator=seeded(seed))
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_network_is_built_with_given_channels():
    model = NodeClassifier(ModelConfig(channels=4, heads=2), 5, 3, seeded(), channels=[3, 6])
    shapes = [tuple(layer.weight.shape) for layer in model.encoder.layers]
    assert shapes == [(5, 6), (6, 12)]
    assert model.head.weight.shape == (3, 12)
    assert model.resized_channels == [3, 6]
