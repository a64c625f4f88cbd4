"""The scheme of keys: of which type each is, whether it has to go by itself, and what is to be asked about it.

Groups of a pattern: `item`, what `lua/inspect.lua` is asked about; `key` and `queue` of a part of a concurrency key;
`counts`, the hash that counts what is in it; `child`, a job with edges to its parents; `pending`, a list of jobs;
`array`, the one of a set of tasks.
"""

import re
from dataclasses import dataclass
from typing import Final

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class Shape:
    """Keys of one kind. `asks`: what `lua/inspect.lua` is asked about each."""

    pattern: re.Pattern[str]
    type: str
    asks: tuple[str, ...] = ()
    lasts_ms: int = 0
    """How long one is given that has to have a time to live, and has none; 0: it need not have one."""
    members: str = ""
    """What is asked about each member of a set."""


def _shape(pattern: str, kind: str, *asks: str, lasts_ms: int = 0, members: str = "") -> Shape:
    return Shape(re.compile(pattern, re.DOTALL), kind, asks, lasts_ms, members)


_ID: Final = "[0-9A-Za-z]{22}"
_QUEUE: Final = r"[A-Za-z0-9_.\-]{1,64}"
_ENDED: Final = "blocked|done|failed|cancelled|skipped"

SHAPES: Final = (
    _shape(rf"job:(?P<item>{_ID})", "hash", "job"),
    _shape(rf"job:{_ID}:heartbeat", "string", lasts_ms=60_000),
    _shape(rf"(?P<item>job:(?P<child>{_ID}):parents)", "hash", "orphan"),
    _shape(rf"(?P<item>job:{_ID}:children)", "list", "orphan"),
    _shape(rf"(?P<item>job:{_ID}:output:\d+)", "string", "orphan"),
    _shape(rf"(?P<counts>queue:(?P<item>{_QUEUE}))", "hash", "queue"),
    _shape(rf"(?P<pending>(?P<counts>queue:{_QUEUE}):pending:[1-9])", "list"),
    _shape(rf"(?P<item>(?P<counts>queue:{_QUEUE}):(?:{_ENDED}))", "zset", members="member"),
    _shape(rf"(?P<counts>queue:{_QUEUE}):keys", "zset"),
    _shape(rf"queue:{_QUEUE}:parked", "zset", lasts_ms=_HOUR_MS),
    _shape(rf"queue:{_QUEUE}:starts", "list", lasts_ms=_HOUR_MS),
    _shape(rf"(?P<item>jobs:(?:{_ENDED}))", "zset", members="member"),
    _shape("queues:pending", "zset"),
    _shape(r"(?P<item>queues|jobs|leases|due|batches|schedules|schedules:due|actions:open)", "zset", members="member"),
    _shape("workers|actions|apikeys|arrays", "zset"),
    _shape(rf"apikey:{_ID}", "hash"),
    _shape("gates", "set"),
    _shape("quarantine", "set", members="quarantined"),
    _shape("meta", "hash"),
    _shape("propagate", "list"),
    _shape("events|audit", "stream"),
    _shape("inbox:.+", "list", lasts_ms=_HOUR_MS),
    _shape("worker:.+", "hash", lasts_ms=_HOUR_MS),
    _shape(rf"batch:(?P<item>{_ID})", "hash", "batch"),
    _shape(rf"batch:{_ID}:(?:ids|reserved)", "list"),
    _shape(rf"(?P<counts>workflow:(?P<item>{_ID}))", "hash", "workflow"),
    _shape(rf"workflow:{_ID}:jobs", "list"),
    _shape(rf"(?P<counts>(?P<item>array:{_ID}))", "hash", "orphan"),
    _shape(rf"(?P<item>array:{_ID}:(values|followers|ended))", "list", "orphan"),
    _shape(rf"(?P<item>array:{_ID}:skip)", "set", "orphan"),
    _shape(rf"(?P<item>array:(?P<array>{_ID}):turns)", "zset", "orphan", members="turn"),
    _shape(rf"(?P<item>array:{_ID}:swept)", "string", "orphan"),
    _shape(rf"action:(?P<item>{_ID})", "hash", "action"),
    _shape(rf"action:{_ID}:sources", "list"),
    _shape(rf"schedule:(?P<item>{_QUEUE})", "hash", "schedule"),
    _shape(rf"schedule:{_QUEUE}:runs", "list"),
    _shape("unique:(?P<item>.+)", "string", "unique", lasts_ms=_DAY_MS),
    _shape("idempotency:(?P<item>.+)", "string", "idempotency", lasts_ms=_DAY_MS),
    _shape("returned:.+", "hash", lasts_ms=_DAY_MS),
    _shape("set-aside:.+", ""),
)

_PARTS: Final = (
    _shape(r"concurrency:(?P<key>\S*):running", "zset", members="slot"),
    _shape(rf"concurrency:(?P<key>\S*):waiting:(?P<queue>{_QUEUE})", "zset", members="waiting"),
    _shape("concurrency:.*:queues", "zset"),
)
_CONCURRENCY: Final = _shape("(?P<counts>concurrency:(?P<item>.*))", "hash", "concurrency")


def shape_of(name: str, kind: str) -> Shape | None:
    """Return what a key must be, by its name without the prefix; None: it is none of ours.

    A concurrency key may be called like the parts of another one: there the type, `kind`, decides.
    """
    if name.startswith("concurrency:"):
        return next((one for one in _PARTS if kind == one.type and one.pattern.fullmatch(name)), _CONCURRENCY)
    return next((one for one in SHAPES if one.pattern.fullmatch(name)), None)
