"""The controller of RCLG: an LSTM that proposes new shapes and learns by REINFORCE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from evergraph.methods.anchors import bytes_of

UNITS = 100
SCORE_BOUND = 2.5  # logits are 2.5 · tanh(o / 2)
SCORE_TEMPERATURE = 2.0
INITIAL_BOUND = 0.1


class Proposal(NamedTuple):
    """A shape that the controller drew."""

    picks: list[tuple[int, int]]  # per layer, which addition and which deletion
    log_probability: Tensor  # of all picks together
    entropy: float  # of all distributions drawn from, summed


class Controller(nn.Module):
    """Draws an addition and a deletion for every layer, each knowing those before it.

    Layers share the weights; the state of the LSTM tells them apart. Everything starts from
    U(−0.1, 0.1). It learns by the gradient of (reward − baseline) · log-probability, by Adam.
    The baseline is the moving average of earlier rewards, of which it keeps ``decay``; the first
    reward begins it and teaches nothing. Weights, Adam and baseline live from task to task, on the
    CPU.
    """

    def __init__(
        self,
        num_layers: int,
        num_choices: Sequence[int],
        generator: torch.Generator,
        *,
        lr: float,
        decay: float,
    ) -> None:
        super().__init__()
        self.num_layers, self.decay = num_layers, decay
        self.baseline: float | None = None
        # Row 0 of the embedding begins; then come the additions, then the deletions.
        self.offsets = (1, 1 + num_choices[0])
        # Made without their own initialisation, which would draw from global randomness.
        bare: Any = skip_init  # PyTorch leaves it without types
        self.embedding = bare(nn.Embedding, 1 + sum(num_choices), UNITS)
        self.cell = bare(nn.LSTMCell, UNITS, UNITS)
        self.scores = nn.ModuleList(bare(nn.Linear, UNITS, count) for count in num_choices)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -INITIAL_BOUND, INITIAL_BOUND, generator=generator)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr)

    def forward(self, generator: torch.Generator) -> Proposal:
        """Draws a proposal."""
        token, state = torch.zeros(1, dtype=torch.int64), None
        picks, log_probability, entropy = [], torch.zeros(()), torch.zeros(())
        for _ in range(self.num_layers):
            pair = []
            for scores, offset in zip(self.scores, self.offsets, strict=True):
                state = self.cell(self.embedding(token), state)
                bounded = SCORE_BOUND * torch.tanh(scores(state[0]) / SCORE_TEMPERATURE)
                logs = torch.log_softmax(bounded[0], dim=0)
                pick = torch.multinomial(logs.detach().exp(), 1, generator=generator)
                log_probability = log_probability + logs[pick].sum()
                entropy -= (logs.exp() * logs).sum().detach()
                token = pick + offset
                pair.append(int(pick))
            picks.append((pair[0], pair[1]))
        return Proposal(picks, log_probability, float(entropy))

    def learn(self, proposal: Proposal, reward: float) -> None:
        """Makes a proposal likelier the more its reward exceeds what came before."""
        if self.baseline is None:
            self.baseline = reward
        advantage = reward - self.baseline
        self.optimizer.zero_grad()
        torch.autograd.backward(-advantage * proposal.log_probability)
        self.optimizer.step()
        self.baseline = self.decay * self.baseline + (1 - self.decay) * reward

    def memory_bytes(self) -> int:
        """Counts the bytes of the controller and of Adam's averages."""
        return bytes_of(self.state_dict(), *self._averages().values())

    def learned(self) -> dict[str, Any]:
        """Returns what :meth:`restore` needs: tensors and plain numbers."""
        return {
            "num_layers": self.num_layers,
            "controller": dict(self.state_dict()),
            "averages": self._averages(),
            "baseline": self.baseline,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`learned` returned, from whatever device."""
        self.load_state_dict(state["controller"])
        averages = {
            int(index): {name: value.cpu() for name, value in group.items()}
            for index, group in state["averages"].items()
        }
        parameters = list(self.parameters())
        for index, group in averages.items():
            if any(value.shape not in (parameters[index].shape, ()) for value in group.values()):
                raise ValueError("averages of another controller")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": averages, "param_groups": groups})
        self.baseline = None if state["baseline"] is None else float(state["baseline"])
        if self.baseline is not None and not math.isfinite(self.baseline):
            raise ValueError("a baseline that is no number")

    def _averages(self) -> dict[str, dict[str, Tensor]]:
        """Returns Adam's state, by the number of the parameter."""
        state = self.optimizer.state_dict()["state"]
        return {str(index): dict(group) for index, group in state.items()}
