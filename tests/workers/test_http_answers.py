"""What a worker over HTTP makes of answers that are not the API's: proxies, and their error pages, stand in between."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from workers.http_source import HttpSource, NotTheApi
from workron.errors import ApiAway, CallRefused, StartupError
from workron.models import ClaimRequest, OutputPatch

LEASE = b'{"results": [], "claims": [], "more": false, "spent": false, "next_due": null, "lease_ms": 30000}'
PAGE = b"<html><body>There is nothing here</body></html>"

Answers = Callable[..., str]


def answer(status: int, kind: str, content: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
    return head.encode() + content


GREETING = answer(200, "application/json", LEASE)


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    """Make a server that gives these answers, one after the other; returns its URL."""
    left: list[bytes] = []

    def serve(*in_turn: bytes) -> str:
        left.extend(in_turn)
        return f"http://127.0.0.1:{port}"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if content := left.pop(0):
            writer.write(content)
            await writer.drain()
        else:  # a response that does not come
            await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield serve
    server.close()


@pytest.mark.parametrize(
    "strange",
    [
        answer(404, "text/html", PAGE),
        answer(413, "text/html", PAGE),
        answer(200, "text/html", PAGE),
        answer(200, "application/json", b'"under maintenance"'),
        answer(502, "text/html", PAGE),
        answer(302, "text/html", PAGE),
    ],
)
async def test_a_page_of_a_proxy_ended_the_worker_in_the_middle_of_its_life(answers: Answers, strange: bytes) -> None:
    source = await HttpSource.connect(answers(GREETING, strange), None)
    with pytest.raises(ApiAway) as caught:
        await source.release([("some-job", 7)])
    assert isinstance(caught.value, CallRefused) == (b"413" in strange)  # the proxy's own limit is about this call
    await source.aclose()


async def test_a_problem_that_the_api_names_is_no_outage(answers: Answers) -> None:
    problem = answer(422, "application/problem+json", b'{"detail": "bad"}')
    source = await HttpSource.connect(answers(GREETING, problem), None)
    with pytest.raises(CallRefused, match="answered 422: bad"):
        await source.release([("some-job", 7)])
    await source.aclose()


@pytest.mark.parametrize(
    "first",
    [
        answer(404, "text/html", PAGE),
        answer(200, "text/html", PAGE),
        answer(200, "application/json", b'{"hello": "world"}'),
    ],
)
async def test_a_server_that_is_no_api_is_not_waited_for(answers: Answers, first: bytes) -> None:
    with pytest.raises(StartupError, match=r"is http://127.0.0.1:[0-9]+ the API of this version"):
        await HttpSource.connect(answers(first), None)


async def test_a_proxy_without_an_api_behind_it_is_an_outage_from_the_start(answers: Answers) -> None:
    with pytest.raises(ApiAway):
        await HttpSource.connect(answers(answer(502, "text/html", PAGE)), None)


async def test_an_answer_of_another_shape_ended_the_worker(answers: Answers) -> None:
    other = answer(200, "application/json", b'{"status": "ok"}')
    source = await HttpSource.connect(answers(GREETING, other, other, other), None)
    request = ClaimRequest("w", ("default",), 1, "r:1", 1000)
    with pytest.raises(NotTheApi, match="there is no claims"):
        await source.exchange("w", [], request)
    with pytest.raises(NotTheApi, match="there is no data"):
        await source.wait(request)
    with pytest.raises(NotTheApi, match="there is no data"):
        await source.write_output([("job", 7, OutputPatch(0, b"x", 1))])
    await source.aclose()


async def test_an_exchange_that_sent_nothing_ended_an_outage(answers: Answers) -> None:
    """[A claim that waits at the API needs no exchange: the worker took that for an answer, during an outage.]"""
    source = await HttpSource.connect(answers(GREETING, b""), None)
    request = ClaimRequest("w", ["default"], 1, "boot:1", park_ms=60_000)
    waiting = asyncio.create_task(source.wait(request))
    await asyncio.sleep(0)
    assert not (await source.exchange("w", [], request)).asked
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await source.aclose()
