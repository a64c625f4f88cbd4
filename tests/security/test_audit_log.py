"""The record of what people did: what is in it, what is not, and what it costs."""

import asyncio
import re
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from api.app import create_app
from api.auth.audit import AuditWriter
from api.openapi import DocumentedApi
from tests.api.live import AUTHORIZATION, KEY
from tests.log_lines import captured
from tests.security.conftest import Clients
from tests.servers import Bench
from workron.errors import StoreUnavailable
from workron.settings import Settings
from workron.store import Store

SECRET = "hunter2-hunter2-hunter2"


async def recorded(app: DocumentedApi, master: httpx2.AsyncClient) -> list[dict[str, Any]]:
    """Have what waits written, and return all entries, the oldest first."""
    await app.state.context.audit.aclose()
    entries: list[dict[str, Any]] = (await master.get("/audit?limit=1000")).json()["data"]
    return entries[::-1]


async def test_an_entry_names_the_caller_the_operation_its_target_and_the_outcome(
    app: DocumentedApi, master: httpx2.AsyncClient, clients: Clients
) -> None:
    job = (await master.post("/jobs", json={"command": "true"})).json()["id"]
    reader = await clients("read")
    await reader.post(f"/jobs/{job}/cancel")
    await master.post(f"/jobs/{job}/cancel")
    await master.post(f"/jobs/{'0' * 22}/retry")
    await master.post("/jobs", json={"command": ""})
    entries = [
        (one["key"] if one["key"] == "master" else one["key_name"], one["action"], one["target"], one["status"])
        for one in await recorded(app, master)
    ]
    assert entries == [
        ("master", "submit_job", job, 201),
        ("key-1", "cancel_job", job, 403),
        ("master", "cancel_job", job, 200),
        ("master", "retry_job", "0" * 22, 404),
        ("master", "submit_job", None, 422),
    ]


async def test_times_are_of_the_answer_by_the_clock_of_redis_and_pages_follow_each_other(
    app: DocumentedApi, master: httpx2.AsyncClient
) -> None:
    made = [(await master.post("/jobs", json={"command": "true"})).json() for _ in range(5)]
    await recorded(app, master)
    seen: list[dict[str, Any]] = []
    cursor = None
    while cursor or not seen:
        page = (await master.get("/audit", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        assert len(page["data"]) <= 2
        seen += page["data"]
        cursor = page["next_cursor"]
    assert [one["target"] for one in seen] == [job["id"] for job in reversed(made)]
    assert all(abs(_ms(one["at"]) - _ms(job["created_at"])) < 1000 for one, job in zip(seen, made[::-1], strict=True))
    for wrong in ("x", "1", "1-x", "+", "-", "1-1-1", "0-0", "00-0", "9" * 30 + "-1", "\u0661-1"):
        assert (await master.get("/audit", params={"cursor": wrong})).status_code == 422, wrong


def _ms(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text).timestamp() * 1000)


async def test_no_secret_command_or_variable_is_in_it(
    bench: Bench, app: DocumentedApi, master: httpx2.AsyncClient
) -> None:
    work = {"command": f"echo {SECRET}", "env": {SECRET: SECRET}, "metadata": {"x": SECRET}, "cwd": f"/{SECRET}"}
    await master.post("/jobs", json=work)
    await master.post("/workflows", json={"jobs": [work]})
    await master.put("/schedules/s", json={"cron": "@yearly", "job": work})
    key = (await master.post("/keys", json={"name": "ci", "scopes": ["read"]})).json()["key"]
    await master.post("/jobs", content=SECRET.encode(), headers={"content-type": "application/json"})
    assert len(await recorded(app, master)) == 5
    stored = repr(await bench.client.xrange(bench.keys.audit))
    for secret in (SECRET, KEY, key, key.rpartition(".")[2]):
        assert secret not in stored


async def test_what_a_submission_made_is_named_but_not_without_end(
    app: DocumentedApi, master: httpx2.AsyncClient
) -> None:
    made = (await master.post("/jobs/bulk", json={"jobs": [{"command": "true"}] * 15})).json()["data"]
    await master.delete(f"/queues/{'x' * 5000}")
    bulk, deleted = await recorded(app, master)
    assert bulk["target"] == " ".join(job["id"] for job in made[:10]) + " and 5 more"
    assert deleted["target"] == "x" * 200


@pytest.mark.parametrize(
    "odd", ["a b", "a\nb", "a\r\nadmin keys", "\x1b[2J", "é", "\x00", "\u202e", "a b and 3 more", "%20"]
)
async def test_what_stands_in_a_path_cannot_pass_for_two_targets_or_lines(
    app: DocumentedApi, master: httpx2.AsyncClient, odd: str
) -> None:
    await master.post(f"/jobs/{quote(odd, safe='')}/cancel")
    await master.delete(f"/queues/{quote(odd, safe='')}")
    entries = await recorded(app, master)
    assert [one["target"] for one in entries] == [quote(odd, safe="")] * 2
    assert all(re.fullmatch(r"[\w.%-]+", one["target"], re.ASCII) for one in entries)


async def test_only_the_latest_entries_are_kept(bench: Bench, store: Store) -> None:
    entry = (0, "master", "", "submit_job", "x", 201, "127.0.0.1")
    for _ in range(10):
        await store.audit.append([entry] * 200, 100)
    assert 100 <= await bench.client.xlen(bench.keys.audit) <= 100 + 200


async def test_entries_go_together_and_not_before_the_answer(
    app: DocumentedApi, store: Store, master: httpx2.AsyncClient
) -> None:
    calls: list[int] = []
    note = store.audit.append

    async def counted(entries: Any, most: int) -> None:
        calls.append(len(entries))
        await note(entries, most)

    store.audit.append = counted  # type: ignore[method-assign]
    for _ in range(100):
        await master.post("/jobs", json={"command": "true"})
    await app.state.context.audit.aclose()
    assert sum(calls) == 100
    assert len(calls) <= 30


async def test_what_waits_is_written_when_the_server_stops(app: DocumentedApi, master: httpx2.AsyncClient) -> None:
    await master.post("/jobs", json={"command": "true"})
    await app.state.context.aclose()
    assert [one["action"] for one in (await master.get("/audit")).json()["data"]] == ["submit_job"]


@pytest.fixture
def three_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.auth.audit._EVERY_S", 0.02)
    monkeypatch.setattr("api.auth.audit._AGAIN_S", 0.02)
    monkeypatch.setattr("api.auth.audit._MOST_WAITING", 3)


async def test_entries_wait_while_the_store_is_away_and_what_is_left_out_is_logged(
    three_may_wait: None, app: DocumentedApi, store: Store, master: httpx2.AsyncClient, wait_until: Any
) -> None:
    trail: AuditWriter = app.state.context.audit
    note, away, tries = store.audit.append, True, 0

    async def sometimes(entries: Any, most: int) -> None:
        nonlocal tries
        tries += 1
        if away:
            raise StoreUnavailable("away")
        await note(entries, most)

    store.audit.append = sometimes  # type: ignore[method-assign]
    with captured() as logs:
        jobs = [(await master.post("/jobs", json={"command": "true"})).json()["id"] for _ in range(5)]
        await wait_until(lambda: tries > 2)
        away = False
        await wait_until(lambda: not trail._waiting)
    assert [one["target"] for one in (await master.get("/audit")).json()["data"]] == jobs[:1:-1]
    assert [line["entries"] for line in logs if "lost" in line["event"]] == [2]


async def test_what_comes_while_the_oldest_are_written_is_not_taken_for_them(
    three_may_wait: None, app: DocumentedApi, store: Store, master: httpx2.AsyncClient, wait_until: Any
) -> None:
    """Those that are being written may be pushed out meanwhile by as many others."""
    note, begun, go_on = store.audit.append, asyncio.Event(), asyncio.Event()

    async def slowly(entries: Any, most: int) -> None:
        begun.set()
        await go_on.wait()
        await note(entries, most)

    store.audit.append = slowly  # type: ignore[method-assign]
    jobs = [(await master.post("/jobs", json={"command": "true"})).json()["id"] for _ in range(3)]
    await begun.wait()
    jobs += [(await master.post("/jobs", json={"command": "true"})).json()["id"] for _ in range(3)]
    go_on.set()
    await wait_until(lambda: not app.state.context.audit._waiting)
    written = [one["target"] for one in (await master.get("/audit")).json()["data"]][::-1]
    assert written[-3:] == jobs[3:]


@pytest.mark.damaged
async def test_an_audit_log_that_cannot_be_written_holds_up_no_request_and_is_logged_once(
    bench: Bench, app: DocumentedApi, master: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    monkeypatch.setattr("api.auth.audit._EVERY_S", 0.01)
    monkeypatch.setattr("api.auth.audit._AGAIN_S", 0.01)
    await bench.client.set(bench.keys.audit, "not a stream")
    with captured() as logs:
        for _ in range(20):
            assert (await master.post("/jobs", json={"command": "true"})).status_code == 201
        await wait_until(lambda: app.state.context.audit._refused)
        await app.state.context.audit.aclose()
    assert [line["event"] for line in logs].count("audit log not writable") == 1


async def test_no_record_is_kept_where_none_is_wanted(bench: Bench, store: Store, settings: Settings) -> None:
    app = create_app(store, settings.model_copy(update={"audit_entries": 0}), KEY)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=AUTHORIZATION) as client:
        await client.post("/jobs", json={"command": "true"})
    await app.state.context.aclose()
    assert not await bench.client.exists(bench.keys.audit)
