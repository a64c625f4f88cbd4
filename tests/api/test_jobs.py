"""Looking at jobs and steering them over HTTP."""

from typing import Any

import httpx2
import pytest

from api import schemas
from tests.builders import claim, finish
from workron import ids
from workron.models import Outcome, OutputPatch, Reason
from workron.store import Store

FAILURE = Outcome(Reason.EXIT_CODE, exit_code=3, error="it broke")


async def submit(client: httpx2.AsyncClient, **job: Any) -> str:
    response = await client.post("/jobs", json={"command": "x"} | job)
    return str(response.json()["id"])


async def job(client: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.get(f"/jobs/{job_id}")).json()
    schemas.Job.model_validate(answer)
    return answer


async def test_a_job_is_followed_through_its_life(client: httpx2.AsyncClient, store: Store) -> None:
    job_id = await submit(client, max_attempts=1)
    [attempt] = await claim(store, worker="w1")
    running = await job(client, job_id)
    assert (running["status"], running["worker"], running["attempts"]) == ("running", "w1", 1)
    assert running["started_at"] <= running["last_heartbeat"]
    await finish(store, attempt, FAILURE)
    failed = await job(client, job_id)
    assert (failed["status"], failed["reason"], failed["exit_code"]) == ("failed", "exit_code", 3)
    assert (failed["error"], failed["finished_at"] is None) == ("it broke", False)


@pytest.mark.parametrize("path", ["", "/output", "/cancel", "/retry"])
@pytest.mark.parametrize("job_id", ["03557DJR2dL0HA8BMGxsib", "nonsense", "%00", "a%2Fb", "%F0%9F%9A%80"])
async def test_what_does_not_exist_is_not_found(client: httpx2.AsyncClient, path: str, job_id: str) -> None:
    method = "POST" if path in ("/cancel", "/retry") else "GET"
    response = await client.request(method, f"/jobs/{job_id}{path}")
    assert (response.status_code, response.json()["type"]) == (404, "/problems/not-found")


async def test_an_unknown_workflow_is_not_found(client: httpx2.AsyncClient) -> None:
    assert (await client.get(f"/workflows/{ids.new_id()}")).status_code == 404
    assert (await client.get("/workflows/nonsense")).status_code == 404


async def test_pages_of_a_listing_show_every_job_once_newest_first(client: httpx2.AsyncClient) -> None:
    submitted = [await submit(client) for _ in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/jobs", params=query)).json()
        schemas.JobPage.model_validate(page)
        seen += [found["id"] for found in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == submitted[::-1]


async def test_a_listing_is_narrowed_by_status_queue_name_and_workflow(client: httpx2.AsyncClient) -> None:
    workflow = (await client.post("/workflows", json={"jobs": [{"name": "w", "command": "x"}]})).json()
    one = await submit(client, name="one", queue="q1")
    two = await submit(client, name="two", queue="q1", delay=60)

    async def found(**query: str) -> set[str]:
        return {found["id"] for found in (await client.get("/jobs", params=query)).json()["data"]}

    assert await found(queue="q1") == {one, two}
    assert await found(status="scheduled") == {two}
    assert await found(name="one") == {one}
    assert await found(workflow=workflow["id"]) == {workflow["jobs"][0]["id"]}
    assert await found(queue="q1", status="pending") == {one}
    assert await found(queue="nowhere") == set()


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ({"limit": "0"}, ["query", "limit"]),
        ({"limit": "1001"}, ["query", "limit"]),
        ({"limit": "x"}, ["query", "limit"]),
        ({"status": "unheard"}, ["query", "status"]),
        ({"statu": "done"}, ["query", "statu"]),
        ({"queue": "a b"}, ["query", "queue"]),
        ({"name": "a\0"}, ["query", "name"]),
        ({"workflow": "x"}, ["query", "workflow"]),
        ({"cursor": "x"}, ["cursor"]),
        ({"cursor": "5b5d"}, ["cursor"]),
    ],
)
async def test_a_wrong_query_is_refused_and_named(
    client: httpx2.AsyncClient, query: dict[str, str], place: list[str]
) -> None:
    response = await client.get("/jobs", params=query)
    assert response.status_code == 422
    assert [fault["loc"] for fault in response.json()["errors"]] == [place]


@pytest.mark.parametrize("wait", ["-1", "61", "2m", "nan", "inf", "soon", ""])
async def test_a_wait_outside_0_to_60_seconds_is_refused(client: httpx2.AsyncClient, wait: str) -> None:
    job_id = await submit(client)
    assert (await client.get(f"/jobs/{job_id}", params={"wait": wait})).status_code == 422


@pytest.mark.parametrize("wait", ["0", "0.05", "50ms", "0.05s", "1e-2"])
async def test_a_wait_that_runs_out_is_answered_with_the_job_as_it_is(client: httpx2.AsyncClient, wait: str) -> None:
    job_id = await submit(client)
    response = await client.get(f"/jobs/{job_id}", params={"wait": wait})
    assert (response.status_code, response.json()["status"]) == (200, "pending")


async def test_a_waiting_job_is_cancelled_at_once_and_again_without_harm(client: httpx2.AsyncClient) -> None:
    job_id = await submit(client)
    for _ in range(2):
        response = await client.post(f"/jobs/{job_id}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "cancelled")


async def test_cancelling_a_running_job_is_accepted_until_its_command_has_stopped(
    client: httpx2.AsyncClient, store: Store
) -> None:
    job_id = await submit(client)
    await claim(store)
    response = await client.post(f"/jobs/{job_id}/cancel", json={})
    assert (response.status_code, response.json()["status"]) == (202, "running")
    assert response.json()["cancel_requested_at"] is not None


async def test_a_job_that_is_done_can_be_neither_cancelled_nor_retried(
    client: httpx2.AsyncClient, store: Store
) -> None:
    job_id = await submit(client)
    [attempt] = await claim(store)
    await finish(store, attempt)
    for action in ("cancel", "retry"):
        response = await client.post(f"/jobs/{job_id}/{action}")
        assert (response.status_code, response.json()["type"]) == (409, "/problems/conflict")


async def test_a_retry_starts_a_new_run_but_only_of_the_run_that_was_seen(client: httpx2.AsyncClient) -> None:
    job_id = await submit(client)
    await client.post(f"/jobs/{job_id}/cancel", json={"run": 1})
    response = await client.post(f"/jobs/{job_id}/retry", json={"run": 1})
    assert (response.status_code, response.json()["run"], response.json()["status"]) == (200, 2, "pending")
    assert (await client.post(f"/jobs/{job_id}/cancel", json={"run": 1})).status_code == 409


@pytest.mark.parametrize("body", [{"run": 0}, {"run": "1"}, {"runs": 1}, []])
async def test_a_run_that_is_none_is_refused(client: httpx2.AsyncClient, body: Any) -> None:
    job_id = await submit(client)
    assert (await client.post(f"/jobs/{job_id}/cancel", json=body)).status_code == 422
    assert (await job(client, job_id))["status"] == "pending"


async def test_a_skipped_job_says_because_of_which_job(client: httpx2.AsyncClient) -> None:
    parent = await submit(client)
    child = await submit(client, depends_on=[parent])
    grandchild = await submit(client, depends_on=[child])
    await client.post(f"/jobs/{parent}/cancel")
    skipped = await job(client, child)
    assert (skipped["status"], skipped["reason"]) == ("skipped", "upstream")
    assert parent in skipped["error"]
    assert (await job(client, grandchild))["error"] is not None


async def test_output_is_answered_from_an_offset_and_says_how_much_there_is(
    client: httpx2.AsyncClient, store: Store
) -> None:
    job_id = await submit(client)
    [attempt] = await claim(store)
    data = b"\x00\xff\n" + "grün\n".encode()
    await store.attempts.write_output([(job_id, attempt.fence, OutputPatch(0, data, len(data)))])
    whole = await client.get(f"/jobs/{job_id}/output")
    assert (whole.status_code, whole.content) == (200, data)
    assert whole.headers["x-workron-output-total"] == str(len(data))
    assert (whole.headers["content-type"], whole.headers["x-content-type-options"]) == ("text/plain", "nosniff")
    assert (await client.get(f"/jobs/{job_id}/output", params={"offset": 3})).content == data[3:]
    assert (await client.get(f"/jobs/{job_id}/output", params={"offset": 999})).content == b""


async def test_a_job_without_output_has_an_empty_one(client: httpx2.AsyncClient) -> None:
    response = await client.get(f"/jobs/{await submit(client)}/output")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["x-workron-output-total"] == "0"


@pytest.mark.parametrize("query", [{"offset": "-1"}, {"offset": "x"}, {"follow": "maybe"}, {"of": "1"}])
async def test_a_wrong_question_for_output_is_refused(client: httpx2.AsyncClient, query: dict[str, str]) -> None:
    assert (await client.get(f"/jobs/{await submit(client)}/output", params=query)).status_code == 422


async def test_a_workflow_is_done_when_all_jobs_are_and_failed_when_one_was_cancelled(
    client: httpx2.AsyncClient, store: Store
) -> None:
    good, bad = [
        (await client.post("/workflows", json={"jobs": [{"name": "a", "command": "x", "queue": queue}]})).json()
        for queue in ("good", "bad")
    ]
    [attempt] = await claim(store, queues=["good"])
    await finish(store, attempt)
    await client.post(f"/jobs/{bad['jobs'][0]['id']}/cancel")
    assert (await client.get(f"/workflows/{good['id']}")).json()["status"] == "done"
    assert (await client.get(f"/workflows/{bad['id']}")).json()["status"] == "failed"


async def test_a_workflow_whose_failure_handler_was_not_needed_is_done(
    client: httpx2.AsyncClient, store: Store
) -> None:
    jobs = [
        {"name": "work", "command": "x"},
        {"name": "alarm", "command": "x", "depends_on": [{"job": "work", "when": "failed"}]},
    ]
    workflow = (await client.post("/workflows", json={"jobs": jobs})).json()
    [attempt] = await claim(store)
    await finish(store, attempt)
    workflow = (await client.get(f"/workflows/{workflow['id']}")).json()
    assert (workflow["status"], workflow["counts"]["done"], workflow["counts"]["skipped"]) == ("done", 1, 1)
