"""The store does what the model says, on every server, whatever is called in whatever order.

`WORKRON_MODEL_EXAMPLES=10000` makes it a long run, of other examples each time; without, they are the same on all
servers and in every run.
"""

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.budget import budget
from tests.model.machine import Machine
from tests.servers import KINDS, Bench

MANY = int(os.environ.get("WORKRON_MODEL_EXAMPLES", "0"))
STEPS = 30
USUAL = budget({"fake": 25, "valkey": 40, "redis": 20}, {"fake": 40, "valkey": 80, "redis": 80})


@pytest.mark.timeout(600 + MANY * 10)  # a failing example is made small
@pytest.mark.parametrize("kind", KINDS)
def test_the_store_does_what_the_model_says(kind: str, namespace: str, request: pytest.FixtureRequest) -> None:
    url = None if kind == "fake" else request.getfixturevalue(f"{kind}_url")
    numbers: Iterator[int] = itertools.count()

    class OnServer(Machine):
        make_bench = staticmethod(lambda: Bench(kind, url, f"{namespace}-{next(numbers)}"))

    chosen = settings(
        max_examples=MANY or USUAL[kind],
        stateful_step_count=STEPS,
        derandomize=not MANY,
        database=None,
        deadline=None,
        print_blob=bool(MANY),
        suppress_health_check=list(HealthCheck),
        phases=[*Phase] if MANY else [Phase.explicit, Phase.generate],  # shrinking takes longer than CI has
    )
    run_state_machine_as_test(OnServer, settings=chosen)
