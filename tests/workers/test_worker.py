"""The worker's loop against a scripted source: what it sends when, and what it makes of the answers."""

import asyncio
from pathlib import Path

import pytest

from tests.pretend_worker import claim_for
from tests.scripted_source import Scripted, Until, working
from workers.executor import Executor
from workers.guardian import boottime_s
from workron.errors import StoreUnavailable
from workron.models import (
    Beat,
    Claimed,
    Reason,
)


async def test_claims_whose_lease_ended_on_the_way_are_given_back_unstarted(wait_until: Until) -> None:
    source = Scripted(lease_ms=200)

    async def late() -> Claimed:
        await asyncio.sleep(0.3)
        return Claimed((claim_for("true", fence=7),), answered=True)

    source.answers.append(late)
    async with working(source):
        await wait_until(lambda: source.released == [("job-7", 7)])
    assert not any(source.results)


async def test_the_lease_of_a_claim_counts_from_the_first_try(wait_until: Until) -> None:
    """The first try may have made the claims; only its answer was lost."""
    source = Scripted(lease_ms=300)
    source.answers += [StoreUnavailable("away"), StoreUnavailable("away")]  # 0.2 s between tries
    source.claims(claim_for("true", fence=7))
    async with working(source):
        await wait_until(lambda: source.released == [("job-7", 7)])


async def test_claims_that_come_after_the_stop_are_given_back(wait_until: Until) -> None:
    source = Scripted()
    gate = asyncio.Event()

    async def slow() -> Claimed:
        await gate.wait()
        return Claimed((claim_for("true", fence=7),), answered=True)

    source.answers.append(slow)
    async with working(source) as worker:
        await wait_until(lambda: source.requests)
        worker.stop()
        gate.set()
        await wait_until(lambda: source.released == [("job-7", 7)])


async def test_a_stopping_worker_reports_and_claims_no_more(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 0.3", fence=7))
    async with working(source, slots=3) as worker:
        await wait_until(lambda: worker.held)
        worker.stop()
        worker._look_again()
        before = len(source.requests)
        await wait_until(lambda: any(source.results))
    assert {request.limit for request in source.requests[before:] if request is not None} <= {0}


async def test_a_due_time_is_kept_without_a_wake_up(wait_until: Until) -> None:
    source = Scripted()
    source.claims(next_due_in_ms=100)
    async with working(source):
        await wait_until(lambda: len(source.requests) == 2, within_s=5)


async def test_one_timer_is_kept_however_often_a_due_time_is_reported(wait_until: Until) -> None:
    source = Scripted()
    for _ in range(50):
        source.claims(more=True, next_due_in_ms=3_600_000)
    async with working(source):
        await wait_until(lambda: len(source.requests) > 50)
        timers = [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        assert sum(timer.when() - asyncio.get_running_loop().time() > 1000 for timer in timers) <= 1


async def test_a_worker_that_learns_of_more_jobs_asks_again_at_once(wait_until: Until) -> None:
    source = Scripted()
    source.claims(more=True)
    async with working(source):
        await wait_until(lambda: len(source.requests) >= 2, within_s=5)


async def test_a_worker_that_got_all_that_fits_one_call_asks_again_at_once(
    wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.worker.MAX_RESULTS", 1)
    source = Scripted()
    source.claims(claim_for("sleep 30", fence=1))
    async with working(source, slots=2):
        await wait_until(lambda: len(source.requests) >= 2, within_s=5)


async def test_a_result_waits_for_the_output_that_is_under_way(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("echo one; sleep 0.8; echo two", fence=7))
    source.writing.clear()
    async with working(source) as worker:
        await wait_until(lambda: worker._output.under_way)
        await wait_until(lambda: worker._ended)
        await asyncio.sleep(0.1)
        assert not any(source.results)
        source.writing.set()
        await wait_until(lambda: any(source.results))
    (result,) = next(results for results in source.results if results)
    assert [patch.data for patch in source.written] == [b"one\n"]
    assert result.output is not None
    assert (result.output.offset, result.output.data) == (4, b"two\n")


async def test_a_cancel_stops_the_attempt_it_names_and_no_other(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 30", fence=7), claim_for("sleep 30", fence=8))
    async with working(source, slots=2) as worker:
        await wait_until(lambda: len(worker.held) == 2)
        await source.asked.put(("somebody-else", "job-7", 7))
        await source.asked.put((worker.id, "job-8", 8))
        await wait_until(lambda: any(source.results))
        (result,) = next(results for results in source.results if results)
        assert (result.fence, result.outcome.reason) == (8, Reason.CANCELLED)
        assert 7 in worker.held


async def test_a_cancel_that_comes_before_its_attempt_is_heard_all_the_same(wait_until: Until, tmp_path: Path) -> None:
    """The message is faster than the claim: the command ran until the next heartbeat."""
    source = Scripted()

    async def late() -> Claimed:
        await source.asked.put((source.requests[0].worker, "job-7", 7))  # type: ignore[union-attr] # there is one
        await wait_until(source.asked.empty)
        return Claimed((claim_for(f"touch {tmp_path}/ran; sleep 30", fence=7),), answered=True)

    source.answers.append(late)
    async with working(source):
        await wait_until(lambda: any(source.results))
    (result,) = next(results for results in source.results if results)
    assert result.outcome.reason is Reason.CANCELLED
    assert not (tmp_path / "ran").exists()


async def test_cancels_of_attempts_that_have_ended_do_not_pile_up(wait_until: Until) -> None:
    source = Scripted()
    async with working(source) as worker:
        for fence in range(500):
            await source.asked.put((worker.id, f"job-{fence}", fence))
        await wait_until(lambda: 499 in worker._cancels._early)
        assert len(worker._cancels._early) == 100


async def test_a_call_without_an_answer_is_repeated_as_it_is(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("true", fence=7))
    source.answers += [StoreUnavailable("away"), Claimed()]
    async with working(source):
        await wait_until(lambda: sum(map(bool, source.results)) == 2)
    first, second = [
        (results, request) for results, request in zip(source.results, source.requests, strict=True) if results
    ]
    assert first == second


async def test_a_command_runs_longer_than_its_lease_while_heartbeats_keep_it(wait_until: Until) -> None:
    source = Scripted(lease_ms=600)
    source.claims(claim_for("sleep 1.5", fence=7))
    async with working(source, lease=0.6):
        await wait_until(lambda: any(source.results))
    (result,) = next(results for results in source.results if results)
    assert result.outcome.reason is None


@pytest.mark.parametrize(("beat", "reason"), [(Beat.LOST, Reason.WORKER_LOST), (Beat.CANCEL, Reason.CANCELLED)])
async def test_a_heartbeat_brings_lost_leases_and_cancels(beat: Beat, reason: Reason, wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 30", fence=7))
    source.beats[7] = beat
    async with working(source, heartbeat=0.1):
        await wait_until(lambda: any(source.results), within_s=5)
    (result,) = next(results for results in source.results if results)
    assert result.outcome.reason is reason


async def test_a_lost_lease_is_not_renewed(wait_until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[int] = []
    monkeypatch.setattr(Executor, "renew", lambda self, fences, deadline: renewed.extend(fences))
    source = Scripted()
    source.claims(claim_for("sleep 30", fence=7), claim_for("sleep 30", fence=8))
    source.beats[7] = Beat.LOST
    async with working(source, slots=2, heartbeat=0.1):
        await wait_until(lambda: renewed)
    assert set(renewed) == {8}


async def test_a_lease_counts_from_before_the_heartbeat_was_sent(
    wait_until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(Executor, "renew", lambda self, fences, deadline: rests.append(deadline - boottime_s()))
    source = Scripted()
    source.beat_takes_s = 0.3
    async with working(source, heartbeat=0.1):
        await wait_until(lambda: rests)
    assert rests[0] <= 30 - 0.3


async def test_output_that_could_not_be_written_is_written_later(wait_until: Until) -> None:
    source = Scripted()
    source.refusals = 1
    source.claims(claim_for("echo one; sleep 1.5", fence=7))
    async with working(source):
        await wait_until(lambda: any(source.results))
    (result,) = next(results for results in source.results if results)
    pieces = [*source.written, *([result.output] if result.output else [])]
    assert [(piece.offset, piece.data) for piece in pieces] == [(0, b"one\n")]
