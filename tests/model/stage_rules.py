"""The rules of submissions that take more than one call: two jobs in each, here."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model import specs
from tests.model.driver import LOST
from tests.model.specs import Spec
from tests.model.submit_rules import SubmitRules
from workron import ids
from workron.models import Idempotency, NewJob, OnFailure
from workron.store import encode

AT_ONCE: Final = 2
_many = st.lists(specs.jobs, min_size=3, max_size=5, unique_by=Spec.unique_key)


@contextmanager
def small_chunks() -> Iterator[None]:
    usual, encode.MAX_JOBS = encode.MAX_JOBS, AT_ONCE  # type: ignore[misc]
    try:
        yield
    finally:
        encode.MAX_JOBS = usual  # type: ignore[misc]


class StageRules(SubmitRules):
    """Large submissions: whole, with a lost reply, and left behind by a caller that died."""

    @rule(asked=_many, flow=st.sampled_from([None, None, *OnFailure]), keyed=st.booleans(), lost=LOST)
    def submit_large(self, asked: list[Spec], flow: OnFailure | None, keyed: bool, lost: bool) -> None:
        jobs = self._without_values(self._jobs(asked))
        real, model = self._large(jobs, flow, keyed)
        answer = self.do(f"submit in chunks {flow} {[specs.told(job) for job in jobs]}", real, model, lost=lost)
        if answer == tuple(job.id for job in jobs):
            self.ids += answer
            self.workflows += [ids.ids_from(jobs[-1].id, 2)[1]] if flow else []

    @rule(asked=_many, chunks_left=st.sampled_from([1, 2]))
    def submit_large_and_die(self, asked: list[Spec], chunks_left: int) -> None:
        """What is left names no keys, and no other jobs: see the model."""
        jobs = self._without_values(self._jobs([replace(spec, unique=None) for spec in asked]))
        own = {job.id for job in jobs}
        for job in jobs:
            job.depends_on = [edge for edge in job.depends_on if edge.job in own]
        real, model = self._large(jobs, None, False)
        what = f"submit in chunks {[specs.told(job) for job in jobs]}"
        self.steps, self.sound = self.steps + 1, False
        self.tick(1)
        note(f"{what} (the caller dies)")
        self.calls.append((what, real, model))
        self.bridge.connection.left = chunks_left
        answer = self._answered(real)
        self.bridge.connection.left = None
        expected = self._expected(lambda: self.model.stage(jobs, AT_ONCE, opens=False))
        self.after_call()
        assert answer in ("StoreUnavailable", expected), f"{what}: the store answers {answer}, the model {expected}"
        self.sound = True

    def _without_values(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        for job in jobs:
            if job.array:
                job.array = replace(job.array, values=None)
        return jobs

    def _large(self, jobs: Sequence[NewJob], flow: OnFailure | None, keyed: bool) -> tuple[Any, Callable[[], Any]]:
        key = Idempotency("s", jobs[0].id, "print") if keyed else None
        known = {"as_workflow": True, "on_failure": flow} if flow else {}

        async def real() -> Any:
            with small_chunks():
                try:
                    return (await self.store.submit(jobs, idempotency=key, **known)).ids
                finally:
                    await asyncio.gather(*self.store.submitter._afterwards.tasks)

        def model() -> Any:
            about = {"workflow": ids.ids_from(jobs[-1].id, 2)[1], "on_failure": flow} if flow else {}
            return self.model.stage(jobs, AT_ONCE, key=key.key if key else None, **about)

        return real, model
