"""What goes over the wire before anybody has shown a key: it costs little, and no part of it is taken for another."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from urllib.parse import unquote

import httpx2
import pytest

from api.http.middleware import OPEN_PATHS
from api.openapi import DocumentedApi
from tests.api.every_route import VALUES
from tests.api.live import AUTHORIZATION, Live, running
from tests.log_lines import captured
from tests.security.conftest import Clients

pytestmark = pytest.mark.parametrize("bench", ["fake"], indirect=True)

KEY_LINE = f"authorization: {AUTHORIZATION['authorization']}\r\n"
CHUNKED = "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
CHUNKS = '12\r\n{"command":"true"}\r\n0\r\n'
LOOK_S = 0.1


@pytest.fixture
async def live(app: DocumentedApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setattr("api.server.LOOK_EVERY_S", LOOK_S)
    async with running(app) as live:
        yield live


@pytest.fixture
async def client(clients: Clients) -> httpx2.AsyncClient:
    return await clients.knowing(None)


async def answer(live: Live, sent: str) -> bytes:
    """Return the head's first line of the answer to what is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(sent.encode())
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return line.rstrip()


async def test_a_field_behind_the_body_is_no_key(live: Live) -> None:
    assert await answer(live, f"{CHUNKED}\r\n{CHUNKS}{KEY_LINE}\r\n") == b"HTTP/1.1 401 Unauthorized"
    assert await answer(live, f"{CHUNKED}{KEY_LINE}\r\n{CHUNKS}\r\n") == b"HTTP/1.1 201 Created"


@pytest.mark.parametrize(
    "field",
    ["host: evil.example", "origin: https://evil.example", "content-type: text/plain", "content-encoding: gzip"],
)
async def test_a_field_behind_the_body_changes_nothing(live: Live, field: str) -> None:
    assert await answer(live, f"{CHUNKED}{KEY_LINE}\r\n{CHUNKS}{field}\r\n\r\n") == b"HTTP/1.1 201 Created"


@pytest.mark.parametrize("endless", [b"x-header: " + b"y" * 100 + b"\r\n", b"y" * 100])
@pytest.mark.parametrize("start", ["0\r\nx: ", "1;x="])
async def test_fields_behind_a_body_do_not_go_on_without_end(live: Live, start: str, endless: bytes) -> None:
    """[Each byte of them took twenty of the server's memory, and nobody had to show a key for that.]"""
    if start.startswith("1"):
        endless = endless.replace(b"\r\n", b"")
    _, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(f"{CHUNKED}\r\n{start}".encode())
    with contextlib.suppress(ConnectionError):
        for _ in range(2000):
            writer.write(endless * 100)
            await asyncio.wait_for(writer.drain(), 20)
        pytest.fail("the server takes all that is sent")
    writer.close()
    assert (await live.client.get("/livez")).status_code == 200


@pytest.mark.parametrize("end", ["\r\n", "a"])
@pytest.mark.parametrize(("fields", "taken"), [(400, True), (600, False), (60_000, False)])
async def test_a_head_does_not_have_any_number_of_fields(live: Live, fields: int, taken: bool, end: str) -> None:
    """[Four bytes of one took 150 of memory, for as long as the connection was there.]"""
    if taken and end == "a":
        end = "a: b\r\n\r\n"
    sent = "GET /livez HTTP/1.1\r\nhost: localhost\r\n" + "a:\r\n" * fields + end
    assert await answer(live, sent) == (b"HTTP/1.1 200 OK" if taken else b"HTTP/1.1 400 Bad Request")


@pytest.mark.parametrize("encoding", ["gzip, chunked", "deflate, chunked", "identity, chunked"])
async def test_a_body_with_a_content_encoding_is_refused(live: Live, encoding: str) -> None:
    sent = CHUNKED.replace("chunked", encoding)
    assert await answer(live, f"{sent}{KEY_LINE}\r\n{CHUNKS}\r\n") == b"HTTP/1.1 415 Unsupported Media Type"


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /livez HTTP/1.1\r\nhost: localhost\r\n",
        "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\nGET /",
        f"{CHUNKED}\r\n1\r\n{{\r\n",
        "POST /jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{",
    ],
)
async def test_a_client_that_never_completes_a_request_does_not_keep_its_connection(live: Live, sent: str) -> None:
    """It sends a bit now and then, so that the connection is never idle."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(sent.encode())

    async def drip() -> None:
        while sent:
            await asyncio.sleep(LOOK_S / 2)
            writer.write(b"1")
            with contextlib.suppress(ConnectionError):
                await writer.drain()

    dripping = asyncio.create_task(drip())
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 10)  # to the end
    dripping.cancel()
    writer.close()


async def test_a_client_that_waits_for_an_answer_or_has_had_one_keeps_its_connection(live: Live) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    long_poll = f"GET /jobs/next?worker_id=w&wait=1 HTTP/1.1\r\nhost: localhost\r\n{KEY_LINE}\r\n"
    for _ in range(2):
        writer.write(long_poll.encode())
        assert await asyncio.wait_for(reader.readline(), 10) == b"HTTP/1.1 204 No Content\r\n"
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        await asyncio.sleep(10 * LOOK_S)  # it is idle
    half = len(long_poll) // 2
    writer.write(long_poll[:half].encode())
    await writer.drain()
    await asyncio.sleep(LOOK_S)
    writer.write(long_poll[half:].encode())
    assert await asyncio.wait_for(reader.readline(), 10) == b"HTTP/1.1 204 No Content\r\n"
    writer.close()


ODD_ENDS = [
    "/",
    "//",
    "/.",
    "/..",
    "%2f",
    "%2F..",
    "%00",
    "%0a",
    "%0d%0a",
    "%20",
    "%09",
    ";",
    ";x=1",
    "%3f",
    "?",
    "%23",
    "/%2e%2e/",
]
ODD_STARTS = [
    "/",
    "/.",
    "/..",
    "/docs/..",
    "/livez/..",
    "/livez%2f..",
    "/openapi.json/..",
    "%2f",
    "/%2e",
    "http://localhost/livez/..",
]


async def test_no_spelling_of_a_path_needs_less_of_a_key(app: DocumentedApi, live: Live) -> None:
    """What is open without a key is just that: not what lies beside it, or is reached through it."""
    paths = [path.format(**VALUES) for path in app.openapi()["paths"]] + ["/", "/docs", "/openapi.json", "/metrics"]
    asked = 0
    for path in paths:
        for target in {path, path.upper(), *(one + path for one in ODD_STARTS), *(path + one for one in ODD_ENDS)}:
            first = await answer(live, f"GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n")
            expected = {200} if unquote(target.partition("?")[0]) in OPEN_PATHS else {401, 400}
            assert int(first.split()[1]) in expected, target
            asked += 1
    assert asked > 1000


async def test_what_anybody_can_ask_for_costs_little(client: httpx2.AsyncClient) -> None:
    """[Each copy of the OpenAPI document took 15 ms of the API, and needs no key.]"""

    async def cost_s(path: str) -> float:
        rounds = []
        for _ in range(5):
            began_s = time.process_time()
            for _ in range(10):
                assert (await client.get(path)).status_code == 200
            rounds.append(time.process_time() - began_s)
        return min(rounds)

    usual_s = await cost_s("/livez")
    for path in sorted(OPEN_PATHS - {"/readyz"}):
        assert await cost_s(path) < 10 * usual_s, path


async def test_a_client_that_sends_nonsense_does_not_fill_the_log(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    for sent in (
        "nonsense\r\n\r\n",
        "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    ):
        for _ in range(20):
            await answer(live, sent)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(set(lines)) <= 3
    assert any("Invalid HTTP" in line for line in lines)


SMUGGLED = "0\r\n\r\nGET /jobs HTTP/1.1\r\nhost: localhost\r\n" + KEY_LINE + "\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        "content-length: 6\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 6",
        "content-length: 6\r\ncontent-length: 7",
        "content-length: 6, 6",
        "content-length: +6",
        "content-length: -6",
        "content-length: 0x6",
        "content-length: 6 6",
        "content-length: " + "9" * 30,
        "transfer-encoding : chunked\r\ncontent-length: 6",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: chunked\x0b",
        "x: y\r\n transfer-encoding: chunked",
        "x: y\rtransfer-encoding: chunked",
    ],
)
async def test_a_body_whose_length_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(
    live: Live, framing: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    head = f"POST /jobs HTTP/1.1\r\nhost: localhost\r\n{KEY_LINE}content-type: application/json\r\n{framing}\r\n\r\n"
    with captured():
        writer.write((head + SMUGGLED).encode())
        answers = await asyncio.wait_for(reader.read(), 10)  # to the end: it closes
    writer.close()
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1 ") == 1
