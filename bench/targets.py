"""The targets of the benchmark, each with the figure that was reached.

Ratios are taken round by round: in a round both sides were measured within moments.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bench.peers import OURS, PEERS
from bench.results import Figure, Results, number

PEER_NAMES = tuple(peer.name for peer in PEERS)
PYTHON_PEERS = tuple(peer.name for peer in PEERS if not peer.node)
CALL_CPU = "CPU time of a call of the command line, as a multiple of `python -c pass`"
UP_CPU = "CPU time of `workron up` until a first job is done, as a multiple of the imports"
UP_WALL = "time of `workron up` until a first job is done, as a multiple of the imports"
_HTTP = "workron over HTTP"
_US = OURS.name


@dataclass(frozen=True, slots=True)
class Target:
    """One target and what is reached, `None` where it was not measured."""

    what: str
    wanted: str
    reached: Figure | None
    met: bool | None
    unit: str = ""

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        if self.reached is None:
            return self.what, self.wanted, "–", "", "not measured"
        spread = self.reached.spread if len(self.reached.values) > 1 else ""
        return (
            self.what,
            self.wanted,
            f"{number(self.reached.median)}{self.unit}",
            spread,
            "yes" if self.met else "**no**",
        )


def targets(results: Results) -> list[Target]:
    """Return all targets with what this run says of them."""
    best_drain = best(results, "drain", PYTHON_PEERS, max)
    quickest = best(results, "latency p50", PEER_NAMES, min)
    waits = "latency p50"
    return [
        at_least("drain, relative to BullMQ", 1.5, results.ratio("drain", _US, "bullmq"), " ×"),
        at_least(
            f"drain, relative to the best Python peer ({best_drain})", 3, results.ratio("drain", _US, best_drain), " ×"
        ),
        at_most("server CPU per job, relative to BullMQ", 0.7, results.ratio("server cpu", _US, "bullmq"), " ×"),
        at_most("round trips per job at depth", 0.1, results.get("round trips", _US)),
        at_most("round trips per job when idle, with the submit", 3, results.get("round trips idle", _US)),
        *_shell(results),
        at_most("recovery after kill -9, default settings", 32, results.get("recovery, default settings", _US), " s"),
        at_most("recovery after kill -9, lease 3 s", 5, results.get("recovery, lease 3s", _US), " s"),
        at_most(
            f"idle latency p50, relative to the best peer ({quickest})", 1, results.ratio(waits, _US, quickest), " ×"
        ),
        at_most("idle latency p50 over HTTP, relative to that", 1, results.ratio(waits, _HTTP, quickest), " ×"),
        at_most("idle latency p99, relative to our p50", 3, results.ratio("latency p99", _US, _US, of=waits), " ×"),
        at_least("`POST /jobs`, relative to a bare FastAPI route", 0.7, _post(results), " ×"),
        at_least("`POST /jobs/bulk`, jobs/s", 40_000, results.get("POST /jobs/bulk", _US)),
        at_least("`POST /workflows`, jobs/s", 40_000, results.get("POST /workflows", _US)),
        at_least("`POST /jobs/bulk`, relative to ardiq's bulk call", 1.2, _bulk(results), " ×"),
        at_most("memory per waiting job, bytes", 380, results.get("memory", _US)),
        at_most("claim p99, a million waiting relative to 1,000", 1.3, _claims(results), " ×"),
        at_most("longest script call", 10, _largest(results, "longest script call"), " ms"),
        at_most("heartbeats of 10,000 running, of one core", 2, results.get("heartbeats", "10,000 running jobs"), " %"),
        at_most("`workron --help`", 0.2, results.get("workron --help", _US), " s"),
        *_starts(results),
        at_most("`workron up` to the first job done", 1.5, results.get("up to first job done", _US), " s"),
        at_most("the same, relative to the import of its libraries", 1.8, results.get(UP_WALL, _US), " ×"),
        at_most("the same, CPU time of all processes", 2, results.get(UP_CPU, _US), " ×"),
        at_most("pages and counts at a million finished", 20, _largest(results, "page of 50 of a million"), " ms"),
    ]


def best(results: Results, measure: str, names: tuple[str, ...], pick: Callable[..., str]) -> str:
    """Return the peer with the best median; "none" if none was measured."""
    medians = {name: value for name in names if (value := results.median(measure, name)) is not None}
    return pick(medians, key=lambda name: medians[name], default="none")


def at_least(what: str, limit: float, reached: Figure | None, unit: str = "") -> Target:
    return Target(what, f"≥ {limit:,}{unit}", reached, None if reached is None else reached.median >= limit, unit)


def at_most(what: str, limit: float, reached: Figure | None, unit: str = "") -> Target:
    return Target(what, f"≤ {limit:,}{unit}", reached, None if reached is None else reached.median <= limit, unit)


def _shell(results: Results) -> list[Target]:
    found = []
    for slots in (2, 8):
        measure = f"shell commands, {slots} at once"
        for other, limit in (("xargs", 0.95), ("parallel", 4)):
            found.append(at_least(f"{measure}, relative to {other}", limit, results.ratio(measure, _US, other), " ×"))
    return found


def _starts(results: Results) -> list[Target]:
    """Return the CPU time of calls of the command line."""
    limits = {"--help": 9, "submit": 14, "ls": 14, "show": 14, "wait": 14}
    return [
        at_most(
            f"`workron {name}`, CPU, relative to `python -c pass`",
            limit,
            results.get(CALL_CPU, f"workron {name}"),
            " ×",
        )
        for name, limit in limits.items()
    ]


def _post(results: Results) -> Figure | None:
    return results.ratio("POST /jobs, 32 connections", _US, "bare FastAPI route")


def _bulk(results: Results) -> Figure | None:
    return results.ratio("POST /jobs/bulk", _US, "ardiq", of="bulk enqueue")


def _claims(results: Results) -> Figure | None:
    measure, few = "claim p99 in the server", "1,000 waiting"
    many = [name for name, _ in results.systems(measure) if name != few]
    return results.ratio(measure, many[0], few) if many else None


def _largest(results: Results, measure: str) -> Figure | None:
    return max((figure for _, figure in results.systems(measure)), key=lambda figure: figure.median, default=None)
