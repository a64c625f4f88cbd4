"""Texts in Redis that Python and Lua share: a function that writes each format and one that reads it, here if needed.

`lua/lib/formats.lua` has the twins, and `tests/unit/test_formats.py` has what one writes read by the other.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from workron.models import Dependency, OnConflict, Unique, Until, When
from workron.models.retry import Code, RetryPolicy

_NONE: Final = "-"


class Hook(StrEnum):
    """A lifecycle hook: a word in a job's field `hooks`; `lua/lib/core.lua` has the order in which they run."""

    UNIQUE = "unique"
    WORKFLOW = "workflow"
    TIMERS = "timers"
    ARRAY = "array"
    TASK = "task"
    CONCURRENCY = "concurrency"


# --- job:<id>:heartbeat: `<worker> <fence> <ms> <lease_ms>` -----------------------------------------------------------


class Heartbeat(NamedTuple):
    """The last heartbeat of an attempt, and for how long it renewed the lease."""

    worker: str
    fence: int
    at_ms: int
    lease_ms: int


def read_heartbeat(value: bytes | None) -> Heartbeat | None:
    """Return a heartbeat; None if there is none, or it is damaged."""
    match (value or b"").decode("utf-8", "replace").split(" "):
        case [worker, fence, at_ms, lease_ms] if fence.isdecimal() and at_ms.isdecimal() and lease_ms.isdecimal():
            return Heartbeat(worker, int(fence), int(at_ms), int(lease_ms))
        case _:
            return None


# --- field `unique`: `<until> <on_conflict> <ttl_ms> <key>`, and its key: `<job> <run>` -------------------------------


def unique(key: Unique) -> str:
    return f"{key.until} {key.on_conflict} {key.ttl_ms} {key.key}"


def read_unique(text: str) -> Unique:
    """Return a unique key; raise ValueError if the text is none."""
    until, on_conflict, ttl_ms, key = text.split(" ", 3)
    return Unique(key, Until(until), OnConflict(on_conflict), int(ttl_ms))


def holder(job_id: str, run: int | str) -> str:
    return f"{job_id} {run}"


def read_holder(text: str) -> tuple[str, str]:
    """Return the id and run of the job that holds a unique key."""
    job_id, _, run = text.partition(" ")
    return job_id, run


# --- field `retry`: `<delay> <factor> <longest> <jitter>|<codes>|<codes>`, `-` for the default ------------------------


def retry(policy: RetryPolicy | None, only: Sequence[Code], never: Sequence[Code]) -> str:
    """Return the text of a policy with its retried and its never retried exit codes."""
    policy = policy or RetryPolicy()
    numbers = (policy.delay_ms, policy.factor, policy.max_delay_ms, policy.jitter)
    words = " ".join(_NONE if number is None else f"{number:.12g}" for number in numbers)
    return f"{words}|{','.join(map(str, only))}|{','.join(map(str, never))}"


def read_retry(text: str) -> tuple[RetryPolicy | None, tuple[Code, ...], tuple[Code, ...]]:
    """Return the arguments of `retry`; raise ValueError for an invalid text."""
    words, only, never = text.split("|")
    delay, factor, max_delay, jitter = (None if word == _NONE else float(word) for word in words.split())
    policy = RetryPolicy(_whole(delay), factor, _whole(max_delay), jitter)
    return None if policy == RetryPolicy() else policy, _codes(only), _codes(never)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _codes(text: str) -> tuple[Code, ...]:
    return tuple(int(code) if code.isdecimal() else code for code in text.split(",") if code)


# --- field `depends_on`: `<id>` (done), `<id>:<when>` or `<id>:<when>=` (matching), with spaces between ---------------


def edges(dependencies: Iterable[Dependency]) -> str:
    return " ".join(map(_edge, dependencies))


def _edge(edge: Dependency) -> str:
    if edge.matching:
        return f"{edge.job}:{edge.when}="
    return edge.job if edge.when is When.DONE else f"{edge.job}:{edge.when}"


def read_edges(text: str) -> list[Dependency]:
    """Return dependencies; raise ValueError for an invalid text."""
    return [Dependency(parent, When(when), matching) for parent, when, matching in split_edges(text)]


def split_edges(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield parent, `when` and whether it is matching, of any text."""
    for part in text.split():
        parent, _, when = part.partition(":")
        yield parent, when.rstrip("=") or When.DONE, when.endswith("=")


def read_parents(text: str) -> list[str]:
    """Return only the ids: there may be 10,000."""
    return [part.partition(":")[0] for part in text.split()]


def first_edges(stored: bytes, most: int) -> tuple[bytes, int]:
    """Return the text of the first edges, and how many there are in all."""
    return b" ".join(stored.split(b" ", most)[:most]), stored.count(b" ") + 1


# --- member of `due`: `<kind> <name>`, kind `deadline` or `expires` of a job, or `refill` of a concurrency key --------


def timer(kind: str, name: str) -> str:
    return f"{kind} {name}"


def read_timer(member: str) -> tuple[str, str]:
    """Return kind and name; the kind of a scheduled job is empty."""
    kind, _, name = member.rpartition(" ") if not member.startswith("refill ") else member.partition(" ")
    return kind, name


# --- job:<id>:children: `<when>:<child>`; and attempts: `<id> <fence> …` ----------------------------------------------


def child(when: str | None, job_id: str) -> str:
    return f"{when}:{job_id}"


def attempts(pairs: Iterable[tuple[str, int | str]]) -> str:
    return " ".join([f"{job_id} {fence}" for job_id, fence in pairs])


# --- field `outputs`: `<fence>:<total bytes>` of each attempt whose output is stored ----------------------------------


def read_outputs(text: str) -> dict[str, int]:
    """Return fence → bytes that the attempt has written."""
    parts = (part.partition(":") for part in text.split())
    return {fence: int(total) for fence, _, total in parts if total.isdecimal()}


# --- idempotency:<key>: `<fingerprint> <first id> <number of jobs> <workflow>`, `-` for none --------------------------


class Entry(NamedTuple):
    """The submission that an Idempotency-Key stands for."""

    fingerprint: str
    first: str
    size: int
    workflow: str | None


def read_entry(text: str) -> Entry | None:
    """Return an entry; None if it is damaged."""
    match text.split(" "):
        case [fingerprint, first, size, workflow] if size.isdecimal():
            return Entry(fingerprint, first, int(size), None if workflow == _NONE else workflow)
        case _:
            return None


# --- a schedule's occurrence as a fingerprint, and `schedule:<name>:runs` ---------------------------------------------


def occurrence(version: str, kind: str, at_ms: int, following_ms: int | None, key: str | None) -> str:
    """Return how a schedule has to be for an occurrence to be stored: see `lua/lib/schedules.lua`."""
    return f"{version} {kind} {at_ms} {_NONE if following_ms is None else following_ms} {key or _NONE}"


class RunLine(NamedTuple):
    """What became of an occurrence, or of `number` that were alike."""

    at_ms: int
    outcome: str
    number: int
    recorded_at_ms: int
    job: str | None
    workflow: str | None
    error: str | None


def read_run(line: str) -> RunLine:
    at, outcome, number, recorded_at, job, workflow, error = line.split(" ", 6)
    job_id, workflow_id = (None if one == _NONE else one for one in (job, workflow))
    return RunLine(int(at), outcome, int(number), int(recorded_at), job_id, workflow_id, error or None)


# --- room for jobs: `<queue> <number> …`; and messages in `cancels`: `<worker> <job> <fence>` or `<worker>` -----------


def rooms(needs: Mapping[str, int] | Iterable[tuple[str, int]]) -> str:
    pairs = needs.items() if isinstance(needs, Mapping) else needs
    return " ".join(f"{queue} {number}" for queue, number in pairs)


def read_stop(message: str) -> Iterator[tuple[str, str, int]]:
    """Yield worker, job and fence of an attempt to be stopped; without a job, the worker has to beat now."""
    match message.split():
        case [worker, job_id, fence] if fence.isdecimal():
            yield worker, job_id, int(fence)
        case [worker]:
            yield worker, "", 0
        case _:
            return
