"""What a connection may hold: heads that do not end, requests ahead of their answers, answers that nobody reads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from api.http.protocol import (
    MAX_HEAD,
    MOST_AHEAD,
    MOST_LOOKS,
    SLOWEST,
    Heads,
    LimitedHttp,
)
from api.openapi import DocumentedApi
from tests.api.live import Live, running

pytestmark = pytest.mark.parametrize("bench", ["fake"], indirect=True)

START = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n"
FIELD = b"x: " + b"y" * 4_000 + b"\r\n"


@pytest.fixture
async def live(app: DocumentedApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setattr("api.server.Heads", partial(Heads, most=20_000))
    async with running(app) as live:
        yield live


async def begin(live: Live, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def rest(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 20)
    return b""


async def test_heads_that_do_not_end_were_limited_each_but_not_together(live: Live) -> None:
    """3,000 connections with 250 KB each took a gigabyte, and nobody had to show a key for that."""
    begun = []
    for _ in range(10):  # one after the other, as the oldest are closed
        begun.append(await begin(live, START + FIELD))
        assert (await live.client.get("/livez")).status_code == 200
    for reader, writer in begun[:5]:
        assert await rest(reader) == b""
        writer.close()
    reader, writer = begun[-1]
    writer.write(b"\r\n")
    assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.1 200 OK\r\n"
    for _, writer in begun[5:]:
        writer.close()


async def test_what_was_held_of_a_head_is_held_no_more_when_it_has_ended_or_its_client_has_gone(live: Live) -> None:
    for _ in range(20):
        reader, writer = await begin(live, START + FIELD)
        writer.write(b"\r\n")
        assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        _, gone = await begin(live, START + FIELD)
        gone.close()
        await gone.wait_closed()


@pytest.mark.parametrize(("size", "first"), [(MAX_HEAD - 1_000, b"HTTP/1.1 200 OK"), (MAX_HEAD, b"HTTP/1.1 400")])
async def test_a_head_may_have_32_kib(app: DocumentedApi, size: int, first: bytes) -> None:
    async with running(app) as live:
        reader, writer = await begin(live, START + b"x: " + b"y" * (size // 2))
        writer.write(b"y" * (size - size // 2) + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 20)).startswith(first)
        writer.close()


async def test_requests_do_not_pile_up_ahead_of_their_answers(live: Live) -> None:
    reader, writer = await begin(live, (START + b"\r\n") * 500)
    answers = await rest(reader)
    assert b"HTTP/1.1 400" in answers
    assert answers.count(b"HTTP/1.1 200") <= MOST_AHEAD + 1
    writer.close()


async def test_a_few_requests_may_be_sent_ahead(live: Live) -> None:
    reader, writer = await begin(live, (START + b"\r\n") * MOST_AHEAD)
    for _ in range(MOST_AHEAD):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 200 OK")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
    writer.close()


async def test_a_request_of_which_some_came_before_the_answer_to_the_one_before_was_never_answered(
    live: Live,
) -> None:
    """What was known of its head by then went with the head before it."""
    reader, writer = await begin(live, START + b"\r\n" + START)
    for end in (b"", b"\r\n"):
        writer.write(end)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 200 OK")
        await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
    writer.close()


async def test_an_answered_connection_keeps_no_head(bench: object, wait_until: Callable[..., Any]) -> None:
    """A client may have had its 401, and stay for as long as idle connections may."""
    connection = made()
    connection.connection_made(Pipe([]))  # type: ignore[arg-type]
    connection.data_received(START + FIELD + b"\r\n")
    await wait_until(lambda: connection.cycle.response_complete)
    assert (connection.scope, connection.cycle.scope, connection.headers) == ({}, {}, [])
    connection.connection_lost(None)


class Pipe:
    """As much of a transport as a connection uses; `unread` is what it says with each look."""

    def __init__(self, unread: list[int]) -> None:
        self._unread: Iterator[int] = iter(unread)
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return next(self._unread)

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, _: bytes) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """It is closed by `abort` only."""

    def is_closing(self) -> bool:
        return self.aborted


async def answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def made() -> LimitedHttp:
    config = uvicorn.Config(answers, ws="none", lifespan="off", log_config=None)
    return LimitedHttp(config=config, server_state=ServerState(), app_state={}, heads=Heads())


ENOUGH = MOST_LOOKS + 1


@pytest.mark.parametrize(
    ("unread", "closed"),
    [
        ([4_000_000] * ENOUGH, True),
        ([4_000_000 - 10 * look for look in range(ENOUGH)], True),
        ([4_000_000] * (ENOUGH - 1) + [4_000_000 - SLOWEST], False),
        ([4_000_000 - SLOWEST * look for look in range(ENOUGH + 1)], False),
        ([100] * (ENOUGH - 1) + [0] * ENOUGH, False),
        ([0] * ENOUGH, False),
    ],
)
async def test_an_unread_answer_was_kept_for_ever(bench: object, unread: list[int], closed: bool) -> None:
    connection, pipe = made(), Pipe(unread)
    connection.connection_made(pipe)  # type: ignore[arg-type]
    connection.timeout_keep_alive_task = asyncio.get_running_loop().call_later(60, print)
    for _ in unread:
        connection.look()
    assert pipe.aborted is closed
    connection.connection_lost(None)


async def test_a_stream_that_is_read_as_fast_as_it_comes_goes_on(bench: object) -> None:
    connection, pipe = made(), Pipe([60_000] * 3 * ENOUGH)
    connection.connection_made(pipe)  # type: ignore[arg-type]
    connection.timeout_keep_alive_task = asyncio.get_running_loop().call_later(60, print)
    for look in range(3 * ENOUGH):
        if look % ENOUGH == 0:
            connection.pause_writing()
            connection.resume_writing()
        connection.look()
    assert not pipe.aborted
    connection.connection_lost(None)
