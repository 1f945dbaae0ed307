"""Training steps side by side on the CPU: time and peak memory against PyTorch Geometric."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Steps a side takes in its turn: one turn to warm up, then the timed ones. Threads that were
#: put to sleep after every single step would be what is measured.
TURN, TURNS = 10, 3
HERE = Path(__file__).parent


class Side:
    """A worker process that steps when told."""

    def __init__(self, name: str, size: str, turn: int) -> None:
        self.name, self.turn = name, turn
        self.seconds: list[float] = []
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), name, size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def take_turn(self, timed: bool) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.turn}\n")
        self.process.stdin.flush()
        seconds = self._answer()["seconds"]
        self.seconds += seconds if timed else []

    def finish(self) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak = self._answer()["peak_bytes"]
        self.process.wait()
        return {"ms": 1e3 * statistics.median(self.seconds), "peak_mb": peak / 1e6}

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker of {self.name} died")
        answer: dict[str, Any] = json.loads(line)
        return answer


def compare_steps(
    size: str, names: tuple[str, ...], turn: int = TURN, turns: int = TURNS
) -> dict[str, dict[str, float]]:
    """Lets all sides step in turns; returns median milliseconds and peak memory."""
    sides = [Side(name, size, turn) for name in names]
    for number in range(1 + turns):
        for side in sides:
            side.take_turn(timed=number > 0)
    return {side.name: side.finish() for side in sides}
