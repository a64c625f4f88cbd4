"""What holds whenever a job starts or ends, beside who may end it: limits, gates, attempts, and who has to come first.

All is judged by the jobs' own words and by what the server has done so far; of the rest only limits are read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.fake_redis import Server
from workron.ids import ids_behind
from workron.models import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, TERMINAL, Until
from workron.redis.keys import Keys

Row = Mapping[bytes, bytes]
_OWN_FAILURES: Final = frozenset({b"exit_code", b"timeout", b"worker_lost"})
"""Reasons of an attempt's end after which there is another one, if attempts are left."""


@dataclass(slots=True)
class Words:
    """What a job says of itself, as far as it matters to others."""

    queue: str
    workflow: str
    array: str
    concurrency: str
    unique: str
    """A key that it holds until it has ended."""
    name: str
    final: bool


@dataclass
class Kept:
    """What the rules remember of the jobs; undone with the rest by a rollback."""

    words: dict[str, Words] = field(default_factory=dict)
    starts: dict[str, list[int]] = field(default_factory=dict)
    """When jobs were started in a queue while it had a rate, ms."""
    granted: dict[tuple[str, str], list[tuple[str, int]]] = field(default_factory=dict)
    """What a worker's request was answered with: attempts (job, fence)."""
    latest: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """The highest number of a request of a worker's incarnation that has got something, and when one did, ms."""


class Rules:
    """Judges starts, ends and claims; yields in words what was broken."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys
        self.kept = Kept()

    # --- a job starts -------------------------------------------------------------------------------------------------

    def started(self, job_id: str, row: Row, statuses: Mapping[str, str], *, steady: bool) -> Iterator[str]:
        """Judge a start; `statuses` are those of all jobs, with this one already running."""
        own = self.words(job_id, row)
        running = [other for other, status in statuses.items() if status == "running"]
        yield from self._attempts(job_id, row)
        yield from self._cascades(job_id, row)
        yield from self._gates(job_id, own, running, steady=steady)
        yield from self._keys_of(job_id, own, running, steady=steady)
        if own.final:  # once it may start, it is not held up by those that run again
            others = [i for i, words in self.kept.words.items() if words.workflow == own.workflow and i != job_id]
            open_yet = [i for i in others if statuses.get(i) not in TERMINAL and self._runs_first(i)]
            if open_yet:
                yield f"{job_id} is the final job, and was started before {open_yet[0]} had ended"

    def _runs_first(self, job_id: str) -> bool:
        row = self._get(self._keys.job(job_id))
        return bool(row) and _text(row, b"run", "1") == "1"

    def words(self, job_id: str, row: Row) -> Words:
        """What a job says, a task by its array."""
        found = self.kept.words.get(job_id)
        if found is None or found.queue != _text(row, b"queue", DEFAULT_QUEUE):  # it was moved
            array = _text(row, b"array")
            of_all = self._get(self._keys.job(array)) if array else {}
            until, _, _, unique = (_text(row, b"unique") or "- - - ").split(" ", 3)
            found = self.kept.words[job_id] = Words(
                _text(row, b"queue", DEFAULT_QUEUE),
                _text(row, b"workflow"),
                array,
                _text(row, b"concurrency") or _text(of_all, b"concurrency"),
                unique if until == Until.FINISHED else "",
                _text(row, b"name"),
                b"final" in row,
            )
        return found

    def _most_attempts(self, row: Row) -> int:
        array = _text(row, b"array")
        of_all = self._get(self._keys.job(array)) if array else row
        return int(_text(of_all, b"max_attempts", str(DEFAULT_MAX_ATTEMPTS)))

    def _attempts(self, job_id: str, row: Row) -> Iterator[str]:
        number, most = int(_text(row, b"attempts", "0")), self._most_attempts(row)
        if number > most:
            yield f"{job_id} was started for the {number}th time of {most}"

    def _cascades(self, job_id: str, row: Row) -> Iterator[str]:
        for parent, _ in _edges(row):
            its = self._get(self._keys.job(parent))
            goes_on = b"cascade" in its or its.get(b"cancelled_with") in (b"workflow", b"dependency")
            was_there = int(_text(row, b"created_at", "0")) <= int(_text(its, b"finished_at", "0"))
            if its.get(b"status") == b"cancelled" and goes_on and was_there and row.get(b"run", b"1") == b"1":
                yield f"{job_id} was started after {parent} was cancelled with all that depends on it"

    def _gates(self, job_id: str, own: Words, running: list[str], *, steady: bool) -> Iterator[str]:
        queue = self._get(self._keys.queue(own.queue))
        most = int(_text(queue, b"max_running", "1000000"))
        here = sum(self.kept.words[other].queue == own.queue for other in running if other in self.kept.words)
        if b"paused" in queue:
            yield f"{job_id} was started in {own.queue}, which is paused"
        if here > most:
            yield f"{job_id} was started in {own.queue}, where {here} run, and {most} may"
        if b"rate_jobs" in queue:
            jobs, per_ms, now_ms = int(queue[b"rate_jobs"]), int(queue[b"rate_per_ms"]), self._server.now_ms
            starts = self.kept.starts.setdefault(own.queue, [])
            starts.append(now_ms)
            lately = sum(at > now_ms - per_ms for at in starts)
            if lately > jobs and steady:
                yield f"{job_id} was started in {own.queue} as the {lately}th within {per_ms} ms, where {jobs} may be"

    def _keys_of(self, job_id: str, own: Words, running: list[str], *, steady: bool) -> Iterator[str]:
        others = [self.kept.words[other] for other in running if other != job_id and other in self.kept.words]
        if own.concurrency:
            most = int(_text(self._get(self._keys.concurrency(own.concurrency)), b"limit", "1000000"))
            with_it = 1 + sum(other.concurrency == own.concurrency for other in others)
            if with_it > most:
                yield f"{job_id} was started with the key {own.concurrency}, of which {with_it} run, and {most} may"
        if own.unique and steady and any(other.unique == own.unique for other in others):
            yield f"{job_id} was started while another one with its unique key {own.unique} ran"
        if own.array:
            most = int(_text(self._get(self._keys.job(own.array)), b"array_parallel", "1000000"))
            with_it = 1 + sum(other.array == own.array for other in others)
            if with_it > most:
                yield f"{job_id} was started while {with_it - 1} tasks of its array ran, and {most} may"

    # --- a job ends ---------------------------------------------------------------------------------------------------

    def ended(self, job_id: str, status: str, row: Row, fields: Row) -> Iterator[str]:
        """Judge an end: the row is as it was before or is now, `fields` are what was written."""
        now = {**row, **fields}
        if status == "done" and b"array_size" not in row and now.get(b"exit_code") != b"0":
            yield f"{job_id} is done, without its exit code"
        number, most = int(_text(row, b"attempts", "0")), self._most_attempts(row)
        if status == "failed" and now.get(b"reason") in _OWN_FAILURES and number < most:
            yield f"{job_id} has failed for good with the attempt {number} of {most}"

    # --- claims -------------------------------------------------------------------------------------------------------

    def granted(
        self, worker: str, request: str, claims: list[tuple[str, int]], held: Mapping[str, int], known_ms: int
    ) -> Iterator[str]:
        """Judge what a claim request got; `held` is the fence of each running job.

        `known_ms`: how long is known what the last one got; 0 when it may have been forgotten.
        """
        incarnation, _, number = request.rpartition(":")
        before = self.kept.granted.get((worker, request), [])
        missing = [job_id for job_id, fence in before if held.get(job_id) == fence and (job_id, fence) not in claims]
        if missing and claims and known_ms:
            yield f"{worker} asked again with {request}, and got others than {missing[0]}, which it holds"
        if not claims:
            return
        latest, since_ms = self.kept.latest.get((worker, incarnation), (0, 0))
        if int(number) < latest and self._server.now_ms - since_ms < known_ms:
            yield f"{worker} got {claims[0][0]} for {request}, which was overtaken"
        self.kept.latest[worker, incarnation] = max(int(number), latest), self._server.now_ms
        self.kept.granted[worker, request] = claims

    # --- the end ------------------------------------------------------------------------------------------------------

    def stored_twice(self, sizes: Mapping[str, int]) -> Iterator[str]:
        """Judge how many jobs each submission has: `sizes` by its Idempotency-Key, which its jobs have as name."""
        found = dict.fromkeys(sizes, 0)
        for job_id, words in self.kept.words.items():
            if words.name in found and self._get(self._keys.job(job_id)):
                found[words.name] += 1
        for key, number in found.items():
            if number > sizes[key]:
                yield f"the submission {key} of {sizes[key]} jobs is stored with {number}"

    def wrongly_skipped(self) -> Iterator[str]:
        """Jobs that stay skipped although all that they wait for has ended as they want."""
        for job_id in self.kept.words:
            row = self._get(self._keys.job(job_id))
            if row.get(b"status") == b"skipped" and b"array" not in row and not any(map(self._is_broken, _edges(row))):
                yield f"{job_id} is skipped, and all that it waits for has ended as it wants"

    def followed_by(self, row: Row) -> tuple[str, str]:
        """Return the task that one of an array follows, and how that has to end; nothing for others."""
        of = self._get(self._keys.job(_text(row, b"array")))
        followed, when = _text(of, b"array_follows"), _text(of, b"array_follows_when")
        first = _text(self._get(self._keys.job(followed)), b"array_first")
        return (ids_behind(first, int(_text(row, b"index")), 1)[0], when) if first else ("", "")

    def _is_broken(self, edge: tuple[str, str]) -> bool:
        parent, when = edge
        status = _text(self._get(self._keys.job(parent)), b"status", "gone")
        return when.endswith("=") or status == "gone" or when not in (status, "finished")

    def _get(self, key: str) -> Row:
        return self._server.get(key) or {}


def _edges(row: Row) -> Iterator[tuple[str, str]]:
    for edge in _text(row, b"depends_on").split():
        parent, _, when = edge.partition(":")
        yield parent, when or "done"


def _text(row: Row, name: bytes, default: str = "") -> str:
    value: Any = row.get(name)
    return default if value is None else value.decode()
