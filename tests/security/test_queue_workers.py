"""A worker whose key is limited to queues: what it may claim, report on and be told, and what its jobs may do."""

from typing import Any

import httpx2
import pytest

from api.openapi import DocumentedApi
from tests.builders import claim
from tests.bulk_actions import act
from tests.security.conftest import ALL, JOB, Clients, foreign
from workron.models import Status
from workron.models.actions import Verb
from workron.store import Store
from workron.store.api_keys import id_in

pytestmark = pytest.mark.parametrize("bench", ["fake", "valkey"], indirect=True)


async def test_claims_and_reports_are_of_its_queues(store: Store, limited: httpx2.AsyncClient) -> None:
    await foreign(store)
    assert (await limited.post("/claims", json={"worker_id": "w"})).json()["queue"] == "default"
    assert (await limited.post("/claims", json={"worker_id": "w", "queues": ["a", "b"]})).status_code == 403
    assert (await limited.get("/jobs/next?worker_id=w&queue=b")).status_code == 403
    claiming = {"request_id": "r:1", "queues": ["b"], "limit": 1}
    assert (await limited.post("/exchange", json={"worker_id": "w", "claim": claiming})).status_code == 403
    [held] = await claim(store, queues=["b"])
    one = {"id": held.id, "fence": held.fence}
    exchanged = (await limited.post("/exchange", json={"worker_id": "w", "results": [one], "released": [one]})).json()
    assert exchanged["results"] == [one | {"verdict": "unknown", "status": None}]
    beats = await limited.post("/heartbeats", json={"worker": {"id": "w"}, "held": [one]})
    written = await limited.post("/outputs", json={"data": [one | {"output": {"text": "x"}}]})
    assert beats.json()["data"] == written.json()["data"] == [one | {"state": "lost"}]
    assert (await store.job(held.id)).status is Status.RUNNING
    assert (await store.output(held.id)).total == 0


async def test_one_job_that_was_moved_to_another_queue_stopped_all_reports_of_its_worker(
    store: Store, limited: httpx2.AsyncClient
) -> None:
    for _ in range(2):
        await limited.post("/jobs", json={"command": "true", "queue": "a"})
    asked = {"worker_id": "w", "queues": ["a"], "limit": 2}
    moved, stays = (await limited.post("/claims", json=asked)).json()["data"]
    await store.attempts.release([(moved["id"], moved["fence"])])
    await act(store, Verb.MOVE, to=("b", None), queue="a")
    held = [{"id": one["id"], "fence": one["fence"]} for one in (moved, stays)]
    beats = await limited.post("/heartbeats", json={"worker": {"id": "w"}, "held": held})
    assert [beat["state"] for beat in beats.json()["data"]] == ["lost", "ok"]
    written = await limited.post("/outputs", json={"data": [one | {"output": {"text": "x"}} for one in held]})
    assert [piece["state"] for piece in written.json()["data"]] == ["lost", "stored"]
    exchanged = await limited.post("/exchange", json={"worker_id": "w", "results": held})
    assert [result["verdict"] for result in exchanged.json()["results"]] == ["unknown", "accepted"]
    assert [(await store.job(one["id"])).status for one in held] == [Status.PENDING, Status.DONE]


async def test_claims_of_another_worker_are_not_repeated_to_a_key_of_other_queues(
    store: Store, limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    """A repeated claim request is answered with its claims: worker and request id may be guessed."""
    await foreign(store, env={"SECRET": "x"})
    asked = {"worker_id": "w", "request_id": "1", "queues": ["b"]}
    assert len((await master.post("/claims", json=asked)).json()["data"]) == 1
    guessed = asked | {"queues": ["a"]}
    assert (await limited.post("/claims", json=guessed)).json()["data"] == []
    claiming = {"request_id": "1", "queues": ["a"], "limit": 1}
    exchanged = await limited.post("/exchange", json={"worker_id": "w", "claim": claiming})
    assert exchanged.json()["claims"] == []
    assert (await limited.get("/jobs/next?worker_id=w&queue=a&request_id=1")).status_code == 204


async def test_a_worker_with_a_limited_key_does_its_work(limited: httpx2.AsyncClient) -> None:
    job = (await limited.post("/jobs", json={"command": "true", "queue": "a"})).json()["id"]
    [held] = (await limited.post("/claims", json={"worker_id": "w", "queues": ["a"]})).json()["data"]
    one = {"id": job, "fence": held["fence"]}
    assert (await limited.get(f"/jobs/{job}/parents")).status_code == 200
    beat = await limited.post("/heartbeats", json={"worker": {"id": "w"}, "held": [one]})
    assert beat.json()["data"][0]["state"] == "ok"
    done = await limited.post("/exchange", json={"worker_id": "w", "results": [one]})
    assert done.json()["results"][0]["verdict"] == "accepted"


async def claimed_by(client: httpx2.AsyncClient, how: str) -> dict[str, Any]:
    """Claim a job of queue a, and return what the worker is told of it."""
    if how == "next":
        claimed: dict[str, Any] = (await client.get("/jobs/next?worker_id=w&queue=a")).json()
    elif how == "claims":
        [claimed] = (await client.post("/claims", json={"worker_id": "w", "queues": ["a"]})).json()["data"]
    else:
        claiming = {"request_id": "r:1", "queues": ["a"], "limit": 1}
        [claimed] = (await client.post("/exchange", json={"worker_id": "w", "claim": claiming})).json()["claims"]
    return claimed


@pytest.mark.parametrize("how", ["next", "claims", "exchange"])
async def test_a_worker_for_one_queue_does_not_get_into_others_by_the_token_of_a_job(
    master: httpx2.AsyncClient, clients: Clients, how: str
) -> None:
    """[Jobs of the first key had a token for all queues, whoever ran them: and so commands on all other workers.]"""
    flow = (await master.post("/workflows", json={"jobs": [{"command": "true", "queue": "a"}, JOB]})).json()["id"]
    worker = await clients("work", queues=("a",))
    job = await clients.knowing((await claimed_by(worker, how))["more"]["token"])
    own = {"command": "true", "queue": "a", "name": "own"}
    assert (await job.post(f"/workflows/{flow}/jobs", json={"jobs": [own]})).status_code == 201
    for fields in ({"queue": "b"}, {"queue": "default"}, {"queue": "a", "unique": {"key": "b:x"}}):
        refused = await job.post(f"/workflows/{flow}/jobs", json={"jobs": [{"command": "true"} | fields]})
        assert refused.status_code == 403, fields
    assert {one["queue"] for one in (await job.get(f"/workflows/{flow}")).json()["jobs"]} == {"a"}


@pytest.mark.parametrize("how", ["next", "claims", "exchange"])
async def test_a_worker_for_all_queues_has_what_the_submitter_has(
    master: httpx2.AsyncClient, clients: Clients, how: str
) -> None:
    flow = (await master.post("/workflows", json={"jobs": [{"command": "true", "queue": "a"}]})).json()["id"]
    job = await clients.knowing((await claimed_by(await clients("work"), how))["more"]["token"])
    assert (await job.post(f"/workflows/{flow}/jobs", json={"jobs": [JOB]})).status_code == 201


async def test_a_token_ends_with_the_key_that_its_job_was_claimed_with(
    app: DocumentedApi, store: Store, master: httpx2.AsyncClient, clients: Clients
) -> None:
    flow = (await master.post("/workflows", json={"jobs": [{"command": "true", "queue": "a"}]})).json()["id"]
    key = await clients.key("work", queues=("a",))
    job = await clients.knowing((await claimed_by(await clients.knowing(key), "claims"))["more"]["token"])
    assert (await job.get(f"/workflows/{flow}")).status_code == 200
    await store.api_keys.revoke(id_in(key) or "")
    app.state.context.keyring.forget(id_in(key))
    assert (await job.get(f"/workflows/{flow}")).status_code == 401


async def test_a_token_opens_the_queues_only_that_submitter_and_worker_have_both(clients: Clients) -> None:
    submitter = await clients(*ALL, queues=("a", "b", "c"))
    flow = (await submitter.post("/workflows", json={"jobs": [{"command": "true", "queue": "a"}]})).json()["id"]
    worker = await clients("work", queues=("a", "b", "d"))
    token = (await claimed_by(worker, "claims"))["more"]["token"]
    job = await clients.knowing(token)
    for queue, status in (("a", 201), ("b", 201), ("c", 403), ("d", 403)):
        added = await job.post(f"/workflows/{flow}/jobs", json={"jobs": [{"command": "true", "queue": queue}]})
        assert added.status_code == status, queue
    words = token.split(".")
    for forged in (".".join([*words[:5], words[6]]), ".".join([*words[:5], "0" * 22, words[6]])):
        assert (await (await clients.knowing(forged)).get(f"/workflows/{flow}")).status_code == 401


async def test_cancels_of_jobs_in_other_queues_are_not_shown(
    app: DocumentedApi, store: Store, limited: httpx2.AsyncClient, master: httpx2.AsyncClient, wait_until: Any
) -> None:
    """Whoever asks says himself which worker it is."""
    jobs = [(await foreign(store)).id, (await limited.post("/jobs", json={"command": "x", "queue": "a"})).json()["id"]]
    for queue in ("b", "a"):
        await claim(store, queues=[queue], worker="w1")
    board = app.state.context.cancels
    await limited.get("/cancels?worker_id=w1")
    for job in jobs:

        async def heard(job: str = job) -> bool:
            await store.cancel(job)
            return job in board._boxes["w1"].fences.values()

        await wait_until(heard)
    told = (await limited.get("/cancels?worker_id=w1")).json()["data"]
    assert [one["id"] for one in told] == jobs[1:]


async def test_a_worker_of_other_queues_is_neither_seen_nor_taken_off_the_list(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    await master.post("/heartbeats", json={"worker": {"id": "theirs", "host": "secret", "queues": ["a", "b"]}})
    for method, path in (("GET", ""), ("POST", "/heartbeat"), ("DELETE", ""), ("POST", "/drain")):
        refused = await limited.request(method, f"/workers/theirs{path}")
        assert refused.status_code in {403, 404}, (method, path)
        assert "secret" not in refused.text
    assert (await master.get("/workers/theirs")).json()["host"] == "secret"
    assert (await limited.post("/workers/register", json={"id": "mine"})).json()["queues"] == ["a"]
    assert (await limited.post("/workers/mine/heartbeat")).status_code == 200
    assert (await limited.delete("/workers/mine")).status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/workers/register", {"id": "theirs"}),
        ("POST", "/workers/theirs/heartbeat", None),
        ("DELETE", "/workers/theirs", None),
        ("POST", "/heartbeats", {"worker": {"id": "theirs", "queues": ["a"]}}),
        ("POST", "/exchange", {"worker_id": "theirs", "claim": {"request_id": "1", "queues": ["a"], "limit": 1}}),
        ("POST", "/claims", {"worker_id": "theirs", "queues": ["a"]}),
        ("GET", "/jobs/next?worker_id=theirs&queue=a", None),
        ("GET", "/cancels?worker_id=theirs", None),
    ],
)
async def test_registering_under_the_id_of_a_worker_of_other_queues_took_its_place(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient, method: str, path: str, body: Any
) -> None:
    about = {"id": "theirs", "host": "secret", "queues": ["a", "b"]}
    await master.post("/heartbeats", json={"worker": about})
    await limited.post("/jobs", json={"command": "true", "queue": "a"})
    asked = {"worker_id": "theirs", "queues": ["b"], "request_id": "1"}
    await master.post("/claims", json=asked)
    await master.post("/workers/theirs/drain", json={})
    before = (await master.get("/workers/theirs")).json()
    refused = await limited.request(method, path, **({} if body is None else {"json": body}))
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/not-found")
    after = (await master.get("/workers/theirs")).json()
    moving = {"last_heartbeat", "heartbeat_age"}
    assert {k: v for k, v in after.items() if k not in moving} == {k: v for k, v in before.items() if k not in moving}
    assert (after["host"], after["queues"]) == ("secret", ["a", "b"])
    assert (await master.get("/jobs")).json()["data"][0]["status"] == "pending"


async def test_a_worker_says_of_no_queue_that_its_key_lacks_that_it_serves_it(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    """Its own key would not see it any more."""
    for _ in range(2):
        assert (await limited.post("/heartbeats", json={"worker": {"id": "mine"}})).status_code == 200
    assert (await master.get("/workers/mine")).json()["queues"] == ["a"]
    refused = await limited.post("/heartbeats", json={"worker": {"id": "mine", "queues": ["a", "b"]}})
    assert (refused.status_code, refused.json()["queue"]) == (403, "b")
