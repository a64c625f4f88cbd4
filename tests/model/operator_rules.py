"""The rules of people: cancel, retry, delete, settings of queues, bulk actions."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.bulk_actions import order, work_off
from tests.model import specs
from tests.model.driver import LOST, PICK, Driver
from workron.models import QueueChange
from workron.models.actions import Verb
from workron.models.system import NO_LIMIT


class SteeringRules(Driver):
    """All that people can ask for."""

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
