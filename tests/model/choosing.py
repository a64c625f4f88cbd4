"""Which rule comes next: any that may, some more often than others."""

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, RuleStrategy

OFTEN: Final = {
    "submit": 3,
    "submit_large": 2,
    "claim": 2,
    "run_some": 4,
    "finish": 3,
    "park": 2,
    "steer_tasks": 3,
    "steer_array": 2,
    "gate": 3,
    "withdraw": 2,
    "pass_time": 2,
}
"""How many times as often as others: what leads on to states where the others matter."""


class AnyRule(RuleStrategy):
    """Hypothesis leaves most rules out of most examples, in which hardly a job runs then: here, none is left out."""

    def __init__(self, machine: RuleBasedStateMachine) -> None:
        super().__init__(machine)
        # The simplest example is made of the first one.
        known = sorted(self.rules, key=lambda one: one.function.__name__ not in OFTEN)
        weighted = [one for one in known for _ in range(OFTEN.get(one.function.__name__, 1))]
        self._any_strategy: st.SearchStrategy[Any] = st.sampled_from(weighted).filter(self.is_valid)

    def do_draw(self, data: Any) -> Any:
        rule = data.draw(self._any_strategy)
        return rule, {name: data.draw(strategy) for name, strategy in rule.arguments_strategies.items()}
