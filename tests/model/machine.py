"""The machine that drives model and store together: each rule is a call, made at both, whose answers have to be equal.

A reply may be lost: the call was made, its caller knows nothing, and makes it again. A call may also come once more,
long after it was answered. In the end all that is left is run, and has to end.
"""

from collections.abc import Sequence
from typing import Any, Final

from builders import SUCCESS, WORKER
from bulk_actions import order, work_off
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.model import specs
from tests.model.bridge import MINUTE
from tests.model.driver import Driver
from tests.model.specs import FAILURES, QUEUES, Spec
from workron import ids
from workron.models import ClaimRequest, Idempotency, NewJob, OnFailure, Outcome, QueueChange, Result, Status
from workron.models.actions import Verb
from workron.models.system import NO_LIMIT

PICK: Final = st.sampled_from(range(20))
LOST: Final = st.sampled_from([False, False, False, True])
FIRST_ID: Final = 10**36


class Machine(Driver):
    """All that can be asked of a scheduler."""

    # --- submitting -------------------------------------------------------------------------------

    def _jobs(self, asked: Sequence[Spec]) -> list[NewJob]:
        fresh = ids.ids_from(ids.encode(FIRST_ID + 1000 * next(self.numbers)), len(asked))
        made: list[NewJob] = []
        for job_id, spec in zip(fresh, asked, strict=True):
            before = [*self.ids[-10:], *(job.id for job in made if not job.final)]
            made.append(spec.job(job_id, before, self.model.now))
        return made

    def _submit(self, what: str, jobs: list[NewJob], lost: bool, keyed: bool = False, **how: Any) -> None:
        key = Idempotency("s", jobs[0].id, "print") if keyed else None
        named = f"{what} {how} {[specs.told(job) for job in jobs]}"

        async def real() -> Any:
            if "add" in how:
                return (await self.store.add(how["add"], jobs, idempotency=key)).ids
            flow = {"as_workflow": True, "on_failure": how["on_failure"]} if "workflow" in how else {}
            return (await self.store.submit(jobs, idempotency=key, **flow)).ids

        def model() -> Any:
            known = {"workflow": how.get("workflow") or how.get("add"), "add": "add" in how}
            chosen = {"on_failure": how["on_failure"]} if "on_failure" in how else {}
            return self.model.submit(jobs, key=key.key if key else None, **known, **chosen)

        answer = self.do(named, real, model, lost=lost)
        if answer == tuple(job.id for job in jobs):
            self.ids += answer
            self.workflows += [how["workflow"]] if "workflow" in how else []

    @initialize(asked=st.lists(specs.jobs, min_size=1, max_size=3, unique_by=Spec.unique_key))
    def begin(self, asked: list[Spec]) -> None:
        self._submit("submit", self._jobs(asked), False)

    @rule(asked=st.lists(specs.jobs, min_size=1, max_size=4, unique_by=Spec.unique_key), lost=LOST, keyed=st.booleans())
    def submit(self, asked: list[Spec], lost: bool, keyed: bool) -> None:
        self._submit("submit", self._jobs(asked), lost, keyed)

    @rule(
        asked=st.lists(specs.jobs, min_size=2, max_size=4, unique_by=Spec.unique_key),
        final=st.booleans(),
        on_failure=st.sampled_from(OnFailure),
        lost=LOST,
    )
    def submit_workflow(self, asked: list[Spec], final: bool, on_failure: OnFailure, lost: bool) -> None:
        jobs = self._jobs(asked)
        if final:
            jobs[-1].final, jobs[-1].depends_on = True, ()
        workflow = ids.ids_from(jobs[-1].id, 2)[1]
        self._submit("submit workflow", jobs, lost, workflow=workflow, on_failure=on_failure)

    @precondition(lambda self: self.workflows)
    @rule(asked=st.lists(specs.jobs, min_size=1, max_size=2, unique_by=Spec.unique_key), which=PICK, lost=LOST)
    def add(self, asked: list[Spec], which: int, lost: bool) -> None:
        self._submit("add", self._jobs(asked), lost, add=self.pick(self.workflows, which))

    # --- a worker ---------------------------------------------------------------------------------

    @rule(queues=st.sampled_from(QUEUES), limit=st.sampled_from([1, 1, 2, 5]), worker=st.sampled_from("ab"), lost=LOST)
    def claim(self, queues: list[str], limit: int, worker: str, lost: bool) -> None:
        asked = ClaimRequest(worker, queues, limit, f"boot:{next(self.numbers)}")

        async def real() -> Any:
            claimed = await self.store.attempts.claim(asked)
            return [(one.id, one.fence, one.attempt) for one in claimed.claims]

        def model() -> Any:
            chosen = self.run(self._started())
            return self.model.claim(worker, asked.request_id, queues, limit, self.model.fence, chosen)

        self.held += [claim[:2] for claim in self.do(f"claim {asked}", real, model, lost=lost)]

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
            scheduled = job is not None and job.status is Status.SCHEDULED
            return self.model.finish(job_id, fence, outcome, job.run_at_ms - self.model.now if scheduled else None)

        self.do(f"finish {job_id} {fence} {outcome}", real, model, lost=lost)

    @precondition(lambda self: self.held)
    @rule(which=PICK, lost=LOST)
    def release(self, which: int, lost: bool) -> None:
        self._release(*self.pick(self.held, which), lost)

    def _release(self, job_id: str, fence: int, lost: bool) -> None:
        async def real() -> Any:
            return (await self.store.attempts.release([(job_id, fence)]))[0]

        self.do(f"release {job_id} {fence}", real, lambda: self.model.release(job_id, fence), lost=lost)

    @precondition(lambda self: self.held)
    @rule(which=PICK)
    def heartbeat(self, which: int) -> None:
        self._heartbeat(*self.pick(self.held, which))

    def _heartbeat(self, job_id: str, fence: int) -> None:
        async def real() -> Any:
            return (await self.store.attempts.heartbeat(WORKER, [(job_id, fence)])).attempts[fence].value

        self.do(f"heartbeat {job_id} {fence}", real, lambda: self.model.heartbeat(job_id, fence))

    @precondition(lambda self: self._overtaken())
    @rule(which=PICK, how=st.sampled_from(["finish", "finish", "heartbeat", "release"]))
    def speak_too_late(self, which: int, how: str) -> None:
        """An earlier attempt of a job that is running again has its say: nothing changes."""
        job_id, fence = self.pick(self._overtaken(), which)
        if how == "finish":
            self.end(job_id, fence, SUCCESS, False)
        elif how == "heartbeat":
            self._heartbeat(job_id, fence)
        else:
            self._release(job_id, fence, False)

    def _overtaken(self) -> list[tuple[str, int]]:
        now = dict(self.running())
        return [(job_id, fence) for job_id, fence in self.held if now.get(job_id, fence) != fence]

    # --- steering ---------------------------------------------------------------------------------

    @rule(which=PICK, run=st.sampled_from([None, "seen", "seen", 2]), cascade=st.booleans(), lost=LOST)
    def cancel(self, which: int, run: Any, cascade: bool, lost: bool) -> None:
        job_id, seen = self._seen(which, run)

        async def real() -> Any:
            return (await self.store.cancel(job_id, seen, cascade=cascade)).value

        what = f"cancel {job_id}, run {seen}, cascade {cascade}"
        self.do(what, real, lambda: self.model.cancel(job_id, seen, cascade=cascade), lost=lost)

    @rule(which=PICK, run=st.sampled_from([None, "seen", "seen", 2]), lost=LOST)
    def retry(self, which: int, run: Any, lost: bool) -> None:
        ended = [one for one in self.ids if (job := self.model.jobs.get(one)) and job.status in ("failed", "cancelled")]
        job_id, seen = self._seen(which, run, ended)
        what = f"retry {job_id}, run {seen}"
        self.do(what, lambda: self.store.retry(job_id, seen), lambda: self.model.retry(job_id, seen), lost=lost)

    def _seen(self, which: int, run: Any, among: Sequence[str] = ()) -> tuple[str, int | None]:
        job_id = self.pick(among or self.ids or ["0" * 22], which)
        job = self.model.jobs.get(job_id)
        return job_id, (job.run if job else 1) if run == "seen" else run

    @rule(which=PICK, lost=LOST)
    def delete(self, which: int, lost: bool) -> None:
        ended = [one for one in self.ids if (job := self.model.jobs.get(one)) and job.ended]
        job_id = self.pick(ended or self.ids or ["0" * 22], which)
        self.do(f"delete {job_id}", lambda: self.store.delete(job_id), lambda: self.model.delete(job_id), lost=lost)

    @precondition(lambda self: self.workflows)
    @rule(which=PICK, lost=LOST)
    def cancel_workflow(self, which: int, lost: bool) -> None:
        flow = self.pick(self.workflows, which)
        real, model = (lambda: self.store.cancel_workflow(flow)), (lambda: self.model.cancel_workflow(flow))
        self.do(f"cancel workflow {flow}", real, model, lost=lost)

    @rule(queue=st.sampled_from(["default", "other"]), change=specs.gates)
    def gate(self, queue: str, change: dict[str, Any]) -> None:
        async def real() -> None:
            given = {name: NO_LIMIT if value is None else value for name, value in change.items()}
            await self.store.change_queue(queue, QueueChange(**given))

        self.do(f"gate {queue} {change}", real, lambda: self.model.gate(queue, change))

    @rule(queue=st.sampled_from(["default", "other"]))
    def purge(self, queue: str) -> None:
        of_keys = [job for job in self.model.jobs.values() if job.new.concurrency and job.status == "pending"]
        if not any(job.queue == queue for job in of_keys):  # in which order those would go is not said

            async def real() -> int:
                return (await self.store.purge_queue(queue))[0]

            self.do(f"purge {queue}", real, lambda: self.model.purge(queue), again=False)

    @rule(
        verb=st.sampled_from(Verb), queue=st.sampled_from([None, "default", "other"]), priority=st.sampled_from([5, 9])
    )
    def act(self, verb: Verb, queue: str | None, priority: int) -> None:
        to = ("other", priority) if verb is Verb.MOVE else None

        async def real() -> Any:
            where = {} if queue is None else {"queue": queue}
            ordered = await order(self.store, verb, to=to or (None, None), **where)
            await self.bridge.set_clock(self.model.now + 1)
            action = await work_off(self.store, ordered)
            return action.done, action.failed

        self.do(f"{verb} all of {queue}, to {to}", real, lambda: self.model.act(verb, queue, to))

    # --- time, and the reaper ---------------------------------------------------------------------

    @rule(minutes=st.sampled_from([1, 1, 2, 3, 4, 10, 40]))
    def pass_time(self, minutes: int) -> None:
        note(f"{minutes} minutes pass")
        self.run(self.bridge.let_expire(minutes))
        self.tick(minutes * MINUTE)

    @rule()
    def reap(self) -> None:
        async def real() -> Any:
            reaped = await self.store.upkeep.reap()
            return None if reaped.waiting else (reaped.requeued, reaped.ended)

        self.do("reap", real, self.model.reap)

    @rule()
    def promote(self) -> None:
        async def real() -> None:
            await self.store.upkeep.promote()

        self.do("promote", real, self.model.promote)

    @rule()
    def propagate(self) -> None:
        async def real() -> None:
            await self.store.upkeep.propagate()

        self.do("propagate", real, self.model.propagate)

    @precondition(lambda self: self.calls)
    @rule(which=st.sampled_from(range(40)))
    def again(self, which: int) -> None:
        """A call comes once more, after others."""
        what, real, model = self.pick(self.calls, which)
        self.do(what, real, model)

    # --- the end ----------------------------------------------------------------------------------

    def to_the_end(self) -> None:
        """Run what is left: everything ends then, and is as the model says."""
        for queue in ("default", "other"):
            self.gate(queue, {"paused": False, "max_running": None})
        for _ in range(15):
            if all(job.ended for job in self.model.jobs.values()):
                break
            self.propagate()
            self.promote()
            self.claim(["default", "other"], 50, "c", False)
            for job_id, fence in self.running():
                self.end(job_id, fence, SUCCESS, False)
            self.pass_time(10)
        else:
            left = [job for job in self.model.jobs.values() if not job.ended]
            raise AssertionError(f"not ended: {left}")
        self.propagate()
        self.all_is_as_the_model_says()
        self.audit()
        self.examine()

    def running(self) -> list[tuple[str, int]]:
        jobs = [job for job in self.model.jobs.values() if job.status == "running"]
        return [(job.id, job.fence) for job in jobs if job.fence]
