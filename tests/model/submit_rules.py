"""The rules by which jobs come: submissions, workflows, and what is added to them."""

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.model import specs
from tests.model.array_specs import follow
from tests.model.driver import LOST, PICK, Driver
from tests.model.specs import Spec
from workron import ids
from workron.models import Idempotency, NewJob, OnFailure

FIRST_ID: Final = 10**36


class SubmitRules(Driver):
    """All ways of submitting."""

    def made_tasks(self) -> list[str]:
        return [job.id for job in self.model.jobs.values() if job.task]

    def _jobs(self, asked: Sequence[Spec]) -> list[NewJob]:
        fresh = ids.ids_from(ids.encode(FIRST_ID + 1000 * next(self.numbers)), len(asked))
        made: list[NewJob] = []
        for job_id, spec in zip(fresh, asked, strict=True):
            before = [*self.made_tasks()[-2:], *self.ids[-8:], *(job.id for job in made if not job.final)]
            made.append(spec.job(job_id, before, self.model.now))
            follow(made[-1], spec, [*(job.new for job in self.model.jobs.values() if job.new.array), *made[:-1]])
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
            jobs[-1].final, jobs[-1].depends_on, jobs[-1].array = True, (), None
        workflow = ids.ids_from(jobs[-1].id, 2)[1]
        self._submit("submit workflow", jobs, lost, workflow=workflow, on_failure=on_failure)

    @precondition(lambda self: self.workflows)
    @rule(asked=st.lists(specs.jobs, min_size=1, max_size=2, unique_by=Spec.unique_key), which=PICK, lost=LOST)
    def add(self, asked: list[Spec], which: int, lost: bool) -> None:
        self._submit("add", self._jobs(asked), lost, add=self.pick(self.workflows, which))
