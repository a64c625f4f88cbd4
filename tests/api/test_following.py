"""Followed output as events: where each piece stands, what was cut, that the stream lives, and that all has come."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.live import Live
from tests.builders import claim, finish
from workron.models import OUTPUT_HEAD, OUTPUT_TAIL, Claim, Outcome, OutputPatch, Reason, Result
from workron.models.output_stream import Event, read_events
from workron.store import Store

SOON_S = 20
EVENTS = {"accept": "text/event-stream"}
FAILED = Outcome(Reason.EXIT_CODE, exit_code=1)


async def submit(live: Live, **fields: Any) -> str:
    return str((await live.client.post("/jobs", json={"command": "x", **fields})).json()["id"])


async def write(store: Store, attempt: Claim, start: int, data: bytes) -> None:
    patch = OutputPatch(start, data, start + len(data))
    await store.attempts.write_output([(attempt.id, attempt.fence, patch)])


async def followed(live: Live, job_id: str, position: str | None = None) -> bytes:
    """Return the whole stream of a job that has ended."""
    params = {"follow": "true", **({"position": position} if position else {})}
    asking = live.client.get(f"/jobs/{job_id}/output", params=params, headers=EVENTS)
    answer = await asyncio.wait_for(asking, SOON_S)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return answer.content


async def until(chunks: AsyncIterator[bytes], wanted: bytes) -> bytes:
    """Read on until this has come; returns what came since."""
    read = b""
    async with asyncio.timeout(SOON_S):
        while wanted not in read:
            read += await anext(chunks)
    return read


async def test_each_event_says_where_it_stands_and_the_last_one_that_all_has_come(live: Live, store: Store) -> None:
    job_id = await submit(live)
    [attempt] = await claim(store)
    await write(store, attempt, 0, b"hello\n")
    await finish(store, attempt)
    fence, coded = attempt.fence, b64encode(b"hello\n").decode()
    assert (await followed(live, job_id)).decode() == (
        f"id: {fence}:6\nevent: output\n"
        f'data: {{"fence": {fence}, "from": 0, "to": 6, "base64": "{coded}"}}\n\n'
        f"id: {fence}:6\nevent: end\ndata: {{}}\n\n"
    )


async def test_what_is_written_together_with_the_end_comes_before_it(live: Live, store: Store) -> None:
    job_id = await submit(live)
    query = {"follow": "true"}
    async with live.client.stream("GET", f"/jobs/{job_id}/output", params=query, headers=EVENTS) as response:
        chunks = response.aiter_bytes()
        assert await until(chunks, b"\n\n") == b"id: 0:0\n\n"
        [attempt] = await claim(store)
        patch = OutputPatch(0, b"RESULT\n", 7)
        await store.attempts.finish([Result(job_id, attempt.fence, Outcome(None, 0), patch)], worker="w1")
        came = [chunk async for chunk in chunks]
    position = f"{attempt.fence}:7"
    assert list(read_events(came)) == [Event(position, b"RESULT\n"), Event(position, ended=True)]


async def test_a_stream_goes_on_at_the_position_that_is_given_back(live: Live, store: Store) -> None:
    job_id = await submit(live)
    attempts = []
    for word, outcome in ((b"first", FAILED), (b"2nd", Outcome(None, 0))):
        [attempt] = await claim(store, wait=True)
        await write(store, attempt, 0, word)
        await finish(store, attempt, outcome)
        await store.maintenance.promote()
        attempts.append(attempt.fence)
    one, two = attempts
    for position, expected in {
        None: b"2nd",
        "0:0": b"first2nd",
        f"{one}:0": b"first2nd",
        f"{one}:4": b"t2nd",
        f"{one}:5": b"2nd",
        f"{one}:999": b"2nd",
        f"{one + 1}:3": b"2nd",
        f"{two}:1": b"nd",
        f"{two}:3": b"",
        f"{two + 1}:0": b"",
    }.items():
        *_, last = events = list(read_events([await followed(live, job_id, position)]))
        assert (b"".join(event.data for event in events), last.ended) == (expected, True), position
    headers = {**EVENTS, "last-event-id": f"{two}:1"}
    answer = await live.client.get(f"/jobs/{job_id}/output?follow=true&position=0:0", headers=headers)
    assert b"".join(event.data for event in read_events([answer.content])) == b"nd"
    assert (await live.client.get(f"/jobs/{job_id}/output?follow=true&position={one}:4")).content == b"t2nd"


async def test_cut_output_is_an_event_of_its_own_and_no_output(live: Live, store: Store) -> None:
    job_id = await submit(live)
    [attempt] = await claim(store)
    stored, total = b"h" * OUTPUT_HEAD + b"t" * OUTPUT_TAIL, 1_000_000
    await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(0, stored, total))])
    await finish(store, attempt)
    head, cut, tail, end = read_events([await followed(live, job_id)])
    tail_begins = total - OUTPUT_TAIL
    missing = f"\n… {tail_begins - OUTPUT_HEAD:,} bytes cut …\n".encode()
    assert (head.data, cut.data, tail.data) == (b"h" * OUTPUT_HEAD, missing, b"t" * OUTPUT_TAIL)
    assert [event.position for event in (head, cut, tail, end)] == [
        f"{attempt.fence}:{offset}" for offset in (OUTPUT_HEAD, tail_begins, total, total)
    ]
    [rest, end] = read_events([await followed(live, job_id, f"{attempt.fence}:{total - 5}")])
    assert (rest.data, end.ended) == (b"ttttt", True)


async def test_a_quiet_stream_says_that_it_is_alive_and_where_it_stands(
    live: Live, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.output_stream._ALIVE_S", 0.0)
    monkeypatch.setattr("workron.store.store.RECHECK_S", 0.05)
    job_id = await submit(live)
    [attempt] = await claim(store)
    await write(store, attempt, 0, b"one")
    query = {"follow": "true"}
    async with live.client.stream("GET", f"/jobs/{job_id}/output", params=query, headers=EVENTS) as response:
        alive = f"id: {attempt.fence}:3\n\n".encode()
        await until(response.aiter_bytes(), alive + alive)


async def test_a_server_that_stops_does_not_say_that_all_has_come(live: Live, store: Store) -> None:
    """[The end of a stream was taken for the end of the output.]"""
    job_id = await submit(live)
    [attempt] = await claim(store)
    query = {"follow": "true"}
    async with live.client.stream("GET", f"/jobs/{job_id}/output", params=query, headers=EVENTS) as response:
        chunks = response.aiter_bytes()
        await until(chunks, b"id: 0:0\n\n")
        live.signals.stop()
        assert [chunk async for chunk in chunks] == []
    await finish(store, attempt)


@pytest.mark.damaged
async def test_a_job_that_is_forgotten_while_it_is_followed_has_no_end(live: Live, store: Store) -> None:
    job_id = await submit(live)
    query = {"follow": "true"}
    async with live.client.stream("GET", f"/jobs/{job_id}/output", params=query, headers=EVENTS) as response:
        chunks = response.aiter_bytes()
        await until(chunks, b"id: 0:0\n\n")
        await store.connection.call("DEL", store.keys.job(job_id), repeat=False)
        await store.connection.call("XADD", store.keys.events, "*", "done", job_id, repeat=False)
        assert [chunk async for chunk in chunks] == []


@pytest.mark.parametrize("position", ["", "1", "1:", ":1", "-1:0", "1:1:1", "x:0", "1:99999999999999999", "１:0"])
async def test_a_position_that_is_none_is_refused(live: Live, position: str) -> None:
    job_id = await submit(live)
    query = {"follow": "true", "position": position}
    answer = await live.client.get(f"/jobs/{job_id}/output", params=query, headers=EVENTS)
    assert answer.status_code == 422
    if position.isascii() and position:
        headers = {**EVENTS, "last-event-id": position}
        answer = await live.client.get(f"/jobs/{job_id}/output?follow=true", headers=headers)
        assert answer.status_code == 422
