"""How a worker ends: drained by a signal or from afar, after so many jobs, or when none are left."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.commands import claim_for
from tests.scripted_source import Scripted, Until, working
from workers.command import program_for
from workers.executor import Executor
from workers.guardian import boottime_s
from workers.limits import Limits
from workers.spawn import Program
from workron.models import Claimed
from workron.models.workers import Drain


async def test_a_drain_request_comes_with_a_heartbeat_and_the_worker_ends(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 0.5", fence=7))
    async with working(source, heartbeat=0.1) as worker:
        await wait_until(lambda: worker.held)
        source.drain = Drain()
        await wait_until(lambda: source.left == [worker.id])
    assert sum(map(len, source.results)) == 1
    assert source.released == []
    assert all(request is None for request in source.requests[2:])


async def test_a_message_without_a_job_has_the_next_heartbeat_sent_at_once(wait_until: Until) -> None:
    source = Scripted()
    async with working(source, heartbeat=9.0) as worker:
        await wait_until(lambda: source.infos)
        source.drain = Drain()
        await source.asked.put(("somebody-else", "", 0))
        await source.asked.put((worker.id, "", 0))
        await wait_until(lambda: source.left == [worker.id], within_s=5)


async def test_a_drain_request_keeps_its_own_deadline_which_repeats_do_not_put_off(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 60", fence=7))
    async with working(source, heartbeat=0.1, drain_timeout=60) as worker:
        await wait_until(lambda: 7 in worker.held and worker.held[7].started)
        source.drain = Drain(600)
        await wait_until(lambda: source.left == [worker.id], within_s=5)
    assert source.released == [("job-7", 7)]


async def test_a_signal_shortens_the_deadline_of_a_drain_request(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 60", fence=7))
    async with working(source, heartbeat=0.1, drain_timeout=0.2) as worker:
        await wait_until(lambda: 7 in worker.held and worker.held[7].started)
        source.drain = Drain(7_200_000)
        await wait_until(lambda: worker._stopping.begun)
        await asyncio.sleep(0.5)
        assert source.released == []
        worker.stop()
        await wait_until(lambda: source.released == [("job-7", 7)])


async def test_a_command_that_has_not_begun_when_the_signal_comes_does_not_begin(tmp_path: Path) -> None:
    signals: list[str] = []
    async with Executor(kill_grace_s=0.2, halted=lambda: bool(signals)) as executor:
        attempt = executor.start(claim_for(f"touch {tmp_path}/began", fence=7), boottime_s() + 30)
        signals.append("TERM")
        await attempt.wait()
        assert (attempt.given_back, attempt.started) == (True, False)
    assert not (tmp_path / "began").exists()


async def test_a_signal_that_comes_while_a_start_is_prepared_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[str] = []

    def program_and_signal(*args: Any) -> Program:
        signals.append("TERM")
        return program_for(*args)

    monkeypatch.setattr("workers.attempt.program_for", program_and_signal)
    async with Executor(kill_grace_s=0.2, halted=lambda: bool(signals)) as executor:
        attempt = executor.start(claim_for(f"touch {tmp_path}/began", fence=7), boottime_s() + 30)
        await attempt.wait()
        assert (signals, attempt.given_back, attempt.started) == (["TERM"], True, False)
    assert not (tmp_path / "began").exists()


async def test_what_is_stopped_while_others_are_given_back_is_given_back_too(
    wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 60", fence=7), claim_for("trap 'sleep 0.1; exit 1' TERM; sleep 60 & wait", fence=8))

    async def slowly(held: Sequence[tuple[str, int]]) -> None:
        source.released += held
        await asyncio.sleep(0.4)

    monkeypatch.setattr(source, "release", slowly)
    async with working(source, slots=2, drain_timeout=0.1) as worker:
        await wait_until(lambda: len(worker.held) == 2)
        await asyncio.sleep(0.2)  # until the shell has set its trap
        worker.stop()
        await wait_until(lambda: source.left == [worker.id])
    assert source.released == [("job-7", 7), ("job-8", 8)]
    assert not any(source.results)


async def test_all_see_at_once_that_a_worker_drains_and_what_it_still_runs(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 0.5", fence=7))
    async with working(source, heartbeat=9.0) as worker:
        await wait_until(lambda: worker.held)
        worker.stop()
        await wait_until(lambda: len(source.infos) == 2, within_s=5)
    assert [info.draining for info in source.infos[:2]] == [False, True]
    assert (source.infos[1].jobs, source.infos[1].running) == (("job-7",), 1)


async def test_a_worker_that_holds_many_jobs_names_a_hundred_of_them(wait_until: Until) -> None:
    source = Scripted()
    source.claims(*(claim_for("sleep 60", fence=fence) for fence in range(1, 121)))
    async with working(source, slots=120) as worker:
        await wait_until(lambda: len(worker.held) == 120)
        worker._heartbeat.hurry()
        await wait_until(lambda: source.infos[-1].running == 120)
    assert source.infos[-1].jobs[:2] == ("job-1", "job-2")
    assert len(source.infos[-1].jobs) == 100


async def test_a_worker_leaves_although_no_server_answers(wait_until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted()
    monkeypatch.setattr("workers.worker.LEAVE_S", 0.1)
    monkeypatch.setattr(source, "leave", lambda _: asyncio.sleep(60))
    async with working(source):
        await wait_until(lambda: source.infos)


async def forever(*_: object) -> NoReturn:
    await asyncio.sleep(60)
    raise AssertionError


async def test_an_idle_worker_does_not_wait_for_the_answer_to_its_claim(
    wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Scripted()
    source.answers.append(forever)
    monkeypatch.setattr("workers.stopping.ANSWER_S", 0.1)
    async with working(source) as worker:
        await wait_until(lambda: source.requests)
        worker.stop()
        await wait_until(lambda: source.left == [worker.id], within_s=5)


async def test_a_second_signal_waits_for_no_answer(wait_until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 60", fence=7))
    monkeypatch.setattr("workers.stopping.ANSWER_S", 0.1)
    monkeypatch.setattr(source, "release", forever)
    async with working(source) as worker:
        await wait_until(lambda: 7 in worker.held and worker.held[7].started)
        worker.stop()
        worker.stop_now()
        await wait_until(lambda: source.left == [worker.id], within_s=5)


async def test_no_more_jobs_are_claimed_than_are_left(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("true", fence=1), claim_for("false", fence=2))
    source.claims(claim_for("true", fence=3))
    async with working(source, slots=2, limits=Limits(max_jobs=3)) as worker:
        await wait_until(lambda: source.left == [worker.id])
    limits = [request.limit for request in source.requests if request is not None]
    assert limits[0] == 2
    assert max(limits[1:]) == 1
    assert sum(map(len, source.results)) == 3


async def test_a_job_that_was_given_back_does_not_count(wait_until: Until) -> None:
    source = Scripted(lease_ms=200)

    async def late() -> Claimed:
        await asyncio.sleep(0.3)
        return Claimed((claim_for("true", fence=1),), answered=True)

    source.answers.append(late)
    source.claims(claim_for("true", fence=2))
    async with working(source, limits=Limits(max_jobs=1)) as worker:
        await wait_until(lambda: source.left == [worker.id])
    assert source.released == [("job-1", 1)]
    assert sum(map(len, source.results)) == 1


async def test_jobs_that_a_parked_request_gets_count(wait_until: Until) -> None:
    source = Scripted()
    async with working(source, slots=4, limits=Limits(max_jobs=2)) as worker:
        await wait_until(lambda: worker._first.parked is not None)
        claims = (claim_for("true", fence=1), claim_for("true", fence=2))
        source.wake(*claims)
        await wait_until(lambda: source.left == [worker.id])
    assert [request.limit for request in source.requests if request is not None] == [2]


async def test_a_second_call_leaves_what_the_first_one_may_bring(wait_until: Until) -> None:
    source = Scripted()
    second_is_there = asyncio.Event()

    async def first() -> Claimed:
        await second_is_there.wait()
        return Claimed()

    async def second() -> Claimed:
        second_is_there.set()
        return Claimed()

    source.claims(*(claim_for("true", fence=fence) for fence in range(1, 33)))
    source.answers += [first, second]
    async with working(source, slots=64, limits=Limits(max_jobs=40)):
        await wait_until(second_is_there.is_set)
        await wait_until(lambda: sum(map(len, source.results)) == 32)
        one, *others = [request.limit for request in source.requests[:3] if request is not None]
    assert one == 32
    assert sum(others) == 8


async def test_until_empty_waits_for_what_others_run_and_ends_with_the_last_job(wait_until: Until) -> None:
    source = Scripted()
    source.waiting = 1
    async with working(source, limits=Limits(until_empty=True)) as worker:
        await wait_until(lambda: worker._first.parked is not None)
        await asyncio.sleep(0.5)
        assert source.left == []
        source.waiting = 0
        await wait_until(lambda: source.left == [worker.id])


async def test_until_empty_finishes_what_it_holds(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 0.5", fence=7))
    async with working(source, limits=Limits(until_empty=True)) as worker:
        await wait_until(lambda: source.left == [worker.id])
    assert sum(map(len, source.results)) == 1
    assert source.released == []
