"""What a run is to measure, and how much of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.peers import OURS, Installed
from bench.results import Results
from bench.running import Runner
from bench.server import Server


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: the server, the systems that are installed, and where figures go."""

    server: Server
    runner: Runner
    systems: Sequence[Installed]
    results: Results
    rounds: int
    quick: bool = False
    recovery: bool = False

    def scaled(self, count: int, *, least: int = 20) -> int:
        """Return a number of jobs: a twentieth of it in a quick run."""
        return max(least, count // 20) if self.quick else count

    @property
    def ours(self) -> Installed:
        return next(system for system in self.systems if system.name == OURS.name)

    def say(self, text: str) -> None:
        print(text, flush=True)


Measure = Callable[[Plan, int], None]
"""Measures one round (its number) of everything that belongs together, and adds the figures to the results."""
