"""Parked requests and streams over real HTTP: they end with the job, with the client and with the server."""

import asyncio
import time
from pathlib import Path

import pytest

from api.app import create_app
from api.openapi import DocumentedApi
from tests.api.live import KEY, Live, running
from tests.builders import claim, finish
from tests.conftest import WaitUntil
from tests.servers import start_server
from workron.local.valkey import server_binary
from workron.models import Outcome, OutputPatch, Reason
from workron.settings import Settings
from workron.store import Store

SOON_S = 10
"""Far less than the waits that are asked for, far more than an answer takes."""


async def submit(live: Live) -> str:
    return str((await live.client.post("/jobs", json={"command": "x"})).json()["id"])


def parked(store: Store) -> int:
    return sum(map(len, store._watch._waiters.values()))


async def test_a_wait_is_answered_when_the_job_ends(live: Live, store: Store, wait_until: WaitUntil) -> None:
    job_id = await submit(live)
    waiting = asyncio.create_task(live.client.get(f"/jobs/{job_id}", params={"wait": "30"}))
    await wait_until(lambda: parked(store) == 1)
    assert not waiting.done()
    await live.client.post(f"/jobs/{job_id}/cancel")
    answer = await asyncio.wait_for(waiting, SOON_S)
    assert answer.json()["status"] == "cancelled"


async def test_a_wait_for_a_job_that_has_ended_is_answered_at_once(live: Live) -> None:
    job_id = await submit(live)
    await live.client.post(f"/jobs/{job_id}/cancel")
    answer = await asyncio.wait_for(live.client.get(f"/jobs/{job_id}", params={"wait": "30"}), SOON_S)
    assert answer.json()["status"] == "cancelled"


@pytest.mark.parametrize("query", ["?wait=30", "/output?follow=true"])
async def test_a_client_that_leaves_is_no_longer_waited_for(
    live: Live, store: Store, wait_until: WaitUntil, query: str
) -> None:
    job_id = await submit(live)
    waiting = asyncio.create_task(live.client.get(f"/jobs/{job_id}{query}"))
    await wait_until(lambda: parked(store) == 1)
    waiting.cancel()
    await wait_until(lambda: parked(store) == 0)


async def test_a_stopping_server_answers_parked_requests_and_ends_streams_at_once(
    live: Live, store: Store, wait_until: WaitUntil
) -> None:
    job_id = await submit(live)
    waiting = asyncio.create_task(live.client.get(f"/jobs/{job_id}", params={"wait": "30"}))
    following = asyncio.create_task(live.client.get(f"/jobs/{job_id}/output", params={"follow": "true"}))
    await wait_until(lambda: parked(store) == 2)
    live.signals.stop()
    assert (await asyncio.wait_for(waiting, SOON_S)).json()["status"] == "pending"
    assert (await asyncio.wait_for(following, SOON_S)).content == b""
    await asyncio.wait_for(live.serving, SOON_S)


async def test_a_second_signal_ends_the_server_though_a_request_is_still_under_way(
    live: Live, app: DocumentedApi
) -> None:
    started = asyncio.Event()

    @app.get("/stuck")
    async def stuck() -> None:
        started.set()
        await asyncio.sleep(3600)

    request = asyncio.create_task(live.client.get("/stuck"))
    await asyncio.wait_for(started.wait(), SOON_S)
    live.signals.stop()
    live.signals.now.set()
    began_s = time.monotonic()
    await asyncio.wait_for(live.serving, SOON_S)
    assert time.monotonic() - began_s < SOON_S
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def test_followed_output_comes_as_it_is_written_and_ends_with_the_job(live: Live, store: Store) -> None:
    job_id = await submit(live)
    async with live.client.stream("GET", f"/jobs/{job_id}/output", params={"follow": "true"}) as response:
        assert response.headers["content-type"] == "text/plain"
        assert "content-length" not in response.headers
        chunks = response.aiter_bytes()
        [attempt] = await claim(store)
        await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(0, b"one", 3))])
        assert await asyncio.wait_for(anext(chunks), SOON_S) == b"one"
        await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(3, b"two", 6))])
        assert await asyncio.wait_for(anext(chunks), SOON_S) == b"two"
        await finish(store, attempt)
        assert [chunk async for chunk in chunks] == []


async def test_following_from_an_offset_leaves_out_what_stands_before_it(live: Live, store: Store) -> None:
    job_id = await submit(live)
    [attempt] = await claim(store)
    await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(0, b"onetwo", 6))])
    await finish(store, attempt)
    answer = await live.client.get(f"/jobs/{job_id}/output", params={"follow": "true", "offset": "3"})
    assert answer.content == b"two"


async def test_following_goes_on_with_the_output_of_the_next_attempt(live: Live, store: Store) -> None:
    job_id = await submit(live)
    async with live.client.stream("GET", f"/jobs/{job_id}/output", params={"follow": "true"}) as response:
        chunks = response.aiter_bytes()
        for word, outcome in ((b"first", Outcome(Reason.EXIT_CODE, exit_code=1)), (b"2nd", Outcome(None, 0))):
            [attempt] = await claim(store, wait=True)
            await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(0, word, len(word)))])
            assert await asyncio.wait_for(anext(chunks), SOON_S) == word
            await finish(store, attempt, outcome)
            await store.maintenance.promote()


async def test_a_followed_stream_outlives_a_restart_of_the_store(tmp_path: Path) -> None:
    process = start_server(server_binary(), tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    settings = Settings(data_dir=tmp_path, redis=f"unix://{tmp_path / 'redis.sock'}")
    try:
        async with Store.connect(settings) as store, running(create_app(store, settings, KEY)) as live:
            job_id = await submit(live)
            [attempt] = await claim(store)
            await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(0, b"one", 3))])
            query = {"follow": "true"}
            async with live.client.stream("GET", f"/jobs/{job_id}/output", params=query) as response:
                chunks = response.aiter_bytes()
                assert await asyncio.wait_for(anext(chunks), SOON_S) == b"one"
                process.kill()
                process.wait(10)
                assert (await live.client.get("/readyz")).status_code == 503
                process = start_server(server_binary(), tmp_path, "--appendonly", "yes", "--appendfsync", "always")
                await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(3, b"two", 6))])
                assert await asyncio.wait_for(anext(chunks), SOON_S) == b"two"
                await finish(store, attempt)
                assert [chunk async for chunk in chunks] == []
    finally:
        process.kill()
        process.wait(10)


async def test_head_of_a_followed_output_does_not_stay_open(live: Live) -> None:
    job_id = await submit(live)
    answer = await asyncio.wait_for(live.client.head(f"/jobs/{job_id}/output", params={"follow": "true"}), SOON_S)
    assert answer.status_code == 200
    await asyncio.wait_for(live.client.get("/livez"), SOON_S)  # on the same connection
