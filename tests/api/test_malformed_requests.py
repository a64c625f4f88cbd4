"""Malformed HTTP: the server below the application answers, with problem documents too."""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest

from api import problems
from api.openapi import DocumentedApi
from tests.api.live import KEY, Live, running
from tests.log_lines import captured

pytestmark = pytest.mark.parametrize("bench", ["fake"], indirect=True)

HOST = b"host: localhost\r\nauthorization: Bearer " + KEY.encode() + b"\r\n"
JSON = HOST + b"content-type: application/json\r\n"
POST = b"POST /jobs HTTP/1.1\r\n" + JSON
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /livez HTTP/1.1\r\n" + HOST
JOB = b'{"command":"true"}'
LINE = "the request line does not begin with a known method"
TARGET = "the target in the request line is not a valid path"
VERSION = "the request line does not end in HTTP/1.1"
FIELD = "a header field is not valid HTTP/1.1"
LENGTHS = "content-length and transfer-encoding do not give one length"
CHUNKS = "the body is not in valid chunks"
LARGE = "the header of this request is too large"
MALFORMED = {
    "a line of no request": (b"GARBAGE\r\n\r\n", LINE),
    "a method of no kind": (b"FETCH /livez HTTP/1.1\r\n" + HOST + b"\r\n", LINE),
    "a small method": (b"get /livez HTTP/1.1\r\n" + HOST + b"\r\n", LINE),
    "CONNECT": (b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", "the method CONNECT is not supported"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "this is TLS, but the API speaks plain HTTP"),
    "no slash": (b"GET livez HTTP/1.1\r\n" + HOST + b"\r\n", TARGET),
    "a port of letters": (b"GET http://localhost:abc/livez HTTP/1.1\r\n" + HOST + b"\r\n", TARGET),
    "no path": (b"GET http://localhost HTTP/1.1\r\n" + HOST + b"\r\n", TARGET),
    "bytes in the path": (b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", TARGET),
    "a space in the path": (b"GET /li vez HTTP/1.1\r\n" + HOST + b"\r\n", VERSION),
    "HTTP/1.2": (b"GET /livez HTTP/1.2\r\n" + HOST + b"\r\n", VERSION),
    "HTTP/2.0": (b"GET /livez HTTP/2.0\r\n" + HOST + b"\r\n", VERSION),
    "HTTP/3": (b"GET /livez HTTP/3\r\n" + HOST + b"\r\n", VERSION),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VERSION),
    "a space in a name": (GET + b"bad header: x\r\n\r\n", FIELD),
    "a field without a colon": (GET + b"nocolon\r\n\r\n", FIELD),
    "NUL in a value": (GET + b"x: a\0b\r\n\r\n", FIELD),
    "a folded field": (GET + b"x: a\r\n b\r\n\r\n", FIELD),
    "a large field": (GET + b"x: " + b"y" * 70_000 + b"\r\n\r\n", LARGE),
    "a field slightly too large": (GET + b"x: " + b"y" * 32_760 + b"\r\n\r\n", LARGE),
    "many fields": (GET + b"x: y\r\n" * 600 + b"\r\n", LARGE),
    "a long target": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", LARGE),
    "a length of letters": (POST + b"content-length: abc\r\n\r\n{}", LENGTHS),
    "two lengths": (POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", LENGTHS),
    "length and chunks": (POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", LENGTHS),
    "not chunked": (POST + b"transfer-encoding: gzip\r\n\r\n{}", LENGTHS),
    "a bad chunk": (CHUNKED + b"ZZ\r\n{}\r\n0\r\n\r\n", CHUNKS),
    "a bad second chunk": (CHUNKED + b"2\r\n{}\r\nXX\r\n\r\n", CHUNKS),
    "an endless chunk": (CHUNKED + b"f" * 18 + b"\r\n{}\r\n", CHUNKS),
}


@pytest.fixture
async def live(app: DocumentedApi) -> AsyncIterator[Live]:
    async with running(app) as live:
        yield live


async def answers(live: Live, *sent: bytes) -> bytes:
    """Return all that the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    with captured():
        for piece in sent:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        found = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return found


def statuses(answers: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)


def parts(answer: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    return line, dict(field.split(": ", 1) for field in fields), body


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_request_was_answered_in_plain_text(live: Live, name: str) -> None:
    sent, detail = MALFORMED[name]
    line, fields, body = parts(await answers(live, sent))
    assert (line, fields["content-type"]) == ("HTTP/1.1 400 Bad Request", problems.MEDIA_TYPE)
    assert (fields["connection"], fields["content-length"]) == ("close", str(len(body)))
    title = problems.BAD_REQUEST.title
    assert json.loads(body) == {"type": "/problems/bad-request", "title": title, "status": 400, "detail": detail}


async def test_a_malformed_request_took_the_place_of_the_response_to_the_request_before_it(live: Live) -> None:
    """The client took a job that was accepted for one that was not."""
    accepted = POST + b"content-length: %d\r\n\r\n" % len(JOB) + JOB
    found = await answers(live, accepted + GET + b"\r\nGARBAGE\r\n\r\n")
    assert statuses(found) == [b"201", b"200", b"400"]


async def test_a_bad_chunk_behind_another_request_is_answered_in_its_turn(live: Live) -> None:
    found = await answers(live, GET + b"\r\n" + CHUNKED + b"ZZ\r\n")
    assert statuses(found) == [b"200", b"400"]


async def test_a_bad_chunk_behind_its_response_gets_no_second_response(live: Live) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(CHUNKED.replace(KEY.encode(), b"wrong"))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    assert head.startswith(b"HTTP/1.1 401 ")
    await reader.readexactly(int(parts(head)[1]["content-length"]))
    with captured():
        writer.write(b"ZZ\r\n")
        assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.close()


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("cut", [0, 10])
async def test_the_body_of_a_request_that_asks_for_another_protocol_was_lost(
    live: Live, upgrade: bytes, cut: int
) -> None:
    """Some clients of HTTP/2 ask with each request, and expect it to be answered in HTTP/1.1."""
    fields = b"connection: upgrade, http2-settings\r\nupgrade: %b\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n" % upgrade
    job = POST + fields + b"content-length: %d\r\n\r\n" % len(JOB) + JOB
    end = b"GET /livez HTTP/1.1\r\nconnection: close\r\n" + HOST + b"\r\n"
    found = await answers(live, job[: len(job) - cut], job[len(job) - cut :] + GET + fields + b"\r\n" + end)
    assert statuses(found) == [b"201", b"200", b"200"]


async def test_a_request_cut_off_by_the_end_of_the_server_gets_a_problem_document(
    app: DocumentedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was plain text: no Workron API seemed to answer."""
    begun = asyncio.Event()

    async def stands_still(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("api.server.GRACE_S", 0)
    monkeypatch.setattr("api.http.middleware.Middleware._respond", stands_still)
    async with running(app) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(GET + b"\r\n")
        await asyncio.wait_for(begun.wait(), 30)
        live.signals.stop()
        line, fields, body = parts(await asyncio.wait_for(reader.read(), 30))
        writer.close()
    assert (line, fields["content-type"]) == ("HTTP/1.1 503 Service Unavailable", problems.MEDIA_TYPE)
    assert json.loads(body)["type"] == "/problems/stopping"


async def test_a_fault_before_the_routes_gets_a_problem_document(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("api.http.middleware.Middleware._identify", breaks)
    with captured():
        answer = await live.client.get("/jobs")
    assert (answer.status_code, answer.headers["content-type"]) == (500, problems.MEDIA_TYPE)
