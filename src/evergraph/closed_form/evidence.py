"""Evidence: what the values of a setting have cost so far, so that the cheapest is taken."""

from __future__ import annotations

from collections.abc import Mapping


class Evidence:
    """Costs summed over tasks, one number for each value of a setting."""

    def __init__(self) -> None:
        self.costs: dict[float, float] = {}

    def add(self, costs: Mapping[float, float], count: int) -> None:
        """Adds mean costs that ``count`` nodes gave."""
        for value, cost in costs.items():
            self.costs[value] = self.costs.get(value, 0.0) + cost * count

    def fade(self, share: float) -> None:
        """Lets what was added so far count for a share of itself."""
        self.costs = {value: share * cost for value, cost in self.costs.items()}

    @property
    def best(self) -> float:
        """The value that has cost least; the first of equals."""
        return min(self.costs, key=lambda value: self.costs[value])

    def told(self) -> dict[str, float]:
        """Returns the costs under readable names."""
        return {f"{value:g}": cost for value, cost in self.costs.items()}

    def memory_bytes(self) -> int:
        """Counts a number for each value."""
        return 8 * len(self.costs)

    def state_dict(self) -> dict[str, float]:
        """Returns plain values that restore the costs."""
        return {repr(value): cost for value, cost in self.costs.items()}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.costs = {float(value): float(cost) for value, cost in state.items()}
