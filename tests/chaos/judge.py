"""From what was recorded to the account."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Final

from tests.chaos.account import Account, quantile
from tests.chaos.data_servers import Ground
from tests.chaos.load import WORDS, Load
from tests.chaos.records import Events, Ran
from workron.models import TERMINAL

Rows = Mapping[str, Mapping[str, str]]
EXAMPLES = 10


def judge(account: Account, load: Load, events: Events, rows: Rows, ran: Ran, ground: Ground) -> None:
    """Fill in the account of a run that has come to rest; `rows` are all jobs that are stored."""
    _ends(account, load, events, rows, ground)
    _twice(account, load, events, rows)
    _executions(account, events, ran.fences, ground)
    _names(account, load, events, rows, ran, ground)
    for child, parent, name in events.starts_too_early(load.parents):
        if not _in_rollback(ground, int(name.partition("-")[0]) / 1000):
            _count(account, "started_too_early", f"{child} before {parent}")
    _followed(account, load, ground)
    account.events, account.events_missed, account.events_undone = len(events.entries), events.missed, events.undone


def _ends(account: Account, load: Load, events: Events, rows: Rows, ground: Ground) -> None:
    account.acknowledged, account.unanswered = len(load.acknowledged), load.unanswered
    ended: Counter[str] = Counter()
    for job_id, (at, ends) in load.acknowledged.items():
        rolled_back = _in_rollback(ground, at)
        stored = rows.get(job_id, {}).get("status")
        status = stored or events.status.get(job_id)  # swept, if it had ended
        if status in TERMINAL:
            ended[status] += 1
            if status not in ends:  # after a rollback: a cancel was lost
                _count(
                    account, "lost_in_rollback" if rolled_back else "wrong_end", f"{job_id} {status}, not {_or(ends)}"
                )
        elif stored:
            _count(account, "unfinished", f"{job_id} {stored}")
        else:
            _count(account, "lost_in_rollback" if rolled_back else "lost", f"{job_id} last seen {status}")
    account.done, account.failed = ended["done"], ended["failed"]
    account.cancelled, account.skipped = ended["cancelled"], ended["skipped"]


def _twice(account: Account, load: Load, events: Events, rows: Rows) -> None:
    names = Counter(row["name"] for row in rows.values() if "name" in row and "array" not in row)
    for name, count in names.items():
        if count > 1:
            _count(account, "submitted_twice", f"{name} {count}")
    for job_id, times in events.times_ended().items():
        runs = int(rows[job_id].get("run", "1")) if job_id in rows else load.runs.get(job_id, 1)
        if times > runs:
            _count(account, "accepted_twice", f"{job_id} {times} times in {runs} runs")


def _names(account: Account, load: Load, events: Events, rows: Rows, ran: Ran, ground: Ground) -> None:
    """Compare what ran, by the names that its submitter gave it: whether it is still stored or not."""
    for name, ids in ran.named.items():
        known = [i for i in ids if not all(_in_rollback(ground, int(fence) / 1000) for fence in ran.fences[i])]
        if len(known) > load.sizes.get(name, 1):
            _count(account, "submitted_twice", f"{name} ran as {len(known)} jobs")
    for job_id in load.acknowledged:
        name = load.arrays.get(job_id)
        number, most = (len(ran.named[name]), load.sizes[name]) if name else (len(ran.fences.get(job_id, ())), 1)
        if (rows.get(job_id, {}).get("status") or events.status.get(job_id)) == "done" and number < most:
            _count(account, "done_without_run", f"{job_id} {number} of {most}")


def _followed(account: Account, load: Load, ground: Ground) -> None:
    """What came of outputs; where history was rolled back, nothing is known of them."""
    account.followed = len(load.followed)
    for job_id, said in load.followed.items():
        if not _all_was_said(said) and not ground.rollbacks:
            _count(account, "followed_wrong", f"{job_id} {said!r}")


def _all_was_said(said: bytes) -> bool:
    """Tell whether each attempt said the beginning of what it had to say, in order, and the last one all.

    A full server does without the last output of a job; then it says how many bytes there were.
    """
    text, cuts = _CUT.sub(b"", said), list(_CUT.finditer(said))
    cut = bool(cuts) and cuts[-1].end() == len(said)
    missing = int(cuts[-1][1].replace(b",", b"")) if cut else 0
    by_fence = groupby(text.splitlines(keepends=True), key=lambda line: line.partition(b" ")[0])
    attempts = [(fence, b"".join(lines)) for fence, lines in by_fence]
    fences = [int(fence) for fence, _ in attempts if fence.isdigit()]
    begun = all(_whole(fence).startswith(part) for fence, part in attempts)
    if not begun or fences != sorted(set(fences)) or len(fences) < len(attempts):
        return False
    last, part = attempts[-1] if attempts else (b"0" * _DIGITS, b"")
    return missing in ({len(_whole(last)) - len(part)} | ({len(_whole(last))} if cut else set()))


_CUT: Final = re.compile("\n… ([0-9,]+) bytes cut …\n".encode())
_DIGITS: Final = 13
"""Of a fence: it is a time in milliseconds."""


def _whole(fence: bytes) -> bytes:
    return b"".join(b"%b %d\n" % (fence, word) for word in WORDS)


def _executions(account: Account, events: Events, ran: Mapping[str, Sequence[str]], ground: Ground) -> None:
    claims, concluded = events.attempts()
    account.executions = sum(len(fences) for fences in ran.values())
    account.lease_losses = claims.total() - concluded.total()
    fences_seen: Counter[str] = Counter()
    for job_id, fences in ran.items():
        # Two primaries know nothing of each other's fences, and those of the one that gave way are not in the stream.
        known = [fence for fence in fences if not _in_rollback(ground, int(fence) / 1000)]  # a fence is a time, or more
        fences_seen.update(known)
        account.executed_again += max(0, len(known) - concluded[job_id])
        if len(known) > claims[job_id]:
            _count(account, "executed_without_cause", f"{job_id} {len(known)} times, {claims[job_id]} claims")
    account.fences_used_twice = sum(count > 1 for count in fences_seen.values())


def _in_rollback(ground: Ground, at: float) -> bool:
    return any(since <= at <= till for since, till in ground.rollbacks)


def recovery(account: Account, load: Load, events: Events, faults: Sequence[tuple[float, str]]) -> None:
    """Note how long after each fault a job that was submitted after it was done."""
    ends = {
        job_id: int(name.partition("-")[0]) / 1000
        for name, told in events.entries.items()
        for job_id in told.get("done", ())
        if job_id in load.probes
    }
    account.probes = len(load.probes)
    of_kind: defaultdict[str, list[float]] = defaultdict(list)
    for at, kind in faults:
        took = min((end - at for job_id, end in ends.items() if load.probes[job_id] >= at), default=None)
        if took is not None:
            of_kind[kind].append(took)
    every = [seconds for found in of_kind.values() for seconds in found]
    account.recovery_p50_s = quantile(every, 0.5)
    account.recovery_p99_s = quantile(every, 0.99)
    account.recovery_max_s = max(every, default=0.0)
    account.recovery_of = {
        kind: [round(quantile(found, 0.5), 2), round(max(found), 2)] for kind, found in of_kind.items()
    }


def _count(account: Account, name: str, example: str) -> None:
    setattr(account, name, getattr(account, name) + 1)
    shown = account.examples.setdefault(name, [])
    if len(shown) < EXAMPLES:
        shown.append(example)


def _or(ends: Collection[str]) -> str:
    return " or ".join(sorted(ends))
