"""Model selection: nodes and groups left out by solving again, rules by hand, losses adding up."""

from __future__ import annotations

import pytest
import torch

from evergraph.closed_form import cross_validation
from evergraph.closed_form.cross_validation import LeftOut
from evergraph.closed_form.features import EmbeddingRows, FeatureConfig, PropagatedFeatures
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.propagation import mean_field, propagate, unary_terms
from evergraph.closed_form.ridge import Judges, Ridge, row_weights
from evergraph.closed_form.selection import TELEPORTS, Selection
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


KINDS = [
    FeatureConfig(hops="0+1+2"),
    FeatureConfig(hops="0"),
    FeatureConfig(hops="2+3"),
    FeatureConfig(hops="0+1", combine="concatenate", normalisation="mean"),
]


def given(mean_field="auto", teleport=TELEPORT) -> Selection:
    return Selection(KINDS[1:2], 0.02, teleport, mean_field, class_weight="natural")


def moments() -> Moments:
    made = Moments()
    made.update(X[OLD.nodes], OLD.labels)
    made.update(X[NEW.nodes], NEW.labels)
    return made


def selected(selection: Selection, num_seen=10, old_classes=(0, 1), train=NEW) -> Selection:
    ridge = selection.solve(moments(), Judges(train.labels, X[train.nodes]))
    selection.select_inference(left_out(ridge, num_seen, old_classes, train), FEATURES, GRAPH)
    return selection


def left_out(ridge: Ridge | None = None, num_seen=10, old_classes=(0, 1), train=NEW) -> LeftOut:
    ridge, seen = ridge or Ridge(moments(), False), {"num_seen": num_seen}
    return LeftOut(ridge, ROWS, X[train.nodes], train, 0.02, **seen, old_classes=old_classes)


def without(group: torch.Tensor) -> torch.Tensor:
    """Scores of all nodes from ridge regression on all training nodes but a group of new ones."""
    nodes = torch.cat([OLD.nodes, NEW.nodes])
    labels = torch.cat([OLD.labels, NEW.labels])
    weight = torch.full((21, 1), 1 / 21, dtype=torch.float64)
    weight[8:][group] = 0
    rows, targets = X[nodes], torch.nn.functional.one_hot(labels).double()
    left = rows.t() @ (weight * rows) + 0.02 * torch.eye(6)
    return X @ torch.linalg.solve(left, rows.t() @ (weight * targets))


def in_groups() -> tuple[list[torch.Tensor], torch.Tensor]:
    """Scores without each of three groups, then with all; and the groups."""
    group = torch.arange(13) % 3
    nobody = torch.zeros(13, dtype=torch.bool)
    return [*(without(group == one) for one in range(3)), without(nobody)], group


def own_group(everyone: list[torch.Tensor]) -> torch.Tensor:
    rows = [everyone[place % 3][node] for place, node in enumerate(NEW.nodes.tolist())]
    return torch.stack(rows)


def best(costs: dict[float, float]) -> float:
    return min(costs, key=lambda value: costs[value])


def test_mean_field_is_judged_by_solving_without_each_group(monkeypatch):
    monkeypatch.setattr(cross_validation, "GROUPS", 3)
    selection = selected(given())
    validation = left_out()
    scores, _ = in_groups()
    plain = [propagate(one, GRAPH, TELEPORT) for one in scores]
    scale = best(validation.by_temperature(own_group(plain)))
    q = [(part / scale).softmax(dim=1) for part in plain]
    unary = [unary_terms([part], FEATURES)[0] for part in q]
    mine = best(validation.by_temperature(own_group(unary)))
    inferred = [mean_field(a / mine, b, GRAPH) for a, b in zip(unary, q, strict=True)]
    old = validation.old_nodes
    expected = {
        0.0: 13 * validation.loss(own_group(plain), plain[-1][old]),
        1.0: 13 * validation.loss(own_group(inferred), inferred[-1][old]),
    }
    losses = selection.losses
    assert losses["mean_field"] == pytest.approx(expected, rel=1e-5)
    assert (losses["score_temperature"].best, losses["unary_temperature"].best) == (scale, mine)
    assert selection.mean_field == (expected[1.0] < expected[0.0])
    for mode, shown in ((False, plain[-1]), (True, inferred[-1])):
        found = selected(given(mode)).infer(scores[-1], FEATURES, GRAPH)
        torch.testing.assert_close(found, shown, rtol=0, atol=1e-5)


def test_teleport_is_judged_by_solving_without_each_group(monkeypatch):
    monkeypatch.setattr(cross_validation, "GROUPS", 3)
    losses = selected(given(teleport="auto")).losses["teleport"]
    validation = left_out()
    for teleport in TELEPORTS:
        shown = [propagate(one, GRAPH, teleport) for one in in_groups()[0]]
        expected = validation.loss(own_group(shown), shown[-1][validation.old_nodes])
        assert losses[teleport] == pytest.approx(13 * expected, rel=1e-5)


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
def test_class_weights_are_chosen_by_what_is_wrong_without_each_node(metric):
    selection = Selection(KINDS[1:2], 0.02, 1.0, False, metric=metric)
    assert selection.weighing == (metric == "balanced_accuracy")  # nothing is known yet
    ridge = selection.solve(moments(), Judges(NEW.labels, X[NEW.nodes]))
    weights = row_weights(NEW.labels, float(metric != "accuracy"))
    expected = {}
    for power in (0.0, 0.5, 1.0):
        other = Ridge(moments(), power)
        train = other.training_rows(X[NEW.nodes], NEW.labels)
        wrong = other.leave_one_out_scores(train, 0.02).argmax(dim=1) != NEW.labels
        expected[power] = 13 * float((weights * wrong).sum())
    assert selection.losses["balanced"] == pytest.approx(expected)
    assert selection.weighing == ridge.weighing == min(expected, key=expected.__getitem__)


def test_losses_add_up_and_those_at_temperatures_fade_when_classes_come():
    once, twice = selected(given()).losses, selected(selected(given())).losses
    assert twice["mean_field"][0.0] == pytest.approx(2 * once["mean_field"][0.0])
    for part in ("score_temperature", "unary_temperature"):
        faded = {value: 1.5 * loss for value, loss in once[part].items()}
        assert twice[part] == pytest.approx(faded)
    # No class is new: what was added before counts in full.
    again = selected(selected(given()), 24, [0, 1, 2, 3]).losses["score_temperature"]
    assert again == pytest.approx({v: 2 * loss for v, loss in once["score_temperature"].items()})


def test_nothing_is_judged_that_is_given():
    selection = selected(given(False))
    assert selection.memory_bytes() == 8  # the error of the one strength
    assert (selection.teleport, selection.mean_field) == (TELEPORT, False)


def test_selection_is_restored_with_its_choices():
    selection, other = selected(given(teleport="auto")), given(teleport="auto")
    other.load_state_dict(selection.state_dict())
    assert other.report() == selection.report()
    scores = in_groups()[0][-1]
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


def chosen_hops(x: torch.Tensor, graph, labels: torch.Tensor) -> str:
    selection = Selection(KINDS, "auto", 1.0, False)
    train = LabelledNodes(torch.arange(labels.numel()), labels)
    kind = selection.select_kind(lambda kind: PropagatedFeatures(x, graph, kind, seed=0), train)
    assert set(selection.kind_losses) == {"0+1+2", "0", "2+3", "0|1"}
    return kind.name


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


def test_rows_weigh_by_a_power_of_their_class():
    labels = torch.tensor([0] * 16 + [1] * 4)
    for power, share in ((0.0, 0.8), (0.5, 2 / 3), (1.0, 0.5)):
        weights = row_weights(labels, power)
        assert float(weights[:16].sum()) == pytest.approx(share)
        assert float(weights.sum()) == pytest.approx(1)


def test_a_state_of_two_class_weights_goes_on_with_two():
    selection = Selection(KINDS)
    selection.solve(moments(), Judges(NEW.labels, X[NEW.nodes]))
    state = selection.state_dict()
    del state["losses"]["balanced"]["0.5"]
    restored = Selection(KINDS)
    restored.load_state_dict(state)
    restored.solve(moments(), Judges(NEW.labels, X[NEW.nodes]))
    assert set(restored.losses["balanced"]) == {0.0, 1.0}
    state["losses"]["balanced"]["0.3"] = 1.0
    with pytest.raises(ValueError, match="unknown values"):
        Selection(KINDS).load_state_dict(state)


def test_mean_field_that_is_wrong_more_often_is_not_taken(monkeypatch):
    monkeypatch.setattr(LeftOut, "loss", lambda self, own, earlier: float(own.abs().sum()))
    chosen = {}
    for weight in ("auto", "balanced"):
        selection = Selection(KINDS[1:2], 0.02, 1.0, "auto", class_weight=weight)
        monkeypatch.setattr(
            Selection, "_inferred", lambda self, unary, q, graph: torch.zeros_like(unary)
        )  # of no loss, and as if all were of the first class
        chosen[weight] = selected(selection).mean_field
    assert chosen == {"auto": False, "balanced": True}
