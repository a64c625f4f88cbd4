"""Submitting over HTTP: one job, many, workflows, and the same submission twice."""

import json
from typing import Any

import httpx2
import orjson
import pytest

from api import schemas
from tests.builders import claim, finish
from workron import ids
from workron.store import Store

JSON = {"content-type": "application/json"}


async def submit(client: httpx2.AsyncClient, **job: Any) -> dict[str, Any]:
    response = await client.post("/jobs", json=job)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def listed(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = (await client.get("/jobs")).json()["data"]
    return data


async def test_a_submitted_job_is_answered_whole_and_found_at_its_location(client: httpx2.AsyncClient) -> None:
    response = await client.post("/jobs", json={"command": "echo hi", "name": "greet", "timeout": 1.5})
    job = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/jobs/{job['id']}"
    schemas.Job.model_validate(job)
    assert (job["status"], job["command"], job["name"], job["timeout"]) == ("pending", "echo hi", "greet", 1.5)
    assert (job["depends_on"], job["env"], job["argv"], job["exit_code"]) == ([], {}, None, None)
    assert (await client.get(response.headers["location"])).json() == job


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": ["a", "ü", ""], "queue": "q", "priority": 9, "max_attempts": 1, "env": {"A": "1"}, "cwd": "/"},
        {"command": "x", "delay": 60},
        {"command": "x", "delay": 0},
        {"command": "x", "delay": 0.0004},
        {"command": "x", "run_at": "2099-01-01T00:00:00Z"},
        {"command": "x", "run_at": "1999-01-01T00:00:00Z"},
        {"command": "x", "run_at": "1970-01-01T00:00:00Z"},
        {"command": "x", "timeout": 0.0004},
        {"command": "x", "deadline": 0.0004, "expires": "2099-01-01T00:00:00Z"},
        {"command": "x", "delay": "1h", "expires": "2h", "deadline": "3h"},
    ],
)
@pytest.mark.parametrize("path", ["/jobs", "/jobs/bulk"])
async def test_the_answer_to_a_submission_is_the_job_as_it_is_stored(
    client: httpx2.AsyncClient, path: str, fields: dict[str, Any]
) -> None:
    answer = (await client.post(path, json={"jobs": [fields]} if path == "/jobs/bulk" else fields)).json()
    job = answer["data"][0] if path == "/jobs/bulk" else answer
    schemas.Job.model_validate(job)
    assert (await client.get(f"/jobs/{job['id']}")).json() == job


async def test_a_job_with_a_delay_or_a_time_is_scheduled_for_it(client: httpx2.AsyncClient) -> None:
    later = await submit(client, command="x", delay=60)
    assert (later["status"], later["run_at"] > later["created_at"]) == ("scheduled", True)
    at = await submit(client, command="x", run_at="2099-01-01T01:00:00+01:00")
    assert (at["status"], at["run_at"]) == ("scheduled", "2099-01-01T00:00:00.000Z")


async def test_times_are_utc_with_three_decimals(client: httpx2.AsyncClient) -> None:
    created_at = (await submit(client, command="x"))["created_at"]
    assert len(created_at) == len("2026-03-01T09:30:00.250Z")
    assert created_at.endswith("Z")
    assert created_at[19] == "."


async def test_the_answer_to_a_large_bulk_is_the_jobs_as_they_are_stored(
    client: httpx2.AsyncClient, store: Store
) -> None:
    bulk = {"jobs": [{"command": f"echo {n}", "name": f"n{n}", "delay": n % 2 * 60} for n in range(900)]}
    answer = (await client.post("/jobs/bulk", json=bulk)).json()["data"]
    stored = await store.jobs([job["id"] for job in answer])
    assert answer == [json.loads(orjson.dumps(schemas.job_document(job))) for job in stored if job is not None]


@pytest.mark.parametrize("size", [20, 1_100])
@pytest.mark.parametrize("outside", [False, True])
async def test_the_answer_to_a_workflow_is_what_a_reader_sees(
    client: httpx2.AsyncClient, size: int, outside: bool
) -> None:
    jobs: list[dict[str, Any]] = [
        {
            "command": "true",
            "name": f"n{n}",
            "delay": n % 2 * 60,
            "depends_on": [{"job": f"n{n - 1}", "when": "failed"}],
        }
        for n in range(1, size)
    ]
    jobs[size // 2]["depends_on"] = [(await submit(client, command="true"))["id"]] if outside else []
    answer = await client.post("/workflows", json={"name": "w", "jobs": [{"command": "true", "name": "n0"}, *jobs]})
    assert answer.status_code == 201
    schemas.Workflow.model_validate(answer.json())
    assert (await client.get(answer.headers["location"])).json() == answer.json()


async def test_an_unknown_dependency_is_refused_by_name_and_nothing_is_stored(client: httpx2.AsyncClient) -> None:
    stranger = ids.new_id()
    response = await client.post("/jobs", json={"command": "x", "depends_on": [stranger]})
    assert response.status_code == 422
    assert (response.json()["type"], response.json()["job_ids"]) == ("/problems/unknown-dependency", [stranger])
    assert await listed(client) == []


async def test_a_dependency_that_cannot_be_an_id_is_unknown_too(client: httpx2.AsyncClient) -> None:
    response = await client.post("/jobs", json={"command": "x", "depends_on": ["job:{}*"]})
    assert (response.status_code, response.json()["job_ids"]) == (422, ["job:{}*"])


async def test_dependencies_are_answered_as_plain_ids_and_with_their_states(client: httpx2.AsyncClient) -> None:
    parent = (await submit(client, command="x"))["id"]
    child = await submit(client, command="x", depends_on=[{"job": parent, "when": "finished"}])
    assert child["status"] == "blocked"
    assert child["depends_on"] == [parent]
    assert child["dependencies"] == [{"job": parent, "when": "finished", "status": "pending", "matching": False}]


async def test_a_bulk_of_jobs_is_answered_in_the_order_sent(client: httpx2.AsyncClient) -> None:
    jobs = [{"command": "x", "name": f"n{number}"} for number in range(5)]
    response = await client.post("/jobs/bulk", json={"jobs": jobs})
    page = response.json()
    schemas.JobPage.model_validate(page)
    assert response.status_code == 201
    assert [job["name"] for job in page["data"]] == ["n0", "n1", "n2", "n3", "n4"]
    assert page["next_cursor"] is None


async def test_one_bad_job_keeps_a_whole_bulk_out(client: httpx2.AsyncClient) -> None:
    bad = {"command": "x", "depends_on": [ids.new_id()]}
    assert (await client.post("/jobs/bulk", json={"jobs": [{"command": "x"}, bad]})).status_code == 422
    assert (await client.post("/jobs/bulk", json={"jobs": [{"command": "x"}, {}]})).status_code == 422
    assert await listed(client) == []


@pytest.mark.large
async def test_10_000_jobs_in_one_call_are_all_stored(client: httpx2.AsyncClient) -> None:
    jobs = [{"command": "true", "name": f"n{number}"} for number in range(10_000)]
    response = await client.post("/jobs/bulk", json={"jobs": jobs}, timeout=60)
    assert response.status_code == 201
    assert len({job["id"] for job in response.json()["data"]}) == 10_000
    [queue] = (await client.get("/queues")).json()["data"]
    assert queue["counts"]["pending"] == 10_000


async def test_a_workflow_is_sorted_by_its_dependencies(client: httpx2.AsyncClient) -> None:
    jobs = [
        {"name": "report", "command": "x", "depends_on": ["left", "right"]},
        {"name": "left", "command": "x", "depends_on": ["root"]},
        {"name": "right", "command": "x", "depends_on": [{"job": "root", "when": "failed"}]},
        {"name": "root", "command": "x"},
    ]
    response = await client.post("/workflows", json={"name": "diamond", "jobs": jobs})
    workflow = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/workflows/{workflow['id']}"
    schemas.Workflow.model_validate(workflow)
    assert [job["name"] for job in workflow["jobs"]] == ["root", "left", "right", "report"]
    assert (workflow["name"], workflow["status"], workflow["size"]) == ("diamond", "running", 4)
    by_name = {job["name"]: job for job in workflow["jobs"]}
    [edge] = by_name["right"]["dependencies"]
    assert edge == {"job": by_name["root"]["id"], "when": "failed", "status": "pending", "matching": False}
    assert {job["workflow"] for job in workflow["jobs"]} == {workflow["id"]}
    assert (await client.get(response.headers["location"])).json() == workflow


async def test_a_workflow_may_depend_on_a_job_from_outside(client: httpx2.AsyncClient) -> None:
    outside = (await submit(client, command="x"))["id"]
    jobs = [{"name": "a", "command": "x", "depends_on": [outside]}]
    [job] = (await client.post("/workflows", json={"jobs": jobs})).json()["jobs"]
    assert (job["status"], job["depends_on"]) == ("blocked", [outside])


async def test_a_name_in_the_workflow_wins_over_an_id_that_looks_the_same(client: httpx2.AsyncClient) -> None:
    outside = (await submit(client, command="x"))["id"]
    jobs = [{"name": outside, "command": "x"}, {"name": "b", "command": "x", "depends_on": [outside]}]
    inside, dependent = (await client.post("/workflows", json={"jobs": jobs})).json()["jobs"]
    assert dependent["depends_on"] == [inside["id"]] != [outside]


@pytest.mark.parametrize(
    ("jobs", "slug"),
    [
        ([{"name": "a", "command": "x", "depends_on": ["nobody"]}], "unknown-dependency"),
        ([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}], "validation"),
        ([{"name": "a", "command": "x", "depends_on": ["a"]}], "dependency-cycle"),
    ],
)
async def test_a_workflow_that_cannot_work_is_not_stored(
    client: httpx2.AsyncClient, jobs: list[dict[str, Any]], slug: str
) -> None:
    response = await client.post("/workflows", json={"jobs": jobs})
    assert (response.status_code, response.json()["type"]) == (422, f"/problems/{slug}")
    assert await listed(client) == []


async def test_a_cycle_is_answered_with_its_members(client: httpx2.AsyncClient) -> None:
    jobs = [
        {"name": "a", "command": "x", "depends_on": ["c"]},
        {"name": "b", "command": "x", "depends_on": ["a"]},
        {"name": "c", "command": "x", "depends_on": ["b"]},
        {"name": "innocent", "command": "x", "depends_on": ["a"]},
    ]
    problem = (await client.post("/workflows", json={"jobs": jobs})).json()
    assert problem["members"] == ["a", "c", "b"]
    assert "a → c → b → a" in problem["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs", {"command": "x"}),
        ("/jobs/bulk", {"jobs": [{"command": "x"}, {"command": "y"}]}),
        ("/workflows", {"jobs": [{"name": "a", "command": "x"}]}),
    ],
)
async def test_a_repeated_submission_is_answered_with_the_first_one(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    first = await client.post(path, json=body, headers={"idempotency-key": "again"})
    second = await client.post(path, json=body, headers={"idempotency-key": "again"})
    assert (first.status_code, "idempotency-replayed" in first.headers) == (201, False)
    assert (second.status_code, second.headers["idempotency-replayed"]) == (200, "true")
    assert second.json() == first.json()
    assert len(await listed(client)) == len(body.get("jobs", [body]))


async def test_a_repeat_shows_the_job_as_it_is_now(client: httpx2.AsyncClient, store: Store) -> None:
    send = {"json": {"command": "x"}, "headers": {"idempotency-key": "again"}}
    await client.post("/jobs", **send)
    await claim(store)
    assert (await client.post("/jobs", **send)).json()["status"] == "running"


async def test_the_form_of_the_json_does_not_matter_for_a_repeat(client: httpx2.AsyncClient) -> None:
    headers = JSON | {"idempotency-key": "again"}
    await client.post("/jobs", content=b'{"command":"x","priority":3}', headers=headers)
    again = await client.post("/jobs", content=b'{ "priority": 3, "command": "x" }', headers=headers)
    assert again.status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/jobs/bulk", {"jobs": [{"command": "y"}]}), ("/workflows", {"jobs": [{"command": "x"}]})],
)
async def test_a_key_used_for_another_request_is_a_conflict(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    headers = {"idempotency-key": "again"}
    await client.post("/jobs/bulk", json={"jobs": [{"command": "x"}]}, headers=headers)
    response = await client.post(path, json=body, headers=headers)
    assert (response.status_code, response.json()["type"]) == (409, "/problems/idempotency-conflict")


@pytest.mark.parametrize("key", ["", "k" * 256, "ä", "tab\tin"])
async def test_an_idempotency_key_that_is_not_printable_or_too_long_is_refused(
    client: httpx2.AsyncClient, key: str
) -> None:
    headers = [(b"idempotency-key", key.encode("latin-1"))]
    response = await client.post("/jobs", json={"command": "x"}, headers=headers)
    assert (response.status_code, response.json()["errors"][0]["loc"]) == (422, ["Idempotency-Key"])


@pytest.mark.parametrize("path", ["/jobs", "/jobs/bulk", "/workflows"])
async def test_a_repeat_was_taken_for_refused_when_its_jobs_had_ended_and_were_forgotten(
    client: httpx2.AsyncClient, store: Store, path: str
) -> None:
    body = {
        "/jobs": {"command": "x"},
        "/jobs/bulk": {"jobs": [{"command": "x"}]},
        "/workflows": {"name": "w", "jobs": [{"name": "a", "command": "x"}]},
    }[path]
    headers = {"idempotency-key": "again"}
    assert (await client.post(path, json=body, headers=headers)).status_code == 201
    (claimed,) = await claim(store)
    await finish(store, claimed)
    await store.delete(claimed.id)
    response = await client.post(path, json=body, headers=headers)
    assert (response.status_code, response.json()["type"]) == (410, "/problems/forgotten")
    assert "already accepted" in response.json()["detail"]
    assert await claim(store) == []
