import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.stream.datasets import SyntheticConfig, generate
from evergraph.validation import parse


def share_inside(graph):
    return (graph.y[graph.edges[0]] == graph.y[graph.edges[1]]).double().mean().item()


def test_generate_defaults():
    graph = generate(SyntheticConfig())
    assert (graph.num_nodes, graph.num_features, len(graph.class_names)) == (1000, 64, 6)
    assert graph.num_edges == 4000
    assert share_inside(graph) == pytest.approx(0.8)
    sizes = torch.bincount(graph.y)
    assert sizes.max() - sizes.min() <= 1


def test_generate_same_seed_same_graph_other_seed_other_graph():
    config = SyntheticConfig(seed=3)
    assert generate(config).fingerprint == generate(config).fingerprint
    assert generate(config).fingerprint != generate(SyntheticConfig(seed=4)).fingerprint


def test_generate_leaves_the_global_generators_alone():
    before = torch.random.get_rng_state()
    generate(SyntheticConfig())
    assert torch.equal(before, torch.random.get_rng_state())


def test_generate_changes_edges_without_changing_labels_and_features():
    one, two = generate(SyntheticConfig()), generate(SyntheticConfig(mean_degree=4))
    assert torch.equal(one.y, two.y)
    assert torch.equal(one.x, two.x)


@settings(max_examples=30, deadline=None)
@given(
    nodes=st.integers(60, 400),
    classes=st.integers(2, 7),
    mean_degree=st.floats(0, 4),
    homophily=st.floats(0, 1),
    degree_exponent=st.floats(2.01, 20),
    seed=st.integers(0, 9),
)
def test_generate_meets_degree_and_homophily_exactly(**fields):
    config = SyntheticConfig(feature_dim=2, **fields)
    graph = generate(config)
    assert graph.num_edges == config.num_edges
    inside = round(config.homophily * config.num_edges)
    assert int((graph.y[graph.edges[0]] == graph.y[graph.edges[1]]).sum()) == inside


def test_generate_dense_graph_fills_up_when_hubs_are_full():
    config = SyntheticConfig(
        nodes=60, classes=2, mean_degree=28, homophily=0.5, degree_exponent=2.05
    )
    assert generate(config).num_edges == 840


def test_generate_degrees_have_the_tail_that_was_asked_for():
    def largest(exponent):
        graph = generate(SyntheticConfig(nodes=20_000, feature_dim=1, degree_exponent=exponent))
        return torch.bincount(graph.edges.flatten()).max().item()

    assert largest(2.2) > 5 * largest(50)


def test_generate_features_stand_around_means_at_the_distance_asked_for():
    graph = generate(SyntheticConfig(nodes=40_000, classes=20, feature_signal=4.0, mean_degree=1))
    means = torch.stack([graph.x[graph.y == label].mean(dim=0) for label in range(20)])
    noise = graph.x - means[graph.y]
    assert noise.std().item() == pytest.approx(1, abs=0.01)
    assert torch.pdist(means).mean().item() == pytest.approx(4, rel=0.1)


def test_generate_a_million_edges():
    graph = generate(SyntheticConfig(nodes=100_000, mean_degree=20, feature_dim=4))
    assert graph.num_edges == 1_000_000
    assert share_inside(graph) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"homophily": 1.5}, ["'homophily'", "[0, 1]", "1.5"]),
        ({"nodes": 1}, ["'nodes'", "1"]),
        ({"classes": 1}, ["'classes'"]),
        ({"nodes": 4, "classes": 5}, ["'classes'", "'nodes'"]),
        ({"mean_degree": float("nan")}, ["'mean_degree'"]),
        ({"mean_degree": 600.0}, ["'mean_degree'", "lower"]),
        ({"nodes": 100_000_000, "feature_dim": 1}, ["'mean_degree'", "4"]),
        ({"nodes": 10_000_000, "mean_degree": 1, "feature_dim": 1000}, ["'feature_dim'", "100"]),
        ({"degree_exponent": 2.0}, ["'degree_exponent'"]),
        ({"node": 10}, ["'node'", "nodes"]),
    ],
)
def test_synthetic_config_refuses_in_one_sentence(values, words):
    with pytest.raises(InputError) as caught:
        parse(SyntheticConfig, values)
    for word in words:
        assert word in str(caught.value)


def test_generate_spreads_classes_over_time_steps():
    config = SyntheticConfig(nodes=240, classes=6, steps=3)
    graph, static = generate(config), generate(config.model_copy(update={"steps": 1}))
    assert torch.equal(graph.edges, static.edges)
    assert static.time is None
    first = [int(graph.time[graph.y == label].min()) for label in range(6)]
    assert first == [0, 0, 1, 1, 2, 2]
    for label, born in enumerate(first):  # and in every step from then on
        assert set(graph.time[graph.y == label].tolist()) == set(range(born, 3))
    late = graph.edge_time > graph.time[graph.edges].max(dim=0).values
    assert 0 < float(late.double().mean()) < 0.2  # of those drawn, some are late by nothing
    assert torch.equal(generate(config).edge_time, graph.edge_time)
