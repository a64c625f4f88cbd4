"""Workflows over HTTP: on_failure, the final job, more jobs, cancels, and what a job's token opens."""

from typing import Any

import httpx2
import pytest

from api import schemas
from tests.builders import claim, finish
from tests.workflows import FAILURE
from workron import ids
from workron.store import Store


async def start(client: httpx2.AsyncClient, *members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = await client.post("/workflows", json={"jobs": members, **fields})
    assert response.status_code == 201, response.text
    schemas.Workflow.model_validate(response.json())
    answer: dict[str, Any] = response.json()
    return answer


async def test_the_answer_says_what_is_stored(client: httpx2.AsyncClient) -> None:
    last = {"command": "x", "final": True}
    workflow = await start(client, {"command": "a"}, last, on_failure="stop", name="n")
    assert (workflow["on_failure"], workflow["final"]) == ("stop", workflow["jobs"][1]["id"])
    assert [(job["final"], job["status"]) for job in workflow["jobs"]] == [(False, "pending"), (True, "blocked")]
    assert (await client.get(f"/workflows/{workflow['id']}")).json() == workflow


@pytest.mark.parametrize(
    "members",
    [
        [{"command": "a", "final": True}, {"command": "b", "final": True}],
        [{"command": "a", "final": True, "name": "f"}, {"command": "b", "depends_on": ["f"]}],
        [{"command": "a", "name": "a"}, {"command": "b", "final": True, "depends_on": ["a"]}],
        [{"command": "b", "final": True, "array": {"size": 2}}],
    ],
)
async def test_a_final_job_that_cannot_be_is_refused(client: httpx2.AsyncClient, members: list[Any]) -> None:
    assert (await client.post("/workflows", json={"jobs": members})).status_code == 422


async def test_only_jobs_of_new_workflows_can_be_final(client: httpx2.AsyncClient) -> None:
    workflow = await start(client, {"command": "a"})
    last = {"command": "a", "final": True}
    for path, body in (("/jobs", last), ("/jobs/bulk", {"jobs": [last]})):
        assert (await client.post(path, json=body)).status_code == 422
    assert (await client.post(f"/workflows/{workflow['id']}/jobs", json={"jobs": [last]})).status_code == 422


async def test_a_stopped_workflow_says_why(client: httpx2.AsyncClient, store: Store) -> None:
    workflow = await start(client, {"command": "a", "max_attempts": 1}, {"command": "b"}, on_failure="stop")
    (failing,) = await claim(store)
    await finish(store, failing, FAILURE)
    answer = (await client.get(f"/workflows/{workflow['id']}")).json()
    assert (answer["status"], answer["stopped"], answer["stopped_by"]) == ("failed", "failed", failing.id)
    assert answer["jobs"][1]["error"].startswith("cancelled")


async def test_jobs_are_added_by_the_names_of_existing_jobs(client: httpx2.AsyncClient) -> None:
    workflow = await start(client, {"command": "a", "name": "a"})
    path = f"/workflows/{workflow['id']}/jobs"
    added = [{"command": "c", "name": "c", "depends_on": ["b"]}, {"command": "b", "name": "b", "depends_on": ["a"]}]
    response = await client.post(path, json={"jobs": added}, headers={"idempotency-key": "k"})
    assert response.status_code == 201, response.text
    b, c = response.json()["data"]
    assert (b["name"], b["depends_on"], c["depends_on"]) == ("b", [workflow["jobs"][0]["id"]], [b["id"]])
    assert {job["workflow"] for job in (b, c)} == {workflow["id"]}
    again = await client.post(path, json={"jobs": added}, headers={"idempotency-key": "k"})
    assert (again.status_code, [job["id"] for job in again.json()["data"]]) == (200, [b["id"], c["id"]])
    assert (await client.get(f"/workflows/{workflow['id']}")).json()["size"] == 3


async def test_an_addition_is_refused_whole(client: httpx2.AsyncClient, store: Store) -> None:
    workflow = await start(client, {"command": "a"})
    path = f"/workflows/{workflow['id']}/jobs"
    unknown = await client.post(path, json={"jobs": [{"command": "b"}, {"command": "c", "depends_on": ["nowhere"]}]})
    assert unknown.status_code == 422
    await finish(store, *(await claim(store)))
    assert (await client.post(path, json={"jobs": [{"command": "b"}]})).status_code == 409
    for other in (ids.new_id(), "x"):
        assert (await client.post(f"/workflows/{other}/jobs", json={"jobs": [{"command": "b"}]})).status_code == 404
    assert len((await client.get("/jobs")).json()["data"]) == 1


async def test_a_workflow_is_cancelled(client: httpx2.AsyncClient) -> None:
    workflow = await start(client, {"command": "a"}, {"command": "b", "final": True})
    path = f"/workflows/{workflow['id']}/cancel"
    answer = (await client.post(path)).json()
    schemas.Workflow.model_validate(answer)
    assert (answer["stopped"], [job["status"] for job in answer["jobs"]]) == ("cancelled", ["cancelled", "pending"])
    assert (await client.post("/workflows/x/cancel")).status_code == 404


async def test_a_cancel_can_take_along_all_dependents(client: httpx2.AsyncClient) -> None:
    first = (await client.post("/jobs", json={"command": "a"})).json()["id"]
    after = {"command": "b", "depends_on": [{"job": first, "when": "finished"}]}
    second = (await client.post("/jobs", json=after)).json()["id"]
    response = await client.post(f"/jobs/{first}/cancel", json={"cascade": True})
    assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    job = (await client.get(f"/jobs/{second}")).json()
    assert job["status"] == "cancelled"
    assert job["error"] == f"cancelled with {first}, on which it depends"
    mixed = await client.post(f"/jobs/{first}/cancel", json={"cascade": True, "tasks": "1"})
    assert mixed.status_code == 422


async def test_a_token_opens_its_workflow_and_nothing_else(client: httpx2.AsyncClient, store: Store) -> None:
    own, other = await start(client, {"command": "a"}), await start(client, {"command": "b"})
    (claimed,) = await claim(store)
    headers = {"authorization": f"Bearer {claimed.more['token']}"}
    more = {"jobs": [{"command": "c"}]}
    allowed = await client.post(f"/workflows/{own['id']}/jobs", json=more, headers=headers)
    assert allowed.status_code == 201
    assert (await client.get(f"/workflows/{own['id']}", headers=headers)).status_code == 200
    for method, path in (
        ("POST", f"/workflows/{other['id']}/jobs"),
        ("POST", f"/workflows/{own['id']}/cancel"),
        ("GET", f"/workflows/{own['id']}/jobs"),
        ("GET", f"/workflows/{own['id']}/"),
        ("GET", f"/workflows/{other['id']}"),
        ("GET", "/jobs"),
        ("POST", "/jobs"),
        ("POST", "/claims"),
    ):
        assert (await client.request(method, path, headers=headers, json=more)).status_code == 401, path
    await finish(store, claimed)
    late = await client.post(f"/workflows/{own['id']}/jobs", json=more, headers=headers)
    assert late.status_code == 401


async def test_claims_over_http_have_the_token(client: httpx2.AsyncClient) -> None:
    workflow = await start(client, {"command": "a"})
    asked = {"worker_id": "w", "limit": 1}
    (document,) = (await client.post("/claims", json=asked)).json()["data"]
    assert document["more"]["workflow"] == workflow["id"]
    assert document["more"]["token"].startswith(f"wf1.{workflow['id']}.{document['id']}.")
    job = (await client.get(f"/jobs/{document['id']}")).text
    assert "wf1." not in job
