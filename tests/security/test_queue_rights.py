"""A key that is limited to queues: what is in others is not there for it."""

import asyncio
from typing import Any

import httpx2
import pytest

from api.openapi import DocumentedApi
from tests.api.every_route import VALUES, every_route
from tests.builders import claim, finish
from tests.security.conftest import ALL, JOB, Clients, foreign, routes
from tests.servers import Bench
from workron.models import Status
from workron.store import Store

pytestmark = pytest.mark.parametrize("bench", ["fake", "valkey"], indirect=True)


async def test_no_operation_shows_or_changes_a_job_in_another_queue(
    app: DocumentedApi, store: Store, limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    job = await foreign(store)
    [held] = await claim(store, queues=["b"])
    workflow = (await master.post("/workflows", json={"jobs": [JOB]})).json()["id"]
    await master.put("/schedules/nightly", json={"cron": "@yearly", "job": JOB})
    action = (await master.post("/jobs/actions", json={"action": "retry", "filter": {"queue": "b"}})).json()["id"]
    known = VALUES | {"job_id": job.id, "workflow_id": workflow, "action_id": action, "queue": "b"}
    before = [(await master.get(path)).json() for path in ("/jobs", "/schedules/nightly", f"/jobs/actions/{action}")]

    document = app.openapi()
    for (path, method), (_, _, body) in zip(routes(document), every_route(document), strict=True):
        if "{" not in path:
            continue
        fields = body.get("json", {})
        if "fence" in fields:
            body = {"json": fields | {"fence": held.fence}}
        if "json" in body:
            body = {"json": in_queue_a(body["json"])}
        writes = (path, method) == ("/jobs/{job_id}/output", "POST")
        target = path.format(**known) + (f"?fence={held.fence}" if writes else "")
        response = await limited.request(method, target, **body)
        assert response.status_code in {403, 404} or "worker_id" in path, (method, path, response.text)
    after = [(await master.get(path)).json() for path in ("/jobs", "/schedules/nightly", f"/jobs/actions/{action}")]
    assert after == before
    assert (await finish(store, held)).verdict == "accepted"


def in_queue_a(body: Any) -> Any:
    """Return a body with all its jobs in queue a: what is refused then, is for what they are to be done to."""
    if isinstance(body, dict):
        jobs = {"queue": "a"} if {"command", "argv"} & body.keys() else {}
        return {name: in_queue_a(value) for name, value in body.items() if name != "depends_on"} | jobs
    return [in_queue_a(one) for one in body] if isinstance(body, list) else body


async def test_jobs_are_submitted_to_its_queues_only(limited: httpx2.AsyncClient) -> None:
    own = {"command": "true", "queue": "a"}
    assert (await limited.post("/jobs", json=own)).status_code == 201
    for path, body in (
        ("/jobs", JOB),
        ("/jobs", {"command": "true"}),
        ("/jobs/bulk", {"jobs": [own, JOB]}),
        ("/workflows", {"jobs": [own, JOB]}),
        ("/workflows", {"jobs": [own, JOB | {"final": True}]}),
    ):
        refused = await limited.post(path, json=body)
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/forbidden")
        assert refused.json()["queue"] == body.get("queue", "b" if "jobs" in body else "default")
    for work in ({"job": JOB}, {"workflow": {"jobs": [own, JOB]}}, {"job": {"command": "true"}}):
        assert (await limited.put("/schedules/s", json={"cron": "@yearly", **work})).status_code == 403


async def test_a_job_cannot_be_made_to_tell_of_one_in_another_queue(store: Store, limited: httpx2.AsyncClient) -> None:
    """Its result would be handed to what depends on it."""
    other, gone = (await foreign(store)).id, "03557DJR2dL0HA8BMGxsib"
    answers = []
    for parent in (other, gone):
        for path, body in (("/jobs", {}), ("/jobs/bulk", None), ("/workflows", None)):
            job = {"command": "true", "queue": "a", "depends_on": [{"job": parent, "when": "finished"}]}
            refused = await limited.post(path, json=job if body is not None else {"jobs": [job]})
            answers.append((refused.status_code, refused.text.replace(parent, "")))
    assert answers[:3] == answers[3:]
    assert {status for status, _ in answers} == {422}


@pytest.mark.parametrize("on_conflict", ["return", "reject", "replace"])
async def test_it_cannot_take_or_see_the_unique_keys_of_others(
    store: Store, limited: httpx2.AsyncClient, master: httpx2.AsyncClient, on_conflict: str
) -> None:
    unique = {"key": "nightly", "on_conflict": on_conflict}
    held = (await master.post("/jobs", json=JOB | {"unique": {"key": "nightly"}})).json()
    mine = {"command": "true", "queue": "a"}
    refused = await limited.post("/jobs", json=mine | {"unique": unique})
    assert refused.status_code == 403
    assert held["id"] not in refused.text
    assert (await store.job(held["id"])).status is Status.PENDING
    own = await limited.post("/jobs", json=mine | {"unique": {"key": "a:nightly"}})
    assert own.status_code == 201


async def test_a_job_in_another_queue_that_holds_its_unique_key_is_not_shown(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    held = (await master.post("/jobs", json=JOB | {"env": {"SECRET": "x"}, "unique": {"key": "a:k"}})).json()
    mine = {"command": "true", "queue": "a", "unique": {"key": "a:k"}}
    for path, body in (("/jobs", mine), ("/jobs/bulk", {"jobs": [mine, {"command": "true", "queue": "a"}]})):
        refused = await limited.post(path, json=body)
        assert refused.status_code == 409
        assert held["id"] not in refused.text


async def test_it_cannot_change_the_limits_of_others(limited: httpx2.AsyncClient) -> None:
    def job(key: str) -> dict[str, Any]:
        return {"command": "true", "queue": "a", "concurrency": {"key": key, "limit": 1}}

    assert (await limited.post("/jobs", json=job("customer-7"))).status_code == 403
    for key in ("b.customer-7", "a", ".customer-7", "a.b.customer-7"):
        assert (await limited.post("/jobs", json=job(key))).status_code == 403, key
    assert (await limited.post("/jobs", json=job("a.customer-7"))).status_code == 201
    schedule = {"cron": "@yearly", "job": job("customer-7")}
    assert (await limited.put("/schedules/s", json=schedule)).status_code == 403


async def test_listings_show_its_queues_only(
    store: Store, limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    await foreign(store, name="n", tags=["t"])
    own = (await limited.post("/jobs", json={"command": "true", "queue": "a", "name": "n", "tags": ["t"]})).json()["id"]
    for query in ("", "?status=pending", "?name=n", "?tag=t"):
        assert (await limited.get(f"/jobs{query}")).status_code == 403
    assert (await limited.get("/jobs?queue=b")).json()["queue"] == "b"
    for query in ("", "&status=pending", "&name=n", "&tag=t"):
        assert [job["id"] for job in (await limited.get(f"/jobs?queue=a{query}")).json()["data"]] == [own]
    assert [queue["name"] for queue in (await limited.get("/queues")).json()["data"]] == ["a"]
    for name, queue in (("mine", "a"), ("theirs", "b")):
        await master.put(f"/schedules/{name}", json={"cron": "@yearly", "job": {"command": "true", "queue": queue}})
    assert [one["name"] for one in (await limited.get("/schedules")).json()["data"]] == ["mine"]
    assert (await limited.get("/schedules/mine")).status_code == 200
    for queue in ("a", "b"):
        await master.post("/jobs/actions", json={"action": "retry", "filter": {"queue": queue}})
    await master.post("/jobs/actions", json={"action": "retry", "filter": {}})
    assert [one["filter"]["queue"] for one in (await limited.get("/jobs/actions")).json()["data"]] == ["a"]
    assert (await limited.get("/workers")).status_code == 403


async def test_bulk_actions_name_one_of_its_queues(limited: httpx2.AsyncClient) -> None:
    def order(**fields: Any) -> Any:
        return limited.post("/jobs/actions", json={"action": "cancel", "filter": {}} | fields)

    assert (await order()).status_code == 403
    assert (await order(filter={"queue": "b"})).status_code == 403
    assert (await order(filter={"queue": "a"}, action="move", to={"queue": "b"})).status_code == 403
    ordered = await order(filter={"queue": "a"})
    assert ordered.status_code == 202
    assert (await limited.get(f"/jobs/actions/{ordered.json()['id']}")).status_code == 200


async def test_a_schedule_of_another_queue_is_not_replaced(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    await master.put("/schedules/nightly", json={"cron": "@yearly", "job": JOB})
    own = {"cron": "@daily", "job": {"command": "true", "queue": "a"}}
    assert (await limited.put("/schedules/nightly", json=own)).status_code == 403
    assert (await master.get("/schedules/nightly")).json()["cron"] == "0 0 1 1 *"
    assert (await limited.put("/schedules/other", json=own)).status_code == 201
    for verb in ("pause", "resume", "run"):
        assert (await limited.post(f"/schedules/other/{verb}")).status_code in {200, 201}
    assert (await limited.delete("/schedules/other")).status_code == 204


async def test_what_its_schedule_starts_has_its_key(
    store: Store, limited: httpx2.AsyncClient, clients: Clients
) -> None:
    await limited.put(
        "/schedules/s", json={"cron": "@yearly", "workflow": {"jobs": [{"command": "true", "queue": "a"}]}}
    )
    assert (await limited.post("/schedules/s/pause")).status_code == 200
    started = (await limited.post("/schedules/s/run")).json()["workflow"]
    [held] = await claim(store, queues=["a"])
    job = await clients.knowing(held.more["token"])
    refused = await job.post(f"/workflows/{started}/jobs", json={"jobs": [JOB]})
    assert (refused.status_code, refused.json()["queue"]) == (403, "b")


async def test_a_cancel_does_not_go_on_to_other_queues(store: Store, limited: httpx2.AsyncClient) -> None:
    own = (await limited.post("/jobs", json={"command": "true", "queue": "a"})).json()["id"]
    refused = await limited.post(f"/jobs/{own}/cancel", json={"cascade": True})
    assert refused.status_code == 403
    assert (await store.job(own)).status is Status.PENDING
    assert (await limited.post(f"/jobs/{own}/cancel")).status_code == 200


async def test_workflows_are_seen_by_the_key_that_submitted_them(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient, clients: Clients
) -> None:
    own = (await limited.post("/workflows", json={"jobs": [{"command": "true", "queue": "a"}] * 2})).json()["id"]
    assert len((await limited.get(f"/workflows/{own}")).json()["jobs"]) == 2
    await master.post(f"/workflows/{own}/jobs", json={"jobs": [JOB]})
    assert {job["queue"] for job in (await limited.get(f"/workflows/{own}")).json()["jobs"]} == {"a"}
    assert (await limited.post(f"/workflows/{own}/jobs", json={"jobs": [JOB]})).status_code == 403
    other = await clients(*ALL, queues=("a",))
    assert (await other.get(f"/workflows/{own}")).status_code == 404
    assert (await other.post(f"/workflows/{own}/cancel")).status_code == 404
    more = {"jobs": [{"command": "true", "queue": "a"}]}
    assert (await other.post(f"/workflows/{own}/jobs", json=more)).status_code == 404
    assert (await limited.post(f"/workflows/{own}/cancel")).status_code == 200


async def test_a_large_workflow_remembers_its_key_too(limited: httpx2.AsyncClient, clients: Clients) -> None:
    jobs = [{"command": "true", "queue": "a"}] * 500
    made = (await limited.post("/workflows", json={"jobs": jobs, "on_failure": "stop"})).json()
    assert (made["on_failure"], len(made["jobs"])) == ("stop", 500)
    assert (await limited.get(f"/workflows/{made['id']}")).status_code == 200
    assert (await (await clients(*ALL, queues=("a",))).get(f"/workflows/{made['id']}")).status_code == 404


@pytest.mark.parametrize("on_conflict", ["return", "reject", "replace"])
async def test_no_conflict_names_a_job_in_another_queue(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient, store: Store, on_conflict: str
) -> None:
    """[Only the one of `return` did not.]"""
    own = {"command": "true", "queue": "a", "unique": {"key": "a:k", "on_conflict": on_conflict}}
    first = (await limited.post("/jobs", json=own)).json()["id"]
    await limited.post(f"/jobs/{first}/cancel")
    held = (await master.post("/jobs", json=JOB | {"unique": {"key": "a:k"}})).json()["id"]
    await claim(store, queues=["b"])  # so that it can't be replaced
    for target, body in (
        ("/jobs", own),
        ("/jobs/bulk", {"jobs": [own]}),
        ("/workflows", {"jobs": [own]}),
        (f"/jobs/{first}/retry", {}),
    ):
        refused = await limited.post(target, json=body)
        assert refused.status_code == 409, (target, refused.text)
        assert held not in refused.text, target
    if on_conflict == "reject":
        assert held in (await master.post("/jobs", json=own)).text


async def test_the_name_of_a_job_in_another_queue_is_not_exchanged_for_its_id(
    limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    own = {"command": "true", "queue": "a", "name": "mine"}
    flow = (await limited.post("/workflows", json={"jobs": [own, own | {"name": "other"}]})).json()["id"]
    added = await master.post(f"/workflows/{flow}/jobs", json={"jobs": [JOB | {"name": "theirs"}]})
    theirs = added.json()["data"][0]["id"]
    answers = []
    for name in ("theirs", "nobody"):
        more = {"jobs": [{"command": "true", "queue": "a", "depends_on": [name]}]}
        refused = await limited.post(f"/workflows/{flow}/jobs", json=more)
        assert refused.status_code == 422
        assert theirs not in refused.text
        answers.append(refused.text.replace(name, ""))
    assert answers[0] == answers[1]
    more = {"jobs": [{"command": "true", "queue": "a", "depends_on": ["mine"]}]}
    assert (await limited.post(f"/workflows/{flow}/jobs", json=more)).status_code == 201


async def test_a_job_that_is_moved_to_another_queue_while_one_waits_for_it_is_not_shown(
    store: Store, limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    job = (await limited.post("/jobs", json={"command": "true", "queue": "a"})).json()["id"]
    waiting = asyncio.create_task(limited.get(f"/jobs/{job}?wait=30"))
    await asyncio.sleep(0.2)
    await master.post("/jobs/actions", json={"action": "move", "filter": {"queue": "a"}, "to": {"queue": "b"}})
    while await store.actions.step("r1"):
        pass
    await store.cancel(job)
    assert (await asyncio.wait_for(waiting, 20)).status_code == 404


MARK = "hush-hush"
"""Stands in all that belongs to another queue, and so in no answer to a key without it."""


async def test_no_operation_tells_anything_of_another_queue(
    app: DocumentedApi, store: Store, limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    """Whatever is asked, also without naming anything: lists, counts, and what a new operation will show."""
    secret = {"command": f"echo {MARK}", "queue": MARK, "name": MARK, "tags": [MARK], "metadata": {MARK: MARK}}
    secret |= {"env": {MARK: MARK}, "cwd": f"/{MARK}", "unique": {"key": f"a:{MARK}"}}
    made = (await master.post("/workflows", json={"name": MARK, "jobs": [secret]})).json()
    await master.put("/schedules/other", json={"cron": "@yearly", "job": secret | {"unique": None}})
    where = {"queue": MARK, "name": MARK, "error": MARK}
    action = (await master.post("/jobs/actions", json={"action": "retry", "filter": where})).json()["id"]
    await master.post("/keys", json={"name": MARK, "scopes": ["read"], "queues": [MARK]})
    claimed = await master.post("/claims", json={"worker_id": MARK, "queues": [MARK], "request_id": "1"})
    [held] = claimed.json()["data"]
    report = {"fence": held["fence"], "error": MARK, "result": MARK, "progress": MARK, "output": {"text": MARK}}
    await master.post("/heartbeats", json={"worker": {"id": "theirs", "host": MARK, "queues": [MARK]}})
    await master.post(f"/jobs/{held['id']}/fail", json=report | {"reason": "exit_code", "exit_code": 1})
    assert MARK in (await master.get(f"/jobs/{held['id']}/output")).text
    await limited.post("/jobs", json={"command": "true", "queue": "a"})
    await app.state.context.audit.aclose()

    known = VALUES | {"job_id": held["id"], "workflow_id": made["id"], "action_id": action, "schedule": "other"}
    known |= {"worker_id": "theirs"}
    document = app.openapi()
    answered = set()
    for (path, method), (_, target, body) in zip(routes(document), every_route(document), strict=True):
        for query in ("", "&queue=a", "&limit=1", f"&workflow={made['id']}&queue=a"):
            answer = await limited.request(method, path.format(**known) + f"?{target.partition('?')[2]}{query}", **body)
            assert MARK not in answer.text, (method, path, query)
            assert held["id"] not in answer.text or answer.status_code in {403, 404}, (method, path, query)
            if answer.status_code < 300:
                answered.add((method, path))
    assert {("GET", "/jobs"), ("GET", "/queues"), ("GET", "/schedules"), ("GET", "/jobs/actions")} <= answered


@pytest.mark.damaged
async def test_a_damaged_schedule_of_others_does_not_take_the_list_from_a_key_with_queues(
    bench: Bench, limited: httpx2.AsyncClient, master: httpx2.AsyncClient
) -> None:
    for name, queue in (("mine", "a"), ("theirs", "b")):
        await master.put(f"/schedules/{name}", json={"cron": "@yearly", "job": {"command": "true", "queue": queue}})
    await bench.client.hset(bench.keys.schedule("theirs"), "job", "no JSON")
    listed = await limited.get("/schedules")
    assert (listed.status_code, [one["name"] for one in listed.json()["data"]]) == (200, ["mine"])
