"""Reads: bounded by what they answer, and on connections of their own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.builders import after, claim, jobs, new_job, submit
from tests.servers import Bench
from tests.store.test_listing import every
from workron.errors import StoreUnavailable, TooManyReads
from workron.models import EDGES_SHOWN, JobFilter, NewArray, Status
from workron.redis.connection import Connection
from workron.redis.read_pool import Reads
from workron.store import Store
from workron.store.reader import PAGE_BYTES

LARGE = "#" + "x" * 1_000_000


async def test_a_page_of_large_jobs_was_never_read(store: Store) -> None:
    """A page was up to 1,000 whole jobs in one round trip: large ones did not come within the time of a call."""
    made = await submit(store, *jobs(11, command=LARGE))
    page = await store.list_jobs(JobFilter(), limit=1_000)
    assert [job.id for job in page.jobs] == list(reversed(made))[: PAGE_BYTES // len(LARGE) + 1]
    assert [job.id for job in await every(store, JobFilter(), limit=1_000)] == list(reversed(made))


async def test_large_jobs_that_a_filter_passes_over_make_a_page_short(store: Store) -> None:
    (rare,) = await submit(store, new_job(name="rare"))
    await submit(store, *jobs(11, command=LARGE))
    page = await store.list_jobs(JobFilter(fields={"name": "rare"}), limit=10)
    assert (page.jobs, page.next_cursor is None) == ((), False)
    assert [job.id for job in await every(store, JobFilter(fields={"name": "rare"}))] == [rare]


async def test_a_page_of_tasks_counts_for_each_what_it_has_from_its_array(bench: Bench) -> None:
    """One command of a megabyte was read once, and stood in each of a thousand documents."""
    store = bench.store()
    job = new_job(command=LARGE, array=NewArray(new_job().id, 30))
    await submit(store, job)
    await store.maintenance.tidy()
    page = await store.list_jobs(JobFilter(array=job.id), limit=1_000)
    assert 1 < len(page.jobs) <= 5
    assert {task.command for task in page.jobs} == {LARGE}
    listed = [task.task.index for task in await every(store, JobFilter(array=job.id), limit=1_000) if task.task]
    assert listed == list(range(30))


async def test_tasks_of_many_large_arrays_are_read_in_calls_of_bounded_size(store: Store) -> None:
    arrays = [new_job(command=f"{LARGE}{n}", array=NewArray(new_job().id, 1)) for n in range(4)]
    await submit(store, *arrays)
    await store.maintenance.tidy()
    tasks = [job.array.first for job in arrays if job.array]
    read = await store.jobs(tasks)
    assert [job and job.command for job in read] == [job.command for job in arrays]


async def test_a_list_showed_all_dependencies_of_all_jobs(store: Store) -> None:
    """50 jobs of 10,000 dependencies each were 55 MB, and stopped the event loop of the API for seconds."""
    parents = await submit(store, *jobs(EDGES_SHOWN + 5))
    (child,) = await submit(store, new_job(depends_on=after(*parents)))
    (listed,) = (await store.list_jobs(JobFilter(status=Status.BLOCKED))).jobs
    assert [edge.job for edge in listed.dependencies] == parents[:EDGES_SHOWN]
    assert {edge.status for edge in listed.dependencies} == {Status.PENDING}
    assert listed.dependency_count == len(parents)
    whole = await store.job(child)
    assert [edge.job for edge in whole.dependencies] == parents
    assert whole.dependency_count == len(parents)


async def test_a_job_with_as_many_dependencies_as_are_shown_is_shown_whole(store: Store) -> None:
    parents = await submit(store, *jobs(EDGES_SHOWN))
    await submit(store, new_job(depends_on=after(*parents)))
    (listed,) = (await store.list_jobs(JobFilter(status=Status.BLOCKED))).jobs
    assert (len(listed.dependencies), listed.dependency_count) == (EDGES_SHOWN, EDGES_SHOWN)


async def test_the_jobs_of_a_workflow_are_as_many_as_a_page_holds(store: Store) -> None:
    made = await store.submit(jobs(8, command=LARGE), workflow="w", as_workflow=True)
    assert made.workflow is not None
    assert [job.id for job in await store.workflow_jobs(made.workflow)] == list(made.ids[:5])


async def test_a_job_whose_key_is_damaged_is_left_out_of_a_page(bench: Bench) -> None:
    store = bench.store()
    first, damaged, last = await submit(store, *jobs(3))
    stored = await bench.client.hgetall(bench.keys.job(damaged))
    await bench.client.delete(bench.keys.job(damaged))
    await bench.client.set(bench.keys.job(damaged), "no hash")
    assert [job.id for job in (await store.list_jobs(JobFilter())).jobs] == [last, first]
    await bench.client.delete(bench.keys.job(damaged))
    await bench.client.hset(bench.keys.job(damaged), mapping=stored)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = Connection.open(url)
    yield connection
    await connection.aclose()


async def test_a_slow_read_held_up_every_claim_and_submission(url: str, namespace: str) -> None:
    """They shared one connection: what came after it waited, and all calls were lost with the one that timed out."""
    async with connected(url) as connection:
        reads = Reads(connection)
        async with reads.turn() as one, reads.turn() as another:
            slow = asyncio.create_task(one.call("BLPOP", f"{namespace}:line", 0))
            assert await another.call("ECHO", "read") == b"read"
            assert await connection.call("ECHO", "claimed") == b"claimed"
            assert not slow.done()
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
        await reads.aclose()


async def test_an_abandoned_call_is_stopped_and_its_reply_is_dropped(url: str, namespace: str) -> None:
    async with connected(url) as connection:
        reads = Reads(connection, 1)
        async with reads.turn() as reading:
            first = await reading.call("CLIENT", "ID")
            slow = asyncio.create_task(reading.call("BLPOP", f"{namespace}:line", 0))
            await asyncio.sleep(0)
            slow.cancel()
        async with reads.turn() as reading:
            assert await reading.call("ECHO", "mine") == b"mine"
            assert await reading.call("CLIENT", "ID") != first
        await reads.aclose()


async def test_turns_share_their_connections_one_after_the_other(url: str) -> None:
    async with connected(url) as connection:
        reads = Reads(connection)
        seen = set()
        for _ in range(5):
            async with reads.turn() as reading:
                seen.add(await reading.call("CLIENT", "ID"))
        assert len(seen) == 1
        assert await connection.call("CLIENT", "ID") not in seen
        await reads.aclose()


async def test_a_read_without_a_connection_is_refused_as_busy_and_not_as_an_outage(bench: Bench) -> None:
    reads = Reads(bench.store().connection, 1, wait_s=0.05)
    async with reads.turn():
        with pytest.raises(TooManyReads):
            async with reads.turn():
                raise AssertionError("there was no turn left")
    async with reads.turn() as reading:
        assert await reading.call("ECHO", "now") == b"now"
    await reads.aclose()


async def test_pages_hold_up_neither_single_jobs_nor_new_claims(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    store._pages._wait_s = 0.05
    turns = [store._pages.turn() for _ in range(8)]
    for turn in turns:
        await turn.__aenter__()
    with pytest.raises(TooManyReads):
        await store.list_jobs(JobFilter())
    assert (await store.job(job_id)).id == job_id
    (claimed,) = await claim(store)
    assert [job and job.id for job in await store.jobs([claimed.id])] == [job_id]
    for turn in turns:
        await turn.__aexit__(None, None, None)
    assert len((await store.list_jobs(JobFilter())).jobs) == 1


@asynccontextmanager
async def trickling_server(folder: Path, enough: asyncio.Event, met: list[int]) -> AsyncIterator[str]:
    """Give the URL of a server that answers `large` byte by byte, until it is told that it is enough."""
    gone: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(len(met))
        gone.append(asyncio.Event())
        while line := await reader.readline():
            if b"HELLO" in line:
                writer.write(b"%1\r\n+proto\r\n:3\r\n")
            elif b"SETINFO" in line:
                writer.write(b"+OK\r\n")
            elif b"large" in line:
                writer.write(b"+")
                while not enough.is_set():
                    writer.write(b".")
                    await asyncio.sleep(0.01)
                writer.write(b"\r\n")
            elif b"small" in line:
                writer.write(b"+small\r\n")
        writer.close()
        gone[-1].set()

    async with await asyncio.start_unix_server(serve, folder / "redis.sock"):
        yield f"unix://{folder}/redis.sock"
        for one in gone:
            await one.wait()


@pytest.mark.parametrize("before", [0, 1])
async def test_a_reply_that_came_late_broke_the_connection_for_all(tmp_path: Path, before: int) -> None:
    """It fails its own call; the calls behind it get their replies, on the same connection."""
    enough, met = asyncio.Event(), list[int]()
    async with trickling_server(tmp_path, enough, met) as url:
        connection = Connection.open(url, budget_s=1.0)
        for _ in range(before):
            assert await connection.call("ECHO", "small", repeat=False) == b"small"
        with pytest.raises(StoreUnavailable):
            await connection.call("ECHO", "large", repeat=False)
        behind = asyncio.create_task(connection.call("ECHO", "small", repeat=False))
        await asyncio.sleep(0)
        enough.set()
        assert await behind == b"small"
        assert len(met) == 1
        await connection.aclose()
