"""What a run ends with: numbers that must add up, as JSON and as a table."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Account:
    """The account of one run; times are in seconds."""

    topology: str = ""
    seed: int = 0
    date: str = ""
    server: str = ""
    duration_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)

    acknowledged: int = 0
    """Jobs of submissions that were answered with 201."""
    unanswered: int = 0
    """Submissions that had no answer when the run ended: each is stored whole, once, or not at all."""
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    lost: int = 0
    """Acknowledged, and neither stored nor seen to end."""
    lost_in_rollback: int = 0
    """Lost because another server took over that had not yet heard of them."""
    rollbacks_told: int = 0
    """How often reapers and workers have said that history was rolled back; `/health` and `workron doctor` show it."""
    unfinished: int = 0
    """Acknowledged, and not ended long after the last fault."""
    wrong_end: int = 0
    """Ended in another way than the commands and requests demand."""
    submitted_twice: int = 0
    """Stored more than once for one Idempotency-Key."""
    done_without_run: int = 0
    """Ended as done, and their command, or one of their tasks', was never started."""
    started_too_early: int = 0
    """Started before what they wait for had ended."""
    followed: int = 0
    """Jobs whose output was followed to its end."""
    followed_wrong: int = 0
    """What came of an output was not all that its last attempt said, or not once and in order."""
    accepted_twice: int = 0
    """Ended more than once in one run."""

    executions: int = 0
    """Commands started."""
    executed_again: int = 0
    """Commands started although no failed attempt before asked for another one."""
    lease_losses: int = 0
    """Attempts taken from a worker or given back by it, each of which allows for one command more."""
    fences_used_twice: int = 0
    executed_without_cause: int = 0
    """Jobs whose commands were started more often than their claims."""

    probes: int = 0
    recovery_p50_s: float = 0.0
    recovery_p99_s: float = 0.0
    recovery_max_s: float = 0.0
    """From a fault to the next end of a job that was submitted after it; other faults may come meanwhile."""
    recovery_of: dict[str, list[float]] = field(default_factory=dict)
    """The median and the longest, by kind of fault."""

    events: int = 0
    events_missed: int = 0
    events_undone: int = 0
    died_by_themselves: dict[str, int] = field(default_factory=dict)
    """Processes that ended without having been killed."""
    audit: list[str] = field(default_factory=list)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Some of the jobs behind each number that must be 0."""

    MUST_BE_NONE = (
        *("lost", "unfinished", "wrong_end", "submitted_twice", "accepted_twice", "fences_used_twice"),
        *("executed_without_cause", "done_without_run", "started_too_early", "events_missed"),
        "followed_wrong",
        *("died_by_themselves", "audit"),
    )

    @property
    def wrong(self) -> dict[str, Any]:
        """What must not be: empty after a good run."""
        found = {name: getattr(self, name) for name in self.MUST_BE_NONE if getattr(self, name)}
        if self.executed_again > self.lease_losses:
            found["executed_again"] = f"{self.executed_again}, with {self.lease_losses} leases lost"
        if self.lost_in_rollback and not self.rollbacks_told:
            found["rollbacks_told"] = 0
        if not self.acknowledged:
            found["acknowledged"] = 0
        return found

    def json(self) -> str:
        rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}
        rounded["recovery_of"] = {kind: [round(s, 3) for s in found] for kind, found in self.recovery_of.items()}
        return json.dumps({**rounded, "good": not self.wrong}, indent=2)

    def table(self) -> str:
        rows = []
        for name, value in asdict(self).items():
            shown = value
            if isinstance(value, dict):
                shown = ", ".join(f"{key} {_shown(count)}" for key, count in value.items())
            elif isinstance(value, list):
                shown = "\n    ".join(["", *value[:20]]) if value else "nothing wrong"
            elif isinstance(value, float):
                shown = f"{value:.2f}"
            bad = "  ← must not be" if name in self.wrong else ""
            rows.append(f"{name.replace('_', ' '):24} {shown}{bad}")
        return "\n".join(rows)


def _shown(value: Any) -> str:
    is_range = isinstance(value, list) and all(isinstance(one, float) for one in value)
    return "/".join(f"{one:.1f}" for one in value) if is_range else str(value)


def quantile(values: list[float], share: float) -> float:
    """Return the value below which this share of them lies; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
