"""Bodies that are too large, too deep or of the wrong kind, over real HTTP: a clear answer, and the server lives on."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.api.live import AUTHORIZATION, Live
from tests.log_lines import captured

pytestmark = pytest.mark.parametrize("bench", ["fake"], indirect=True)

JSON = {"content-type": "application/json"}
MIB = 1024 * 1024


async def alive(live: Live) -> bool:
    return (await live.client.post("/jobs", json={"command": "true"})).status_code == 201


async def test_a_body_over_the_limit_is_refused_by_its_announced_length(live: Live) -> None:
    response = await live.client.post("/jobs", content=b"x" * (5 * MIB), headers=JSON)
    assert (response.status_code, response.json()["type"]) == (413, "/problems/too-large")
    assert await alive(live)


async def test_a_body_of_100_mb_in_chunks_is_refused_without_being_kept(live: Live) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += MIB
            yield b" " * MIB

    response = await live.client.post("/jobs", content=chunks(), headers=JSON)
    assert (response.status_code, response.json()["type"]) == (413, "/problems/too-large")
    assert await alive(live)


async def test_a_refusal_comes_before_the_rest_of_the_body(live: Live) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    head = ["POST /jobs HTTP/1.1", "host: localhost", *(f"{name}: {value}" for name, value in AUTHORIZATION.items())]
    head += ["content-type: application/json", "content-length: 100000000", "", ""]
    writer.write("\r\n".join(head).encode())
    assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.1 413 Request Entity Too Large\r\n"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("endless", [b"x-header: " + b"y" * 100 + b"\r\n", b"y" * 100])
async def test_a_head_without_end_is_refused(live: Live, endless: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: ")
    with contextlib.suppress(ConnectionError):
        for _ in range(2000):
            writer.write(endless * 100)
            await asyncio.wait_for(writer.drain(), 20)
        pytest.fail("the server takes all that is sent")
    writer.close()
    assert await alive(live)


async def test_a_head_of_many_kilobytes_is_taken(live: Live) -> None:
    headers = {f"x-{number}": "y" * 1000 for number in range(25)}
    assert (await live.client.get("/livez", headers=headers)).status_code == 200


async def test_a_workflow_with_too_many_dependencies_is_refused(client: httpx2.AsyncClient) -> None:
    names = [f"{number}" for number in range(800)]
    jobs = [{"name": name, "command": "x", "depends_on": names[:position]} for position, name in enumerate(names)]
    jobs += [{"command": "x", "depends_on": names} for _ in range(230)]
    response = await client.post("/workflows", json={"jobs": jobs})
    assert (response.status_code, response.json()["type"]) == (413, "/problems/too-large")


@pytest.mark.parametrize("raw", [b"[" * 100_000 + b"]" * 100_000, b'{"command":' * 100_000, b'{"a":[' * 50_000])
@pytest.mark.parametrize("path", ["/jobs", "/jobs/bulk", "/workflows"])
async def test_json_nested_100_000_deep_is_refused(live: Live, path: str, raw: bytes) -> None:
    response = await live.client.post(path, content=raw, headers=JSON | {"idempotency-key": "deep"})
    assert (response.status_code, response.json()["type"]) == (422, "/problems/validation")
    assert await alive(live)


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data; boundary=x"],
)
async def test_only_json_is_taken(client: httpx2.AsyncClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    for path in ("/jobs", "/jobs/bulk", "/workflows"):
        response = await client.post(path, content=b'{"command":"x"}', headers=headers)
        assert (response.status_code, response.json()["type"]) == (415, "/problems/unsupported-media-type")


async def test_json_may_say_its_charset(client: httpx2.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await client.post("/jobs", content=b'{"command":"x"}', headers=headers)).status_code == 201


async def test_a_command_of_a_megabyte_comes_back_as_it_was(client: httpx2.AsyncClient) -> None:
    command = "# " + "é" * (MIB // 2 - 1)
    assert (await client.post("/jobs", json={"command": command})).json()["command"] == command


async def test_a_lone_surrogate_or_a_nul_is_refused(client: httpx2.AsyncClient) -> None:
    for raw in (b'{"command":"\\ud800"}', b'{"command":"\\u0000"}', b'{"command":"x","name":"\\udfff"}'):
        assert (await client.post("/jobs", content=raw, headers=JSON)).status_code == 422


async def test_a_client_that_leaves_in_the_middle_of_its_body_harms_no_other(live: Live) -> None:
    body = json.dumps({"command": "x" * 1000}).encode()
    head = f"POST /jobs HTTP/1.1\r\nhost: localhost\r\nauthorization: {AUTHORIZATION['authorization']}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with captured() as logs:
        await _leave_in_the_middle(live, head.encode() + body[:500])
        assert await alive(live)
    assert not [line for line in logs if line["level"] == "error"]
    assert len((await live.client.get("/jobs")).json()["data"]) == 1


async def _leave_in_the_middle(live: Live, start: bytes) -> None:
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(start)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
