"""Text that users choose: it can't take long to look at, and ends up nowhere but where it belongs."""

import gc
import gzip
import json
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from api.openapi import DocumentedApi
from tests.api.direct import ask
from tests.api.every_route import VALUES, every_route
from tests.api.live import AUTHORIZATION, Live, running
from tests.builders import claim, finish_all, new_job
from tests.servers import Bench
from workron import durations
from workron.errors import WorkronError
from workron.models import Outcome, Reason
from workron.schedules import times
from workron.store import Store

JSON = AUTHORIZATION | {"content-type": "application/json"}
CPU_S = 0.25
"""Of this process, for one request. A pattern that goes back and forth takes seconds with these texts."""
LONG = 20_000
HOSTILE = (
    "a" * LONG + "!",
    "a." * (LONG // 2) + "!",
    " " * LONG + "!",
    "\t" * LONG + "x",
    "0" * LONG + "x",
    "1" * LONG,
    "1," * (LONG // 2) + "x",
    "*/" * (LONG // 2),
    "-" * LONG,
    "wait=" * (LONG // 5) + "!",
    "wait" + " " * LONG + "!",
    "," * LONG + "wait",
    "1.1.1.1." * (LONG // 8),
    "[" * LONG + "]",
    "%" * LONG,
    "é" * (LONG // 2) + "\x00",
    "{" * LONG,
)


@pytest.fixture(autouse=True)
def no_rubbish() -> Iterator[None]:
    """Keep what thousands of tests have left from being collected in a request whose time is taken."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def spent_s(began_s: float) -> float:
    return time.process_time() - began_s


def places(schema: Any, components: Any, path: tuple[str, ...] = (), depth: int = 0) -> Iterator[tuple[str, str]]:
    """Kinds and paths of what may stand in a body, with what is nested in it, as far as three levels."""
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from places(option, components, path, depth)
    if path:
        yield schema.get("type", "anything"), "/".join(path)
    if depth < 3:
        for name, inner in schema.get("properties", {}).items():
            yield from places(inner, components, (*path, name), depth + 1)
        if schema.get("type") == "array":
            yield from places(schema.get("items", {}), components, (*path, "0"), depth + 1)


def fields(schema: Any, components: Any) -> list[tuple[str, ...]]:
    """Paths of the texts of a body."""
    texts = dict.fromkeys(path for kind, path in places(schema, components) if kind == "string")
    return [tuple(path.split("/")) for path in texts]


def with_text(path: tuple[str, ...], text: str) -> Any:
    value: Any = text
    for name in reversed(path):
        value = [value] if name == "0" else {name: value}
    return value


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_no_text_of_a_body_takes_long_to_be_refused(app: DocumentedApi) -> None:
    document = app.openapi()
    components = document["components"]["schemas"]
    looked = 0
    for (path, method, operation), (_, _, body) in zip(operations(document), every_route(document), strict=True):
        if "json" not in body:
            continue
        (content,) = operation["requestBody"]["content"].values()
        for place in fields(content["schema"], components):
            for text in HOSTILE:
                sent = json.dumps(body["json"] | with_text(place, text)).encode()
                began_s = time.process_time()
                status, answer = await ask(app, method, path.format(**VALUES), JSON, body=sent)
                assert spent_s(began_s) < CPU_S, (method, path, place, text[:10])
                assert status < 500, (method, path, place, text[:10], answer)
                looked += 1
    assert looked > 50 * len(HOSTILE)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


NO_NUMBERS = ("NaN", "-Infinity", "1e400", "-1e400", "9" * 400, "9" * 5000, "18446744073709551616", "-0.0", "1e-400")


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_no_number_is_an_internal_error(app: DocumentedApi) -> None:
    """Pydantic and orjson read the same body, and do not think alike of what is a number."""
    document = app.openapi()
    components = document["components"]["schemas"]
    looked = 0
    for (path, method, operation), (_, _, body) in zip(operations(document), every_route(document), strict=True):
        if "json" not in body:
            continue
        (content,) = operation["requestBody"]["content"].values()
        everywhere = dict.fromkeys(place for _, place in places(content["schema"], components))
        for place in (*everywhere, *(f"{one}/0" for one in everywhere), *(f"{one}/x" for one in everywhere)):
            for number in NO_NUMBERS:
                sent = json.dumps(body["json"] | with_text(tuple(place.split("/")), "@")).replace('"@"', number)
                headers = JSON | {"idempotency-key": f"{place} {number}"[:200]}
                status, answer = await ask(app, method, path.format(**VALUES), headers, body=sent.encode())
                assert status < 500, (method, path, place, number, answer)
                looked += 1
    assert looked > 200 * len(NO_NUMBERS)


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_no_parameter_or_header_takes_long_to_be_refused(app: DocumentedApi) -> None:
    texts = [text[:10_000] for text in HOSTILE]
    in_paths = {text: quoted(text)[:60_000] for text in texts}
    for path, method, operation in operations(app.openapi()):
        for parameter in operation.get("parameters", ()):
            name, place = parameter["name"], parameter["in"]
            for text in texts:
                values = VALUES | ({name: in_paths[text]} if place == "path" else {})
                query = urlencode({name: text}) if place == "query" else ""
                headers = AUTHORIZATION | ({name: text} if place == "header" else {})
                began_s = time.process_time()
                status, _ = await ask(app, method, path.format(**values), headers, query)
                assert spent_s(began_s) < CPU_S, (method, path, name, text[:10])
                assert status < 500, (method, path, name, text[:10])


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_no_header_that_the_gate_reads_takes_long(master: httpx2.AsyncClient) -> None:
    for name in ("host", "origin", "sec-fetch-site", "authorization", "content-type", "content-encoding", "accept",
                 "content-length", "prefer", "idempotency-key", "cookie"):  # fmt: skip
        for text in HOSTILE:
            for prefix in ("", "Bearer ", "Bearer wk1.", "Bearer wf1.", "http://"):
                began_s = time.process_time()
                await master.post(
                    "/jobs", content=b"{}", headers={name: (prefix + text).encode().replace(b"\x00", b"")}
                )
                assert spent_s(began_s) < CPU_S, (name, prefix, text[:10])


def test_no_time_or_length_takes_long_to_parse() -> None:
    for parse in (durations.parse_duration, times.fields, times.zone):
        for text in HOSTILE:
            began_s = time.process_time()
            with suppress(ValueError, WorkronError):
                parse(text)  # type: ignore[operator]
            assert spent_s(began_s) < CPU_S, (parse.__name__, text[:10])


@pytest.mark.parametrize("bench", ["valkey", "redis"], indirect=True)
async def test_a_filter_of_a_bulk_action_does_not_hold_up_the_server(
    bench: Bench, store: Store, master: httpx2.AsyncClient
) -> None:
    """A text that is nearly found at each place of each error is the most work; no call takes 10 ms."""
    text = "a" * 999
    await store.submit([new_job(max_attempts=1) for _ in range(150)])
    held = await claim(store, limit=150)
    outcome = Outcome(Reason.EXIT_CODE, exit_code=1, error="a" * 100_000)
    await finish_all(store, held, [outcome] * len(held))
    ordered = await master.post("/jobs/actions", json={"action": "retry", "filter": {"error": text + "b"}})
    assert ordered.status_code == 202
    await bench.client.config_resetstat()
    while await store.actions.step("r1"):
        pass
    stats = (await bench.client.info("commandstats"))["cmdstat_evalsha"]
    assert (await store.actions.get(ordered.json()["id"])).looked == 150
    assert stats["usec"] / stats["calls"] < 10_000


@pytest.mark.parametrize(
    "encoding", ["gzip", "deflate", "x-gzip", "br", "zstd", "gzip, gzip", "GZIP", "identity, gzip"]
)
@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_a_compressed_body_is_refused_and_not_unpacked(
    app: DocumentedApi, master: httpx2.AsyncClient, encoding: str
) -> None:
    bomb = zlib.compress(b" " * 50_000_000) if encoding == "deflate" else gzip.compress(b" " * 50_000_000, 1)
    for path, method, operation in operations(app.openapi()):
        if "requestBody" not in operation:
            continue
        headers = {"content-type": next(iter(operation["requestBody"]["content"])), "content-encoding": encoding}
        target = path.format(**VALUES) + ("?fence=1" if path.endswith("/output") else "")
        began_s = time.process_time()
        response = await master.request(method, target, content=bomb, headers=headers)
        assert response.status_code == 415, (method, path)
        assert spent_s(began_s) < CPU_S
    said = {"content-encoding": "identity"}
    assert (await master.post("/jobs", json={"command": "true"}, headers=said)).status_code == 201


ODD_NAMES = (
    "../../../etc/passwd", "..", ".", "/etc/passwd", "a/../../b", "..%2f..%2fetc", "%2e%2e", "\\..\\..", "~root", "-rf",
    "--help", "$(id)", "`id`", "%s%n%x", "{0.__class__}", "\n", "\r\nX-Evil: 1", "\x1b[31m", "\u202e", "\ud7ff", "é",
    "a b", "a:b", "{a}", "*", "[a]", "", " ", "x" * 300, "con", "nul",
)  # fmt: skip


def quoted(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())


@pytest.mark.parametrize("bench", ["valkey"], indirect=True)
async def test_odd_names_reach_no_file_and_no_other_key(
    bench: Bench, app: DocumentedApi, master: httpx2.AsyncClient, settings: Any, store: Store
) -> None:
    """Whatever stands in the place of a name: what is not refused, is stored in one key of its own."""
    outside = settings.data_dir.parent / "victim"
    outside.write_text("as it was")
    for name in ODD_NAMES:
        for path, method, operation in operations(app.openapi()):
            if "{" not in path or path.endswith("/run"):
                continue
            target = path.replace("{", "\0").replace("}", "\0").split("\0")[0] + quoted(name)
            target += path.rpartition("}")[2]
            body = {"json": next(iter(body_examples(app, operation)), {})} if "requestBody" in operation else {}
            response = await master.request(method, target + "?", **body)
            assert response.status_code < 500, (method, target)
        for field in ("name", "queue", "cwd"):
            await master.post("/jobs", json={"command": "true", field: name})
        await master.post("/jobs", json={"command": "true", "unique": {"key": name}})
        await master.post("/jobs", json={"command": "true", "concurrency": {"key": name, "limit": 1}})
        await master.post("/workers/register", json={"id": name})
        await master.post("/keys", json={"name": name, "scopes": ["read"]})
    assert outside.read_text() == "as it was"
    assert list(settings.data_dir.iterdir()) == [outside] if outside.parent == settings.data_dir else True
    queues = [name.decode() for name in await bench.client.zrange(bench.keys.queues, 0, -1)]
    assert set(queues) <= {"default", "..", ".", "-rf", "--help", "con", "nul"}
    assert [job.queue for job in (await store.list_jobs(where())).jobs]


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_the_name_of_a_worker_reaches_no_other_key(
    bench: Bench, app: DocumentedApi, master: httpx2.AsyncClient, store: Store
) -> None:
    """[`DELETE /workers/w1:claim` forgot what w1 had claimed last: it could not ask again for a lost answer.]"""
    await store.submit([new_job()])
    await claim(store, worker="w1")
    before = await bench.client.hgetall(f"{bench.keys.prefix}worker:w1:claim")
    assert before
    for path, method, operation in operations(app.openapi()):
        if "{worker_id}" in path:
            body = {"json": {}} if "requestBody" in operation else {}
            response = await master.request(method, path.format(worker_id="w1:claim"), **body)
            assert response.status_code == 404, (method, path)
    assert await bench.client.hgetall(f"{bench.keys.prefix}worker:w1:claim") == before


def where() -> Any:
    from workron.models import JobFilter

    return JobFilter()


def body_examples(app: DocumentedApi, operation: dict[str, Any]) -> list[Any]:
    (content,) = operation["requestBody"]["content"].values()
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    examples: list[Any] = app.openapi()["components"]["schemas"].get(name, {}).get("examples", [])
    return examples


@pytest.fixture
async def live(app: DocumentedApi) -> Any:
    async with running(app) as live:
        yield live


@pytest.mark.parametrize("bench", ["fake"], indirect=True)
async def test_no_name_gets_into_the_head_of_an_answer(app: DocumentedApi, live: Live) -> None:
    """Seen from the socket: every line of the head is one of ours."""
    known = {
        *("content-length", "content-type", "date", "location", "allow", "retry-after", "www-authenticate"),
        *("x-content-type-options", "cache-control", "idempotency-replayed", "content-security-policy", "connection"),
        *("referrer-policy", "x-workron-output-total", "transfer-encoding", "vary", "x-frame-options"),
    }
    for name in (
        "\r\nx-evil: 1\r\n\r\n<script>",
        "\nx-evil: 1",
        "\rx-evil: 1",
        "\x00x-evil: 1",
        "\u010a\u010dx-evil: 1",
    ):
        for path, method, _ in operations(app.openapi()):
            if method == "GET" and ("/next" in path or "cancels" in path):
                continue
            target = path.replace("{", "\0").replace("}", "\0").split("\0")[0].rstrip("/") + "/" + quoted(name)
            await look(live, method, target, known)
        for body in (
            {"command": "true", "name": name},
            {"command": "true", "queue": name},
            {"command": "true", "unique": {"key": name}},
            {"command": "true", "tags": [name]},
            {name: "true"},
        ):
            await look(live, "POST", "/jobs", known, json.dumps(body).encode())


async def look(live: Live, method: str, target: str, known: set[str], body: bytes = b"{}") -> None:
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    head = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {AUTHORIZATION['authorization']}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    first, *lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert first.startswith(b"HTTP/1.1 ")
    names = {line.partition(b":")[0].decode().lower() for line in lines}
    assert names <= known, (method, target, answer[:500])
