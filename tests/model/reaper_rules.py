"""The rules by which time passes, and of the reaper."""

from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.bridge import MINUTE
from tests.model.driver import Driver


class ReaperRules(Driver):
    """Time, and who acts when it has passed."""

    @rule(minutes=st.sampled_from([1, 1, 2, 3, 4, 10, 40]))
    def pass_time(self, minutes: int) -> None:
        note(f"{minutes} minutes pass")
        self.run(self.bridge.let_expire(minutes))
        self.tick(minutes * MINUTE)

    @rule()
    def reap(self) -> None:
        async def real() -> Any:
            reaped = await self.store.maintenance.reap()
            return reaped.requeued, reaped.ended

        self.do("reap", real, self.model.reap)

    @rule()
    def promote(self) -> None:
        async def real() -> None:
            await self.store.maintenance.promote()

        self.do("promote", real, self.model.promote)

    @rule()
    def propagate(self) -> None:
        async def real() -> None:
            await self.store.maintenance.propagate()

        self.do("propagate", real, self.model.propagate)

    @precondition(lambda self: self.calls)
    @rule(which=st.sampled_from(range(40)))
    def again(self, which: int) -> None:
        """A call comes once more, after others."""
        what, real, model = self.pick(self.calls, which)
        self.do(what, real, model)
