"""API keys: what is stored of them, how long they are good, and what they cost."""

import asyncio
import hmac
import re
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.auth.keyring import REMEMBERED_S
from api.openapi import DocumentedApi
from tests.api.live import AUTHORIZATION, KEY
from tests.builders import claim, new_job
from tests.security.conftest import Clients
from tests.servers import Bench
from workron.errors import Conflict, NotFound, StoreUnavailable
from workron.models import NewKey, Scope
from workron.settings import Settings
from workron.store import Store
from workron.store.api_keys import MOST_KEYS, id_in, is_of

READ = frozenset({Scope.READ})


async def test_a_key_is_stored_as_its_hash_only(bench: Bench, store: Store) -> None:
    record, text = await store.api_keys.create(NewKey("ci", READ, frozenset({"b", "a"}), 60_000))
    assert re.fullmatch(r"wk1\.[0-9A-Za-z]{22}\.[\w-]{43}", text)
    assert id_in(text) == record.id
    assert is_of(record, text)
    secret = text.rpartition(".")[2].encode()
    for name in [name async for name in bench.client.scan_iter(f"{bench.keys.prefix}*")]:
        assert secret not in await bench.client.dump(name)
    assert (record.scopes, record.queues, record.expired) == (READ, frozenset({"a", "b"}), False)
    assert record.expires_at_ms == record.created_at_ms + 60_000
    assert [one.id for one in await store.api_keys.list()] == [record.id]


def test_only_what_has_the_form_of_a_key_has_it_looked_up() -> None:
    key_id, secret = "0" * 22, "x" * 43
    assert id_in(f"wk1.{key_id}.{secret}") == key_id
    others = ("", "wk1", key_id, f"wk1.{key_id}", f"wk2.{key_id}.x", f"wk1.{key_id}.{'x' * 200}", f"wk1.{key_id}.x.y")
    assert [id_in(text) for text in (*others, f"wk1.{key_id[1:]}.x", f"wk1.{key_id[1:]}*.x")] == [None] * 9


async def test_no_two_keys_are_alike(store: Store) -> None:
    texts = [(await store.api_keys.create(NewKey(f"k{number}", READ)))[1] for number in range(20)]
    assert len({text.rpartition(".")[2] for text in texts}) == 20
    records = await store.api_keys.list()
    assert [sum(is_of(record, text) for record in records) for text in texts] == [1] * 20


async def test_a_name_is_taken_until_its_key_is_revoked_or_has_expired(store: Store, wait_until: Any) -> None:
    record, _ = await store.api_keys.create(NewKey("ci", READ, None, 1_000))
    with pytest.raises(Conflict):
        await store.api_keys.create(NewKey("ci", READ))
    await wait_until(lambda: has_expired(store, record.id))
    second, _ = await store.api_keys.create(NewKey("ci", READ))
    assert [one.expired for one in await store.api_keys.list()] == [True, False]
    await store.api_keys.revoke(second.id)
    await store.api_keys.create(NewKey("ci", READ))
    with pytest.raises(NotFound):
        await store.api_keys.revoke(second.id)


async def has_expired(store: Store, key_id: str) -> bool:
    return (await store.api_keys.get(key_id)).expired


async def test_a_grant_that_is_repeated_makes_one_key(store: Store) -> None:
    for _ in range(2):
        answer = await store.scripts.key_create("a" * 22, "ci", "", MOST_KEYS, 1000, ["digest", "x", "scopes", "read"])
        assert answer == [b"GRANTED"]
    assert [record.name for record in await store.api_keys.list()] == ["ci"]


async def test_there_are_not_any_number_of_keys(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workron.store.api_keys.MOST_KEYS", 2)
    for number in range(2):
        await store.api_keys.create(NewKey(f"k{number}", READ))
    with pytest.raises(Conflict, match="revoke some"):
        await store.api_keys.create(NewKey("k2", READ))


async def test_of_a_revoked_key_nothing_is_left_that_counts_to_the_limit(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workron.store.api_keys.MOST_KEYS", 2)
    for number in range(5):
        record, _ = await store.api_keys.create(NewKey(f"k{number}", READ))
        await store.api_keys.revoke(record.id)
    assert [name async for name in bench.client.scan_iter(f"{bench.keys.prefix}apikey*")] == []


async def test_what_is_stored_of_an_expired_key_goes_by_itself(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    monkeypatch.setattr("workron.store.api_keys.KEPT_MS", 300)
    record, _ = await store.api_keys.create(NewKey("ci", READ, None, 50))

    async def gone() -> bool:
        return not await bench.client.exists(bench.keys.api_key(record.id))

    await wait_until(gone)
    kept, _ = await store.api_keys.create(NewKey("ci", READ))
    assert [one.decode() for one in await bench.client.zrange(bench.keys.api_keys, 0, -1)] == [kept.id]
    assert [one.id for one in await store.api_keys.list()] == [kept.id]


@pytest.mark.damaged
@pytest.mark.parametrize("damage", [{"scopes": "read root"}, {"scopes": ""}, {"digest": "ÿ"}, {"created_at": "x"}])
async def test_what_is_stored_of_a_key_and_cannot_be_read_opens_nothing(
    bench: Bench, clients: Clients, damage: dict[str, str]
) -> None:
    text = await clients.key("read")
    await bench.client.hset(bench.keys.api_key(id_in(text) or ""), mapping=damage)
    assert (await (await clients.knowing(text)).get("/queues")).status_code in {401, 403}


@pytest.mark.damaged
async def test_a_key_of_the_wrong_type_opens_nothing(bench: Bench, clients: Clients) -> None:
    text = await clients.key("read")
    await bench.client.delete(bench.keys.api_key(id_in(text) or ""))
    await bench.client.rpush(bench.keys.api_key(id_in(text) or ""), "x")
    assert (await (await clients.knowing(text)).get("/queues")).status_code == 401


async def test_a_revoked_key_is_good_for_as_long_as_it_is_remembered_and_no_longer(
    store: Store, settings: Settings, clients: Clients, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    monkeypatch.setattr("api.auth.keyring.REMEMBERED_S", 0.3)
    text = await clients.key("read")
    client = await clients.knowing(text)
    assert (await client.get("/queues")).status_code == 200
    began_s = time.monotonic()
    await store.api_keys.revoke(id_in(text) or "")  # by another API server

    async def refused() -> bool:
        return (await client.get("/queues")).status_code == 401

    await wait_until(refused)
    assert time.monotonic() - began_s < 5


async def test_the_server_that_revokes_a_key_does_not_take_it_any_more(
    master: httpx2.AsyncClient, clients: Clients
) -> None:
    made = (await master.post("/keys", json={"name": "ci", "scopes": ["read"]})).json()
    client = await clients.knowing(made["key"])
    assert (await client.get("/queues")).status_code == 200
    assert (await master.delete(f"/keys/{made['id']}")).status_code == 204
    assert (await client.get("/queues")).status_code == 401


async def test_a_key_is_not_good_beyond_its_time_because_it_is_remembered(clients: Clients, wait_until: Any) -> None:
    client = await clients.knowing(await clients.key("read", ttl_ms=1_500))
    assert (await client.get("/queues")).status_code == 200

    async def refused() -> bool:
        return (await client.get("/queues")).status_code == 401

    await wait_until(refused, within_s=REMEMBERED_S - 1)


@pytest.mark.parametrize("bench", ["valkey"], indirect=True)
async def test_without_redis_the_first_key_opens_what_needs_none_and_no_other_opens_anything(
    redis: Any, settings: Settings, store: Store
) -> None:
    async with Store.connect(settings.model_copy(update={"redis": Settings(redis=redis.url).redis})) as own:
        _, text = await own.api_keys.create(NewKey("ci", frozenset({Scope.ADMIN})))
        app = create_app(own, settings, KEY)
        redis.process.kill()
        redis.process.wait(10)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            other = {"authorization": f"Bearer {text}"}
            wait = "/cancels?worker_id=w1"
            assert (await client.get(wait, headers=AUTHORIZATION)).status_code == 200
            refused = await client.get(wait, headers=other)
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/store-unavailable")
            assert int(refused.headers["retry-after"]) >= 1
            assert (await client.get(wait, headers={"authorization": "Bearer x"})).status_code == 401
        await app.state.context.aclose()


async def test_keys_are_refused_when_the_store_does_not_answer_even_if_they_were_good_once(
    store: Store, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.auth.keyring.REMEMBERED_S", 0.0)
    client = await clients("read")
    assert (await client.get("/queues")).status_code == 200

    async def away(_: str) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store.api_keys, "find", away)
    assert (await client.get("/queues")).status_code == 503


async def test_two_keys_have_idempotency_keys_of_their_own(master: httpx2.AsyncClient, clients: Clients) -> None:
    one, other = await clients("submit"), await clients("submit")
    once = {"idempotency-key": "k"}
    made = []
    for client in (master, one, other):
        first, second = [await client.post("/jobs", json={"command": "true"}, headers=once) for _ in range(2)]
        assert (first.status_code, second.status_code) == (201, 200)
        assert first.json()["id"] == second.json()["id"]
        made.append(first.json()["id"])
        ordered = await client.post("/jobs/actions", json={"action": "retry", "filter": {}}, headers=once)
        made.append(ordered.json()["id"])
    assert len(set(made)) == 6


async def test_two_keys_that_run_a_schedule_have_idempotency_keys_of_their_own(
    master: httpx2.AsyncClient, clients: Clients
) -> None:
    await master.put("/schedules/nightly", json={"cron": "@yearly", "job": {"command": "true"}})
    one, other = await clients("submit"), await clients("submit")
    runs = [
        (await client.post("/schedules/nightly/run", headers={"idempotency-key": "k"})).json()["job"]
        for client in (master, one, other, one, master)
    ]
    assert len(set(runs)) == 3
    assert (runs[1], runs[0]) == (runs[3], runs[4])


@pytest.fixture
async def token(store: Store, clients: Clients) -> Callable[..., Any]:
    """Submit a workflow with a key, claim its job, and return a client with its token and the workflow."""

    async def of(client: httpx2.AsyncClient, queue: str, **fields: Any) -> tuple[httpx2.AsyncClient, str]:
        jobs = [{"command": "true", "queue": queue, **fields}]
        workflow = (await client.post("/workflows", json={"jobs": jobs})).json()["id"]
        [held] = await claim(store, queues=[queue])
        return await clients.knowing(held.more["token"]), workflow

    return of


async def add(client: httpx2.AsyncClient, workflow: str, **fields: Any) -> int:
    response = await client.post(f"/workflows/{workflow}/jobs", json={"jobs": [{"command": "true", **fields}]})
    return response.status_code


async def test_tokens_have_idempotency_keys_of_their_own(master: httpx2.AsyncClient, token: Any) -> None:
    job, workflow = await token(master, "a")
    made = []
    for client in (master, job, job, master):
        more = {"jobs": [{"command": "true"}]}
        answer = await client.post(f"/workflows/{workflow}/jobs", json=more, headers={"idempotency-key": "k"})
        made.append((answer.status_code, answer.json()["data"][0]["id"]))
    assert [status for status, _ in made] == [201, 201, 200, 200]
    assert made[0][1] == made[3][1] != made[1][1] == made[2][1]


@pytest.mark.parametrize("fields", [{}, {"array": {"size": 1}}])
async def test_with_its_token_a_job_can_do_no_more_than_its_submitter(
    store: Store, clients: Clients, token: Any, fields: dict[str, Any], wait_until: Any
) -> None:
    limited = await clients("submit", "read", queues=("a",))
    job, workflow = await token(limited, "a", **fields)
    assert await add(job, workflow, queue="a") == 201
    assert await add(job, workflow) == 403
    assert await add(job, workflow, queue="a", concurrency={"key": "b.all", "limit": 1}) == 403
    assert await add(job, workflow, queue="a", unique={"key": "all", "on_conflict": "replace"}) == 403
    [foreign] = (await store.submit([new_job(queue="b")])).ids
    assert await add(job, workflow, queue="a", depends_on=[foreign]) == 422
    grandchild = (await claim(store, queues=["a"]))[0].more["token"]
    assert await add(await clients.knowing(grandchild), workflow) == 403


async def test_with_the_token_of_a_job_that_the_first_key_submitted_all_queues_are_open(
    master: httpx2.AsyncClient, token: Any
) -> None:
    job, workflow = await token(master, "a")
    assert await add(job, workflow, queue="b") == 201


async def test_a_token_ends_with_the_key_that_its_job_was_submitted_with(
    app: DocumentedApi, store: Store, clients: Clients, token: Any
) -> None:
    text = await clients.key("submit")
    job, workflow = await token(await clients.knowing(text), "a")
    assert await add(job, workflow, queue="b") == 201
    await store.api_keys.revoke(id_in(text) or "")
    app.state.context.keyring.forget(id_in(text))
    assert await add(job, workflow, queue="b") == 401


async def test_keys_are_compared_in_constant_time(
    clients: Clients, master: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bool] = []
    compare = hmac.compare_digest

    def noted(one: Any, other: Any) -> bool:
        compared.append(compare(one, other))
        return compared[-1]

    monkeypatch.setattr(hmac, "compare_digest", noted)
    text = await clients.key("read")
    for client in (master, await clients.knowing(text), await clients.knowing(text[:-1] + "!")):
        await client.get("/queues")
    assert compared == [True, False, True, False, False]


async def test_concurrent_requests_with_a_new_key_are_all_accepted(clients: Clients) -> None:
    client = await clients("read")
    answers = await asyncio.gather(*(client.get("/queues") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
