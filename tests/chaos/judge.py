"""From what was recorded to the account."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.account import Account, quantile
from tests.chaos.grounds import Ground
from tests.chaos.load import Load
from tests.chaos.records import Events
from workron.models import TERMINAL

Rows = Mapping[str, Mapping[str, str]]
EXAMPLES = 10


def judge(
    account: Account, load: Load, events: Events, rows: Rows, ran: Mapping[str, Sequence[str]], ground: Ground
) -> None:
    """Fill in the account of a run that has come to rest; `rows` are all jobs that are stored."""
    _ends(account, load, events, rows, ground)
    _twice(account, load, events, rows)
    _executions(account, events, ran)
    account.events, account.events_missed, account.events_undone = len(events.entries), events.missed, events.undone


def _ends(account: Account, load: Load, events: Events, rows: Rows, ground: Ground) -> None:
    account.acknowledged, account.unanswered = len(load.acknowledged), load.unanswered
    ended: Counter[str] = Counter()
    for job_id, (at, ends) in load.acknowledged.items():
        stored = rows.get(job_id, {}).get("status")
        status = stored or events.status.get(job_id)  # swept, if it had ended
        if status in TERMINAL:
            ended[status] += 1
            if status not in ends:
                account.wrong_end += 1
                _example(account, "wrong_end", f"{job_id} {status}, not {'/'.join(sorted(ends))}")
        elif stored:
            account.unfinished += 1
            _example(account, "unfinished", f"{job_id} {stored}")
        else:
            kind = "lost_in_rollback" if any(since <= at <= till for since, till in ground.rollbacks) else "lost"
            setattr(account, kind, getattr(account, kind) + 1)
            _example(account, kind, f"{job_id} last seen {status}")
    account.done, account.failed = ended["done"], ended["failed"]
    account.cancelled, account.skipped = ended["cancelled"], ended["skipped"]


def _twice(account: Account, load: Load, events: Events, rows: Rows) -> None:
    names = Counter(row["name"] for row in rows.values() if "name" in row and "array" not in row)
    for name, count in names.items():
        if count > 1:
            account.submitted_twice += 1
            _example(account, "submitted_twice", f"{name} {count}")
    for job_id, times in events.times_ended().items():
        runs = int(rows[job_id].get("run", "1")) if job_id in rows else load.runs.get(job_id, 1)
        if times > runs:
            account.accepted_twice += 1
            _example(account, "accepted_twice", f"{job_id} {times} times in {runs} runs")


def _executions(account: Account, events: Events, ran: Mapping[str, Sequence[str]]) -> None:
    claims, concluded = events.attempts()
    account.executions = sum(len(fences) for fences in ran.values())
    account.lease_losses = claims.total() - concluded.total()
    seen: Counter[Any] = Counter(fence for fences in ran.values() for fence in fences)
    account.fences_used_twice = sum(count > 1 for count in seen.values())
    for job_id, fences in ran.items():
        account.executed_again += max(0, len(fences) - concluded[job_id])
        if len(fences) > claims[job_id]:
            account.executed_without_cause += 1
            _example(account, "executed_without_cause", f"{job_id} {len(fences)} times, {claims[job_id]} claims")


def recovery(account: Account, load: Load, events: Events, faults: Sequence[float]) -> None:
    """Note how long after each fault a job that was submitted after it was done."""
    ends = {
        job_id: int(name.partition("-")[0]) / 1000
        for name, told in events.entries.items()
        for job_id in told.get("done", ())
        if job_id in load.probes
    }
    account.probes = len(load.probes)
    took = [min((end - at for job_id, end in ends.items() if load.probes[job_id] >= at), default=None) for at in faults]
    known = [seconds for seconds in took if seconds is not None]
    account.recovery_p50_s = quantile(known, 0.5)
    account.recovery_p99_s = quantile(known, 0.99)
    account.recovery_max_s = max(known, default=0.0)


def _example(account: Account, name: str, what: str) -> None:
    shown = account.examples.setdefault(name, [])
    if len(shown) < EXAMPLES:
        shown.append(what)
