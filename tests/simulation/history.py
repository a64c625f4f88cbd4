"""What happened to every job, in the order in which the server did it, and what must never happen.

It looks at each write of a job's status while the script runs, and at what the server answers. It does not know how the
scripts do their work, only what they promise. What a rollback has undone is forgotten here too, but for the fences:
those that were handed out stay handed out.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tests.simulation.blame import Blame
from tests.simulation.fake_redis import Server
from tests.simulation.fault_plan import Course
from tests.simulation.passes import Passes
from tests.simulation.rules import Kept, Rules
from workron.models import Claim, Status, When
from workron.redis.keys import Keys

_ARGV: Final = 5
"""Where the arguments begin in `EVALSHA sha 2 meta guard …`."""
_SUCCESSES, _RESULTS, _RESULT_WIDTH = _ARGV + 11, _ARGV + 12, 13
_HELD_BY_BEAT: Final = _ARGV + 4
_LIMIT: Final = _ARGV + 3
_TERMINAL: Final = {status.value for status in Status if status.terminal}


class Attempt(Protocol):
    """A command that runs somewhere."""

    claim: Claim

    @property
    def may_run(self) -> bool: ...


@dataclass(slots=True)
class Known:
    """What is known of one job."""

    status: str = ""
    run: int = 0
    fence: int = 0
    leased_until_ms: int = 0
    """Until when its worker may count on it, by the server's clock; 0 while it does not know that it has it."""
    ends: dict[int, str] = field(default_factory=dict)
    """How each run ended."""


@dataclass
class Told:
    """What the server has done, as far as it has not been undone."""

    jobs: dict[str, Known] = field(default_factory=dict)
    accepted: set[tuple[str, int]] = field(default_factory=set)
    """Attempts (job, fence) whose end their workers have reported."""
    cancelled: set[tuple[str, int]] = field(default_factory=set)
    """Runs (job, run) of which somebody was told that they are cancelled."""
    acknowledged: set[str] = field(default_factory=set)
    """Jobs whose submitter was told that they are stored."""
    kept: Kept = field(default_factory=Kept)


class History:
    """Watches the server; `problems` says what was broken of the promise."""

    def __init__(self, server: Server, keys: Keys, lease_ms: int, course: Course) -> None:
        self.problems: list[str] = []
        self._blame = Blame() if course is Course.OUTAGE else None
        self.loud: set[str] = set()
        """Jobs whose output is too large for a proxy."""
        self.told = Told()
        self.age = 0
        """Grows with each rollback."""
        self.steady = True
        """Whether clocks and data of the server were never changed from outside: then leases keep attempts apart."""
        self.moved: Callable[[str, str], None] = lambda job_id, how: None
        """Called with each change of a job's status."""
        self._server = server
        self._keys = keys
        self._lease_ms = lease_ms
        self._last_fence = 0
        self._attempts: dict[str, list[Attempt]] = {}
        self._reported_in: tuple[int, frozenset[tuple[str, int]]] = (0, frozenset())
        self.sizes: dict[str, int] = {}
        """How many jobs each submission has, by its Idempotency-Key."""
        self._passes = Passes(server, keys, lease_ms)
        self._rules = Rules(server, keys)
        self._rules.kept = self.told.kept
        server.on_change = self._changed

    # --- what the server does to a job --------------------------------------------------------------------------------

    def _changed(self, script: str, args: Sequence[Any]) -> None:
        prefix = self._keys.job("")
        key = args[0].decode()
        fields = dict(zip(args[1::2], args[2::2], strict=True))
        if not key.startswith(prefix) or b"status" not in fields:
            return
        job_id, status = key.removeprefix(prefix), fields[b"status"].decode()
        row = self._server.get(key)
        job = self.told.jobs.setdefault(job_id, Known())
        run = int(row.get(b"run", b"1"))
        if job.status == "running" and status != "running":
            self._left(script, job_id, job, row)
            if self._blame:
                taken = script == "maintain_reap" and not self._must_stop(row)
                self.problems += self._blame.left(job_id, run, fields, taken=taken, loud=job_id in self.loud)
        if job.status in _TERMINAL and run == job.run:
            self.problems.append(f"{job_id} was {job.status} in run {run}, and then {status}")
        self._rules.words(job_id, row)
        if status == "running":
            self._started(job_id, job, row, int(fields[b"fence"]))
            if self._blame:
                self.problems += self._blame.started(job_id, run, row)
            statuses = {other: known.status for other, known in self.told.jobs.items()} | {job_id: status}
            self.problems += self._rules.started(job_id, row, statuses, steady=self.steady)
            if (job_id, run) in self.told.cancelled:
                self.problems.append(f"run {run} of {job_id} was cancelled, and started")
        elif status in _TERMINAL:
            self._ended(job_id, job, run, status)
            self.problems += self._rules.ended(job_id, status, row, fields)
        self.moved(job_id, f"{job.status or 'new'} → {status}, run {run}, by {script}")
        job.status, job.run = status, run

    def _started(self, job_id: str, job: Known, row: Any, fence: int) -> None:
        if job.status == "running":
            self.problems.append(f"{job_id} was started while it ran")
        if fence <= self._last_fence:
            self.problems.append(f"{job_id} got the fence {fence} after {self._last_fence} was handed out")
        self._last_fence = max(fence, self._last_fence)
        job.fence, job.leased_until_ms = fence, 0
        for edge in row.get(b"depends_on", b"").decode().split():
            parent, _, when = edge.partition(":")
            if not when.endswith("=") and not self._permits(parent, when or When.DONE):
                self.problems.append(f"{job_id} was started before its parent {parent} was {when or 'done'}")
        followed, when = self._rules.followed_by(row)
        # What was cancelled before it was made has `finished`, too, and may be made and run by now.
        if followed and when != When.FINISHED and not self._permits(followed, when):
            self.problems.append(f"{job_id} was started before the task that it follows, {followed}, was {when}")

    def _permits(self, parent: str, when: str) -> bool:
        known = self.told.jobs.get(parent)
        return known is not None and any(when in (end, When.FINISHED) for end in known.ends.values())

    def _ended(self, job_id: str, job: Known, run: int, status: str) -> None:
        if run in job.ends:
            self.problems.append(f"run {run} of {job_id} ended twice: {job.ends[run]}, and then {status}")
        if (job_id, run) in self.told.cancelled and status != "cancelled":
            self.problems.append(f"run {run} of {job_id} was cancelled, but ended {status}")
        job.ends[run] = status

    def _left(self, script: str, job_id: str, job: Known, row: Any) -> None:
        """Judge who took a running job from its worker."""
        reported = (job_id, job.fence) in self._reported()
        if script == "maintain_reap":
            left_ms = job.leased_until_ms - self._server.now_ms
            if left_ms > 0 and not self._must_stop(row):
                self.problems.append(f"{job_id} was taken from fence {job.fence}, leased for another {left_ms} ms")
        elif not reported and script in ("attempt_claim", "attempt_finish") and self._server.command[_LIMIT] == 0:
            self.told.accepted.add((job_id, job.fence))
        elif not reported:
            self.problems.append(f"{script} ended the attempt of {job_id} under fence {job.fence}, which did not ask")
        else:
            self.told.accepted.add((job_id, job.fence))

    def _must_stop(self, row: Any) -> bool:
        array = row.get(b"array", b"").decode()
        of_all = self._server.get(self._keys.job(array)) or {} if array else row  # a task's timeout stands there
        return bool(row.get(b"cancel_requested_at") or row.get(b"expired_at") or of_all.get(b"timeout_ms"))

    def _reported(self) -> frozenset[tuple[str, int]]:
        """The attempts (job, fence) whose end the present call reports."""
        calls, command = self._server.calls, self._server.command
        if self._reported_in[0] != calls:
            pairs: list[tuple[str, int]] = []
            if self._server.script == "attempt_finish":
                pairs = _finished_in(command)
            elif self._server.script == "attempt_release":
                pairs = list(_pairs(command[_ARGV:]))
            self._reported_in = calls, frozenset(pairs)
        return self._reported_in[1]

    # --- what the server answers --------------------------------------------------------------------------------------

    def applied(self, command: Sequence[Any], answer: Any) -> None:
        """Take note of what a process may rely on now."""
        if isinstance(answer, Exception) or not answer:
            return
        match self._server.script, answer:
            case "attempt_claim", [_, _, *rows]:
                self._answered(command, rows)
            case "attempt_finish", [_, _, _, verdicts, *rows]:
                self._judged(_finished_in(command), verdicts)
                self._answered(command, rows)
            case "maintain_reap", _ if self.steady:
                jobs = self.told.jobs.items()
                running = {(one, str(job.fence)): job.leased_until_ms for one, job in jobs if job.status == "running"}
                self.problems += self._passes.applied(answer, running)
            case "attempt_heartbeat", [_, _, *words]:
                self._renewed(_pairs(command[_HELD_BY_BEAT:]), words)
            case "job_cancel", [b"CANCELLED" | b"CANCELLING", *_]:
                job = self.told.jobs[command[_ARGV]]
                self.told.cancelled.add((command[_ARGV], job.run))

    def _answered(self, command: Sequence[Any], rows: Sequence[Any]) -> None:
        worker, request = command[_ARGV], command[_ARGV + 1]
        claims = [(row[0].decode(), int(row[1])) for row in rows]
        self._granted(iter(claims))
        if request:
            jobs = self.told.jobs.items()
            held = {job_id: job.fence for job_id, job in jobs if job.status == "running" and self._goes_on(job_id)}
            known_ms = 2 * self._lease_ms if self.steady else 0
            self.problems += self._rules.granted(worker, request, claims, held, known_ms)

    def _goes_on(self, job_id: str) -> bool:
        """Whether a running job need not stop: only such a one is handed out once more."""
        row = self._server.get(self._keys.job(job_id))
        return not (row.get(b"cancel_requested_at") or row.get(b"expired_at"))

    def _granted(self, pairs: Iterator[tuple[str, int]]) -> None:
        """Leases count from the call that hands claims out, also if it repeats another."""
        for job_id, fence in pairs:
            job = self.told.jobs[job_id]
            if job.status == "running" and job.fence == fence:
                job.leased_until_ms = self._server.now_ms + self._lease_ms

    def _renewed(self, pairs: Iterator[tuple[str, int]], words: Sequence[bytes]) -> None:
        for (job_id, fence), word in zip(pairs, words, strict=True):
            job = self.told.jobs.get(job_id)
            if word == b"lost" or job is None:
                continue
            if job.status != "running" or job.fence != fence:
                self.problems.append(f"a heartbeat of {job_id} under fence {fence} was answered {word.decode()}")
            elif word == b"ok":
                job.leased_until_ms = self._server.now_ms + self._lease_ms

    def _judged(self, pairs: Sequence[tuple[str, int]], verdicts: Sequence[Sequence[bytes]]) -> None:
        for pair, (word, _) in zip(pairs, verdicts, strict=True):
            if word in (b"ACCEPTED", b"RECORDED") and pair not in self.told.accepted:
                self.problems.append(f"a result of {pair[0]} under fence {pair[1]} was {word.decode()}, but not taken")

    # --- what clients and workers know --------------------------------------------------------------------------------

    def acknowledge(self, job_ids: Sequence[str], age: int) -> None:
        """A submitter was told that these are stored, when the history was of that age as it asked."""
        self.told.acknowledged |= {job_id for job_id in job_ids if age == self.age or self._visible(job_id)}

    def begins(self, attempt: Attempt) -> None:
        """A command is started somewhere."""
        job_id = attempt.claim.id
        others = [other for other in self._attempts.get(job_id, ()) if other.may_run]
        if others and self.steady:
            self.problems.append(f"{job_id} runs under the fences {[one.claim.fence for one in [*others, attempt]]}")
        self._attempts[job_id] = [*others, attempt]

    def clock_was_set(self) -> None:
        """No lease is longer from now on than one that is made now."""
        self.steady = False
        for job in self.told.jobs.values():
            job.leased_until_ms = min(job.leased_until_ms, self._server.now_ms + self._lease_ms)

    # --- rollbacks and the end ----------------------------------------------------------------------------------------

    def save(self) -> Told:
        return copy.deepcopy(self.told)

    def roll_back(self, told: Told) -> None:
        """Forget what is undone; what has been acknowledged of it is nobody's fault. The server is back by now."""
        kept = {job_id for job_id in self.told.acknowledged if self._visible(job_id)}
        self.told = told
        self.told.acknowledged |= kept
        self._rules.kept = told.kept
        self.age += 1
        self.steady = False

    def _stored(self, job_id: str) -> bool:
        return self._server.get(self._keys.job(job_id)) is not None

    def _visible(self, job_id: str) -> bool:
        """Whether it is stored for good: one of a large submission is not before that is open."""
        row = self._server.get(self._keys.job(job_id)) or {}
        batch = row.get(b"batch")
        return bool(row) and (not batch or self._server.get(self._keys.batch(batch.decode())).get(b"state") == b"open")

    def unfinished(self) -> list[str]:
        """Return the jobs that have not ended."""
        return [f"{job_id} is {job.status}" for job_id, job in self.told.jobs.items() if self._is_open(job_id, job)]

    def _is_open(self, job_id: str, job: Known) -> bool:
        return job.status not in _TERMINAL and self._stored(job_id)

    def amiss(self) -> list[str]:
        """Return what is wrong in the end with jobs that have all ended."""
        return [*self._rules.stored_twice(self.sizes), *self._rules.wrongly_skipped()]

    def lost(self) -> list[str]:
        return [
            f"{job_id} was acknowledged, and is gone"
            for job_id in sorted(self.told.acknowledged)
            if not self._stored(job_id)
        ]


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[str, int]]:
    for job_id, fence in zip(flat[::2], flat[1::2], strict=True):
        yield job_id, int(fence)


def _finished_in(command: Sequence[Any]) -> list[tuple[str, int]]:
    """Attempts (job, fence) that a call of `attempt_finish` reports, as they are answered."""
    results = command[_RESULTS:]
    pairs = zip(results[::_RESULT_WIDTH], results[1::_RESULT_WIDTH], strict=True)
    return [*_pairs(command[_SUCCESSES].split()), *((job_id, int(fence)) for job_id, fence in pairs)]
