"""DSLR follows Algorithm 1: what is refined, from what, by whom, and when."""

from __future__ import annotations

import pytest
import torch

from evergraph.errors import InputError
from evergraph.events import Epoch, TaskDone
from evergraph.methods import TrainConfig, dslr, make_method
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.structure import nearest_nodes
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=3)
SMALL = {"buffer_size": 12, "link_epochs": 2, "num_candidates": 8, "num_neighbors": 2, "tau": 0.6}
NUM_TASKS = 4


@pytest.fixture(scope="module")
def stream(make_graph) -> TaskStream:
    return TaskStream(make_graph(num_nodes=80, num_classes=8), Protocol())


@pytest.fixture(scope="module")
def plain(stream) -> list[torch.Tensor]:
    """Logits after each task of DSLR as it is."""
    return final_logits(stream, dslr_with())


@pytest.fixture(scope="module")
def without_structure(stream) -> list[torch.Tensor]:
    """The same without structure learning."""
    return final_logits(stream, dslr_with(structure="none"))


def dslr_with(**settings):
    return make_method("dslr", SMALL | settings)


def learn(stream: TaskStream, method, seed: int = 0):
    """Yields the learner after each task."""
    learner = Learner(method)
    for event in train(learner, stream, MODEL, TRAINING, seed=seed):
        if isinstance(event, TaskDone):
            yield learner


def final_logits(stream: TaskStream, method) -> list[torch.Tensor]:
    return [x.method.predict_logits(x.context).clone() for x in learn(stream, method)]


def pairs(edges: torch.Tensor) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in edges.T.tolist()}


def edges_of(adjacency) -> set[tuple[int, int]]:
    return pairs(torch.stack([adjacency.src, adjacency.dst]))


# When.


def test_dslr_first_task_has_no_structure_stage(stream):
    learner = Learner(dslr_with())
    stages = {}
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, Epoch):
            stages.setdefault(event.task, []).append(event.stage)
        elif isinstance(event, TaskDone):
            assert ("structure" in event.report) == (event.task > 0)
            assert ("structure" in event.seconds) == (event.task > 0)
            assert ("selection" in event.seconds) == (event.task < NUM_TASKS - 1)
            if event.task == 0:
                assert learner.context.adjacency is learner.context.view.adjacency
    assert stages.pop(0) == ["classify"] * 3
    assert set(map(tuple, stages.values())) == {("structure",) * 2 + ("classify",) * 3}


def test_dslr_selects_nothing_after_the_last_task(stream):
    seen = []
    for learner in learn(stream, dslr_with()):
        method = learner.method
        seen.append((method.buffer.nodes.clone(), method.candidates.clone()))
    assert all(map(torch.equal, seen[-1], seen[-2]))
    assert not torch.equal(seen[-2][0], seen[-3][0])
    assert seen[-1][0].max() < stream.tasks[-2].num_nodes


# From what: each task refines its own untouched graph.


@pytest.mark.parametrize("structure", ["learned", "homophily"])
def test_dslr_refines_the_tasks_own_graph(stream, structure):
    changed = False
    for learner in learn(stream, dslr_with(structure=structure)):
        ctx, refinement = learner.context, learner.method.refinement
        own = edges_of(stream.view(ctx.view.task).adjacency)
        assert edges_of(ctx.view.adjacency) == own
        if ctx.view.task == 0:
            assert refinement is None
            continue
        added, deleted = pairs(refinement.added), pairs(refinement.deleted)
        assert not added & own
        assert deleted <= own
        assert edges_of(ctx.adjacency) == (own - deleted) | added
        changed = changed or bool(added)
    assert changed


def test_dslr_refinement_is_not_cumulative(stream, monkeypatch):
    seen = []

    def spy(adjacency, *args):
        seen.append(adjacency)
        return refine(adjacency, *args)

    refine = dslr.refine
    monkeypatch.setattr(dslr, "refine", spy)
    for _ in learn(stream, dslr_with()):
        pass
    assert len(seen) == NUM_TASKS - 1
    for task, adjacency in enumerate(seen, start=1):
        assert torch.equal(adjacency.keys, stream.view(task).adjacency.keys)


def test_dslr_changes_only_edges_of_replayed_nodes(stream):
    method = dslr_with()
    kept = set()
    for learner in learn(stream, method):
        if learner.context.view.task > 0:
            refinement = method.refinement
            for a, b in pairs(refinement.added) | pairs(refinement.deleted):
                assert a in kept or b in kept
        kept = set(method.buffer.nodes.tolist())


def test_dslr_trains_selects_and_predicts_on_the_refined_graph(stream):
    method = dslr_with()
    for learner in learn(stream, method):
        ctx = learner.context
        if ctx.view.task > 0:
            assert not torch.equal(ctx.adjacency.keys, ctx.view.adjacency.keys)
        ctx.model.eval()
        with torch.no_grad():
            on_refined = ctx.forward(adjacency=ctx.adjacency)
        assert torch.equal(method.predict_logits(ctx), on_refined)


# Candidates.


@pytest.mark.parametrize("embedding", ["hidden", "logits"])
def test_dslr_candidates_are_aligned_with_the_buffer(stream, embedding):
    for learner in learn(stream, dslr_with(embedding=embedding)):
        method, ctx = learner.method, learner.context
        if ctx.final:
            continue
        shown, nodes = ctx.observe(), method.buffer.nodes
        h = shown.h if embedding == "hidden" else shown.logits
        assert method.candidates.shape == (len(method.buffer), 8)
        for row, node in enumerate(nodes):
            distance = (h - h[node]).norm(dim=1)
            distance[node] = torch.inf
            nearest = distance.sort().values[:8]
            torch.testing.assert_close(distance[method.candidates[row]], nearest)
            assert node not in method.candidates[row]


def test_dslr_candidates_were_seen_at_the_end_of_the_previous_task(stream):
    # The authors' code draws them from all nodes, those of future tasks included.
    for learner in learn(stream, dslr_with(num_candidates=1000)):
        task = min(learner.context.view.task, NUM_TASKS - 2)
        seen = stream.tasks[task].num_nodes
        assert learner.method.candidates.max() < seen
        assert learner.method.candidates.shape[1] == seen - 1


def test_dslr_adds_at_most_n_candidates_to_each_replayed_node(stream):
    method = dslr_with()
    options = {}
    for learner in learn(stream, method):
        if learner.context.view.task > 0:
            added = pairs(method.refinement.added)
            allowed = {(min(v, c), max(v, c)) for v, row in options.items() for c in row}
            assert added <= allowed
            assert len(added) <= 2 * len(options)
        options = dict(zip(method.buffer.nodes.tolist(), method.candidates.tolist(), strict=True))


def test_dslr_entire_candidates_are_not_stored_and_may_be_of_the_current_task(stream):
    method = dslr_with(candidates="entire", addition="threshold", tau=0.0)
    kept = method.buffer.nodes
    for learner in learn(stream, method):
        assert method.candidates is None
        task, ctx = learner.context.view.task, learner.context
        if task > 0:
            # Every seen node scores above 0, so each replayed node is joined to all of them.
            degree = ctx.adjacency.degree[kept]
            assert (degree == ctx.view.num_nodes - 1).all()
        kept = method.buffer.nodes


# Variants.


def test_dslr_without_structure_is_replay_with_coverage(stream, without_structure):
    settings = {"buffer_size": 12, "selector": "cd"}
    replay = final_logits(stream, make_method("replay", settings))
    assert all(map(torch.equal, without_structure, replay))


def test_dslr_with_structure_is_not_replay(plain, without_structure):
    assert torch.equal(plain[0], without_structure[0])
    assert not any(map(torch.equal, plain[1:], without_structure[1:]))


def test_dslr_homophily_adds_only_same_class_training_nodes_and_deletes_none(stream):
    method = dslr_with(structure="homophily")
    kept, added_any = set(), False
    training = {node for task in stream.tasks for node in task.train_nodes.tolist()}
    for learner in learn(stream, method):
        if learner.context.view.task > 0:
            assert method.refinement.deleted.numel() == 0
            for a, b in pairs(method.refinement.added):
                assert stream.labels[a] == stream.labels[b]
                assert a in kept or b in kept
                assert {a, b} <= training
                added_any = True
        kept = set(method.buffer.nodes.tolist())
    assert added_any


def test_dslr_homophily_remembers_the_nearest_of_the_class_aligned_with_the_buffer(stream):
    method = dslr_with(structure="homophily")
    first = {}
    for learner in learn(stream, method):
        ctx = learner.context
        if ctx.final:
            continue
        h, kept = ctx.embed(), method.buffer.neighbours["same class"]
        by_class = {label: kept[method.buffer.labels == label] for label in method.buffer.picks}
        for label in ctx.view.new_classes:
            among = ctx.view.train_nodes[ctx.view.train_labels == label]
            near = nearest_nodes(h, method.buffer.picks[label], 2, among)
            assert torch.equal(by_class[label], near)
            first[label] = near
        for label, near in by_class.items():
            # Old classes keep what was found at the end of their own task.
            assert torch.equal(near, first[label][: method.buffer.picks[label].numel()])


@pytest.mark.parametrize(("ratio", "share"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_dslr_sl_ratio_refines_its_share_of_the_buffer(stream, ratio, share):
    method = dslr_with(sl_ratio=ratio)
    size = 0
    for learner in learn(stream, method):
        if learner.context.view.task > 0:
            assert method.refinement.num_refined == round(share * size)
        size = len(method.buffer)


def test_dslr_sl_ratio_zero_leaves_the_graph(stream, without_structure):
    method = dslr_with(sl_ratio=0)
    for task, learner in enumerate(learn(stream, method)):
        ctx = learner.context
        assert torch.equal(ctx.adjacency.keys, ctx.view.adjacency.keys)
        assert torch.equal(method.predict_logits(ctx), without_structure[task])


def test_dslr_sl_ratio_passes_each_node_with_its_own_candidates(stream, monkeypatch):
    calls = []

    def spy(adjacency, nodes, candidates, *args):
        calls.append((nodes, candidates))
        return refine(adjacency, nodes, candidates, *args)

    refine = dslr.refine
    monkeypatch.setattr(dslr, "refine", spy)
    method = dslr_with(sl_ratio=0.5)
    rows = {}
    for learner in learn(stream, method):
        if learner.context.view.task > 0:
            nodes, candidates = calls[-1]
            for node, options in zip(nodes.tolist(), candidates.tolist(), strict=True):
                assert rows[node] == options
        rows = dict(zip(method.buffer.nodes.tolist(), method.candidates.tolist(), strict=True))


def test_dslr_deletion_and_addition_extremes(stream):
    # τ = 1 deletes every original edge of a replayed node; N = 0 adds none.
    method = dslr_with(tau=1.0, num_neighbors=0)
    kept = method.buffer.nodes
    for learner in learn(stream, method):
        if learner.context.view.task > 0:
            assert method.refinement.added.numel() == 0
            assert (learner.context.adjacency.degree[kept] == 0).all()
        kept = method.buffer.nodes


@pytest.mark.parametrize(
    "variant",
    [
        {"lam": 0.0},
        {"lam": 1.0},
        {"candidates": "entire"},
        {"addition": "threshold"},
        {"deletion": "lowest"},
        {"beta": "none"},
        {"selector": "mf"},
        {"structure": "homophily"},
        {"sl_ratio": 0.5},
        {"num_neighbors": 5},
        {"tau": 0.99},
    ],
    ids=lambda variant: "-".join(map(str, *variant.items())),
)
def test_dslr_variant_changes_the_outcome(stream, plain, variant):
    varied = final_logits(stream, dslr_with(**variant))
    assert torch.equal(plain[0], varied[0])  # nothing of it touches the first task
    assert not torch.equal(plain[-1], varied[-1])


def test_dslr_with_beta_one_ignores_the_buffer(stream):
    # With β = 1 the buffer's labels have no weight: planting wrong ones changes nothing.
    def run(wrong: bool):
        method = dslr_with(beta=1.0, structure="none")
        learner = Learner(method)
        for event in train(learner, stream, MODEL, TRAINING, seed=0):
            if isinstance(event, TaskDone) and event.task == 0 and wrong:
                picks = method.buffer.picks
                method.buffer.picks = {0: picks[1], 1: picks[0]}
            if isinstance(event, TaskDone) and event.task == 1:
                return method.predict_logits(learner.context)
        return None

    assert torch.equal(run(False), run(True))


# State and settings.


def test_dslr_memory_counts_candidates(stream):
    for learner in learn(stream, dslr_with()):
        size = len(learner.method.buffer)
        assert learner.method.memory_bytes() == 8 * (2 * size + 8 * size)


def test_dslr_report_counts_changed_edges(stream):
    learner = Learner(dslr_with())
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone) and event.task > 0:
            refinement = learner.method.refinement
            assert event.report["structure"] == {
                "refined_nodes": refinement.num_refined,
                "added_edges": refinement.added.shape[1],
                "deleted_edges": refinement.deleted.shape[1],
            }


def test_dslr_defaults_are_the_papers():
    config = make_method("dslr").config
    assert (config.beta, config.lam, config.num_neighbors, config.num_candidates) == (
        0.1,
        0.5,
        5,
        50,
    )
    assert (config.tau, config.r, config.selector, config.link_epochs) == (0.8, 0.3, "cd", 100)
    assert config.link_lr == 0.01


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tau": 1.7}, r"Expected 'tau' in \[0, 1\] \(got 1\.7\)"),
        ({"sl_ratio": -1}, r"Expected 'sl_ratio' in \[0, 1\]"),
        ({"num_neighbors": 51}, "Expected 'num_neighbors' of at most 'num_candidates', 50"),
        ({"structure": "leared"}, "Expected 'structure' to be 'learned', 'none' or 'homophily'"),
        ({"num_neighbours": 3}, "Unknown key 'num_neighbours': did you mean 'num_neighbors'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_dslr_refuses_bad_settings_in_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        make_method("dslr", settings)
