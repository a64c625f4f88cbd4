"""Claims that can't be delivered: clients that go, servers that stop, a store that is away."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from conftest import WaitUntil
from servers import Bench, start_server

from tests.api.live import outage_lines
from tests.api.servers import Servers, hang_up
from workron.errors import StoreUnavailable
from workron.models import ClaimRequest, Status
from workron.valkey import server_binary


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


async def test_what_comes_for_a_request_that_nobody_waits_for_goes_back(
    servers: Servers, wait_until: WaitUntil
) -> None:
    """Its handler was ended by force."""
    async with servers.server() as server:
        listening = server.claiming("other", wait=30, queues=["other"])
        await wait_until(lambda: servers.parked("other"))
        lost = ClaimRequest("w1", ("default",), 1, "boot:1", 30_000, server.context.instance)
        await servers.store.attempts.claim(lost)
        (job_id,) = await servers.submit()

        async def back() -> bool:
            job = await servers.job(job_id)
            return (job.status, job.attempts) == (Status.PENDING, 0)

        await wait_until(back, within_s=3)
        await hang_up(listening)


@pytest.mark.parametrize("with_claims", [False, True])
async def test_late_news_of_a_parked_request_took_back_what_it_had_got_without_waiting(
    servers: Servers, wait_until: WaitUntil, with_claims: bool
) -> None:
    """The worker had its answer and ran the job, which was given to another one, too."""
    async with servers.server() as server:
        listening = server.claiming("other", wait=30, queues=["other"])
        await wait_until(lambda: servers.parked("other"))
        (job_id,) = await servers.submit()
        claim = {"request_id": "boot:1", "queues": ["default"], "limit": 1}
        response = await server.post("/exchange", {"worker_id": "w1", "claim": claim})
        (got,) = response.json()["claims"]
        row = [job_id, str(got["fence"]), "1", "default", "true"]
        news = f" {job_id} {got['fence']}\n" + "".join(f"{len(value)}:{value}" for value in row) + "-" * 5
        inbox = servers.bench.keys.inbox(server.context.instance)
        await servers.bench.client.rpush(inbox, "w1 boot:1" + (news if with_claims else "\n"))
        await servers.submit(queue="other")
        await listening  # by then those were heard
        assert await server.claim("w2") == []  # in line behind what was done about them


async def test_a_parked_claim_whose_second_look_failed_looks_again(
    servers: Servers, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was parked no longer, and nobody roused it: it waited to its end beside jobs that waited too."""
    async with servers.server() as server:
        claiming = server.claiming(wait=30)
        await wait_until(lambda: servers.parked())
        source, looks = server.context.parking.source, 0
        exchange = source.exchange

        async def fails_once(*call: Any) -> Any:
            nonlocal looks
            looks += 1
            exchanged = await exchange(*call)
            if looks == 1:
                await servers.bench.client.delete(servers.bench.keys.parked("default"))
                raise StoreUnavailable("the answer was lost")
            return exchanged

        monkeypatch.setattr(source, "exchange", fails_once)
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
            with structlog.testing.capture_logs() as logs:
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
                await wait_until(lambda: "redis back" in outage_lines(logs))
                await wait_until(all_parked)
                ids = await own.submit(50)
                claims = [await task for task in claiming]
                assert sorted(claim["id"] for (claim,) in claims) == sorted(ids)
            assert outage_lines(logs) == ["redis away, trying again", "redis back"]
        await bench.aclose()
    finally:
        process.kill()
        process.wait()
