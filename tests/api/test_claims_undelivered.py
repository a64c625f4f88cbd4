"""Claims that can't be delivered: clients that go, servers that stop, a store that is away."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.live import outage_lines
from tests.api.servers import Servers, hang_up
from tests.conftest import WaitUntil
from tests.log_lines import captured
from tests.servers import Bench, start_server
from workron.errors import StoreUnavailable
from workron.local.valkey import server_binary
from workron.models import Status


@pytest.fixture
async def servers(valkey_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[Servers]:
    bench = Bench("valkey", valkey_url, namespace)
    yield Servers(bench, tmp_path)
    await bench.aclose()


# --- clients that go --------------------------------------------------------------------------------------------------


async def test_a_client_that_hangs_up_is_parked_no_longer(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        claiming = server.claiming(wait=30)
        await wait_until(lambda: servers.parked())
        await hang_up(claiming)

        async def nobody_is_parked() -> bool:
            return await servers.parked() == []

        await wait_until(nobody_is_parked)
        (job_id,) = await servers.submit()
        assert await servers.status(job_id) is Status.PENDING


@pytest.mark.parametrize("by", ["POST", "GET"])
@pytest.mark.parametrize("wait", [0, 30])
async def test_a_claim_whose_client_has_gone_goes_back_and_does_not_count(
    servers: Servers, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch, by: str, wait: int
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    async with servers.server() as server:
        jobs = server.context.store.jobs

        async def slow_jobs(ids: list[str]) -> object:
            reached.set()
            await go_on.wait()
            return await jobs(ids)

        monkeypatch.setattr(server.context.store, "jobs", slow_jobs)
        ids = [] if wait else await servers.submit()
        claiming = server.claiming(wait=wait) if by == "POST" else asyncio.create_task(server.next(wait=wait))
        if wait:
            await wait_until(lambda: servers.parked())
            ids = await servers.submit()
        (job_id,) = ids
        await reached.wait()
        assert await servers.status(job_id) is Status.RUNNING
        await hang_up(claiming)
        await asyncio.sleep(0.1)
        go_on.set()

        async def back() -> bool:
            return await servers.status(job_id) is Status.PENDING

        await wait_until(back, within_s=3)
        assert (await servers.job(job_id)).attempts == 0


async def test_a_client_that_was_woken_and_has_gone_wakes_the_next(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        first = server.claiming("first", wait=20)
        await wait_until(lambda: servers.parked())
        second = server.claiming("second", wait=30)

        async def both_parked() -> bool:
            return await servers.parked() == ["first", "second"]

        await wait_until(both_parked)
        for waiter in server.context.parking._waiters["first"]:
            waiter.left = True  # it is noticed in the moment in which it is woken
        (job_id,) = await servers.submit()
        (claim,) = await asyncio.wait_for(second, 10)
        assert claim["id"] == job_id
        await hang_up(first)


async def test_requests_that_end_leave_no_key(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        await server.claim("w")
        before = await servers.bench.client.dbsize()
        assert await asyncio.gather(*(server.claim(f"w{n}", wait=0.05) for n in range(20))) == [[]] * 20
        gone = [server.claiming(f"gone-{n}", wait=30) for n in range(20)]

        async def all_parked() -> bool:
            return len(await servers.parked()) == 20

        await wait_until(all_parked)
        for task in gone:
            await hang_up(task)

        async def nothing_is_left() -> bool:
            return await servers.bench.client.dbsize() == before

        await wait_until(nothing_is_left)


async def test_a_copy_that_hangs_up_leaves_the_claims_to_the_one_that_was_answered(
    servers: Servers, wait_until: WaitUntil
) -> None:
    async with servers.server() as server:
        copies = [server.claiming(wait=30, request_id="boot:1") for _ in range(2)]
        await wait_until(lambda: len(server.context.parking._waiters.get("w1", ())) == 2)
        await wait_until(lambda: servers.parked())
        one, other = server.context.parking._waiters["w1"]
        server.context.parking.answered(one)
        await server.context.parking.give_up(other)
        assert await servers.parked() == ["w1"]
        for task in copies:
            await hang_up(task)


async def test_a_parked_claim_whose_second_look_failed_looks_again(
    servers: Servers, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was parked no longer, and nobody roused it: it waited to its end beside jobs that waited too."""
    async with servers.server() as server:
        claiming = server.claiming(wait=30)
        await wait_until(lambda: servers.parked())
        attempts, looks = server.context.store.attempts, 0
        claim_of_store = attempts.claim

        async def fails_once(*call: Any) -> Any:
            nonlocal looks
            looks += 1
            claimed = await claim_of_store(*call)
            if looks == 1:
                await servers.bench.client.delete(servers.bench.keys.parked("default"))
                raise StoreUnavailable("the answer was lost")
            return claimed

        monkeypatch.setattr(attempts, "claim", fails_once)
        server.context.parking._rouse()
        await wait_until(lambda: looks == 1)
        (job_id,) = await servers.submit()
        (claim,) = await asyncio.wait_for(claiming, 10)
        assert claim["id"] == job_id


# --- servers that stop, stores that go --------------------------------------------------------------------------------


async def test_a_stopping_server_answers_long_polls_at_once_with_nothing(
    servers: Servers, wait_until: WaitUntil
) -> None:
    async with servers.server() as server:
        claiming = [server.claiming(f"w{number}", wait=30) for number in range(20)]
        following = asyncio.create_task(server.live.client.get("/jobs/next?worker_id=next&wait=30", timeout=60))

        async def all_parked() -> bool:
            return len(await servers.parked()) == 21

        await wait_until(all_parked)
        started = time.monotonic()
        server.live.signals.stop()
        assert [await task for task in claiming] == [[]] * 20
        assert (await following).status_code == 204
        await server.live.serving
        assert time.monotonic() - started < 3
        assert await servers.parked() == []


async def test_parked_claims_outlast_a_restart_of_redis(
    servers: Servers, wait_until: WaitUntil, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("own")
    binary = server_binary()
    assert binary is not None
    process = start_server(binary, folder, "--appendonly", "yes")
    bench = Bench("valkey", f"unix://{folder / 'redis.sock'}", "restarted")
    own = Servers(bench, folder)
    try:
        async with own.server() as server:
            with captured() as logs:
                claiming = [server.claiming(f"w{number}", wait=40) for number in range(50)]

                async def all_parked() -> bool:
                    return len(await own.parked()) == 50

                await wait_until(all_parked)
                process.kill()
                process.wait()
                await wait_until(lambda: outage_lines(logs))  # whoever waits has noticed
                response = await server.post("/claims", {"worker_id": "late"})
                assert (response.status_code, response.json()["type"]) == (503, "/problems/store-unavailable")
                (folder / "redis.sock").unlink()
                process = start_server(binary, folder, "--appendonly", "yes")
                await wait_until(lambda: "redis available" in outage_lines(logs))
                await wait_until(all_parked)
                ids = await own.submit(50)
                claims = [await task for task in claiming]
                assert sorted(claim["id"] for (claim,) in claims) == sorted(ids)
            assert outage_lines(logs) == ["redis unavailable, retrying", "redis available"]
        await bench.aclose()
    finally:
        process.kill()
        process.wait()
