"""Explains why a job has its status and what must happen next: one sentence, and the facts behind it.

One function per status. Each reads a bounded number of keys; the explanation may be outdated when it is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from workron.amounts import counted
from workron.durations import readable, to_seconds
from workron.models import PRIORITIES, TERMINAL, DependencyState, Job, QueueState, Reason, Status, Together, When
from workron.redis.connection import Connection
from workron.redis.keys import Keys
from workron.store.reader import Reader
from workron.store.slot_queue import place_in_line
from workron.times import redis_ms

_NAMED: Final = 3
"""Maximum of jobs named in a sentence; the facts have more of them."""
_LISTED: Final = 20
_MOST_CAUSES: Final = 50
_LOOKED_THROUGH: Final = 10_000
"""Maximum of list entries searched for a job's position."""
_SILENT_REAPER_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Explanation:
    """A sentence, and the facts as JSON values by name."""

    job: Job
    sentence: str
    facts: Mapping[str, Any]


class Explainer:
    """Explains jobs of one namespace."""

    def __init__(self, connection: Connection, keys: Keys, reader: Reader) -> None:
        self._connection = connection
        self._keys = keys
        self._reader = reader

    async def explain(self, job_id: str) -> Explanation:
        """Return why the job has its status; raise NotFound if there is none."""
        job = await self._reader.job(job_id)
        tell = {
            Status.BLOCKED: self._blocked,
            Status.SCHEDULED: self._scheduled,
            Status.PENDING: self._pending,
            Status.RUNNING: self._running,
            Status.SKIPPED: self._skipped,
        }.get(job.status, self._ended)
        return await tell(job)

    async def _blocked(self, job: Job) -> Explanation:
        open_edges = [edge for edge in job.dependencies if not edge.matching and not _is_met(edge)]
        facts: dict[str, Any] = {"waits_for": [_edge(edge) for edge in open_edges[:_LISTED]], "open": len(open_edges)}
        if open_edges:
            named = ", ".join(f"{edge.job} ({edge.status or 'gone'})" for edge in open_edges[:_NAMED])
            more = f" and {len(open_edges) - _NAMED} more" if len(open_edges) > _NAMED else ""
            what = "a job" if len(open_edges) == 1 else f"{len(open_edges)} of {counted(len(job.dependencies), 'job')}"
            return Explanation(job, f"It waits for {what} to end: {named}{more}.", facts)
        if job.array is not None:
            counts = job.array.counts
            ended = sum(number for status, number in counts.items() if status.terminal)
            running = counts.get(Status.RUNNING, 0)
            facts |= {"tasks": job.array.size, "ended": ended, "running": running}
            doing = f"{ended} of {job.array.size:,} ended, {counted(running, 'runs', 'run')} now"
            return Explanation(job, f"It waits for its tasks: {doing}.", facts)
        if job.final and job.workflow is not None:
            workflow = await self._reader.workflow(job.workflow)
            ended = sum(workflow.counts.get(status, 0) for status in TERMINAL)
            facts |= {"workflow": workflow.id, "others_left": workflow.size - 1 - ended}
            others = f"{workflow.size - 1 - ended} of {workflow.size - 1} others have not"
            return Explanation(
                job, f"It is the final job of its workflow, and starts when all have ended: {others}.", facts
            )
        return Explanation(job, "Its dependencies are met; it is about to be released.", facts)

    async def _scheduled(self, job: Job) -> Explanation:
        now_ms, reaper = await self._now()
        rest_ms = max(0, (job.run_at_ms or now_ms) - now_ms)
        facts: dict[str, Any] = {
            "starts_in": to_seconds(rest_ms),
            "attempts": job.attempts,
            "max_attempts": job.max_attempts,
        }
        when = f"in {_length(rest_ms)}" if rest_ms else "as soon as a worker or the reaper looks"
        if job.attempts:
            failed = f"Attempt {job.attempts} of {job.max_attempts} ended by {_ending(job)}"
            return Explanation(job, f"{failed}; the next one may start {when}.{reaper}", facts)
        return Explanation(job, f"Its time has not come: it may start {when}.{reaper}", facts)

    async def _pending(self, job: Job) -> Explanation:
        queue = (await self._reader.queues_named([job.queue]))[0]
        in_line = await place_in_line(self._connection, self._keys, job)
        if in_line is not None and in_line.full and not queue.paused:
            return Explanation(job, in_line.sentence(job.queue), in_line.facts())
        ahead, exact = await self._place(job)
        if not exact and in_line is not None:
            ahead += in_line.held_ahead
        serving = await self._reader.serving(job.queue)
        idle = sum(one.info.slots > one.info.running for one in serving)
        facts: dict[str, Any] = {
            "ahead": ahead,
            "exact": exact,
            "workers": len(serving),
            "workers_with_free_slots": idle,
        }
        where = f"{_ahead(ahead, exact=exact)} in queue {job.queue}"
        if held := await self._held(queue, facts):
            return Explanation(job, f"{where}, {held}.", facts)
        if not serving:
            facts["held_by"] = "no_worker"
            hint = f"start one: workron worker --queues {job.queue}"
            return Explanation(job, f"{where}, which no worker serves now; {hint}.", facts)
        what = counted(len(serving), "worker serves", "workers serve")
        free = f"{idle} of them with free slots" if idle else "all slots taken as of their last heartbeats"
        return Explanation(job, f"{where}, which {what}, {free}.", facts)

    async def _held(self, queue: QueueState, facts: dict[str, Any]) -> str:
        """Return which setting of the queue keeps its jobs from starting; empty if none does."""
        running = queue.counts.get(Status.RUNNING, 0)
        if queue.paused:
            facts["held_by"] = "paused"
            return f"which is paused; workron queues resume {queue.name} lets it go on"
        if queue.max_running is not None and running >= queue.max_running:
            facts["held_by"] = "max_running"
            return f"of which as many jobs run as may: {running}; it starts when one of them ends"
        if queue.rate is not None:
            starts = await self._connection.call("LRANGE", self._keys.starts(queue.name), 0, 0)
            length = await self._connection.call("LLEN", self._keys.starts(queue.name))
            now_ms, _ = await self._now()
            rest_ms = int(starts[0]) + queue.rate.per_ms - now_ms if starts else 0
            if length >= queue.rate.jobs and 0 < rest_ms <= queue.rate.per_ms:
                facts |= {"held_by": "rate", "starts_in": to_seconds(rest_ms)}
                return f"whose rate allows the next start in {_length(rest_ms)}"
        return ""

    async def _place(self, job: Job) -> tuple[int, bool]:
        """Return how many jobs are ahead of it, and whether that is exact: its list is searched only up to a limit."""
        before = [priority for priority in PRIORITIES if priority > job.priority]
        own = self._keys.pending(job.queue, job.priority)
        *lengths, at, length = await self._connection.pipeline(
            [("LLEN", self._keys.pending(job.queue, priority)) for priority in before]
            + [("LPOS", own, job.id, "MAXLEN", _LOOKED_THROUGH), ("LLEN", own)]
        )
        return sum(lengths) + (int(length) if at is None else int(at)), at is not None

    async def _running(self, job: Job) -> Explanation:
        now_ms, reaper = await self._now()
        rest_ms = int(await self._connection.call("PTTL", self._keys.heartbeat(job.id)))
        since_ms = max(0, now_ms - (job.started_at_ms or now_ms))
        facts: dict[str, Any] = {
            "worker": job.worker,
            "runs_for": to_seconds(since_ms),
            "lease_left": to_seconds(max(0, rest_ms)),
        }
        runs = f"Attempt {job.attempts} of {job.max_attempts} runs on worker {job.worker} since {_length(since_ms)}"
        if rest_ms <= 0:
            facts["held_by"] = "worker_lost"
            return Explanation(job, f"{runs}, but that worker is silent: the reaper takes the job back.{reaper}", facts)
        if job.cancel_requested_at_ms is not None:
            return Explanation(job, f"{runs}; it is being cancelled, and ends when its command is stopped.", facts)
        limit = f", and is stopped after {_length(job.timeout_ms)}" if job.timeout_ms else ""
        return Explanation(job, f"{runs}{limit}; its lease holds for {_length(rest_ms)}, and is renewed.", facts)

    async def _skipped(self, job: Job) -> Explanation:
        causes: list[str] = []
        cause = job
        while cause.caused_by and cause.caused_by not in causes and len(causes) < _MOST_CAUSES:
            causes.append(cause.caused_by)
            [found] = await self._reader.jobs([cause.caused_by])
            if found is None:
                break
            cause = found
        facts: dict[str, Any] = {"caused_by": causes}
        if not causes or cause is job:
            return Explanation(job, job.error or "It was skipped: what it depends on ended otherwise.", facts)
        between = len(causes) - 1
        chain = f", with {counted(between, 'job')} in between" if between else ""
        end = f"{cause.status}" + (f" by {_ending(cause)}" if cause.status is Status.FAILED else "")
        again = f"workron retry {cause.id} has it wait again"
        if cause.status is Status.SKIPPED:  # what that one depended on is gone
            again = "what that job depended on is no longer stored: submit them again"
        return Explanation(job, f"It was skipped because job {cause.id} ended {end}{chain}; {again}.", facts)

    async def _ended(self, job: Job) -> Explanation:
        facts: dict[str, Any] = {"attempts": job.attempts, "exit_code": job.exit_code, "signal": job.signal}
        if job.status is Status.DONE:
            return Explanation(job, f"It is done, after {_attempts(job)}.", facts)
        if job.status is Status.CANCELLED:
            return _cancelled(job, facts)
        if job.reason is Reason.EXPIRED:
            failed = (
                f"It failed at its deadline, {f'after {_attempts(job)}' if job.attempts else 'before it had started'}"
            )
        elif job.attempts:
            failed = f"It failed after {_attempts(job)}: the last one ended by {_ending(job)}"
        else:
            failed = f"It failed before it had started, by {_ending(job)}"
        return Explanation(job, f"{failed}; workron retry {job.id} runs it again.", facts)

    async def _now(self) -> tuple[int, str]:
        """Return the server's time, and a warning if no reaper is at work."""
        time, last = await self._connection.pipeline([("TIME",), ("HGET", self._keys.meta, "last_pass")])
        now_ms = redis_ms(time)
        silent = last is None or now_ms - int(last) > _SILENT_REAPER_MS
        return now_ms, " No reaper is at work: start one with workron reaper." if silent else ""


def _cancelled(job: Job, facts: dict[str, Any]) -> Explanation:
    ran = "" if job.attempts else ", before it had started"
    why = "It expired" if job.reason is Reason.EXPIRED else "It was cancelled"
    if job.caused_by is not None:
        facts["caused_by"] = [job.caused_by]
        failed = job.cancelled_with is Together.FAILURE
        what = "which has failed and stops the workflow" if failed else "on which it depends"
        why = f"It was cancelled because of job {job.caused_by}, {what}"
    elif job.cancelled_with is Together.WORKFLOW:
        facts["workflow"] = job.workflow
        why = f"It was cancelled with its workflow {job.workflow}"
    return Explanation(job, f"{why}{ran}; workron retry {job.id} runs it again.", facts)


def _is_met(edge: DependencyState) -> bool:
    return edge.status is not None and edge.status.terminal and edge.when in (When.FINISHED, edge.status.value)


def _edge(edge: DependencyState) -> dict[str, Any]:
    return {"job": edge.job, "when": edge.when, "status": edge.status}


def _ahead(number: int, *, exact: bool) -> str:
    if exact and not number:
        return "It is the next one"
    return f"{'' if exact else 'About '}{counted(number, 'job is', 'jobs are')} ahead of it"


def _attempts(job: Job) -> str:
    return counted(job.attempts, "attempt")


def _ending(job: Job) -> str:
    """Return how the last attempt ended: `exit code 3`, `signal 9`, `timeout`, `a lost worker` …"""
    if job.reason is Reason.EXIT_CODE:
        return f"exit code {job.exit_code}"
    if job.reason is Reason.SIGNAL:
        return f"signal {job.signal}"
    names = {Reason.WORKER_LOST: "the loss of its worker", Reason.SPAWN: "a command that could not be started"}
    return names.get(job.reason, str(job.reason or "an unknown cause")) if job.reason else "an unknown cause"


def _length(length_ms: int) -> str:
    """Return a duration with readable precision."""
    return readable(length_ms / 1000)
