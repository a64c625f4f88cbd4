"""Figures of a run: every value that was measured, by measure and system, with median and spread."""

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Figure:
    """The values of one measure for one system, a value per round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> str:
        """The smallest and the largest value."""
        return f"{number(min(self.values))} – {number(max(self.values))}"


@dataclass(slots=True)
class Results:
    """All figures, what was left out and why, and what is known of the machine."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=dict)

    def add(self, measure: str, system: str, value: float) -> None:
        self.values.setdefault(measure, {}).setdefault(system, []).append(value)

    def get(self, measure: str, system: str) -> Figure | None:
        values = self.values.get(measure, {}).get(system)
        return Figure(tuple(values)) if values else None

    def median(self, measure: str, system: str) -> float | None:
        figure = self.get(measure, system)
        return figure.median if figure else None

    def ratio(self, measure: str, system: str, other: str, *, of: str | None = None) -> Figure | None:
        """Return how the values of two systems compare, round by round; `of`: the other's measure if it is another."""
        ours, theirs = self.get(measure, system), self.get(of or measure, other)
        if ours is None or theirs is None:
            return None
        if len(ours.values) != len(theirs.values):  # a round is missing
            return Figure((ours.median / theirs.median,))
        return Figure(tuple(a / b for a, b in zip(ours.values, theirs.values, strict=True)))

    def systems(self, measure: str) -> Iterator[tuple[str, Figure]]:
        for system, values in self.values.get(measure, {}).items():
            yield system, Figure(tuple(values))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def save(self, path: Path) -> None:
        parts = {"values": self.values, "missing": self.missing, "notes": self.notes, "machine": self.machine}
        path.write_text(json.dumps(parts, indent=1))

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(**json.loads(path.read_text()))


def number(value: float) -> str:
    """Return a number with three significant digits and thousands marked."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
