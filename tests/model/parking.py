"""The model: claim requests. Where nothing is found they may be parked: who makes work claims for them, or tells them.

Whom the store serves or tells, the model is told (`hear_of`), and checks that it may be so: who has waited
longest is served, with the jobs that come next. Nobody waits in vain where work waits: see `forgotten`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.model.state import Job, Policy, Queue
from tests.model.steering import Steering

Held = tuple[str, int]
News = tuple[str, str, tuple[Held, ...]]
"""Worker, request, and what it has got; nothing: it is to look for itself."""
INBOX_MS = 600_000
TO_TAKE_MS = 1000


@dataclass
class Spot:
    """Where a request waits, and until when."""

    queues: Sequence[str]
    limit: int
    floor: int
    until: int


@dataclass
class Request:
    """A worker's last request that got something or was parked, and until when it is known."""

    id: str
    inbox: str
    until: int
    held: list[Held] = field(default_factory=list)
    parked: Spot | None = None
    handed: bool = False


class Parking(Steering):
    """A scheduler that workers can ask for work, and wait at."""

    def __init__(self, policy: Policy, now: int) -> None:
        super().__init__(policy, now)
        self.requests: dict[str, Request] = {}
        self.inboxes: dict[str, list[News]] = {}
        self.inboxes_until: dict[str, int] = {}
        self.handed: dict[tuple[str, str, str], int] = {}
        """Inbox, worker and request of claims that were handed over, and when."""
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

        A repeated request gets the same ones with new leases, one that was overtaken gets none. `chosen`: whom the
        store took, where several could have been the next one.
        """
        inbox, last = inbox or worker, self.last_request(worker)
        if limit == 0 and (last is None or (last.id, last.inbox) != (request, inbox)):
            return []
        if last and int(request.partition(":")[2]) < int(last.id.partition(":")[2]):
            return []
        if last and last.handed:
            self.handed.pop((last.inbox, worker, last.id), None)
            last.handed = False
        if last and last.id == request and last.held:
            last.inbox = inbox if last.inbox == inbox else ""
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
        lease = 2 * self.policy.lease_ms
        if claims:
            self.requests[worker] = Request(request, inbox, self.now + lease, [claim[:2] for claim in claims])
        elif park_ms:
            spot = Spot(queues, limit, floor, self.now + park_ms)
            self.requests[worker] = Request(request, inbox, self.now + max(lease, park_ms), parked=spot)
        self._settle()
        return claims

    def _lease_anew(self, request: Request) -> list[tuple[str, int, int]]:
        request.until = self.now + 2 * self.policy.lease_ms
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

    def withdraw(self, worker: str, request: str, inbox: str) -> bool:
        """Take back a request whose answer can't be delivered, with what it has got."""
        last = self.last_request(worker)
        if last is None or (last.id, last.inbox) != (request, inbox):
            return False
        for job, fence in self._running(last.held):
            self._give_back(job, fence)
        last.held, last.parked = [], None
        self.told.pop(worker, None)
        self._settle()
        return True

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

    def hear_of(self, inbox: str, news: News) -> None:
        """The store has put news into an inbox: let it be so here."""
        worker, request, held = news
        last = self.last_request(worker)
        assert last, f"{worker} is not parked: {news}"
        assert last.parked, f"{worker} is not parked: {news}"
        assert (last.id, last.inbox) == (request, inbox), f"{news} came into {inbox}, {last} is parked"
        if held:
            self._hand_over(worker, last, held)
        else:
            assert last.parked.until >= self.now, f"{worker} is parked no more: {news}"
            self.told[worker] = last.parked.queues
        last.parked = None
        before = self.inboxes.get(inbox, []) if self.inboxes_until.get(inbox, 0) > self.now else []
        self.inboxes[inbox], self.inboxes_until[inbox] = [*before, news], self.now + INBOX_MS

    def _hand_over(self, worker: str, last: Request, held: Sequence[Held]) -> None:
        assert last.parked
        queue = self.jobs[held[0][0]].queue
        first = self.parked_at(queue)[:1]
        assert first == [worker], f"{held} went to {worker}, at {queue} {first} is the next one"
        assert len(held) <= last.parked.limit
        self.fence = max(self.fence, self.now - 1, last.parked.floor)
        for job_id, fence in held:
            job = self._next([queue], 1, [job_id])
            assert job, f"{job_id} went to {worker}, nothing may start"
            assert job.id == job_id, f"{job_id} went to {worker}, {job.id} is the next one"
            self._start(job, worker)
            assert job.fence == fence
        last.held, last.handed = list(held), True
        self.handed[last.inbox, worker, last.id] = self.now
        self._settle()

    def forgotten(self) -> list[str]:
        """Return queues where work waits, and workers, and nobody was told; a rate allows a start as time passes."""
        found: list[str] = []
        for name, queue in self.queues.items():
            told = any(name in queues for queues in self.told.values())
            if queue.rate is None and not told and self.parked_at(name) and self._next([name], 1, []):
                found.append(name)
        return found

    def take_back(self) -> None:
        """What was handed over and stays in its inbox goes back: its worker has gone."""
        for (inbox, worker, request), at in list(self.handed.items()):
            if at > self.now - TO_TAKE_MS:
                continue
            del self.handed[inbox, worker, request]
            unheard = self.inboxes.get(inbox, []) if self.inboxes_until.get(inbox, 0) > self.now else []
            for news in [news for news in unheard if news[:2] == (worker, request) and news[2]]:
                unheard.remove(news)
                for job, fence in self._running(news[2]):
                    self._give_back(job, fence)
        self._settle()
