"""The reader: groups left out by solving again, costs and temperatures as they add up."""

from __future__ import annotations

import pytest
import torch

from evergraph.closed_form import (
    HeldRows,
    Known,
    Moments,
    OwnFeatures,
    Questions,
    Reader,
    RidgeSystem,
    Surroundings,
    exchange,
    neighbours,
    read,
    smoothing,
)
from evergraph.closed_form import reader as module
from evergraph.stream import LabelledNodes
from support import adjacency, seeded

EDGES = [(node, (node * 5 + 3) % 24) for node in range(24)] + [
    (node, node // 2) for node in range(24)
]
GRAPH = adjacency(24, EDGES)
X = torch.randn(24, 6, generator=seeded(), dtype=torch.float64)
FEATURES = torch.randn(24, 4, generator=seeded(1), dtype=torch.float64)
OLD = LabelledNodes(torch.arange(0, 8), torch.tensor([0, 1] * 4))
NEW = LabelledNodes(torch.arange(11, 24), torch.tensor([3, 2, 2, 3, 3, 2, 3, 2, 3, 3, 2, 2, 3]))
KNOWN = Known(10, [0, 1])
SHARE = 0.5


def place() -> Surroundings:
    return Surroundings(HeldRows(X), HeldRows(FEATURES), GRAPH)


def moments() -> Moments:
    made = Moments()
    made.update(X[OLD.nodes], OLD.labels)
    made.update(X[NEW.nodes], NEW.labels)
    return made


def judged(reader: Reader, known: Known = KNOWN) -> Reader:
    factor = RidgeSystem(moments()).decompose(0.02)
    reader.judge(factor, place(), NEW, known, X[NEW.nodes])
    return reader


def without(group: torch.Tensor) -> torch.Tensor:
    """Scores of all nodes from ridge regression on all training nodes but a group of new ones."""
    nodes = torch.cat([OLD.nodes, NEW.nodes])
    labels = torch.cat([OLD.labels, NEW.labels])
    weight = (4 * torch.bincount(labels))[labels].double().reciprocal()
    weight[8:][group] = 0
    rows, targets = X[nodes], torch.nn.functional.one_hot(labels).double()
    left = rows.t() @ (weight[:, None] * rows) + 0.02 * torch.eye(6)
    return X @ torch.linalg.solve(left, rows.t() @ (weight[:, None] * targets))


def best(costs: dict[float, float]) -> float:
    return min(costs, key=lambda value: costs[value])


def test_judge_is_solving_without_each_group(monkeypatch):
    monkeypatch.setattr(module, "GROUPS", 3)
    reader = judged(Reader(SHARE, "auto"))
    average, around = smoothing(GRAPH, "mean", True), neighbours(GRAPH)
    asked = Questions(RidgeSystem(moments()), NEW, KNOWN)
    group = torch.arange(13) % 3
    nobody = torch.zeros(13, dtype=torch.bool)
    plain = [read(without(group == one), average, SHARE) for one in range(3)]
    plain.append(read(without(nobody), average, SHARE))

    def own_group(everyone: list[torch.Tensor]) -> torch.Tensor:
        rows = [everyone[place % 3][node] for place, node in enumerate(NEW.nodes.tolist())]
        return torch.stack(rows)

    scale = best(asked.by_temperature(own_group(plain)))
    beliefs = [(part / scale).softmax(dim=1) for part in plain]
    features = OwnFeatures(HeldRows(FEATURES), 24, X.device)
    told = [features.tell(part) for part in beliefs]
    mine = best(asked.by_temperature(own_group(told)))
    heard = [exchange(a / mine, b, around) for a, b in zip(told, beliefs, strict=True)]
    expected = {
        0.0: 13 * asked.cost(own_group(plain), plain[-1]),
        1.0: 13 * asked.cost(own_group(heard), heard[-1]),
    }
    assert reader.beliefs.costs == pytest.approx(expected, rel=1e-5)
    assert (reader.scores_at.best, reader.features_at.best) == (scale, mine)
    assert reader.exchanges == (expected[1.0] < expected[0.0])
    scores = without(nobody)
    for mode, shown in (("off", plain[-1]), ("on", heard[-1])):
        found = judged(Reader(SHARE, mode)).read(scores, place())
        torch.testing.assert_close(found, shown, rtol=0, atol=1e-5)


def test_costs_add_up_and_temperatures_fade_when_classes_come():
    once, twice = judged(Reader(SHARE, "auto")), judged(judged(Reader(SHARE, "auto")))
    assert twice.beliefs.costs[0.0] == pytest.approx(2 * once.beliefs.costs[0.0])
    for part in ("scores_at", "features_at"):
        before, after = getattr(once, part).costs, getattr(twice, part).costs
        assert after == pytest.approx({value: 1.5 * cost for value, cost in before.items()})
    # No class is new: what was added before counts in full.
    again = judged(judged(Reader(SHARE, "auto")), Known(24, [0, 1, 2, 3]))
    costs = {value: 2 * cost for value, cost in once.scores_at.costs.items()}
    assert again.scores_at.costs == pytest.approx(costs)


def test_some_nodes_are_judged_when_there_are_many(monkeypatch):
    monkeypatch.setattr(module, "MOST_JUDGED", 5)
    reader = judged(Reader(SHARE, "on"))
    some = NEW.take(torch.tensor([0, 3, 6, 9, 12]))
    monkeypatch.setattr(module, "MOST_JUDGED", 13)
    factor, other = RidgeSystem(moments()).decompose(0.02), Reader(SHARE, "on")
    other.judge(factor, place(), some, KNOWN, X[some.nodes])
    assert reader.beliefs.costs == other.beliefs.costs


def test_nothing_is_judged_that_is_given():
    reader = judged(Reader(SHARE, "off"))
    assert reader.memory_bytes() == 0
    assert reader.report() == {"share": SHARE, "beliefs": "off"}


def test_reader_is_restored_with_its_choice():
    reader, other = judged(Reader("auto", "auto")), Reader("auto", "auto")
    other.load_state_dict(reader.state_dict())
    assert other.report() == reader.report()
    assert torch.equal(
        other.read(without(torch.tensor([0])), place()),
        reader.read(without(torch.tensor([0])), place()),
    )


@pytest.mark.parametrize(
    ("part", "costs"),
    [("beliefs", {"0.0": 1.0}), ("beliefs", {}), ("scores_at", {"0.0": 1.0}), ("features_at", {})],
)
def test_reader_refuses_costs_that_do_not_fit(part, costs):
    state = judged(Reader(SHARE, "auto")).state_dict()
    with pytest.raises(ValueError, match=r"unknown ways|without a temperature"):
        Reader(SHARE, "auto").load_state_dict({**state, part: costs})
