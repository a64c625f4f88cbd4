"""The model: claim requests. Where nothing is found they may be parked: who makes work wakes one of them.

Whom the store wakes, the model is told (`hear_of`), and checks that it may be so. Nobody waits in vain where work
waits: see `forgotten`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.model.operator_actions import Steering
from tests.model.state import Job, Policy, Queue

Held = tuple[str, int]
INBOX_MS = 600_000
ANSWERED_MS = 3_600_000
"""How long a request that got claims is known; another one is known for two leases."""


@dataclass
class Spot:
    """Where a request waits, and until when."""

    queues: Sequence[str]
    until: int


@dataclass
class Request:
    """A worker's last request that got something or was parked, and until when it is known."""

    id: str
    inbox: str
    until: int
    held: list[Held] = field(default_factory=list)
    parked: Spot | None = None


class Parking(Steering):
    """A scheduler that workers can ask for work, and wait at."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.requests: dict[str, Request] = {}
        self.inboxes: dict[str, list[str]] = {}
        """Workers that were woken and have not heard of it."""
        self.inboxes_until: dict[str, int] = {}
        self.told: dict[str, Sequence[str]] = {}
        """Workers that have been told to look and have not yet, and where they had waited."""

    # --- asking -----------------------------------------------------------------------------------

    def claim(
        self,
        worker: str,
        request: str,
        queues: Sequence[str],
        limit: int,
        floor: int,
        chosen: Sequence[str] = (),
        *,
        park_ms: int = 0,
        inbox: str | None = None,
    ) -> list[tuple[str, int, int]]:
        """Lease up to `limit` jobs to a worker: id, fence and attempt of each; else park it, if it may.

        A repeated request gets the same ones with new leases, one that was overtaken gets none. A limit of 0 ends it.
        `chosen`: whom the store took, where several could have been the next one.
        """
        inbox, last = inbox or worker, self.last_request(worker)
        if limit == 0:
            if last and (last.id, last.inbox) == (request, inbox):
                self._end_request(worker, last)
            return []
        if last and int(request.partition(":")[2]) < int(last.id.partition(":")[2]):
            return []
        if last and last.id == request and last.held:
            last.inbox = ""
            return self._lease_anew(last)
        if last:
            last.parked = None
        if set(self.told.get(worker, ())) <= {*queues}:
            self.told.pop(worker, None)
        self._promote()
        claims: list[tuple[str, int, int]] = []
        self.fence = max(self.fence, self.now - 1, floor) if self._next(queues, limit, []) else self.fence
        while (job := self._next(queues, limit - len(claims), chosen[len(claims) :])) is not None:
            alone = limit > 1 and job.is_suspect
            if alone and claims:
                break
            self._start(job, worker)
            claims.append((job.id, self.fence, job.attempts))
            if alone:
                break
        if claims:
            self.requests[worker] = Request(request, inbox, self.now + ANSWERED_MS, [claim[:2] for claim in claims])
        elif park_ms:
            spot = Spot(queues, self.now + park_ms)
            until = self.now + max(2 * self.policy.lease_ms, park_ms)
            self.requests[worker] = Request(request, inbox, until, parked=spot)
        self._settle()
        return claims

    def _lease_anew(self, request: Request) -> list[tuple[str, int, int]]:
        request.until = self.now + ANSWERED_MS
        claims = []
        for job, fence in self._running(request.held):
            if job.cancel_requested_at is job.expired_at is None:
                job.beat_at = self.now
                job.lease_until = job.alive_until = self.now + self.policy.lease_ms
                claims.append((job.id, fence, job.attempts))
        return claims

    def last_request(self, worker: str) -> Request | None:
        last = self.requests.get(worker)
        return last if last and last.until > self.now else None

    def _end_request(self, worker: str, last: Request) -> None:
        """Take a request back, with what it has got."""
        for job, fence in self._running(last.held):
            self._give_back(job, fence)
        last.held, last.parked, last.until = [], None, self.now + 2 * self.policy.lease_ms
        self.told.pop(worker, None)
        self._settle()

    def _start(self, job: Job, worker: str) -> None:
        self.fence += 1
        job.attempts, job.fence, job.worker = job.attempts + 1, self.fence, worker
        job.started_at = job.beat_at = self.now
        job.lease_until = job.alive_until = self.now + self.policy.lease_ms
        queue = self.queues[job.queue]
        if queue.rate:
            queue.starts.note(queue.rate, self.now)
        self._move(job, "running")

    def _running(self, held: Sequence[Held]) -> list[tuple[Job, int]]:
        pairs = [(self.jobs.get(job_id), fence) for job_id, fence in held]
        return [(job, fence) for job, fence in pairs if job and job.status == "running" and job.fence == fence]

    # --- who is next ------------------------------------------------------------------------------

    def _next(self, queues: Sequence[str], limit: int, chosen: Sequence[str]) -> Job | None:
        """The next job to start: of the first queue that has some, of the highest priority that has some."""
        for name in queues if limit > 0 else ():
            queue = self.queues.get(name, Queue())
            running = sum(job.queue == name and job.status == "running" for job in self.jobs.values())
            if queue.paused or (queue.max_running is not None and running >= queue.max_running):
                continue
            if queue.rate and queue.starts.room(queue.rate, self.now) <= 0:
                continue
            for priority in range(9, 0, -1):
                if next_ones := queue.lists[priority][:1] + self._next_of_keys(name, priority):
                    if chosen and chosen[0] in next_ones:
                        return self.jobs[chosen[0]]
                    found = [self.jobs[one] for one in next_ones]
                    return next((job for job in found if job.is_suspect), found[0])  # it may be why no more were taken
        return None

    def _next_of_keys(self, queue: str, priority: int) -> list[str]:
        """Of each concurrency key that has a free slot, the first one in line."""
        found: list[str] = []
        for key in self.slots:
            line = [job for job in self._of_key(key) if job.status == "pending" and job.queue == queue]
            line = [job for job in line if job.priority == priority]
            if line and self._free_slots(key) > 0:
                found.append(min(line, key=lambda job: job.place).id)
        return found

    # --- what others do with those that are parked ------------------------------------------------

    def parked_at(self, queue: str) -> list[str]:
        """Return the workers that wait at a queue, who has waited longest first."""
        spots = {worker: last.parked for worker in self.requests if (last := self.last_request(worker))}
        found = [(spot.until, worker) for worker, spot in spots.items() if spot and queue in spot.queues]
        return [worker for until, worker in sorted(found) if until >= self.now]

    def hear_of(self, inbox: str, worker: str) -> None:
        """The store has woken a worker through an inbox: let it be so here."""
        last = self.last_request(worker)
        assert last, f"{worker} is woken, and is not parked"
        assert last.parked, f"{worker} is woken, and is not parked"
        assert last.parked.until >= self.now, f"{worker} is woken, and parked no more"
        assert last.inbox == inbox, f"{worker} is woken through {inbox}, {last} is parked"
        self.told[worker], last.parked = last.parked.queues, None
        before = self.inboxes.get(inbox, []) if self.inboxes_until.get(inbox, 0) > self.now else []
        self.inboxes[inbox], self.inboxes_until[inbox] = [*before, worker], self.now + INBOX_MS

    def forgotten(self) -> list[str]:
        """Return queues where work waits, and workers, and nobody was told; a rate allows a start as time passes."""
        found: list[str] = []
        for name, queue in self.queues.items():
            told = any(name in queues for queues in self.told.values())
            if queue.rate is None and not told and self.parked_at(name) and self._next([name], 1, []):
                found.append(name)
        return found
