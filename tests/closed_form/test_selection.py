"""Model selection: nodes and groups left out by solving again, rules by hand, losses adding up."""

from __future__ import annotations

import math

import pytest
import torch

from evergraph.closed_form import selection as module
from evergraph.closed_form.cross_validation import TEMPERATURES, ValidationLoss
from evergraph.closed_form.features import EmbeddingRows, FeatureConfig, PropagatedFeatures
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.propagation import mean_field, propagate, unary_term
from evergraph.closed_form.ridge import Ridge, RidgeSystem
from evergraph.closed_form.selection import HOPS, Selection, surely_best, teleport_losses
from evergraph.stream import LabelledNodes
from support import adjacency, seeded

EDGES = [(node, (node * 5 + 3) % 24) for node in range(24)] + [
    (node, node // 2) for node in range(24)
]
GRAPH = adjacency(24, EDGES)
ROWS = EmbeddingRows(torch.randn(24, 6, generator=seeded(), dtype=torch.float64))
FEATURES = EmbeddingRows(torch.randn(24, 4, generator=seeded(1), dtype=torch.float64))
X = ROWS.unit
OLD = LabelledNodes(torch.arange(0, 8), torch.tensor([0, 1] * 4))
NEW = LabelledNodes(torch.arange(11, 24), torch.tensor([3, 2, 2, 3, 3, 2, 3, 2, 3, 3, 2, 2, 3]))
TELEPORT = 0.5


def given(mean_field="auto", teleport=TELEPORT) -> Selection:
    return Selection("0", 0.02, teleport, mean_field)


def moments() -> Moments:
    made = Moments()
    made.update(X[OLD.nodes], OLD.labels)
    made.update(X[NEW.nodes], NEW.labels)
    return made


def selected(selection: Selection, num_seen=10, old_classes=(0, 1), train=NEW) -> Selection:
    system = RidgeSystem(moments())
    rows = system.training_rows(X[train.nodes], train.labels)
    validation = ValidationLoss(system, train, num_seen, old_classes)
    selection.select_inference(
        Ridge(system, 0.02), rows, validation, rows=ROWS, features=FEATURES, graph=GRAPH
    )
    return selection


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


def test_mean_field_is_judged_by_solving_without_each_group(monkeypatch):
    monkeypatch.setattr(module, "GROUPS", 3)
    selection = selected(given())
    validation = ValidationLoss(RidgeSystem(moments()), NEW, 10, [0, 1])
    group = torch.arange(13) % 3
    nobody = torch.zeros(13, dtype=torch.bool)
    plain = [propagate(without(group == one), GRAPH, TELEPORT) for one in range(3)]
    plain.append(propagate(without(nobody), GRAPH, TELEPORT))

    def own_group(everyone: list[torch.Tensor]) -> torch.Tensor:
        rows = [everyone[place % 3][node] for place, node in enumerate(NEW.nodes.tolist())]
        return torch.stack(rows)

    scale = best(validation.by_temperature(own_group(plain)))
    q = [(part / scale).softmax(dim=1) for part in plain]
    unary = [unary_term(part, FEATURES) for part in q]
    mine = best(validation.by_temperature(own_group(unary)))
    inferred = [mean_field(a / mine, b, GRAPH) for a, b in zip(unary, q, strict=True)]
    expected = {
        0.0: 13 * validation.of(own_group(plain), plain[-1]),
        1.0: 13 * validation.of(own_group(inferred), inferred[-1]),
    }
    losses = selection.losses
    assert losses["mean_field"] == pytest.approx(expected, rel=1e-5)
    assert (losses["score_temperature"].best, losses["unary_temperature"].best) == (scale, mine)
    assert selection.mean_field == (expected[1.0] < expected[0.0])
    scores = without(nobody)
    for mode, shown in ((False, plain[-1]), (True, inferred[-1])):
        found = selected(given(mode)).infer(scores, FEATURES, GRAPH)
        torch.testing.assert_close(found, shown, rtol=0, atol=1e-5)


def test_losses_add_up_and_those_at_temperatures_fade_when_classes_come():
    once, twice = selected(given()).losses, selected(selected(given())).losses
    assert twice["mean_field"][0.0] == pytest.approx(2 * once["mean_field"][0.0])
    for part in ("score_temperature", "unary_temperature"):
        faded = {value: 1.5 * loss for value, loss in once[part].items()}
        assert twice[part] == pytest.approx(faded)
    # No class is new: what was added before counts in full.
    again = selected(selected(given()), 24, [0, 1, 2, 3]).losses["score_temperature"]
    assert again == pytest.approx({v: 2 * loss for v, loss in once["score_temperature"].items()})


def test_mean_field_is_judged_on_some_nodes_when_there_are_many(monkeypatch):
    monkeypatch.setattr(module, "JUDGED_NODES", 5)
    few = selected(given(True))
    monkeypatch.setattr(module, "JUDGED_NODES", 13)
    same = selected(given(True), train=NEW.take(torch.tensor([0, 3, 6, 9, 12])))
    assert few.losses == same.losses


def test_nothing_is_judged_that_is_given():
    selection = selected(given(False))
    assert selection.memory_bytes() == 0
    assert (selection.teleport, selection.mean_field) == (TELEPORT, False)


def test_selection_is_restored_with_its_choices():
    selection, other = selected(given(teleport="auto")), given(teleport="auto")
    selection.losses["strength"].add({0.02: 1.0}, 13)
    other.load_state_dict(selection.state_dict())
    assert other.report() == selection.report()
    scores = without(torch.tensor([0]))
    assert torch.equal(
        other.infer(scores, FEATURES, GRAPH), selection.infer(scores, FEATURES, GRAPH)
    )


@pytest.mark.parametrize(
    ("part", "losses"),
    [
        ("mean_field", {"0.0": 1.0}),
        ("mean_field", {}),
        ("score_temperature", {"0.0": 1.0}),
        ("unary_temperature", {}),
    ],
)
def test_selection_refuses_losses_that_do_not_fit(part, losses):
    state = selected(given()).state_dict()
    state["losses"][part] = losses
    with pytest.raises(ValueError, match=r"unknown values|without a temperature"):
        given().load_state_dict(state)


LOOPS = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 0), (7, 8), (8, 9), (9, 4), (2, 7)]


def least(loss) -> float:
    return min(loss(temperature) for temperature in TEMPERATURES)


@pytest.mark.parametrize("columns", [3, 30], ids=["tall", "wide"])
def test_teleport_losses_are_those_of_solving_without_each_node(columns):
    graph = adjacency(10, LOOPS)
    rows = EmbeddingRows(torch.randn(10, columns, generator=seeded(), dtype=torch.float64))
    x = rows.unit
    old, new = torch.tensor([0, 1, 2]), torch.tensor([4, 5, 7, 8, 9])
    old_labels, new_labels = torch.tensor([0, 1, 1]), torch.tensor([4, 2, 2, 4, 4])
    moments = Moments()
    moments.update(x[old], old_labels)
    moments.update(x[new], new_labels)
    system = RidgeSystem(moments)
    validation = ValidationLoss(system, LabelledNodes(new, new_labels), 4, [0, 1])
    train = system.training_rows(x[new], new_labels)
    found = teleport_losses(Ridge(system, 0.02), train, validation, rows, graph)

    nodes = torch.cat([old, new])
    column = torch.tensor([0, 1, 1, 3, 2, 2, 3, 3])  # of classes 0, 1, 2 and 4
    weight = (4 * torch.tensor([1.0, 2.0, 2.0, 3.0]))[column].double().reciprocal()[:, None]
    targets = torch.nn.functional.one_hot(column).double()

    def solved(rest: torch.Tensor) -> torch.Tensor:
        rows = x[nodes[rest]]
        left = rows.t() @ (weight[rest] * rows) + 0.02 * torch.eye(columns)
        return x @ torch.linalg.solve(left, rows.t() @ (weight[rest] * targets[rest]))

    everyone = torch.ones(8, dtype=torch.bool)
    for teleport in (1.0, 0.5, 0.2):
        left_out = []
        for place in range(3, 8):
            rest = everyone.clone()
            rest[place] = False
            left_out.append(propagate(solved(rest), graph, teleport)[nodes[place]].tolist())
        seen = propagate(solved(everyone), graph, teleport)[:4].tolist()  # seen before

        def loss(t: float, left_out=left_out, seen=seen) -> float:
            current = 0.0
            for row, c in zip(left_out, [3, 2, 2, 3, 3], strict=True):
                cost = math.log(sum(math.exp((s - row[c]) / t) for s in row))
                current += cost / (2 * {2: 2, 3: 3}[c])  # classes alike
            taken = 0.0
            for row in seen:
                top = max(row)
                odds = [math.exp((s - top) / t) for s in row]
                taken += -math.log(max(sum(odds[:2]), 1e-300) / sum(odds)) / len(seen)
            return (2 * current + 2 * taken) / 4

        assert found[teleport] == pytest.approx(least(loss), rel=1e-5)


def loss_of(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_surely_best_needs_more_than_two_standard_errors():
    labels = torch.tensor([0, 0, 1, 1])
    usual = loss_of(1.0, 1.0, 1.0, 1.0)
    # Saved 0.5, 0.5, 0.5, 0.1: mean 0.4, standard deviation 0.2, standard error 0.1.
    sure = surely_best({"0+1+2": usual, "2+3": loss_of(0.5, 0.5, 0.5, 0.9)}, labels)
    assert sure[0] == "2+3"
    assert sure[1] == pytest.approx({"0+1+2": 1.0, "2+3": 0.6})
    # Saved 0.5, 0.5, 0, 0: mean 0.25, standard error 0.289 / 2 = 0.144.
    unsure = surely_best({"2+3": loss_of(0.5, 0.5, 1.0, 1.0), "0+1+2": usual}, labels)
    assert unsure[0] == "0+1+2"


def test_surely_best_lets_classes_weigh_the_same():
    labels = torch.tensor([0] * 8 + [1] * 2)
    usual = loss_of(*[1.0] * 10)
    # Eight save 0.1 and two lose 0.3: as nodes that is a gain of 0.02, as classes a loss of 0.1.
    other = loss_of(*[0.9] * 8, 1.3, 1.3)
    choice = surely_best({"0": other, "0+1+2": usual}, labels)
    assert choice[0] == "0+1+2"
    assert choice[1]["0"] == pytest.approx(1.1)


def chosen_hops(x: torch.Tensor, graph, labels: torch.Tensor) -> str:
    selection = Selection("auto", "auto", 1.0, False)
    features = PropagatedFeatures(x, graph, FeatureConfig(), seed=0)
    selection.select_hops(features, LabelledNodes(torch.arange(labels.numel()), labels))
    assert set(selection.hop_losses) == set(HOPS)
    return selection.hops


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 0, 0]], ids=str)
def test_hops_are_the_usual_ones_when_nothing_can_be_told(labels):
    x = torch.randn(len(labels), 3, generator=seeded())
    assert chosen_hops(x, adjacency(len(labels), []), torch.tensor(labels)) == "0+1+2"


@pytest.mark.parametrize(("inside", "chosen"), [(True, "2+3"), (False, "0")])
def test_hops_tell_a_graph_that_helps_from_one_that_misleads(inside, chosen):
    n = 400
    labels = torch.arange(n) % 2
    generator = seeded(1)
    pairs = torch.randint(n // 2, (2, 2 * n), generator=generator) * 2
    pairs[:, ::2] += 1  # half of the edges among odd nodes, half among even ones
    if not inside:
        pairs[1] = torch.randint(n, (2 * n,), generator=generator)
    graph = adjacency(n, [(int(a), int(b)) for a, b in pairs.t() if a != b])
    signal = 0.4 if inside else 3.0
    x = torch.randn(n, 8, generator=generator)
    x[:, 0] += signal * (2 * labels - 1)
    assert chosen_hops(x, graph, labels) == chosen
