"""How a worker asks for jobs: requests, parked requests that wait, calls side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.pretend_worker import claim_for
from tests.scripted_source import Scripted, Until, working
from workers.guardian import boottime_s
from workron.models import Claimed, ClaimRequest


def parked_when(reached: asyncio.Event) -> Callable[[], Awaitable[Claimed]]:
    """An answer "parked" that is under way until then."""

    async def slow() -> Claimed:
        await reached.wait()
        return Claimed(parked=True)

    return slow


async def test_jobs_that_two_calls_of_a_request_bring_are_started_once(wait_until: Until) -> None:
    """The parked request was made again, and then both were answered."""
    source, reached = Scripted(), asyncio.Event()
    claim = claim_for("sleep 5", fence=7)

    async def again() -> Claimed:
        await reached.wait()
        return Claimed((claim,), answered=True)

    async with working(source, slots=2) as worker:
        await wait_until(lambda: source.waits)
        source.answers.append(again)
        worker._look_again()
        await wait_until(lambda: len(source.requests) == 2)
        source.wake(claim)
        await wait_until(lambda: worker.held)
        (attempt,) = worker.held.values()
        reached.set()
        await wait_until(lambda: len(source.requests) == 3)
        assert list(worker.held.values()) == [attempt]


async def test_a_woken_worker_asks_for_its_other_slots_with_the_next_request(wait_until: Until) -> None:
    source = Scripted()
    async with working(source, slots=3):
        await wait_until(lambda: source.waits)
        first = source.request_id()
        source.wake(claim_for("sleep 5", fence=7))
        await wait_until(lambda: source.request_id() != first, within_s=5)
        assert source.requests[-1] is not None
        assert source.requests[-1].limit == 2


async def test_a_worker_that_got_fewer_jobs_asks_for_its_other_slots(wait_until: Until) -> None:
    """It was neither parked nor told of more: its free slots were forgotten until a job ended."""
    source = Scripted()
    source.claims(claim_for("sleep 5", fence=7))
    async with working(source, slots=3) as worker:
        await wait_until(lambda: worker._first.parked is not None, within_s=5)
        assert source.requests[-1] is not None
        assert source.requests[-1].limit == 2


async def test_a_parked_request_waits_only_when_it_is_known_to_be_parked(wait_until: Until) -> None:
    source, reached = Scripted(), asyncio.Event()
    source.answers.append(parked_when(reached))
    async with working(source):
        await wait_until(lambda: source.requests)
        assert source.waits == []
        reached.set()
        await wait_until(lambda: source.waits)
        assert source.waits == source.requests


async def test_the_lease_of_what_a_wait_brings_counts_from_its_beginning(wait_until: Until) -> None:
    """Only the server knows when the claims were made, but it was not before."""
    source = Scripted(lease_ms=600)
    async with working(source):
        await wait_until(lambda: source.waits)
        began = boottime_s()
        await wait_until(lambda: boottime_s() - began > 0.7)
        source.wake(claim_for("true", fence=7))
        await wait_until(lambda: source.released == [("job-7", 7)])
    assert not any(source.results)


async def test_a_parked_request_that_got_nothing_goes_on_waiting(wait_until: Until) -> None:
    source = Scripted()
    async with working(source):
        for number in range(1, 4):
            await wait_until(lambda: len(source.waits) == number)  # noqa: B023 - it is awaited at once
            source.wake()
    assert len({request.request_id for request in source.waits}) == 1


async def test_a_stopping_worker_gives_its_wait_up_before_it_ends_the_request(wait_until: Until) -> None:
    """What it got after that was leased to nobody."""
    source = Scripted()
    given_up_after: list[int] = []

    async def wait(request: ClaimRequest) -> Claimed:
        source.waits.append(request)
        try:
            return await source.woken.get()
        except asyncio.CancelledError:
            given_up_after.append(len(source.requests))
            raise

    source.wait = wait  # type: ignore[method-assign]
    async with working(source) as worker:
        await wait_until(lambda: source.waits)
        worker.stop()
        await wait_until(lambda: source.left == [worker.id])
    assert given_up_after == [1]
    assert [request and request.limit for request in source.requests] == [1, 0]


async def test_what_a_wait_brings_to_a_stopping_worker_is_given_back_unstarted(wait_until: Until) -> None:
    source = Scripted()
    async with working(source) as worker:
        await wait_until(lambda: source.waits)
        source.wake(claim_for("true", fence=7))
        worker.stop()
        await wait_until(lambda: source.left == [worker.id])
    assert source.released in ([("job-7", 7)], []), "or it was given up: then the server has taken it back"
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
        return Claimed((claim_for("true", fence=99),), answered=True)

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
        started_before_the_second_call.append(len(worker.held))
        return Claimed(parked=True)

    source.claims(claim_for("sleep 5", fence=7), claim_for("sleep 5", fence=8), more=True)
    source.answers.append(second)
    async with working(source, slots=4) as worker:
        await wait_until(lambda: started_before_the_second_call)
        await wait_until(lambda: len(worker.held) == 2)
    assert started_before_the_second_call == [0]


async def test_a_worker_whose_claims_are_gone_asks_with_another_id(wait_until: Until) -> None:
    """It repeated the old one for ever, and looked healthy."""
    source = Scripted()
    source.answers.append(Claimed(answered=True, more=True))
    async with working(source):
        await wait_until(lambda: len(source.requests) == 2)
    assert source.requests[0] is not None
    assert source.requests[1] is not None
    assert source.requests[0].request_id != source.requests[1].request_id


@pytest.mark.parametrize("slots", [8, 64])
async def test_stopped_commands_are_given_back_however_long_that_takes(wait_until: Until, slots: int) -> None:
    """Those that ended while others were given back were reported as failed attempts."""
    source = Scripted()
    release = source.release

    async def slow(held: Sequence[tuple[str, int]]) -> None:
        await asyncio.sleep(0.05)
        await release(held)

    source.release = slow  # type: ignore[method-assign]
    held = min(slots, 32)
    source.claims(*(claim_for("sleep 30", fence=fence) for fence in range(1, held + 1)))
    async with working(source, slots=slots) as worker:
        await wait_until(lambda: len(worker.held) == held and all(one.started for one in worker.held.values()))
    assert not any(source.results)
    assert len(source.released) == held
