"""The scheme of keys: of which type each is, whether it has to go by itself, and how it is looked at.

Groups of a pattern: `item`, what is looked at; `counts`, the hash that counts what is in it.
"""

import re
from dataclasses import dataclass
from typing import Final

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class Shape:
    """Keys of one kind. `ask`: the check of each, `members`: whether each member is looked at."""

    pattern: re.Pattern[str]
    type: str
    ask: str = ""
    lasts_ms: int = 0
    """How long one is given that has to have a time to live, and has none; 0: it need not have one."""
    members: bool = False


def _shape(pattern: str, kind: str, ask: str = "", *, lasts_ms: int = 0, members: bool = False) -> Shape:
    return Shape(re.compile(pattern, re.DOTALL), kind, ask, lasts_ms, members)


_ID: Final = "[0-9A-Za-z]{22}"
_QUEUE: Final = r"[A-Za-z0-9_.\-]{1,64}"
_ENDED: Final = "blocked|done|failed|cancelled|skipped"

SHAPES: Final = (
    _shape(rf"job:(?P<item>{_ID})", "hash", "job"),
    _shape(rf"job:{_ID}:heartbeat", "string", lasts_ms=60_000),
    _shape(rf"(?P<item>job:{_ID}:parents)", "hash", "orphan"),
    _shape(rf"(?P<item>job:{_ID}:children)", "list", "orphan"),
    _shape(rf"(?P<item>job:{_ID}:output:\d+)", "string", "orphan"),
    _shape(rf"(?P<counts>queue:(?P<item>{_QUEUE}))", "hash", "queue"),
    _shape(rf"(?P<counts>queue:{_QUEUE}):pending:[1-9]", "list"),
    _shape(rf"(?P<counts>queue:{_QUEUE}):(?:{_ENDED})", "zset", members=True),
    _shape(rf"(?P<counts>queue:{_QUEUE}):keys", "zset"),
    _shape(rf"queue:{_QUEUE}:parked", "zset", lasts_ms=_HOUR_MS),
    _shape(rf"queue:{_QUEUE}:starts", "list", lasts_ms=_HOUR_MS),
    _shape(rf"jobs:(?:{_ENDED})", "zset", members=True),
    _shape("queues:pending", "zset"),
    _shape(r"queues|jobs|leases|due|batches|schedules|schedules:due|actions:open", "zset", members=True),
    _shape("workers|actions|apikeys|arrays", "zset"),
    _shape(rf"apikey:{_ID}", "hash"),
    _shape("gates", "set"),
    _shape("quarantine", "set", members=True),
    _shape("(?P<item>meta)", "hash", "meta"),
    _shape("propagate", "list"),
    _shape("events|audit", "stream"),
    _shape("inbox:.+", "list", lasts_ms=_HOUR_MS),
    _shape("worker:.+", "hash", lasts_ms=_HOUR_MS),
    _shape(rf"batch:(?P<item>{_ID})", "hash", "batch"),
    _shape(rf"batch:{_ID}:(?:ids|reserved)", "list"),
    _shape(rf"(?P<counts>workflow:{_ID})", "hash"),
    _shape(rf"workflow:{_ID}:jobs", "list"),
    _shape(rf"(?P<counts>(?P<item>array:{_ID}))", "hash", "orphan"),
    _shape(rf"(?P<item>array:{_ID}:(?:values|followers|ended))", "list", "orphan"),
    _shape(rf"(?P<item>array:{_ID}:skip)", "set", "orphan", members=True),
    _shape(rf"(?P<item>array:{_ID}:turns)", "zset", "orphan", members=True),
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
    _shape(r"concurrency:\S*:running", "zset", members=True),
    _shape(rf"concurrency:\S*:waiting:{_QUEUE}", "zset", members=True),
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
