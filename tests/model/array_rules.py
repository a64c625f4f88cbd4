"""The rules of arrays: tasks steered one by one, whoever goes on with arrays, and callers that die before they do."""

from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model import specs
from tests.model.driver import LOST, PICK
from tests.model.specs import Spec
from tests.model.submit_rules import SubmitRules

PLACES = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3]), min_size=1, max_size=3, unique=True)


class ArrayRules(SubmitRules):
    """All that is asked of arrays beside what is asked of any job."""

    def do_and_die(self, what: str, real: Callable[[], Awaitable[Any]], model: Callable[[], Any]) -> None:
        """Make a call at both, whose caller never hears of it; it may come again, later."""
        self.steps, self.sound = self.steps + 1, False
        self.tick(1)
        note(f"{what} (the caller dies)")
        self.calls.append((what, real, model))
        self.bridge.connection.loses = self.model.dies = True
        answer, expected = self._answered(real), self._expected(model)
        self.bridge.connection.loses = self.model.dies = False
        self.after_call()
        assert answer in ("StoreUnavailable", expected), f"{what}: the store answers {answer}, the model {expected}"
        self.sound = True

    def _call(self, what: str, real: Any, model: Any, lost: bool, dies: bool) -> None:
        if dies:
            self.do_and_die(what, real, model)
        else:
            self.do(what, real, model, lost=lost)

    @precondition(lambda self: self.model.arrays)
    @rule(which=PICK, what=st.sampled_from(["cancel", "retry"]), places=PLACES, lost=LOST, dies=LOST)
    def steer_tasks(self, which: int, what: str, places: list[int], lost: bool, dies: bool) -> None:
        name = self.pick(self._arrays_for(what) or list(self.model.arrays), which)

        async def real() -> Any:
            return await (self.store.cancel_tasks if what == "cancel" else self.store.retry_tasks)(name, places)

        self._call(
            f"{what} tasks {places} of {name}", real, lambda: self.model.steer_tasks(name, what, places), lost, dies
        )

    def _arrays_for(self, what: str) -> list[str]:
        """Return those that can take it: what runs can be cancelled, what has not succeeded retried."""
        arrays = [(name, array, self.model.tasks_counted(array)) for name, array in self.model.arrays.items()]
        if what == "cancel":
            return [name for name, array, _ in arrays if array.started and not self.model.jobs[name].ended]
        if what == "retry":
            return [name for name, array, counts in arrays if array.started and counts["failed"] + counts["cancelled"]]
        return [name for name, _, _ in arrays if self.model.jobs[name].ended]

    @precondition(lambda self: self.model.arrays)
    @rule(which=PICK, what=st.sampled_from(["cancel", "retry", "retry", "delete"]), lost=LOST, dies=LOST)
    def steer_array(self, which: int, what: str, lost: bool, dies: bool) -> None:
        among = self._arrays_for(what) if which % 2 else list(self.model.arrays)
        self._steer(self.pick(among or list(self.model.arrays), which), what, lost, dies and what != "delete")

    @precondition(lambda self: self.made_tasks())
    @rule(which=PICK, what=st.sampled_from(["cancel", "retry", "retry", "delete"]), lost=LOST)
    def steer_task(self, which: int, what: str, lost: bool) -> None:
        self._steer(self.pick(self.made_tasks(), which), what, lost, False)

    def _steer(self, job_id: str, what: str, lost: bool, dies: bool) -> None:
        async def real() -> Any:
            answer = await getattr(self.store, what)(job_id)
            return answer.value if what == "cancel" else answer

        self._call(f"{what} {job_id}", real, lambda: getattr(self.model, what)(job_id), lost, dies)

    @rule(asked=st.lists(specs.jobs, min_size=1, max_size=2, unique_by=Spec.unique_key))
    def submit_and_die(self, asked: list[Spec]) -> None:
        jobs = self._jobs(asked)

        async def real() -> Any:
            return (await self.store.submit(jobs)).ids

        self.do_and_die(f"submit {[specs.told(job) for job in jobs]}", real, lambda: self.model.submit(jobs))
        self.ids += [job.id for job in jobs if job.id in self.model.jobs]

    @precondition(lambda self: self.model.arrays)
    @rule()
    def tidy(self) -> None:
        async def real() -> None:
            await self.store.maintenance.tidy()

        self.do("tidy", real, self.model.tidy, again=False)
