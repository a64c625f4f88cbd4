"""The rules of workers: claims, ends, heartbeats, and what is said too late."""

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.builders import SUCCESS, WORKER
from tests.model.comparing import told_of_task
from tests.model.driver import LOST, PICK, Driver
from tests.model.specs import FAILURES, QUEUES
from workron.models import ClaimRequest, Outcome, Result, Status

TOO_LATE: Final = st.sampled_from(["finish", "finish", "heartbeat", "release"])


class WorkerRules(Driver):
    """All that a worker can say."""

    @rule(queues=st.sampled_from(QUEUES), limit=st.sampled_from([1, 1, 2, 5]), worker=st.sampled_from("ab"), lost=LOST)
    def claim(self, queues: list[str], limit: int, worker: str, lost: bool) -> None:
        self.claim_by(ClaimRequest(worker, queues, limit, f"boot:{next(self.numbers)}"), lost)

    def claim_by(self, asked: ClaimRequest, lost: bool) -> None:
        told: dict[str, Any] = {}

        async def real() -> Any:
            claimed = await self.store.attempts.claim(asked)
            told.update({one.id: one.more.get("array") for one in claimed.claims})
            return [(one.id, one.fence, one.attempt) for one in claimed.claims]

        def model() -> Any:
            chosen = self.run(self._started())
            said = (asked.worker, asked.request_id, asked.queues, asked.limit, self.model.fence, chosen)
            return self.model.claim(*said, park_ms=asked.park_ms, inbox=asked.inbox)

        self.held += [claim[:2] for claim in self.do(f"claim {asked}", real, model, lost=lost)]
        assert told == {job_id: told_of_task(self.model.jobs[job_id], self.model) for job_id in told}

    async def _started(self) -> list[str]:
        """The jobs that have been started by now and not in the model, in the order of their fences."""
        found = [one.decode() for one in await self.bridge.bench.client.zrange(self.bridge.bench.keys.leases, 0, -1)]
        keys = self.bridge.bench.keys
        fences = {one: int(await self.bridge.bench.client.hget(keys.job(one), "fence") or 0) for one in found}
        return sorted((one for one in found if fences[one] > self.model.fence), key=lambda one: fences[one])

    @precondition(lambda self: self.held)
    @rule(which=PICK, failure=st.sampled_from([None, None, *FAILURES]), lost=LOST)
    def finish(self, which: int, failure: Outcome | None, lost: bool) -> None:
        job_id, fence = self.pick(self.held, which)
        self.end(job_id, fence, failure or Outcome(None, exit_code=0, result='{"n": 1}' if which % 2 else None), lost)

    def end(self, job_id: str, fence: int, outcome: Outcome, lost: bool) -> None:
        async def real() -> Any:
            result = Result(job_id, fence, outcome)
            (finished,) = (await self.store.attempts.finish([result], worker="a")).finished
            return finished.verdict.value, finished.status

        def model() -> Any:
            before = self.model.jobs.get(job_id)
            waits = before and before.status == "running"
            job = self.run(self.store.jobs([job_id]))[0] if waits else None
            # It may have been cancelled since by a stop that the same call went on with.
            scheduled = job is not None and job.status in (Status.SCHEDULED, Status.CANCELLED) and job.run_at_ms
            return self.model.finish(job_id, fence, outcome, job.run_at_ms - self.model.now if scheduled else None)

        self.do(f"finish {job_id} {fence} {outcome}", real, model, lost=lost)

    @precondition(lambda self: self.held)
    @rule(which=PICK, lost=LOST)
    def release(self, which: int, lost: bool) -> None:
        self.give_back(*self.pick(self.held, which), lost)

    def give_back(self, job_id: str, fence: int, lost: bool) -> None:
        async def real() -> Any:
            return (await self.store.attempts.release([(job_id, fence)]))[0]

        self.do(f"release {job_id} {fence}", real, lambda: self.model.release(job_id, fence), lost=lost)

    @precondition(lambda self: self.held)
    @rule(which=PICK)
    def heartbeat(self, which: int) -> None:
        self.beat(*self.pick(self.held, which))

    def beat(self, job_id: str, fence: int) -> None:
        async def real() -> Any:
            return (await self.store.attempts.heartbeat(WORKER, [(job_id, fence)])).attempts[fence].value

        self.do(f"heartbeat {job_id} {fence}", real, lambda: self.model.heartbeat(job_id, fence))

    @precondition(lambda self: self._overtaken())
    @rule(which=PICK, how=TOO_LATE)
    def speak_too_late(self, which: int, how: str) -> None:
        """An earlier attempt of a job that is running again has its say: nothing changes."""
        self.speak(*self.pick(self._overtaken(), which), how)

    def speak(self, job_id: str, fence: int, how: str) -> None:
        if how == "finish":
            self.end(job_id, fence, SUCCESS, False)
        elif how == "heartbeat":
            self.beat(job_id, fence)
        else:
            self.give_back(job_id, fence, False)

    def _overtaken(self) -> list[tuple[str, int]]:
        now = dict(self.running())
        return [(job_id, fence) for job_id, fence in self.held if now.get(job_id, fence) != fence]

    def running(self) -> list[tuple[str, int]]:
        jobs = [job for job in self.model.jobs.values() if job.status == "running"]
        return [(job.id, job.fence) for job in jobs if job.fence]
