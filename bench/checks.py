"""Proof that a drain of ours did all the work: every job terminal, each with a fence of its own, every event told."""

from typing import Any

from bench.plan import Plan
from bench.running import RunError
from workron.redis.keys import Keys

_PAGE = 1000


def check_drained(plan: Plan, jobs: int) -> None:
    """Raise RunError unless all jobs are done and everything about them was recorded."""
    client, keys = plan.server.client, Keys("default")
    ids: list[bytes] = client.zrange(keys.index("default", "done"), 0, -1)  # type: ignore[assignment]
    _same("jobs done", len(ids), jobs)
    fences: set[bytes] = set()
    for start in range(0, len(ids), _PAGE):
        pipe = client.pipeline(transaction=False)
        for job_id in ids[start : start + _PAGE]:
            pipe.hmget(keys.job(job_id.decode()), ["status", "fence", "attempts", "exit_code"])
        for status, fence, attempts, exit_code in pipe.execute():
            if (status, attempts, exit_code) != (b"done", b"1", b"0"):
                raise RunError(f"a job of ours is {status!r} after {attempts!r} attempts with exit code {exit_code!r}")
            fences.add(fence)
    _same("fences", len(fences), jobs)
    _same("leases left", client.zcard(keys.leases), 0)
    told = _told(client, keys)
    plan.results.note(
        "Workron's drains were checked: every job done after one attempt, a fence of its own each, no lease left"
        + ("." if told is None else ", every end in the event stream.")
    )
    if told is not None:
        _same("events of ended jobs", told, jobs)


def _told(client: Any, keys: Keys) -> int | None:
    """Return how many ends of jobs the stream tells, None if it has been trimmed."""
    info = client.xinfo_stream(keys.events)
    if info["entries-added"] != info["length"]:
        return None
    return sum(len(entry.get(b"done", b"").split()) for _, entry in client.xrange(keys.events))


def _same(what: str, found: Any, expected: int) -> None:
    if found != expected:
        raise RunError(f"{what}: {found} instead of {expected}")
