"""What a worker does when the API refuses a call: the attempt to blame ends as failed, everything else goes on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.builders import new_job, submit
from tests.conftest import WaitUntil
from tests.log_lines import captured
from tests.pretend_worker import claim_for
from tests.scripted_source import Scripted, Until, working
from tests.servers import Bench
from tests.workers.worker_sources import PATIENT, Place
from workers import refusals
from workers.executor import Executor
from workers.refusals import send_in_parts
from workers.worker import Worker
from workron.errors import ApiRefuses, CallRefused, KeyRefused, StartupError
from workron.models import Claimed, ClaimRequest, OutputPatch, Reason, Result, Status, WorkerInfo
from workron.models.exchange import Exchanged, Kept
from workron.models.workers import Beats
from workron.settings import Settings

TOO_LARGE = CallRefused("the API answered 413: the body is larger than 100 bytes")
FORBIDDEN = KeyRefused("the API answered 403: this key has no access to the queue default")


class Refusing(Scripted):
    """Refuses every call that has to do with the fences in `bad`, and all calls while `closed` says why."""

    def __init__(self, *bad: int) -> None:
        super().__init__()
        self.bad = set(bad)
        self.always_bad: set[int] = set()
        self.closed: ApiRefuses | None = None
        self.claims_closed: ApiRefuses | None = None
        self.calls: list[tuple[str, list[int]]] = []

    def _look(self, call: str, fences: Sequence[int]) -> None:
        self.calls.append((call, list(fences)))
        if self.closed:
            raise self.closed
        if (self.bad | self.always_bad).intersection(fences):
            raise TOO_LARGE

    async def exchange(self, worker: str, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        large = [r.fence for r in results if r.output is not None or r.outcome.reason is None]
        self._look("exchange", [*large, *self.always_bad.intersection(r.fence for r in results)])
        if request is not None and self.claims_closed:
            self.calls.append(("claim", []))
            raise self.claims_closed
        return await super().exchange(worker, results, request)

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> Beats:
        self._look("heartbeat", [fence for _, fence in held])
        return await super().heartbeat(info, held)

    async def write_output(self, patches: Sequence[tuple[str, int, OutputPatch]]) -> list[Kept]:
        self._look("output", [fence for _, fence, _ in patches])
        return await super().write_output(patches)

    async def wait(self, request: ClaimRequest) -> Claimed:
        if self.claims_closed:
            raise self.claims_closed
        return await super().wait(request)

    def reported(self) -> dict[int, Result]:
        return {result.fence: result for results in self.results for result in results}


@pytest.mark.parametrize("number", [1, 2, 7, 150])
async def test_the_reports_to_blame_are_found_with_few_calls(number: int) -> None:
    bad, calls = {0, number // 2}, 0

    async def send(part: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        if bad.intersection(part):
            raise TOO_LARGE
        return [2 * one for one in part]

    answers = await send_in_parts(range(number), send)
    assert answers == [TOO_LARGE if one in bad else 2 * one for one in range(number)]
    assert calls <= 2 + 4 * number.bit_length()


async def test_a_refused_call_without_reports_blames_no_attempt() -> None:
    async def send(_: Sequence[int]) -> list[int]:
        raise TOO_LARGE

    with pytest.raises(CallRefused):
        await send_in_parts([1, 2], send)


async def test_one_result_that_the_api_refused_ended_the_worker_with_all_its_commands(wait_until: Until) -> None:
    source = Refusing(8)
    source.claims(*(claim_for("echo out" if fence < 10 else "sleep 60", fence=fence) for fence in range(5, 11)))
    async with working(source, slots=6) as worker:
        await wait_until(lambda: len(source.reported()) == 5)
        results = source.reported()
        assert {fence: result.outcome.reason for fence, result in results.items()} == {
            fence: Reason.EXIT_CODE if fence == 8 else None for fence in range(5, 10)
        }
        assert results[8].outcome.error == f"what its worker reported was refused: {TOO_LARGE}"
        assert results[8].output is None
        await wait_until(lambda: list(worker.held) == [10])


async def test_a_failure_that_the_api_refuses_too_is_left_to_its_lease(wait_until: Until) -> None:
    source = Refusing()
    source.always_bad.add(7)
    source.claims(claim_for("true", fence=7), claim_for("true", fence=8))
    async with working(source, slots=2) as worker:
        await wait_until(lambda: 8 in source.reported())
        await wait_until(lambda: not worker.held)
        assert 7 not in source.reported()


async def test_the_command_ends_whose_output_is_refused_and_no_other(wait_until: Until) -> None:
    source = Refusing(7)
    source.claims(claim_for("echo much; sleep 60", fence=7), claim_for("echo some; sleep 60", fence=8))
    async with working(source, slots=2) as worker:
        await wait_until(lambda: 7 in source.reported())
        failed = source.reported()[7].outcome
        assert (failed.reason, failed.signal) == (Reason.SIGNAL, 15)
        assert failed.error == f"what its worker reported was refused: {TOO_LARGE}\nmuch\n"
        await wait_until(lambda: list(worker.held) == [8])
        assert b"some\n" in [patch.data for patch in source.written]


async def test_the_command_ends_of_which_no_heartbeat_is_accepted_and_no_other(wait_until: Until) -> None:
    source = Refusing(7)
    source.claims(claim_for("sleep 60", fence=7), claim_for("sleep 60", fence=8))
    async with working(source, slots=2) as worker:
        await wait_until(lambda: 8 in worker.held)
        worker._heartbeat.hurry()
        await wait_until(lambda: 7 in source.reported())
        assert source.reported()[7].outcome.error == f"what its worker reported was refused: {TOO_LARGE}"
        await wait_until(lambda: list(worker.held) == [8])


@pytest.mark.parametrize("error", [FORBIDDEN, TOO_LARGE])
async def test_a_worker_that_is_refused_as_a_whole_goes_on_trying(
    wait_until: Until, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: ApiRefuses
) -> None:
    monkeypatch.setattr(refusals, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(refusals, "LONGEST_PAUSE_S", 0.05)
    source = Refusing()
    go = tmp_path / "go"
    until_go = f"until [ -e {go} ]; do sleep 0.05; done"
    source.claims(claim_for(until_go, fence=7), claim_for("echo two; sleep 60", fence=8))
    with captured() as logs:
        async with working(source, slots=2) as worker:
            await wait_until(lambda: worker.held)
            source.closed = error
            go.touch()
            before = len(source.calls)
            worker._heartbeat.hurry()
            await wait_until(lambda: {call for call, _ in source.calls[before:]} >= {"exchange", "heartbeat", "output"})
            await wait_until(lambda: len(source.calls) > before + 20)
            source.closed = None
            await wait_until(lambda: 7 in source.reported())
            assert source.reported()[7].outcome.reason is None
            await wait_until(lambda: list(worker.held) == [8])
            await wait_until(lambda: source.written)
    said = [(line["call"], line["error"]) for line in logs if line["event"] == "api rejects a call, retrying"]
    assert {(call, str(error)) for call in ("heartbeats", "output", "results")} <= set(said)
    assert len(said) == len(set(said))
    again = {line["call"] for line in logs if line["event"] == "api accepts the call again"}
    assert {"output", "results"} <= again


async def test_a_refused_claim_was_made_again_at_once_for_ever(
    wait_until: Until, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also in a long poll, whose refusal nobody heard of. What runs and is reported does not wait for the next try."""
    monkeypatch.setattr(refusals, "FIRST_PAUSE_S", 600)
    source = Refusing()
    go = tmp_path / "go"
    until_go = f"until [ -e {go} ]; do sleep 0.05; done"
    source.claims(claim_for(until_go, fence=7), claim_for("sleep 60", fence=8))
    async with working(source, slots=3) as worker:
        await wait_until(lambda: len(worker.held) == 2)
        source.claims_closed = FORBIDDEN
        go.touch()
        source.woken.put_nowait(Claimed())  # the poll ends: there may be more
        await wait_until(lambda: 7 in source.reported())
        await wait_until(lambda: worker._delivery.paused)
        await wait_until(lambda: list(worker.held) == [8])
        claims = source.calls.count(("claim", []))
        worker._look_again()
        for _ in range(100):
            await asyncio.sleep(0)
        assert source.calls.count(("claim", [])) == claims <= 2


@pytest.fixture
async def small(valkey_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A worker on an API that takes bodies of 100,000 bytes."""
    bench = Bench("valkey", valkey_url, namespace)
    yield Place("http", bench, tmp_path, max_body=100_000)
    await bench.aclose()


@pytest.mark.parametrize("then", ["", "; sleep 60"], ids=["with its result", "while it runs"])
async def test_a_job_that_writes_more_than_the_api_takes_ended_its_worker(
    small: Place, wait_until: WaitUntil, tmp_path: Path, then: str
) -> None:
    go = tmp_path / "go"
    async with small.worker() as worker:
        (good,) = await submit(small.store, new_job(command=f"until [ -e {go} ]; do sleep 0.05; done"))
        large = f"head -c 200000 /dev/zero | tr '\\0' a{then}"
        (bad,) = await submit(small.store, new_job(command=large, max_attempts=1))
        await wait_until(small.is_(bad, Status.FAILED))
        job = await small.store.job(bad)
        assert "the body is larger than 100,000 bytes" in (job.error or "")
        assert await small.status(good) is Status.RUNNING
        go.touch()
        await wait_until(small.is_(good, Status.DONE))
        job = await small.store.job(good)
        assert (job.attempts, job.worker) == (1, worker.id)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"queues": tuple(f"q{n}" for n in range(101))}, "at most 100"),
        ({"worker_name": "a:claim"}, ":claim"),
    ],
)
async def test_a_setting_that_the_api_would_refuse_is_reported_before_the_worker_is_ready(
    small: Place, settings: dict[str, Any], said: str
) -> None:
    with captured() as logs:
        async with AsyncExitStack() as stack:
            source = await small.source(PATIENT, stack)
            stack.push_async_callback(source.aclose)
            executor = await stack.enter_async_context(Executor(kill_grace_s=0.3))
            with pytest.raises(StartupError) as caught:
                await Worker(Settings(**settings), source, executor).run()
    assert said in str(caught.value)
    assert "worker ready" not in [line["event"] for line in logs]
