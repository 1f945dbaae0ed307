"""Directions of edges: used where asked for, kept through every change, nothing without."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

from batches import quick
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator import state as state_module
from evergraph.estimator import step as step_module
from evergraph.estimator.content import restore_state, state_content
from evergraph.estimator.graph import Grown
from evergraph.estimator.near import predict_near
from support import Command

CPU = torch.device("cpu")


def led(count: int = 240, seed: int = 0) -> tuple[np.ndarray, list[tuple[int, int]], list[str]]:
    """Every node has an edge to a node of one mark and from one of the other; the class says which.

    Without directions both classes have the same neighbours.
    """
    rng = np.random.default_rng(seed)
    marks, others = np.arange(0, 40), np.arange(40, count)
    x = rng.normal(scale=0.1, size=(count, 4))
    x[marks, marks % 2] += 3
    labels, edges = ["mark"] * 40, []
    for node in others:
        first, second = 2 * rng.integers(20, size=2) + [0, 1]
        forth = bool(rng.integers(2))
        labels.append("to first" if forth else "to second")
        there, back = (first, second) if forth else (second, first)
        edges += [(int(node), int(there)), (int(back), int(node))]
    return x, edges, labels


def learned(direction: Any = "auto", **settings: Any) -> ContinualNodeClassifier:
    x, edges, labels = led()
    given = {"direction": direction, **settings} if direction is not None else settings
    clf = ContinualNodeClassifier("analytic", settings=given, device="cpu", validation_fraction=0)
    shown = [label if at % 2 else None for at, label in enumerate(labels)]
    return clf.learn(list(range(len(x))), x, edges, shown)


def arcs(clf: ContinualNodeClassifier) -> dict[tuple[Any, ...], float]:
    """Returns what every directed edge weighs."""
    graph = clf._now().graph
    assert graph.arcs is not None
    found = {}
    for ends, (there, back) in zip(graph.edges.array, graph.arcs.array.tolist(), strict=True):
        first, second = graph.names.take(ends)
        found |= {(first, second): there} if there else {}
        found |= {(second, first): back} if back else {}
    return found


def test_direction_is_chosen_where_it_tells_the_classes():
    _, _, labels = led()
    unseen = list(range(40, 240, 2))
    truth = [labels[node] for node in unseen]
    blind, seeing = learned(None), learned("auto")
    assert blind.score(unseen, truth) < 0.7
    assert seeing.score(unseen, truth) > 0.95
    assert "|in|out" in seeing.history_[-1]["report"]["hops"]
    assert seeing.explain([41])[0].missing == pytest.approx(0, abs=1e-5)


def test_rows_are_means_of_both_neighbourhoods():
    """a and b lead to c, c to d and d back: side by side c's own, all, in- and out-neighbours."""
    rows = {"hops": "0+1", "direction": True, "scaling": "none", "constant": False}
    rows |= {"teleport": 1, "mean_field": False}
    clf = ContinualNodeClassifier(
        "analytic", settings=rows, feature_scaling="none", validation_fraction=0, device="cpu"
    )
    x = np.array([[1.0, 0], [0, 2.0], [0, 0], [3.0, 3.0]])
    clf.learn(list("abcd"), x, [("a", "c"), ("b", "c"), ("c", "d"), ("d", "c")], list("uvuv"))
    means = clf._now().learner.method.moments.means.double().numpy()  # of u: a and c, of v: b and d
    c = {"own": [0, 0], "all": [1, 5 / 4], "in": [4 / 3, 5 / 3], "out": [3, 3]}
    a = {"own": [1, 0], "all": [0.5, 0], "in": [0, 0], "out": [0, 0]}  # c's features are zero
    unit = [np.concatenate([_unit(part) for part in row.values()]) / 2 for row in (a, c)]
    assert means[0] == pytest.approx(np.mean(unit, axis=0), abs=1e-6)


def _unit(part: list[float]) -> np.ndarray:
    length = np.linalg.norm(part)
    return np.array(part) / (length or 1)


def test_directions_stay_through_every_change(tmp_path: Path):
    clf = learned(hops="0+1")
    x, edges, _ = led()
    before = set(edges)
    assert arcs(clf) == dict.fromkeys(before, 1)
    clf.save(tmp_path / "state")
    clf = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    assert arcs(clf) == dict.fromkeys(before, 1)
    back = (edges[0][1], edges[0][0])
    clf.learn([900, 901], x[:2], [(900, 41), back, (41, 900), (900, 41), (900, 900)])
    clf.remove(edges=[(edges[3][1], edges[3][0])])
    clf.remove(ids=[50])
    expected = {pair for pair in {*before, back, (900, 41), (41, 900)} if 50 not in pair}
    expected -= {edges[3]}
    assert arcs(clf) == dict.fromkeys(expected, 1)
    clf.save(tmp_path / "state")
    again = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    assert arcs(again) == dict.fromkeys(expected, 1)
    assert torch.equal(again._now().logits(CPU), clf._now().logits(CPU))


@pytest.mark.parametrize("teleport", [1, 0.4])
def test_new_nodes_are_predicted_with_their_directions(teleport: float):
    """Also where an edge between known nodes now leads both ways."""
    clf = learned(True, teleport=teleport, mean_field=False, statistics="follow")
    x, edges, _ = led()
    there = [(900, 40), (900, 2), (3, 900), (edges[0][1], edges[0][0]), (41, 60)]
    back = [(b, a) for a, b in there]
    before = arcs(clf)
    for given in (there, back):
        proba = clf.predict_proba([900], x[:1], given)
        space = clf.transform([900], x[:1], given)
        assert arcs(clf) == before
        told = ContinualNodeClassifier("analytic", settings=clf.settings, device="cpu")
        told._state = clf._state
        told.learn([900], x[:1], given)
        assert proba == pytest.approx(told.predict_proba([900]), abs=1e-5)
        assert space == pytest.approx(told.transform([900]), abs=1e-5)
    assert not np.allclose(proba, clf.predict_proba([900], x[:1], there), atol=1e-3)
    assert clf.novelty([900], x[:1], there).shape == (1,)


def test_what_is_around_is_learned_from_as_from_all(monkeypatch: pytest.MonkeyPatch):
    given = {"teleport": 1, "mean_field": False, "statistics": "follow", "hops": "0+1+2"}
    whole = learned(True, **given)
    monkeypatch.setattr(step_module, "LARGE", 100)
    part = learned(True, **given)
    assert part.history_[-1]["report"]["local"]
    assert np.allclose(part._now().logits(CPU), whole._now().logits(CPU), atol=1e-4)


def test_a_node_is_predicted_from_its_surroundings_as_from_all(monkeypatch: pytest.MonkeyPatch):
    clf = learned(True, teleport=1, mean_field=False)
    whole = clf._now().logits(CPU)
    monkeypatch.setattr(state_module, "SMALL", 10)
    state = clf._now()
    near = predict_near(state, torch.tensor([41, 3]), state.learner.method.reach(0), CPU)
    assert near == pytest.approx(whole[[41, 3]], abs=1e-5)


def directed_graph() -> networkx.DiGraph:
    x, edges, labels = led()
    graph = networkx.DiGraph()
    for node, (row, label) in enumerate(zip(x, labels, strict=True)):
        graph.add_node(node, x=row.tolist(), label=label)
    graph.add_edges_from(edges)
    return graph


def test_a_directed_graph_loses_nothing():
    """Without any setting; what comes later leads the same way, or both."""
    graph, edges = directed_graph(), set(led()[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = ContinualNodeClassifier("analytic", device="cpu").learn(graph)
        assert arcs(clf) == dict.fromkeys(edges, 1)
        assert "|in|out" in clf.history_[-1]["report"]["hops"]
        undirected = graph.to_undirected().subgraph([0, 40, *graph.successors(40)])
        clf.learn(undirected)
        both = {pair for a, b in undirected.edges() for pair in ((a, b), (b, a))}
        assert arcs(clf) == dict.fromkeys(edges | both, 1)
        blind = ContinualNodeClassifier("analytic", settings={"direction": False}, device="cpu")
        assert blind.learn(graph)._now().graph.arcs is None


@pytest.mark.parametrize("method", ["replay", "dslr"])
def test_attention_looks_both_ways(method: str, tmp_path: Path):
    """Also around a node, in a state that was saved, beside a new node, and when it explains."""
    graph, (x, edges, labels) = directed_graph(), led()
    few = {"epochs": 60, "channels": 16, "dropout": 0.0}
    networkx.set_node_attributes(graph, dict.fromkeys(range(40, 240, 4)), "label")
    unseen = list(range(40, 240, 4))
    truth = [labels[node] for node in unseen]
    blind, clf = (
        ContinualNodeClassifier(method, settings={**few, **more}, device="cpu", seed=1)
        for more in ({"direction": False}, {})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert blind.learn(graph).score(unseen, truth) < 0.7
        assert clf.learn(graph).score(unseen, truth) > 0.9
    assert arcs(clf) == dict.fromkeys(edges, 1)
    clf.save(tmp_path / "state")
    again = ContinualNodeClassifier.load(tmp_path / "state", device="cpu")
    near = predict_near(again._now(), torch.tensor([41, 3]), 2, CPU).detach()
    assert near == pytest.approx(clf._now().logits(CPU)[[41, 3]], abs=1e-4)
    forth, back = (
        clf.predict([900], x[:1] * 0, pairs)
        for pairs in ([(900, 0), (1, 900)], [(0, 900), (900, 1)])
    )
    assert (forth[0], back[0]) == ("to first", "to second")
    assert abs(clf.explain([41])[0].missing) < 0.02


def test_pairs_lead_from_first_to_second_where_a_network_is_asked_for_directions():
    x, edges, labels = led()
    clf = quick("replay", settings={"direction": True}).learn(range(240), x, edges, labels)
    assert arcs(clf) == dict.fromkeys(edges, 1)
    with pytest.raises(InputError, match="Expected 'direction' as auto, true or false"):
        quick("replay", settings={"direction": "in"}).learn([1], [[1.0]])


def test_data_of_pyg_loses_nothing():
    geometric = pytest.importorskip("torch_geometric.data")
    x, edges, labels = led()
    index = torch.tensor(edges).T
    y = torch.tensor([sorted(set(labels)).index(label) for label in labels])
    data = geometric.Data(x=torch.tensor(x), edge_index=index, y=y)
    clf = ContinualNodeClassifier("analytic", device="cpu").learn(data)
    assert arcs(clf) == dict.fromkeys(edges, 1)
    data.edge_attr = torch.arange(1.0, 1 + len(edges))[:, None]
    clf = ContinualNodeClassifier("analytic", device="cpu").learn(data)
    assert arcs(clf) == dict(zip(edges, range(1, 1 + len(edges)), strict=True))


def test_directions_that_nobody_uses_are_named(monkeypatch: pytest.MonkeyPatch):
    graph, (x, edges, _) = directed_graph(), led()
    with pytest.warns(UserWarning, match="directions of edges are not used by replay"):
        quick("replay", settings={"heads": 1}).learn(graph)
    for settings in ({"backbone": "gcn"}, {"backbone": "gcn", "direction": True}):
        with pytest.warns(UserWarning, match="directions of edges are not used by replay"):
            quick("replay", settings=settings).learn(graph)
    monkeypatch.setattr(step_module, "USUAL", "finetune")  # so that auto has a network to choose
    few = {"epochs": 2, "channels": 4, "backbone": "sage"}
    with pytest.warns(UserWarning, match="directions of edges are not used by finetune"):
        ContinualNodeClassifier(settings=few, device="cpu").learn(graph)
    clf = ContinualNodeClassifier("analytic", device="cpu").learn(range(240), x, edges[:9])
    with pytest.warns(UserWarning, match="not used where earlier ones came without"):
        clf.learn(graph)


def test_pairs_have_no_direction_unless_asked_for():
    """The default and no directions give the same bits, and store the same."""
    x, edges, labels = led()
    plain, without = (
        ContinualNodeClassifier("analytic", settings=settings, device="cpu").learn(
            range(240), x, edges, labels
        )
        for settings in (None, {"direction": False})
    )
    assert torch.equal(plain._now().logits(CPU), without._now().logits(CPU))
    assert "arcs" not in state_content(plain._now())
    assert plain.history_[-1]["report"] == without.history_[-1]["report"]


def test_direction_needs_hops_side_by_side():
    with pytest.raises(InputError, match="'combine' concatenate"):
        quick("analytic", settings={"direction": True, "combine": "sum"}).learn([1], [[1.0]])
    clf = ContinualNodeClassifier("analytic", settings={"direction": "auto", "combine": "sum"})
    with pytest.warns(UserWarning, match="'direction' has no effect"):
        clf.learn([1], [[1.0]])


def test_files_have_directions_where_asked_for(tmp_path: Path, command: Command):
    x, edges, labels = led()
    columns = {"id": [f"n{at}" for at in range(len(x))], **{f"f{at}": x[:, at] for at in range(4)}}
    nodes, ends, state = (tmp_path / name for name in ("nodes.csv", "edges.csv", "state"))
    pd.DataFrame({**columns, "label": labels}).to_csv(nodes, index=False)
    named = [(f"n{a}", f"n{b}") for a, b in edges]
    pd.DataFrame(named, columns=["source", "target"]).to_csv(ends, index=False)
    words = ("--nodes", nodes, "--edges", ends, "--method", "analytic")
    told = command("learn", state, *words, "--set", "direction=auto")
    assert told.code == 0, told.err
    clf = ContinualNodeClassifier.load(state)
    assert arcs(clf) == dict.fromkeys(named, 1)
    assert "|in|out" in clf.history_[-1]["report"]["hops"]


def test_runs_have_no_directions(tmp_path: Path, command: Command):
    words = ("--dataset", "synthetic:nodes=80,classes=4,mean_degree=4")
    told = command("run", *words, "--method", "analytic:direction=true", "--output", tmp_path / "r")
    assert told.code == 2
    assert "edges have directions" in told.err


def test_forged_directions_are_refused():
    content = state_content(learned(True)._now())
    restore_state(content)
    there = content["arcs"].array
    wrong: list[Any] = [there[:-1], there.T.copy(), there.astype(float), -there, 0 * there]
    wrong += [there * np.inf, there[None]]
    for arcs in wrong:
        with pytest.raises(ValueError, match=r"weights|kind"):
            restore_state({**content, "arcs": Grown.of(arcs)})
    for change in ({"arcs": None}, {"directed": 1}):
        with pytest.raises(ValueError, match="directions"):
            restore_state({**content, **change})
