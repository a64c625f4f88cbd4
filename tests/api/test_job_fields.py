"""Retry policy, results, progress, tags and metadata over HTTP."""

from typing import Any

import httpx2
import pytest

from api import schemas
from api.worker_calls import documents
from tests.builders import claim, finish
from workron.models import Outcome, Reason
from workron.store import Store


async def submit(client: httpx2.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/jobs", json={"command": "x"} | fields)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    schemas.Job.model_validate(answer)
    return answer


async def job(client: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get(f"/jobs/{job_id}")).json()
    schemas.Job.model_validate(answer)
    return answer


FIELDS: dict[str, Any] = {
    "tags": ["nightly", "größe"],
    "metadata": {"team": "data", "deep": {"a": [1, None, True]}},
    "retry": {"delay": 1.5, "factor": 3, "max_delay": 60, "jitter": 0},
    "retry_on_exit": [1, "64-78"],
    "no_retry_on_exit": ["9-9"],
    "concurrency": {"key": "customer-7", "limit": 2},
}


async def test_what_is_answered_for_a_new_job_is_what_is_stored(client: httpx2.AsyncClient) -> None:
    for fields in ({}, FIELDS, {"retry": {"factor": 1}}, {"retry": {}}):
        new = await submit(client, **fields)
        assert new == await job(client, new["id"])
    assert {name: new[name] for name in FIELDS} == {
        "tags": [],
        "metadata": {},
        "retry": None,
        "retry_on_exit": [],
        "no_retry_on_exit": [],
        "concurrency": None,
    }
    own = await submit(client, **FIELDS)
    assert {name: own[name] for name in FIELDS} == FIELDS


async def test_a_range_may_be_written_either_way_round(client: httpx2.AsyncClient) -> None:
    assert (await submit(client, retry_on_exit=["78-64", 2.0]))["retry_on_exit"] == ["64-78", 2]


async def test_jobs_of_a_workflow_and_in_bulk_have_the_fields_too(client: httpx2.AsyncClient) -> None:
    workflow = (await client.post("/workflows", json={"jobs": [{"name": "a", "command": "x", **FIELDS}]})).json()
    bulk = (await client.post("/jobs/bulk", json={"jobs": [{"command": "x", **FIELDS}]})).json()
    for one in (workflow["jobs"][0], bulk["data"][0]):
        assert {name: one[name] for name in FIELDS} == FIELDS


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"retry": {"delay": -1}}, ["retry", "delay"]),
        ({"retry": {"factor": 0.5}}, ["retry", "factor"]),
        ({"retry": {"jitter": 1.1}}, ["retry", "jitter"]),
        ({"retry": {"dely": 1}}, ["retry", "dely"]),
        ({"retry_on_exit": [0]}, ["retry_on_exit"]),
        ({"retry_on_exit": [256]}, ["retry_on_exit"]),
        ({"retry_on_exit": ["1-256"]}, ["retry_on_exit"]),
        ({"no_retry_on_exit": ["1|2"]}, ["no_retry_on_exit"]),
        ({"no_retry_on_exit": [1] * 51}, ["no_retry_on_exit"]),
        ({"concurrency": {"key": "customer 7", "limit": 1}}, ["concurrency", "key"]),
        ({"concurrency": {"key": "k" * 129, "limit": 1}}, ["concurrency", "key"]),
        ({"concurrency": {"key": "", "limit": 1}}, ["concurrency", "key"]),
        ({"concurrency": {"key": "k", "limit": 0}}, ["concurrency", "limit"]),
        ({"concurrency": {"key": "k", "limit": 100_001}}, ["concurrency", "limit"]),
        ({"concurrency": {"key": "k"}}, ["concurrency", "limit"]),
        ({"tags": [""]}, ["tags"]),
        ({"tags": ["a\n"]}, ["tags"]),
        ({"tags": "a"}, ["tags"]),
        ({"metadata": [1]}, ["metadata"]),
        ({"metadata": {"": 1}}, ["metadata"]),
        ({"metadata": {"a": "x" * 16_384}}, ["metadata"]),
        ({"metadata": {"a": 2**70}}, ["metadata"]),
    ],
)
async def test_a_field_that_makes_no_sense_is_named(
    client: httpx2.AsyncClient, fields: dict[str, Any], place: list[str]
) -> None:
    response = await client.post("/jobs", json={"command": "x"} | fields)
    assert response.status_code == 422
    assert any(fault["loc"][: len(place)] == place for fault in response.json()["errors"]), response.text


async def test_metadata_that_is_too_deep_to_be_shown_is_refused(client: httpx2.AsyncClient) -> None:
    body = '{"command": "x", "metadata": {"a": ' + "[" * 150 + "]" * 150 + "}}"
    response = await client.post("/jobs", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert "100 levels" in response.text


async def test_jobs_are_found_by_tags_and_metadata(client: httpx2.AsyncClient) -> None:
    one = (await submit(client, tags=["a", "b"], metadata={"team": "data", "n": 3}))["id"]
    two = (await submit(client, tags=["b"], metadata={"team": "web"}))["id"]

    async def found(query: str) -> list[str]:
        page = (await client.get(f"/jobs?{query}")).json()
        schemas.JobPage.model_validate(page)
        return [found["id"] for found in page["data"]]

    assert await found("tag=b") == [two, one]
    assert await found("tag=a&tag=b") == [one]
    assert await found("metadata.team=web") == [two]
    assert await found("metadata.n=3&tag=a") == [one]
    assert await found("metadata.n=3&metadata.team=web") == []
    for wrong in ("metadat.n=3", "metadata=3", "tag="):
        assert (await client.get(f"/jobs?{wrong}")).status_code == 422


async def test_a_worker_reports_result_and_progress(client: httpx2.AsyncClient, store: Store) -> None:
    job_id = (await submit(client))["id"]
    (got,) = await claim(store)
    beat = await client.post(f"/jobs/{job_id}/heartbeat", json={"fence": got.fence, "progress": 0.25})
    assert beat.status_code == 200
    assert (await job(client, job_id))["progress"] == 0.25
    await client.post(f"/jobs/{job_id}/heartbeat", json={"progress": "copying\n3 of 7"})
    assert (await job(client, job_id))["progress"] == "copying"
    report = {"fence": got.fence, "result": {"rows": [1, 2]}, "progress": 1}
    assert (await client.post(f"/jobs/{job_id}/done", json=report)).status_code == 200
    ended = await job(client, job_id)
    assert (ended["status"], ended["result"], ended["progress"]) == ("done", {"rows": [1, 2]}, 1)


async def test_progress_that_is_no_number_of_json_is_a_text(client: httpx2.AsyncClient, store: Store) -> None:
    job_id = (await submit(client))["id"]
    (got,) = await claim(store)
    for said, shown in (
        ("inf", "inf"),
        ("nan", "nan"),
        ("1_0", "1_0"),
        ("40%", "40%"),
        ("0.5", 0.5),
        ("\x1b[2J", "␛[2J"),
    ):
        await client.post(f"/jobs/{job_id}/heartbeat", json={"fence": got.fence, "progress": said})
        assert (await job(client, job_id))["progress"] == shown


async def test_a_worker_asks_for_a_wait(client: httpx2.AsyncClient, store: Store) -> None:
    job_id = (await submit(client))["id"]
    (got,) = await claim(store)
    report = {"fence": got.fence, "exit_code": 75, "retry_after": 0.05}
    assert (await client.post(f"/jobs/{job_id}/fail", json=report)).json()["status"] == "scheduled"
    (got,) = await claim(store, wait=True)
    assert got.attempt == 2


async def test_a_result_that_cannot_be_kept_is_refused_and_the_lease_stays(
    client: httpx2.AsyncClient, store: Store
) -> None:
    job_id = (await submit(client))["id"]
    (got,) = await claim(store)
    for result in ("x" * 65_535, 2**70, float(10**20)):
        report = {"fence": got.fence, "result": result}
        expected = 200 if isinstance(result, float) else 422
        assert (await client.post(f"/jobs/{job_id}/done", json=report)).status_code == expected
    assert (await job(client, job_id))["result"] == 1e20


async def test_results_and_pieces_of_output_come_in_one_call(client: httpx2.AsyncClient, store: Store) -> None:
    ids = [(await submit(client))["id"] for _ in range(2)]
    one, two = await claim(store, limit=2)
    pieces = [
        {"id": one.id, "fence": one.fence, "progress": "half"},
        {"id": two.id, "fence": two.fence, "output": {"text": "out"}},
    ]
    answer = (await client.post("/outputs", json={"data": pieces})).json()
    documents.Outputs.model_validate(answer)
    assert [piece["state"] for piece in answer["data"]] == ["stored", "stored"]
    assert (await job(client, one.id))["progress"] == "half"
    assert (await client.get(f"/jobs/{two.id}/output")).text == "out"
    results = [
        {"id": one.id, "fence": one.fence, "result": [1]},
        {"id": two.id, "fence": two.fence, "error": "its result was not kept"},
    ]
    await client.post("/exchange", json={"worker_id": "w1", "results": results})
    jobs = [await job(client, job_id) for job_id in ids]
    assert [(found["status"], found["result"], found["error"]) for found in jobs] == [
        ("done", [1], None),
        ("done", None, "its result was not kept"),
    ]


async def test_how_the_parents_ended_can_be_asked_for(client: httpx2.AsyncClient, store: Store) -> None:
    parent = (await submit(client, name="p", max_attempts=1))["id"]
    child = (await submit(client, depends_on=[{"job": parent, "when": "failed"}]))["id"]
    (got,) = await claim(store)
    await finish(store, got, Outcome(Reason.EXIT_CODE, exit_code=1, result='{"a":1}'))
    answer = (await client.get(f"/jobs/{child}/parents")).json()
    documents.ParentList.model_validate(answer)
    told = {"id": parent, "status": "failed", "name": "p", "result": {"a": 1}, "left_out": False}
    assert answer == {"data": [told]}
    assert (await client.get("/jobs/0000000000000000000000/parents")).status_code == 404
    claimed = (await client.post("/claims", json={"worker_id": "w2"})).json()["data"]
    documents.ClaimList.model_validate({"data": claimed})
    assert [(one["id"], one["more"]) for one in claimed] == [(child, {"parents": True})]
