"""The key schema: the name, type and contents of each kind of key, and how the doctor checks it.

`make generate` writes the tables of docs/keys.md from it.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from workron.redis.keys import Keys

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_KEYS: Final = Keys("")
_PLACEHOLDER: Final = re.compile("(<[^>]+>)")
_PATTERNS: Final = {
    "<id>": "[0-9A-Za-z]{22}",
    "<q>": r"[A-Za-z0-9_.\-]{1,64}",
    "<name>": r"[A-Za-z0-9_.\-]{1,64}",
    "<priority>": "[1-9]",
    "<status>": "blocked|done|failed|cancelled|skipped",
    "<fence>": r"\d+",
    "<api key>": ".*",
}
"""Placeholder → what it stands for. Other placeholders stand for any text."""


@dataclass(frozen=True)
class Shape:
    """One kind of key. `key` is a template, as `Keys` makes it of placeholders; the type "" allows every type."""

    key: str
    type: str
    contents: str
    """Markdown for docs/keys.md, like `note`, which follows the type there."""
    note: str = ""
    check: str = ""
    """The check of each key: a kind of `workron/doctor/places.py`, or a method of `Checks`."""
    members: bool = False
    """Whether each member is checked, too."""
    counts: bool = False
    """Whether the hash `<first word>:<first placeholder>` counts what this key holds."""
    lasts_ms: int = 0
    """The time to live that the doctor gives to a key without one; 0: it needs none."""

    @property
    def name(self) -> str:
        """The template without the prefix."""
        return self.key.removeprefix(_KEYS.prefix)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the names of this kind; each placeholder is a group."""
        parts = _PLACEHOLDER.split(self.name)
        parts[::2] = map(re.escape, parts[::2])
        parts[1::2] = (f"({_PATTERNS.get(each, '.+')})" for each in parts[1::2])
        return re.compile("".join(parts), re.DOTALL)

    def item(self, name: str) -> str:
        """Return what is checked: the whole name, or what follows its first word."""
        return name if self.check in {"orphan", "meta"} else name.partition(":")[2]

    def counted(self, name: str) -> str:
        """Return the name of the hash that counts what a key holds."""
        match = self.pattern.fullmatch(name)
        return name[: match.end(1)] if match else name


_ID: Final = "<id>"
_Q: Final = "<q>"
_BATCH: Final = _KEYS.batch(_ID)
_ARRAY: Final = _KEYS.array(_ID)
_OF_STATUS: Final = "for `blocked`, `done`, `failed`, `cancelled` and `skipped`: id → time of the change"

_JOBS: Final = (
    Shape(_KEYS.job(_ID), "hash", "the job; see [the fields below](#fields-of-a-job)", check="job"),
    Shape(
        _KEYS.parents(_ID),
        "hash",
        "unsatisfied dependencies: parent → `done`, `failed` or `finished`; a leading `!` marks an end that is out of"
        " reach",
        check="orphan",
    ),
    Shape(_KEYS.children(_ID), "list", "`<when>:<child>`, kept as long as the job", check="orphan"),
    Shape(
        _KEYS.heartbeat(_ID),
        "string",
        "`<worker> <fence> <ms> <lease_ms>` of the running attempt",
        note="TTL = lease",
        lasts_ms=60_000,
    ),
    Shape(
        _KEYS.output(_ID, "<fence>"),
        "string",
        "first and last 128 KiB of an attempt's output; kept for the last two attempts",
        check="orphan",
    ),
    Shape(_KEYS.jobs, "zset", "all job ids; their text order is their age", note="scores 0", members=True),
    Shape(_KEYS.index(None, "<status>"), "zset", f"{_OF_STATUS}, over all queues", members=True),
    Shape(
        _KEYS.leases,
        "zset",
        "running job → end of its lease; a fraction of `.5` marks a lease that was put off once",
        members=True,
    ),
    Shape(
        _KEYS.due,
        "zset",
        "scheduled job → due time. Also `deadline <id>` and `expires <id>` ([timers](design/deadlines-and-timers.md)),"
        " and `refill <key>` for a concurrency key with more jobs to admit",
        members=True,
    ),
    Shape(
        _KEYS.propagate,
        "list",
        "ended or retried jobs with edges left to visit. Also `cascade:<job>`, `workflow:<id>` and `follow:<array>` for"
        " walks under way",
    ),
    Shape(_KEYS.quarantine, "set", "ids of jobs with damaged keys; the scripts skip these jobs", members=True),
)

_QUEUES: Final = (
    Shape(_KEYS.queues, "zset", "names of all queues", note="scores 0", members=True),
    Shape(
        _KEYS.pending_queues,
        "zset",
        "queues with pending jobs; an emptied queue stays until the reaper's next visit",
        note="scores 0",
    ),
    Shape(
        _KEYS.queue(_Q),
        "hash",
        "number of jobs per status; see [the fields below](#fields-of-a-queue)",
        check="queue",
        counts=True,
    ),
    Shape(_KEYS.pending(_Q, "<priority>"), "list", "ids ready to run at this priority, in order", counts=True),
    Shape(_KEYS.index(_Q, "<status>"), "zset", _OF_STATUS, members=True, counts=True),
    Shape(
        _KEYS.parked(_Q),
        "zset",
        "worker with a parked claim request → time until which it waits",
        note="TTL",
        lasts_ms=_HOUR_MS,
    ),
    Shape(
        _KEYS.concurrency_keys(_Q), "zset", "concurrency keys of the queue's pending jobs", note="scores 0", counts=True
    ),
    Shape(
        _KEYS.starts(_Q),
        "list",
        "times of the last starts, as many as the queue's rate allows",
        note="TTL",
        lasts_ms=_HOUR_MS,
    ),
    Shape(_KEYS.gates, "set", "queues that are paused or limited"),
)

_WORKERS: Final = (
    Shape(_KEYS.workers, "zset", "worker → last heartbeat"),
    Shape(
        _KEYS.worker("<worker>"),
        "hash",
        "`about` (JSON), `lease_ms`, and `drain` while a drain is requested",
        note="TTL 1 h",
        lasts_ms=_HOUR_MS,
    ),
    Shape(
        f"{_KEYS.worker('<worker>')}:claim",
        "hash",
        "the last claim request: its id, its inbox, the claims it received (`<id> <fence> …`), and `parked`: the queues"
        " at which it waits. `…:claim~2` belongs to a worker's second sequence of requests",
        note="TTL",
        lasts_ms=_HOUR_MS,
    ),
    Shape(
        _KEYS.inbox("<inbox>"),
        "list",
        "workers that were woken and have not noticed yet. An API server has one inbox for all its waiting requests",
        note="TTL",
        lasts_ms=_HOUR_MS,
    ),
    Shape(
        _KEYS.cancels,
        "channel",
        "`<worker> <job> <fence>`: stop this attempt now. `<worker>` alone: send a heartbeat now",
    ),
)

_SUBMISSIONS: Final = (
    Shape(_KEYS.batches, "zset", "staged submission → its last call", members=True),
    Shape(_BATCH, "hash", "its state and chunks", check="batch"),
    Shape(f"{_BATCH}:ids", "list", "ids that are not admitted yet, one entry per chunk"),
    Shape(f"{_BATCH}:reserved", "list", "the reserved room: `<queue> <n> …`"),
    Shape(
        _KEYS.idempotency("<api key>:<key>"),
        "string",
        "fingerprint of the body, first id, number of jobs. For a trigger of a schedule,"
        " `schedule:<name>` stands in place of the API key",
        note="TTL 24 h",
        check="idempotency",
        lasts_ms=_DAY_MS,
    ),
    Shape(
        _KEYS.unique("<key>"),
        "string",
        "`<job id> <run>` of the holder (`lua/lib/unique.lua`)",
        note="TTL",
        check="unique",
        lasts_ms=_DAY_MS,
    ),
    Shape(
        _KEYS.returned("<first id>"),
        "hash",
        "jobs of a submission that were not stored → holders of their unique keys; TTL 10 min without an"
        " Idempotency-Key",
        note="TTL 24 h",
        lasts_ms=_DAY_MS,
    ),
    Shape(
        _KEYS.workflow(_ID),
        "hash",
        "name, size and counts; `watched`, `on_failure`, `final`, `stopped`, `stopped_by` and `stop_at`"
        " (`lua/lib/workflows.lua`)",
        counts=True,
    ),
    Shape(_KEYS.workflow_jobs(_ID), "list", "ids, parents first"),
    Shape(_KEYS.arrays, "zset", "arrays with work left"),
    Shape(
        _ARRAY,
        "hash",
        "`size`, `made` (tasks created), `parallel`, and a count per status (`lua/lib/arrays.lua`)",
        check="orphan",
        counts=True,
    ),
    Shape(_KEYS.array_values(_ID), "list", "the value of each task", check="orphan"),
    Shape(
        _KEYS.array_skips(_ID),
        "set",
        "indexes that were cancelled before their tasks were created",
        check="orphan",
        members=True,
    ),
    Shape(f"{_ARRAY}:turns", "zset", "indexes that wait because of `max_parallel`", check="orphan", members=True),
    Shape(
        f"{_ARRAY}:swept", "string", "one bit per task that is done and was deleted before its array", check="orphan"
    ),
    Shape(_KEYS.array_followers(_ID), "list", "each array that follows this one", check="orphan"),
    Shape(
        _KEYS.array_ended(_ID),
        "list",
        "indexes whose end the followers have not seen yet; `*` means all",
        check="orphan",
    ),
    Shape(
        _KEYS.concurrency("<key>"),
        "hash",
        "`limit`, `jobs` (unfinished jobs with this key), and positions in the line of waiting jobs"
        " (`lua/lib/slots.lua`)",
        check="concurrency",
        counts=True,
    ),
    Shape(_KEYS.slots("<key>"), "zset", "job with a slot → time since when", members=True),
    Shape(
        _KEYS.in_line("<key>", _Q),
        "zset",
        "pending job of this queue → queue position; negative once the job is in the queue's list",
        members=True,
    ),
    Shape(f"{_KEYS.concurrency('<key>')}:queues", "zset", "queues with waiting jobs, least recently visited first"),
)

_SCHEDULES: Final = (
    Shape(_KEYS.schedules, "zset", "all names", note="scores 0", members=True),
    Shape(_KEYS.schedules_due, "zset", "name → next time to look at it; paused schedules are absent", members=True),
    Shape(
        _KEYS.schedule("<name>"),
        "hash",
        "the definition, its `version`, the `next` and `queued` occurrence, `active` runs, counts",
        check="schedule",
    ),
    Shape(
        _KEYS.schedule_runs("<name>"),
        "list",
        "the last 20 runs: `<at> <outcome> <count> <now> <job> <workflow> <text>`",
    ),
    Shape(_KEYS.actions, "zset", "all bulk actions of the last week"),
    Shape(_KEYS.actions_open, "zset", "bulk actions under way", members=True),
    Shape(_KEYS.action(_ID), "hash", "filter, cursor, counts, and the reaper at work", check="action"),
    Shape(f"{_KEYS.action(_ID)}:sources", "list", "indexes to go through"),
)

_ACCESS: Final = (
    Shape(_KEYS.api_keys, "zset", "id → time at which the key is forgotten"),
    Shape(
        _KEYS.api_key(_ID),
        "hash",
        "`name`, `digest` (SHA-256 of the key), `scopes`, `queues`, `created_at`, `expires_at`; deleted 30 days after"
        " the key ends",
    ),
    Shape(
        _KEYS.audit,
        "stream",
        "the audit log: `at`, `key`, `name`, `action`, `target`, `status`, `from`",
        note="about 10,000 entries",
    ),
)

_SYSTEM: Final = (
    Shape(_KEYS.meta, "hash", "see below", check="meta"),
    Shape(_KEYS.events, "stream", "one entry per call: new status → ids", note="about 1,000 entries"),
    Shape(_KEYS.set_aside("<key>"), "", "keys of a foreign type, renamed by `workron doctor --rebuild`"),
)

GROUPS: Final = {
    "Jobs": _JOBS,
    "Queues": _QUEUES,
    "Workers": _WORKERS,
    "Submissions, workflows and arrays": _SUBMISSIONS,
    "Schedules and bulk actions": _SCHEDULES,
    "Access": _ACCESS,
    "The system": _SYSTEM,
}
"""Heading in docs/keys.md → kinds of keys, the more general ones first."""

_BY_FIRST_WORD: Final = defaultdict[str, list[Shape]](list)
for _group in GROUPS.values():
    for _shape in _group:
        if _shape.type != "channel":
            _BY_FIRST_WORD[_shape.name.partition(":")[0]].append(_shape)


def shape_of(name: str, type_: str) -> Shape | None:
    """Return the kind of a key by its name without the prefix; None: it is none of ours.

    The name of a concurrency key may look like a part of another one: then the type decides.
    """
    shapes = [each for each in _BY_FIRST_WORD.get(name.partition(":")[0], ()) if each.pattern.fullmatch(name)]
    return next((each for each in shapes if each.type == type_), shapes[0] if shapes else None)
