"""What makes a call at model and store, has their answers equal, and compares all that is visible after each step."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from tests.consistency import Audit
from tests.model.bridge import POLICY, START, Bridge
from tests.model.choosing import AnyRule
from tests.model.comparing import Differences
from tests.model.model import Model
from tests.model.state import Policy, Refused
from tests.servers import Bench
from workron.errors import StoreUnavailable, UniqueConflict, WorkronError

AUDITED: Final = 5
"""Every so many steps the audit counts all anew."""

PICK: Final = st.sampled_from(range(20))
LOST: Final = st.sampled_from([False, False, False, True])

Call = tuple[str, Callable[[], Awaitable[Any]], Callable[[], Any]]


class Driver(RuleBasedStateMachine):
    """A store on a server, and the model. `make_bench` is set by the test."""

    make_bench: Callable[[], Bench]

    def __init__(self) -> None:
        super().__init__()
        self._rules_strategy = AnyRule(self)
        self.runner = asyncio.Runner()
        self.bridge = self.run(self._made())
        self.store = self.bridge.store
        settings = (POLICY.lease_ms, POLICY.stop_ms, POLICY.pass_ms, POLICY.retry_ms, POLICY.retry_max_ms)
        self.model = Model(Policy(*settings), START)
        self.run(self.bridge.set_clock(START))
        self.calls: list[Call] = []
        self.ids: list[str] = []
        self.held: list[tuple[str, int]] = []
        self.workflows: list[str] = []
        self.numbers = itertools.count(1)
        self.steps = 0
        self.sound = True
        """False once store and model differ: no need to go on then."""

    async def _made(self) -> Bridge:
        return Bridge(type(self).make_bench())

    def run(self, call: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await call

        return self.runner.run(awaited())

    def teardown(self) -> None:
        try:
            if self.sound:
                self.to_the_end()
        finally:
            self.run(self.bridge.aclose())
            self.runner.close()

    def to_the_end(self) -> None:
        """Run what is left: see the machine."""

    def after_call(self) -> None:
        """Learn what the store has done beside: see the rules of parked claims."""

    # --- calls ------------------------------------------------------------------------------------

    def do(
        self,
        what: str,
        real: Callable[[], Awaitable[Any]],
        model: Callable[[], Any],
        *,
        lost: bool = False,
        again: bool = True,
    ) -> Any:
        """Make a call at both, and have their answers equal. `lost`: the first answer is lost, so it is made twice."""
        self.steps, self.sound = self.steps + 1, False
        self.tick(self.steps % 3 > 0)
        note(f"{what}{' (the reply is lost)' if lost else ''}")
        if again:
            self.calls.append((what, real, model))
        self.bridge.connection.loses = self.model.dies = lost
        answer = self._answered(real)
        expected = self._expected(model)
        self.bridge.connection.loses = self.model.dies = False
        if answer == "StoreUnavailable":
            return self._same(what, real, model)
        self.after_call()
        assert answer == expected, f"{what}: the store answers {answer}, the model {expected}"
        self.sound = True
        return answer

    def _same(self, what: str, real: Callable[[], Awaitable[Any]], model: Callable[[], Any]) -> Any:
        answer, expected = self._answered(real), self._expected(model)
        self.after_call()
        assert answer == expected, f"{what}, once more: the store answers {answer}, the model {expected}"
        self.sound = True
        return answer

    def _answered(self, real: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return self.run(real())
        except UniqueConflict as error:
            return ("UniqueConflict", error.job_id)
        except WorkronError as error:
            if type(error) is StoreUnavailable:  # what is broken is none
                return "StoreUnavailable"
            return (type(error).__name__,)

    def _expected(self, model: Callable[[], Any]) -> Any:
        self.model.finals = []
        try:
            return model()
        except Refused as refused:
            return refused.args

    def tick(self, ms: int) -> None:
        self.model.now += ms
        self.run(self.bridge.set_clock(self.model.now))

    def pick(self, among: Sequence[Any], pick: int) -> Any:
        """One of the last ones."""
        return among[-1 - pick % len(among)]

    # --- comparing --------------------------------------------------------------------------------

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        self.sound = False
        found = self.run(Differences(self.bridge, self.model).found())
        assert not found, "\n".join(found)
        if self.steps % AUDITED == 0:
            self.audit()
        self.sound = True

    def audit(self) -> None:
        problems = self.run(Audit(self.bridge.bench.client, self.bridge.bench.keys).problems())
        assert not problems, "\n".join(problems)

    def examine(self) -> None:
        """Have the doctor look at it, too: in the end only, as it reads everything."""
        report = self.run(self.store.doctor.examine())
        faults = [str(fault) for fault in report.faults if fault.about != "clock"]  # the clock is the test's own key
        assert not faults, "\n".join(faults)
        assert report.uncounted == ""
