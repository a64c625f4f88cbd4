"""Running a system: jobs are counted, costs are measured, a failing program is told. Only ours: peers need packages."""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.checks import check_drained
from bench.measures import latency, throughput
from bench.peers import OURS, InstallError, System, install
from bench.plan import Plan
from bench.results import Results
from bench.running import Pipe, RunError, Runner
from bench.server import Server
from workron.redis.keys import Keys


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("valkey") as running:
        yield running


@pytest.fixture
def plan(server: Server) -> Iterator[Plan]:
    runner = Runner(server)
    small = install(dataclasses.replace(OURS, drain=1_000))
    yield Plan(server, runner, [small], Results(), rounds=1, quick=True)
    runner.close()


def test_a_drain_of_ours_is_counted_and_checked(plan: Plan) -> None:
    throughput.measure(plan, 0)
    results = plan.results
    assert {"drain", "bulk enqueue", "memory", "server cpu drain", "round trips drain"} <= set(results.values)
    assert 4 <= (results.median("commands drain", "workron") or 0) <= 30
    assert any("drains were checked" in note for note in results.notes)
    # The check would notice a job that is not done: it is asked for one more.
    with pytest.raises(RunError, match="jobs done: 1000 instead of 1001"):
        check_drained(plan, 1001)
    plan.server.client.hset(Keys("default").job(newest(plan)), "attempts", 2)
    with pytest.raises(RunError, match="after b'2' attempts"):
        check_drained(plan, 1000)


def newest(plan: Plan) -> str:
    found: Any = plan.server.client.zrange(Keys("default").index("default", "done"), -1, -1)
    return str(found[0].decode())


def test_latency_is_from_the_submitting_call_to_the_body_of_the_job(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "PAUSE_MS", 5)
    latency.measure(plan, 0)
    p50, p99 = (plan.results.median(f"latency {part}", "workron") for part in ("p50", "p99"))
    assert p50
    assert p99
    assert 0 < p50 <= p99 < 10_000


def test_a_failing_program_is_reported_with_its_last_output(plan: Plan, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('no such thing')\n")
    broken = dataclasses.replace(plan.ours, command=(plan.ours.command[0], str(script)))
    with pytest.raises(RunError, match="workron bulk: no such thing"):
        plan.runner.enqueue(broken, "bulk", 20)


def test_a_worker_that_runs_nothing_is_given_up() -> None:
    pipe = Pipe()
    started = time.monotonic()
    with pytest.raises(RunError, match="no job ran"):
        pipe.count(1, patience_s=0.1)
    assert time.monotonic() - started < 5
    pipe.close()


def test_a_system_for_a_python_that_is_not_there_is_reported() -> None:
    with pytest.raises(InstallError, match=r"needs Python 3\.90"):
        install(System("future", ("nothing==1",), "", drain=1, python=(3, 90)))
