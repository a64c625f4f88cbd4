"""Claiming over HTTP: long polls, repeats, and what is refused."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.servers import Servers, hang_up
from tests.builders import new_job, submit
from tests.conftest import WaitUntil
from tests.servers import Bench
from workron.models import Status
from workron.store import Store


@pytest.fixture
async def servers(valkey_url: str, namespace: str, tmp_path: Path) -> AsyncIterator[Servers]:
    bench = Bench("valkey", valkey_url, namespace)
    yield Servers(bench, tmp_path)
    await bench.aclose()


async def test_a_claim_is_the_job_with_attempt_fence_and_lease(servers: Servers) -> None:
    (job_id,) = await servers.submit(command="echo hello", env={"A": "1"}, timeout_ms=5000)
    async with servers.server() as server:
        (claim,) = await server.claim()
        document = (await server.live.client.get(f"/jobs/{job_id}")).json()
        assert claim == document | {"attempt": 1, "fence": claim["fence"], "lease_ms": 10_000, "more": {}}
        assert (claim["status"], claim["worker"], claim["timeout"]) == ("running", "w1", 5)
        assert isinstance(claim["fence"], int)


async def test_nothing_to_claim_is_an_empty_list_at_once(servers: Servers) -> None:
    async with servers.server() as server:
        started = time.monotonic()
        assert await server.claim() == []
        assert time.monotonic() - started < 1


async def test_several_jobs_are_claimed_in_the_order_of_the_queues(servers: Servers) -> None:
    (low,) = await servers.submit(queue="low")
    (first,) = await servers.submit(queue="high")
    async with servers.server() as server:
        claims = await server.claim(queues=["high", "low"], limit=10)
        assert [claim["id"] for claim in claims] == [first, low]


async def test_a_submission_answers_a_long_poll_at_once(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        claiming = server.claiming(wait=30)
        await wait_until(lambda: servers.parked())
        started = time.monotonic()
        (job_id,) = await servers.submit()
        (claim,) = await claiming
        assert time.monotonic() - started < 1
        assert claim["id"] == job_id


async def test_a_submission_over_http_answers_it_too(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        claiming = server.claiming(wait=30)
        await wait_until(lambda: servers.parked())
        job_id = (await server.post("/jobs", {"command": "true"})).json()["id"]
        assert [claim["id"] for claim in await claiming] == [job_id]


async def test_a_long_poll_ends_in_time_and_leaves_nothing_parked(servers: Servers) -> None:
    async with servers.server() as server:
        started = time.monotonic()
        assert await server.claim(wait=0.4) == []
        assert 0.35 < time.monotonic() - started < 2
        (job_id,) = await servers.submit()
        assert await servers.status(job_id) is Status.PENDING


async def test_the_wait_may_stand_in_the_prefer_header(servers: Servers) -> None:
    async with servers.server() as server:
        started = time.monotonic()
        response = await server.live.client.get("/jobs/next?worker_id=w1", headers={"prefer": "respond-async, wait=1"})
        assert response.status_code == 204
        assert 0.9 < time.monotonic() - started < 3


async def test_jobs_of_many_parked_workers_go_to_different_ones(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        claiming = [server.claiming(f"w{number}", wait=30) for number in range(20)]

        async def all_parked() -> bool:
            return len(await servers.parked()) == 20

        await wait_until(all_parked)
        ids = await servers.submit(20)
        claims = [await task for task in claiming]
        assert sorted(claim["id"] for (claim,) in claims) == sorted(ids)


async def test_more_jobs_than_one_script_returns_reach_all_waiting_workers(
    servers: Servers, wait_until: WaitUntil
) -> None:
    async with servers.server() as server:
        claiming = [server.claiming(f"w{number}", wait=30, limit=10) for number in range(6)]

        async def all_parked() -> bool:
            return len(await servers.parked()) == 6

        await wait_until(all_parked)
        ids = await servers.submit(60)
        claims = [await task for task in claiming]
        assert sorted(claim["id"] for each in claims for claim in each) == sorted(ids)


async def test_all_parked_claims_share_one_inbox_and_so_one_connection(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        before = await blocked_clients(servers)
        claiming = [server.claiming(f"w{number}", wait=30) for number in range(30)]

        async def all_parked() -> bool:
            return len(await servers.parked()) == 30

        await wait_until(all_parked)
        await asyncio.sleep(0.1)
        assert await blocked_clients(servers) - before == 1
        for task in claiming:
            await hang_up(task)


async def blocked_clients(servers: Servers) -> int:
    return int((await servers.bench.client.info("clients"))["blocked_clients"])


async def test_a_scheduled_job_answers_a_long_poll_when_it_is_due(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        await servers.submit(delay_ms=500)
        started = time.monotonic()
        claiming = server.claiming(wait=30)
        second = server.claiming("w2", wait=30)
        done, _ = await asyncio.wait([claiming, second], return_when=asyncio.FIRST_COMPLETED)
        assert len(done.pop().result()) == 1
        assert 0.3 < time.monotonic() - started < 2
        for task in (claiming, second):
            await hang_up(task)


# --- repeats ----------------------------------------------------------------------------------------------------------


def _attempts(claims: list[Any]) -> list[tuple[str, int]]:
    return [(one["id"], one["fence"]) for one in claims]


async def test_a_repeat_of_a_request_gets_the_same_claims(servers: Servers) -> None:
    await servers.submit(3)
    async with servers.server() as server:
        first = await server.claim(limit=2, request_id="boot:1")
        again = await server.claim(limit=2, request_id="boot:1")
        assert _attempts(again) == _attempts(first)
        assert len(await server.claim(limit=2, request_id="boot:2")) == 1
        assert await server.claim(limit=2, request_id="boot:1") == []


async def test_an_opaque_request_id_does_as_well(servers: Servers) -> None:
    await servers.submit(2)
    async with servers.server() as server:
        first = await server.claim(request_id="4f1c-77")
        assert _attempts(await server.claim(request_id="4f1c-77")) == _attempts(first)
        assert _attempts(await server.claim(request_id="4f1c-78")) != _attempts(first)


async def test_copies_of_a_parked_request_get_the_same_claims(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as server:
        copies = [server.claiming(wait=30, request_id="boot:1") for _ in range(3)]
        await wait_until(lambda: len(server.context.parking._waiters.get("w1", ())) == 3)
        await wait_until(lambda: servers.parked())
        ids = await servers.submit(2)
        answers = [await copy for copy in copies]
        assert answers[0] == answers[1] == answers[2]
        assert [claim["id"] for claim in answers[0]] == ids[:1]
        assert await servers.status(ids[1]) is Status.PENDING


async def test_a_request_repeated_at_another_server_is_answered_there(servers: Servers, wait_until: WaitUntil) -> None:
    async with servers.server() as one, servers.server() as two:
        first = one.claiming(wait=1.0, request_id="boot:1")
        await wait_until(lambda: servers.parked())
        second = two.claiming(wait=30, request_id="boot:1")
        await wait_until(lambda: two.context.parking._waiters)
        assert await first == []
        (job_id,) = await servers.submit()
        assert [claim["id"] for claim in await asyncio.wait_for(second, 3)] == [job_id]


async def test_a_client_that_hangs_up_after_repeating_elsewhere_takes_nothing_from_there(
    servers: Servers, wait_until: WaitUntil
) -> None:
    async with servers.server() as one, servers.server() as two:
        first = one.claiming(wait=30, request_id="boot:1")
        await wait_until(lambda: servers.parked())
        second = two.claiming(wait=30, request_id="boot:1")
        await wait_until(lambda: two.context.parking._waiters)
        (job_id,) = await servers.submit()
        (claim,) = await second
        await hang_up(first)
        await wait_until(lambda: not one.context.parking._waiters)
        job = await servers.job(job_id)
        assert (job.status, claim["id"]) == (Status.RUNNING, job_id)


async def test_two_long_polls_of_one_worker_take_turns(servers: Servers, wait_until: WaitUntil) -> None:
    """In Redis a worker has one parked request; the other one is parked when that is answered."""
    async with servers.server() as server:
        polls = [server.claiming(wait=30) for _ in range(3)]
        await wait_until(lambda: len(server.context.parking._waiters.get("w1", ())) == 3)
        ids = []
        for _ in range(3):
            await wait_until(lambda: servers.parked())
            ids += await servers.submit()
            await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.05)
        claims = [await asyncio.wait_for(poll, 5) for poll in polls]
        assert sorted(claim["id"] for (claim,) in claims) == sorted(ids)


async def test_a_request_that_does_not_wait_leaves_the_parked_one_of_its_worker_parked(
    servers: Servers, wait_until: WaitUntil
) -> None:
    async with servers.server() as server:
        parked = server.claiming(wait=30)
        await wait_until(lambda: servers.parked())
        assert await server.claim() == []
        await wait_until(lambda: servers.parked())
        (job_id,) = await servers.submit()
        assert [claim["id"] for claim in await asyncio.wait_for(parked, 3)] == [job_id]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"worker_id": ""},
        {"worker_id": "two words"},
        {"worker_id": "line\nfeed"},
        {"worker_id": "w" * 101},
        {"worker_id": "w:claim"},
        {"worker_id": "w1", "queues": []},
        {"worker_id": "w1", "queues": ["a b"]},
        {"worker_id": "w1", "queues": ["q"] * 101},
        {"worker_id": "w1", "limit": 0},
        {"worker_id": "w1", "limit": 151},
        {"worker_id": "w1", "wait": 61},
        {"worker_id": "w1", "wait": -1},
        {"worker_id": "w1", "request_id": "a b"},
        {"worker_id": "w1", "strange": 1},
    ],
)
async def test_a_claim_that_is_not_valid_is_refused(client: httpx2.AsyncClient, body: dict[str, object]) -> None:
    response = await client.post("/claims", json=body)
    assert response.status_code == 422, response.text


@pytest.mark.parametrize("query", ["", "worker_id=", "worker_id=a%20b", "worker_id=w&wait=61", "worker_id=w&queue=a/b"])
async def test_a_question_for_the_next_job_that_is_not_valid_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    assert (await client.get(f"/jobs/next?{query}")).status_code == 422


async def test_head_claims_nothing(client: httpx2.AsyncClient, store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    assert (await client.head("/jobs/next?worker_id=w1")).status_code == 405
    assert (await store.job(job_id)).status is Status.PENDING


async def test_a_worker_that_claims_with_begins_reports_the_start_of_a_poison_job(servers: Servers) -> None:
    (job_id,) = await servers.submit()
    key = servers.bench.keys.job(job_id)
    await servers.bench.client.hset(key, "losses", "2")
    async with servers.server() as server:
        (claim,) = await server.claim(limit=4, begins=True)
        assert claim["more"] == {"alone": True}
        beats = [{"fence": claim["fence"]} | more for more in ({}, {"begins": True})]
        waits = []
        for beat in beats:
            response = await server.live.client.post(f"/jobs/{job_id}/heartbeat", json=beat)
            assert response.json()["state"] == "ok"
            waits.append(await servers.bench.client.hexists(key, "waits"))
        assert waits == [True, False]
