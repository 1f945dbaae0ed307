"""The controller of RCLG: its probabilities by hand, and REINFORCE finds what pays."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from evergraph.methods.rclg_controller import Controller, Proposal


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def controller(num_layers: int = 2, choices=(5, 5), seed: int = 0, decay=0.95) -> Controller:
    return Controller(num_layers, choices, seeded(seed), lr=0.01, decay=decay)


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_controller_probabilities_by_hand():
    # Without weights the scores are their biases, squashed: 2.5 · tanh(o / 2).
    model = controller(num_layers=3, choices=(2, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.scores[0].bias.copy_(torch.tensor([2.0, 100.0]))
    scores = [2.5 * math.tanh(1.0), 2.5]
    total = sum(map(math.exp, scores))
    chances = [math.exp(score) / total for score in scores]
    proposal = model(seeded())
    expected = sum(math.log(chances[addition]) + math.log(1 / 3) for addition, _ in proposal.picks)
    assert proposal.log_probability.item() == pytest.approx(expected, rel=1e-5)
    entropy = -sum(p * math.log(p) for p in chances) + math.log(3)
    assert proposal.entropy == pytest.approx(3 * entropy, rel=1e-5)


def test_controller_draws_as_often_as_it_says():
    model = controller(num_layers=1, choices=(2, 1))
    with torch.no_grad():
        model.scores[0].bias.copy_(torch.tensor([1.0, -1.0]))
    generator = seeded(1)
    proposals = [model(generator) for _ in range(400)]
    first = [p for p in proposals if p.picks[0][0] == 0]
    chance = first[0].log_probability.exp().item()
    assert abs(len(first) / 400 - chance) < 4 * math.sqrt(chance * (1 - chance) / 400)


@pytest.mark.parametrize(("num_layers", "choices"), [(1, (5, 5)), (3, (2, 4)), (2, (1, 1))])
def test_controller_picks_within_its_choices(num_layers, choices):
    model, generator = controller(num_layers, choices), seeded(2)
    picks = [pair for _ in range(40) for pair in model(generator).picks]
    assert len(picks) == 40 * num_layers
    assert {addition for addition, _ in picks} == set(range(choices[0]))
    assert {deletion for _, deletion in picks} == set(range(choices[1]))


def test_controller_draws_from_its_generators_alone():
    results = []
    for noise, seed in ((1, 5), (2, 5), (1, 6)):
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        model = controller(seed=seed)
        model(seeded())
        assert torch.equal(torch.get_rng_state(), state)
        results.append(weights(model))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert results[0].abs().max() <= 0.1


def test_reinforce_baseline_by_hand():
    reinforce = controller()
    before = weights(reinforce)
    reinforce.learn(reinforce(seeded()), 80.0)
    assert reinforce.baseline == pytest.approx(80)
    assert torch.equal(weights(reinforce), before)  # nothing to compare with yet
    reinforce.learn(reinforce(seeded()), 60.0)
    assert reinforce.baseline == pytest.approx(79)
    assert not torch.equal(weights(reinforce), before)


@pytest.mark.parametrize(("reward", "sign"), [(60.0, 1), (40.0, -1)])
def test_reinforce_makes_what_paid_likelier(reward, sign):
    reinforce = controller()
    reinforce.baseline = 50.0
    first = reinforce(seeded(4))
    reinforce.learn(first, reward)
    again = replay(reinforce, first)
    assert sign * (again - first.log_probability.item()) > 0


def replay(model: Controller, proposal: Proposal) -> float:
    """The log-probability of a given proposal, found by drawing until it comes."""
    generator = seeded(9)
    for _ in range(20_000):
        other = model(generator)
        if other.picks == proposal.picks:
            return other.log_probability.item()
    raise AssertionError("it never came")


def test_reinforce_finds_the_rewarded_addition():
    reinforce, generator = controller(1, (3, 1), decay=0.9), seeded(6)
    for _ in range(150):
        proposal = reinforce(generator)
        reinforce.learn(proposal, 10.0 if proposal.picks[0][0] == 2 else 0.0)
    drawn = [reinforce(generator).picks[0][0] for _ in range(50)]
    assert drawn.count(2) > 35


def test_reinforce_restored_continues_to_the_same_bits():
    first, generator = controller(), seeded(1)
    for reward in (10.0, 30.0):
        first.learn(first(generator), reward)
    second = controller(seed=8)
    second.restore(copy.deepcopy(first.learned()))
    assert second.memory_bytes() == first.memory_bytes()
    for reinforce in (first, second):
        reinforce.learn(reinforce(seeded(2)), 50.0)
    assert torch.equal(weights(first), weights(second))
    assert first.baseline == second.baseline


def test_reinforce_memory_is_weights_and_two_averages():
    reinforce = controller()
    count = weights(reinforce).numel()
    assert reinforce.memory_bytes() == 4 * count
    reinforce.learn(reinforce(seeded()), 1.0)
    num_parameters = len(list(reinforce.parameters()))
    assert reinforce.memory_bytes() == 3 * 4 * count + 4 * num_parameters  # and Adam's steps
