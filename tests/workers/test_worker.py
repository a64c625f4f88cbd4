"""The worker's loop against a scripted source: what it sends when, and what it makes of the answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pretend_worker import claim_for

from workers.executor import Executor
from workers.guardian import boottime_s
from workers.worker import Worker
from workron.attempts import Exchanged
from workron.errors import StoreUnavailable
from workron.models import (
    Beat,
    Claim,
    Claimed,
    ClaimRequest,
    Finished,
    News,
    OutputPatch,
    Reason,
    Result,
    Status,
    Verdict,
    WorkerInfo,
)
from workron.settings import Settings

Until = Callable[..., Awaitable[None]]


class Scripted:
    """A source that answers each exchange with the next item of `answers`, with nothing when there is none."""

    def __init__(self, lease_ms: int = 30_000) -> None:
        self.lease_ms = lease_ms
        self.answers: list[Any] = []
        self.requests: list[ClaimRequest | None] = []
        self.results: list[list[Result]] = []
        self.released: list[tuple[str, int]] = []
        self.written: list[OutputPatch] = []
        self.inbox: asyncio.Queue[News] = asyncio.Queue()
        self.asked: asyncio.Queue[tuple[str, str, int]] = asyncio.Queue()
        self.writing = asyncio.Event()
        self.writing.set()
        self.refusals = 0
        self.beats: dict[int, Beat] = {}
        self.beat_takes_s = 0.0

    def claims(self, *claims: Claim, **more: Any) -> None:
        self.answers.append(Claimed(claims, **more))

    async def exchange(self, worker: str, results: Sequence[Result], request: ClaimRequest | None) -> Exchanged:
        self.requests.append(request)
        self.results.append(list(results))
        answer = self.answers.pop(0) if self.answers else Claimed(parked=bool(request and request.park_ms))
        if callable(answer):
            answer = await answer()
        if isinstance(answer, Exception):
            raise answer
        return Exchanged([Finished(one.id, Verdict.ACCEPTED, Status.DONE) for one in results], answer, False)

    async def heartbeat(self, info: WorkerInfo, held: Sequence[tuple[str, int]]) -> dict[int, Beat]:
        await asyncio.sleep(self.beat_takes_s)
        return {fence: self.beats.get(fence, Beat.OK) for _, fence in held}

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        self.released += held

    async def write_output(self, patches: Sequence[tuple[str, int, OutputPatch]]) -> set[int]:
        await self.writing.wait()
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("away")
        self.written += [patch for _, _, patch in patches]
        return set()

    async def news(self, worker: str) -> News | None:
        return await self.inbox.get()

    def request_id(self) -> str:
        """The id of the last claim request."""
        return [request for request in self.requests if request is not None][-1].request_id

    async def cancels(self) -> AsyncIterator[tuple[str, str, int]]:
        while True:
            yield await self.asked.get()

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def working(source: Scripted, slots: int = 1, **settings: Any) -> AsyncIterator[Worker]:
    async with Executor(kill_grace_s=0.2) as executor:
        worker = Worker(Settings(slots=slots, **settings), source, executor)
        task = asyncio.create_task(worker.run())
        yield worker
        worker.stop_now()
        await asyncio.wait_for(task, 10)


async def test_claims_whose_lease_ended_on_the_way_are_given_back_unstarted(wait_until: Until) -> None:
    source = Scripted(lease_ms=200)

    async def late() -> Claimed:
        await asyncio.sleep(0.3)
        return Claimed((claim_for("true", fence=7),))

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
        return Claimed((claim_for("true", fence=7),))

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
        await wait_until(lambda: worker._held)
        await wait_until(lambda: len(source.requests) == 1)
        worker.stop()
        worker._look_again()
        await wait_until(lambda: any(source.results))
    assert source.requests[1:] == [None]


async def test_a_due_time_is_kept_without_a_wake_up(wait_until: Until) -> None:
    source = Scripted()
    source.claims(next_due_in_ms=100)
    async with working(source):
        await wait_until(lambda: len(source.requests) == 2, within_s=5)


async def test_one_timer_is_kept_however_often_a_due_time_is_told(wait_until: Until) -> None:
    source = Scripted()
    for _ in range(50):
        source.claims(more=True, next_due_in_ms=3_600_000)
    async with working(source):
        await wait_until(lambda: len(source.requests) > 50)
        timers = [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        assert sum(timer.when() - asyncio.get_running_loop().time() > 1000 for timer in timers) <= 1


async def test_who_is_told_of_more_asks_again_at_once(wait_until: Until) -> None:
    source = Scripted()
    source.claims(more=True)
    async with working(source):
        await wait_until(lambda: len(source.requests) >= 2, within_s=5)


async def test_who_got_all_that_fits_one_call_asks_again_at_once(
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


async def test_news_of_a_parked_request_start_its_jobs_once(wait_until: Until) -> None:
    """The same claims come again if the request is made again before the news arrive."""
    source = Scripted()
    async with working(source, slots=2) as worker:
        await wait_until(lambda: worker._first.parked_at is not None)
        claim = claim_for("sleep 5", fence=7)
        await source.inbox.put(News(worker.id, source.request_id(), (claim,)))
        await wait_until(lambda: worker._held)
        (attempt,) = worker._held.values()
        await source.inbox.put(News(worker.id, source.requests[0].request_id, (claim,)))  # type: ignore[union-attr]
        await wait_until(source.inbox.empty)
        assert list(worker._held.values()) == [attempt]


async def test_who_was_handed_a_job_asks_for_its_other_slots_with_the_next_request(wait_until: Until) -> None:
    source = Scripted()
    async with working(source, slots=3) as worker:
        await wait_until(lambda: worker._first.parked_at is not None)
        first = source.request_id()
        await source.inbox.put(News(worker.id, first, (claim_for("sleep 5", fence=7),)))
        await wait_until(lambda: source.request_id() != first, within_s=5)
        assert source.requests[-1] is not None
        assert source.requests[-1].limit == 2


async def test_news_that_overtake_the_answer_to_their_request_are_heard(wait_until: Until) -> None:
    """The inbox is read on a connection of its own: it can be faster than the answer that says "parked"."""
    source = Scripted()
    reached = asyncio.Event()

    async def slow() -> Claimed:
        await reached.wait()
        return Claimed(parked=True)

    source.answers.append(slow)
    async with working(source) as worker:
        await wait_until(lambda: source.requests)
        await source.inbox.put(News(worker.id, source.request_id(), (claim_for("true", fence=7),)))
        await wait_until(lambda: worker._held)
        reached.set()
        await wait_until(lambda: any(source.results))


async def test_the_lease_of_what_was_handed_over_counts_from_the_request_that_was_parked(wait_until: Until) -> None:
    """Nobody but the server knows when the claims were made, only that it was not before."""
    source = Scripted(lease_ms=600)
    async with working(source) as worker:
        await wait_until(lambda: worker._first.parked_at is not None)
        parked_at, parked = worker._first.parked_at, source.request_id()
        assert parked_at is not None
        worker._look_in(None)
        await wait_until(lambda: boottime_s() - parked_at > 0.7)
        await source.inbox.put(News(worker.id, parked, (claim_for("true", fence=7),)))
        await wait_until(lambda: source.released == [("job-7", 7)])
    assert not any(source.results)


async def test_a_parked_request_is_made_again_when_its_time_has_passed(wait_until: Until) -> None:
    """A wake-up may be lost together with the worker that took it."""
    source = Scripted(lease_ms=300)
    async with working(source):
        await wait_until(lambda: len(source.requests) >= 3, within_s=5)
    assert len({request.request_id for request in source.requests if request is not None}) == 1


async def test_a_stopping_worker_gives_back_what_its_parked_request_has_got(wait_until: Until) -> None:
    source = Scripted()
    async with working(source) as worker:
        await wait_until(lambda: worker._first.parked_at is not None)
        source.claims(claim_for("true", fence=7))
        worker.stop()
        await wait_until(lambda: source.released == [("job-7", 7)])
    assert source.requests[-1] is not None
    assert source.requests[-1].limit == 0
    assert not any(source.results)


async def test_news_for_a_stopping_worker_are_given_back_unstarted(wait_until: Until) -> None:
    source = Scripted()
    leave = asyncio.Event()

    async def slow() -> Claimed:
        await leave.wait()
        return Claimed()

    async with working(source) as worker:
        await wait_until(lambda: worker._first.parked_at is not None)
        source.answers.append(slow)
        worker.stop()
        await source.inbox.put(News(worker.id, source.request_id(), (claim_for("true", fence=7),)))
        await wait_until(source.inbox.empty)
        leave.set()
        await wait_until(lambda: source.released == [("job-7", 7)])
    assert not any(source.results)


async def test_a_worker_with_many_slots_has_a_second_call_under_way_while_there_is_plenty(wait_until: Until) -> None:
    source = Scripted()
    second_is_there = asyncio.Event()

    async def first() -> Claimed:
        await second_is_there.wait()
        return Claimed(parked=True)

    async def second() -> Claimed:
        second_is_there.set()
        return Claimed()

    source.claims(*(claim_for("true", fence=fence) for fence in range(1, 33)))
    source.answers += [first, second]
    async with working(source, slots=64):
        await wait_until(second_is_there.is_set)
        await wait_until(lambda: sum(map(len, source.results)) == 32)
    one, two, three = source.requests[:3]
    assert one is not None and two is not None and three is not None  # noqa: PT018 - for the type checker
    assert one.request_id.rpartition(":")[0] == two.request_id.rpartition(":")[0]
    assert three.request_id == f"{one.request_id.rpartition(':')[0]}~2:1"
    assert two.limit + three.limit <= 64


async def test_a_stop_waits_for_the_second_call_and_gives_back_what_it_brings(wait_until: Until) -> None:
    source = Scripted()
    stopped = asyncio.Event()

    async def never() -> Claimed:
        await stopped.wait()
        return Claimed()

    async def late() -> Claimed:
        await stopped.wait()
        return Claimed((claim_for("true", fence=99),))

    source.claims(*(claim_for("true", fence=fence) for fence in range(1, 33)))
    source.answers += [never, late]
    async with working(source, slots=64) as worker:
        await wait_until(lambda: len(source.requests) == 3)
        worker.stop()
        stopped.set()
        await wait_until(lambda: source.released == [("job-99", 99)])


async def test_the_next_call_is_sent_before_claims_are_started(wait_until: Until) -> None:
    """So the server works on one half of the slots while the worker works on the other."""
    source = Scripted()
    started_before_the_second_call: list[int] = []

    async def second() -> Claimed:
        started_before_the_second_call.append(len(worker._held))
        return Claimed(parked=True)

    source.claims(claim_for("sleep 5", fence=7), claim_for("sleep 5", fence=8), more=True)
    source.answers.append(second)
    async with working(source, slots=4) as worker:
        await wait_until(lambda: started_before_the_second_call)
        await wait_until(lambda: len(worker._held) == 2)
    assert started_before_the_second_call == [0]


async def test_a_cancel_stops_the_attempt_it_names_and_no_other(wait_until: Until) -> None:
    source = Scripted()
    source.claims(claim_for("sleep 30", fence=7), claim_for("sleep 30", fence=8))
    async with working(source, slots=2) as worker:
        await wait_until(lambda: len(worker._held) == 2)
        await source.asked.put(("somebody-else", "job-7", 7))
        await source.asked.put((worker.id, "job-8", 8))
        await wait_until(lambda: any(source.results))
        (result,) = next(results for results in source.results if results)
        assert (result.fence, result.outcome.reason) == (8, Reason.CANCELLED)
        assert 7 in worker._held


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
