"""The places of each job, queue, schedule …, derived from its hash: the rules by which the doctor checks and repairs.

An object is read as a row: its hash, and a few fields of other keys. Its places follow from the row: the entries of
indexes, lists and hashes that must exist, or may. The check of an object looks for these entries. The check of an index
entry looks whether the object that it names has this place.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from workron.doctor.faults import Ask, text_of
from workron.doctor.reading import Steps
from workron.models import Until
from workron.redis import formats
from workron.redis.formats import Hook
from workron.redis.keys import Keys
from workron.times import redis_ms

Row = dict[str, str]

STATUSES: Final = ("pending", "scheduled", "blocked", "running", "done", "failed", "cancelled", "skipped")
INDEXED: Final = ("blocked", "done", "failed", "cancelled", "skipped")
TERMINAL: Final = ("done", "failed", "cancelled", "skipped")
LIVE: Final = ("pending", "scheduled", "blocked", "running")
BAND: Final = 10**13
"""Positions per priority in the line of a concurrency key. WINDOW: maximum of admitted jobs (`lua/lib/slots.lua`)."""
WINDOW: Final = 200
_HIGHEST: Final = 2**52
_SOON_MS: Final = 60_000
_WALKS: Final = ("cancel", "retry", "follow")
_QUEUES: Final = 100
"""Maximum of queues that are read of a concurrency key."""
QUEUE: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_JOB: Final = (
    "status", "queue", "priority", "batch", "workflow", "array", "hooks", "fence", "created_at", "finished_at",
    "run_at", "edge_cursor", "cascade_at", "concurrency", "concurrency_limit", "final", "deadline_at", "expires_at",
    "expired_at", "attempts", "cancel_requested_at", "unique", "run", "array_follows",
)  # fmt: skip
_GATES: Final = ("paused", "max_running", "rate_jobs", "rate_per_ms")
_NUMBERS: Final = {
    "queue": ("max_pending", "max_running", "rate_jobs", "rate_per_ms"),
    "concurrency": ("limit", "since", "seq", "front", "turn", "rest"),
    "meta": ("max_pending", "max_pending_total", "rollbacks", "rolled_back_at", "full", "fence"),
}
"""Fields that must be numbers if they exist, because claims compute with them; without the counts of jobs."""


class Place(NamedTuple):
    """A rule: the command that reads an entry, whether its answer is right, and the repair. `ok` None: always."""

    read: Ask
    ok: Callable[[Any], object] | None
    mend: tuple[Ask, ...] = ()
    code: str = "missing"


def _may(*read: str) -> Place:
    return Place(read, None)


def _zset(key: str, member: str, score: int = 0, *also: Ask, latest: float = float("inf")) -> Place:
    return Place(
        ("ZSCORE", key, member),
        lambda found: found is not None and float(found) <= latest,
        (("ZADD", key, score, member), *also),
    )


def _list(key: str, member: str) -> Place:
    return Place(("IN", key, member), bool, (("RPUSH", key, member),))


def refill(keys: Keys, name: str) -> Ask:
    """Return the command that makes the next claim, or the reaper, admit jobs of a concurrency key."""
    return "ZADD", keys.due, 0, formats.timer("refill", name)


def _row(asked: Mapping[str, Ask]) -> Steps:
    """Read fields, each with a command of its own; times are in ms."""
    return row_of(asked, (yield [*asked.values()]))


def _fields(key: str, *names: str) -> dict[str, Ask]:
    return {name: ("HGET", key, name) for name in names}


def job_row(keys: Keys, job: str) -> Steps:
    [answer] = yield [("HMGET", keys.job(job), *_JOB)]
    row = row_of(_JOB, answer)
    more: dict[str, Ask] = {}
    if Hook.ARRAY in row.get("hooks", ""):
        more |= _fields(keys.array(job), "begun", "walk", "walk_at", "made")
        more |= {"untold": ("LLEN", keys.array_ended(job))}
        more |= {"followed": ("EXISTS", keys.array(row.get("array_follows", "")))}
    elif Hook.CONCURRENCY in row.get("hooks", "") and "concurrency" not in row:  # a task: its array says it
        more |= _fields(keys.job(row.get("array", "")), "concurrency", "concurrency_limit")
    if "workflow" in row:
        more |= _fields(keys.workflow(row["workflow"]), "stop_at", "size")
    if "batch" in row:
        more |= _fields(keys.batch(row["batch"]), "state")
    if more:
        row |= yield from _row(more)
    if row.get("status") == "pending" and "concurrency" in row:
        line = keys.in_line(row["concurrency"], queue_of(row))
        row |= yield from _row({"place": ("ZSCORE", line, job)} | _fields(keys.concurrency(row["concurrency"]), "seq"))
    return row


def job_places(keys: Keys, job: str, row: Row) -> Iterator[Place]:
    status, queue = row.get("status", ""), queue_of(row)
    if not row:
        return
    yield _zset(keys.jobs, job, latest=0)
    yield _zset(keys.queues, queue)
    if status in INDEXED:
        at = number_of(row.get("finished_at")) or number_of(row.get("created_at")) or 0
        yield from (_zset(keys.index(one, status), job, at) for one in (queue, None))
    elif status == "running":
        yield _zset(keys.leases, job, 1)  # it is over: the reaper sees whether its worker is alive
    elif status == "scheduled":
        at = number_of(row.get("run_at")) or 0
        yield _zset(keys.due, job, at, latest=at)
    elif status == "pending":
        yield _zset(keys.pending_queues, queue)
        if "concurrency" not in row:
            yield _list(keys.pending(queue, _priority(row)), job)
    if "concurrency" in row:
        yield from _line(keys, job, row)
    yield from _timers(keys, job, row)
    yield from _walks(keys, job, row)
    if Hook.ARRAY in row.get("hooks", "") and "made" in row:
        yield from _array(keys, job, row)
    if "workflow" in row:
        yield _list(keys.workflow_jobs(row["workflow"]), job)
    if "final" in row and "size" in row:
        workflow = keys.workflow(row["workflow"])
        mend = (("HSET", workflow, "final", job),)
        yield Place(("HGET", workflow, "final"), lambda found: found == job.encode(), mend, "malformed")
    if "unique" in row and status not in TERMINAL:
        with suppress(ValueError):  # one that is damaged has no holder
            unique = formats.read_unique(row["unique"])
            if not (unique.until is Until.STARTED and status == "running"):
                yield _may("GET", keys.unique(unique.key), formats.holder(job, row.get("run", "1")))


def _line(keys: Keys, job: str, row: Row) -> Iterator[Place]:
    """Yield the place of a job in the line of its concurrency key, or among the jobs with a slot."""
    name, queue, about = row["concurrency"], queue_of(row), keys.concurrency(row["concurrency"])
    again = refill(keys, name)
    if row["status"] == "running":
        yield _zset(keys.slots(name), job, 1)
    if row["status"] != "pending":
        return
    limit = ("HSET", about, "limit", row.get("concurrency_limit", "1")), again
    yield Place(("HGET", about, "limit"), lambda found: number_of(found), limit)
    yield _zset(f"{about}:queues", queue, 0, again)
    yield _zset(keys.concurrency_keys(queue), name, 0, again)
    band, place, line = 9 - _priority(row), int(float(row.get("place", "0"))), keys.in_line(name, queue)
    last = band * BAND + BAND // 2 + (number_of(row.get("seq", "0")) or 0) + 1
    stands = place != 0 and abs(place) // BAND == band
    yield Place(("ZSCORE", line, job), lambda _: stands, (("ZADD", line, last, job), again))
    if stands and place < 0:  # it was let go into the list: else it is held again
        mend = ("ZADD", line, -place, job), again
        yield Place(("IN", keys.pending(queue, _priority(row)), job), bool, mend)


def _timers(keys: Keys, job: str, row: Row) -> Iterator[Place]:
    if row.get("status") in TERMINAL or Hook.TIMERS not in row.get("hooks", ""):
        return
    waits = row.get("status") != "running" and row.get("attempts", "0") == "0"
    expires = waits and "begun" not in row and "cancel_requested_at" not in row
    for kind, must in (("deadline", "expired_at" not in row), ("expires", expires)):
        if f"{kind}_at" in row:
            at = number_of(row[f"{kind}_at"]) or 0
            member = formats.timer(kind, job)
            yield _zset(keys.due, member, at, latest=at) if must else _may("ZSCORE", keys.due, member)


def _walks(keys: Keys, job: str, row: Row) -> Iterator[Place]:
    """Yield the entries of walks under way in `propagate` and `arrays`."""
    if "edge_cursor" in row:
        yield _list(keys.propagate, job)
    if "cascade_at" in row:
        yield _list(keys.propagate, f"cascade:{job}")
    if "stop_at" in row:
        yield _list(keys.propagate, f"workflow:{row['workflow']}")
    if row.get("untold", "0") != "0":
        yield _list(keys.propagate, f"follow:{job}")
    if "walk" in row:
        yield _zset(keys.arrays, job, 1)


def _array(keys: Keys, job: str, row: Row) -> Iterator[Place]:
    """Yield the fields of an array other than counts, and its entry with the array that it follows."""
    key, again = keys.array(job), ("ZADD", keys.arrays, 1, job)
    yield Place(("HGET", key, "begun"), _is_number, (("HSET", key, "begun", 1),), "malformed")
    goes_on = "cancel" if "cancel_requested_at" in row else "follow"
    walk = ("HSET", key, "walk", goes_on, "walk_at", 0), again
    if "walk" in row and not (row["walk"] in _WALKS and row.get("walk_at", "").isdecimal()):
        lost = walk if goes_on == "cancel" or "array_follows" in row else (("HDEL", key, "walk", "walk_at"), again)
        yield Place(("HGET", key, "walk"), lambda _: False, lost, "malformed")
    if "array_follows" in row and row["followed"] != "0" and row["status"] not in TERMINAL:
        known = _list(keys.array_followers(row["array_follows"]), job)
        yield known._replace(mend=(*known.mend, *walk))


def schedule_places(keys: Keys, name: str, row: Row) -> Iterator[Place]:
    if "version" in row:
        yield _zset(keys.schedules, name)
    if "paused" not in row and ("next" in row or "queued" in row):
        latest = int(row["now"]) + _SOON_MS if "queued" in row else number_of(row["next"]) or 0
        yield _zset(keys.schedules_due, name, latest, latest=latest)


def batch_places(keys: Keys, batch: str, row: Row) -> Iterator[Place]:
    """Yield the places of a staged submission."""
    key, now_ms = keys.batch(batch), int(row["now"])
    if int(row["ttl"]) < -1:
        return
    state = "open" if "workflow" in row else "aborted"  # opening it has written the workflow
    known = (b"staging", b"open", b"aborted")
    yield Place(("HGET", key, "state"), known.__contains__, (("HSET", key, "state", state),), "malformed")
    if row.get("state") == "open" and "first status" in row:
        workflow = row.get("first workflow", "")
        mend = (("HSET", key, "workflow", workflow),)
        yield Place(("HGET", key, "workflow"), lambda found: found == workflow.encode(), mend, "malformed")
    if int(row["ttl"]) >= 0:
        yield _may("ZSCORE", keys.batches, batch)
    else:
        yield _zset(keys.batches, batch, now_ms, latest=now_ms + _SOON_MS)


def action_places(keys: Keys, action: str, row: Row) -> Iterator[Place]:
    if row.get("state") == "running":
        yield _zset(keys.actions_open, action, 1)


def queue_places(keys: Keys, queue: str, row: Row) -> Iterator[Place]:
    """Yield the entries by which claims learn of its gates. Half a rate is a fault."""
    key = keys.queue(queue)
    yield from _numbers("queue", key)
    if ("rate_jobs" in row) != ("rate_per_ms" in row):
        yield Place(("EXISTS", key), lambda _: False, (("HDEL", key, "rate_jobs", "rate_per_ms"),), "malformed")
    if row.keys() - {"rate_per_ms"}:
        to_all, add = ("HSET", keys.meta, "gated", "*"), ("SADD", keys.gates, queue)
        yield Place(("HGET", keys.meta, "gated"), lambda found: {queue, "*"} & _words(found), (to_all, add))
        yield Place(("SISMEMBER", keys.gates, queue), bool, (add,))


def concurrency_row(keys: Keys, name: str) -> Steps:
    """Read a concurrency key; `line <queue>`: numbers of admitted and of held jobs in a queue."""
    about = keys.concurrency(name)
    row = yield from _row(_fields(about, "limit") | {"running": ("ZCARD", keys.slots(name))})
    [queues] = yield [("ZRANGE", f"{about}:queues", 0, _QUEUES - 1)]
    lines = {text_of(queue): keys.in_line(name, text_of(queue)) for queue in queues or ()}
    let_go = yield [("ZCOUNT", line, "-inf", "(0") for line in lines.values()]
    held = yield [("ZCOUNT", line, "(0", "+inf") for line in lines.values()]
    return row | {f"line {queue}": f"{let_go[at]} {held[at]}" for at, queue in enumerate(lines)}


def concurrency_places(keys: Keys, name: str, row: Row) -> Iterator[Place]:
    about, free = keys.concurrency(name), (number_of(row.get("limit")) or 0) - (number_of(row.get("running")) or 0)
    yield from _numbers("concurrency", about)
    if "limit" in row:
        yield _may("ZSCORE", keys.due, formats.timer("refill", name))
    for field in [field for field in row if field.startswith("line ")]:
        queue = field.removeprefix("line ")
        let_go, held = (number_of(one) or 0 for one in row[field].split(" "))
        listed, keys_in = f"{about}:queues", keys.concurrency_keys(queue)
        if let_go + held == 0:
            mend = ("ZREM", listed, queue), ("ZREM", keys_in, name)
            yield Place(("ZSCORE", listed, queue), lambda found: found is None, mend, "surplus")
        else:
            yield _zset(keys_in, name)
        if held and let_go < min(free, WINDOW):
            yield _zset(keys.due, formats.timer("refill", name))


def _numbers(kind: str, key: str) -> Iterator[Place]:
    for field in _NUMBERS[kind]:  # without a last fence, the clock and the jobs say it
        yield Place(("HGET", key, field), _is_number, (("HDEL", key, field),), "malformed")


def _is_number(found: Any) -> bool:
    return found is None or number_of(found) is not None


def _batch(keys: Keys, batch: str) -> dict[str, Ask]:
    key, first = keys.batch(batch), keys.job(batch)  # it has the id of its first job
    of_first: dict[str, Ask] = {f"first {field}": ("HGET", first, field) for field in ("status", "workflow")}
    return _fields(key, "state", "workflow") | of_first | {"ttl": ("PTTL", key), "now": ("TIME",)}


KINDS: Final[Mapping[str, tuple[Callable[[Keys, str], Steps], Callable[[Keys, str, Row], Iterator[Place]]]]] = {
    "job": (job_row, job_places),
    "schedule": (
        lambda keys, name: _row(
            _fields(keys.schedule(name), "version", "next", "queued", "paused") | {"now": ("TIME",)}
        ),
        schedule_places,
    ),
    "batch": (lambda keys, name: _row(_batch(keys, name)), batch_places),
    "action": (lambda keys, name: _row(_fields(keys.action(name), "state")), action_places),
    "queue": (lambda keys, name: _row(_fields(keys.queue(name), *_GATES)), queue_places),
    "concurrency": (concurrency_row, concurrency_places),
    "meta": (lambda _, __: _row({}), lambda keys, _, __: _numbers("meta", keys.meta)),
}
"""Kind of object → how its row is read, and its places."""


def row_of(fields: Iterable[str], answers: Iterable[Any] | None) -> Row:
    """Return the fields that exist; none if the key has another type."""
    row: Row = {}
    for field, found in zip(fields, answers or (), strict=False):
        if isinstance(found, list):  # the time
            row[field] = str(redis_ms(found))
        elif found is not None:
            row[field] = text_of(found) if isinstance(found, bytes) else str(found)
    return row


def number_of(value: Any) -> int | None:
    """Return an integer that Lua represents exactly; None for anything else."""
    text = text_of(value) if isinstance(value, bytes) else str(value)
    number = int(text) if text.isascii() and text.removeprefix("-").isdecimal() else None
    return number if number is not None and abs(number) < _HIGHEST else None


def queue_of(row: Row) -> str:
    return row.get("queue", "default")


def is_damaged(row: Row) -> bool:
    """Whether the status, queue or priority of a job is invalid."""
    queue, priority = queue_of(row), row.get("priority", "5")
    return row.get("status") not in STATUSES or not QUEUE.fullmatch(queue) or priority not in {*"123456789"}


def _priority(row: Row) -> int:
    return int(row.get("priority", "5"))


def _words(value: bytes | None) -> set[str]:
    return {*text_of(value or b"").split()}
