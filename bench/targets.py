"""The targets of the benchmark, each with the figure that stands beside it."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.peers import OURS, PEERS
from bench.results import Results, number

PEER_NAMES = tuple(peer.name for peer in PEERS)
PYTHON_PEERS = tuple(peer.name for peer in PEERS if not peer.node)


@dataclass(frozen=True, slots=True)
class Target:
    """One target: what is reached, `None` where it was not measured."""

    what: str
    wanted: str
    reached: float | None
    met: bool | None
    unit: str = ""

    @property
    def row(self) -> tuple[str, str, str, str]:
        shown = "–" if self.reached is None else f"{number(self.reached)}{self.unit}"
        verdict = "not measured" if self.met is None else ("yes" if self.met else "**no**")
        return self.what, self.wanted, shown, verdict


def targets(results: Results) -> list[Target]:
    """Return all targets with what this run says of them."""
    ours, median = OURS.name, results.median

    def best(measure: str, names: tuple[str, ...], pick: Callable[..., float]) -> float | None:
        values = [value for name in names if (value := median(measure, name)) is not None]
        return pick(values) if values else None

    drain, cpu = median("drain", ours), median("server cpu", ours)
    latency, over_http = median("latency p50", ours), median("latency p50", "workron over HTTP")
    fastest = best("latency p50", PEER_NAMES, min)
    bare = median("POST /jobs, 32 connections", "bare FastAPI route")
    bulk, ardiq = median("POST /jobs/bulk", ours), median("bulk enqueue", "ardiq")
    return [
        at_least("drain, beside BullMQ", 1.5, ratio(drain, median("drain", "bullmq")), " ×"),
        at_least("drain, beside the best Python peer", 3, ratio(drain, best("drain", PYTHON_PEERS, max)), " ×"),
        at_most("server CPU per job, beside BullMQ", 0.7, ratio(cpu, median("server cpu", "bullmq")), " ×"),
        at_most("round trips per job at depth", 0.1, _sum(results, "round trips", ours)),
        at_most("round trips per job when idle", 3, median("round trips idle", ours)),
        *_shell(results),
        at_most("recovery after kill -9, default settings", 32, median("recovery, default settings", ours), " s"),
        at_most("recovery after kill -9, lease 3 s", 5, median("recovery, lease 3s", ours), " s"),
        at_most("idle latency p50, beside the best peer", 1.0, ratio(latency, fastest), " ×"),
        at_most("idle latency p50 over HTTP, beside the best peer", 1.0, ratio(over_http, fastest), " ×"),
        at_most("idle latency p99, beside our p50", 3, ratio(median("latency p99", ours), latency), " ×"),
        at_least("`POST /jobs`, beside a bare FastAPI route", 0.7, ratio(_post(results), bare), " ×"),
        at_least("`POST /jobs/bulk`, jobs/s", 40_000, bulk),
        at_least("`POST /workflows`, jobs/s", 40_000, median("POST /workflows", ours)),
        at_least("`POST /jobs/bulk`, beside ardiq's bulk call", 1.2, ratio(bulk, ardiq), " ×"),
        at_most("memory per waiting job, bytes", 380, median("memory", ours)),
        at_most("claim p99, a million waiting beside 1,000", 1.3, _claims(results), " ×"),
        at_most("longest script call", 10, _largest(results, "longest script call"), " ms"),
        at_most("heartbeats of 10,000 running jobs, of one core", 2, median("heartbeats", "10,000 running jobs"), " %"),
        at_most("`workron --help`", 0.2, median("workron --help", ours), " s"),
        at_most("`workron up` to the first job done", 1.5, median("up to first job done", ours), " s"),
        at_most("pages and counts at a million finished", 20, _largest(results, "page of 50 of a million"), " ms"),
    ]


def at_least(what: str, limit: float, reached: float | None, unit: str = "") -> Target:
    return Target(what, f"≥ {limit:,}{unit}", reached, None if reached is None else reached >= limit, unit)


def at_most(what: str, limit: float, reached: float | None, unit: str = "") -> Target:
    return Target(what, f"≤ {limit:,}{unit}", reached, None if reached is None else reached <= limit, unit)


def ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _shell(results: Results) -> list[Target]:
    found = []
    for slots in (2, 8):
        measure = f"shell commands, {slots} at once"
        ours = results.median(measure, OURS.name)
        for other, limit in (("xargs", 0.95), ("parallel", 4)):
            beside = ratio(ours, results.median(measure, other))
            found.append(at_least(f"{measure}, beside {other}", limit, beside, " ×"))
    return found


def _post(results: Results) -> float | None:
    return results.median("POST /jobs, 32 connections", OURS.name)


def _sum(results: Results, measure: str, system: str) -> float | None:
    parts = [results.median(f"{measure} {phase}", system) for phase in ("submit", "drain")]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _claims(results: Results) -> float | None:
    few = results.median("claim p99 in the server", "1,000 waiting")
    many = [f.median for name, f in results.systems("claim p99 in the server") if name != "1,000 waiting"]
    return ratio(many[0] if many else None, few)


def _largest(results: Results, measure: str) -> float | None:
    return max((figure.median for _, figure in results.systems(measure)), default=None)
