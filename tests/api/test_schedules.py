"""Schedules over HTTP."""

import time
from datetime import datetime
from typing import Any

import httpx2
import pytest

from api import schemas
from tests.builders import claim
from tests.schedules import fire, make_due
from tests.servers import Bench
from workron import ids
from workron.store import Store

REPORT = {"cron": "30 2 * * 1-5", "timezone": "Europe/Berlin", "job": {"command": "make report"}}
WORKFLOW = {
    "name": "build",
    "jobs": [{"name": "a", "command": "true"}, {"name": "b", "command": "true", "depends_on": ["a"]}],
}


async def put(client: httpx2.AsyncClient, name: str = "nightly", **changes: Any) -> dict[str, Any]:
    response = await client.put(f"/schedules/{name}", json=REPORT | changes)
    assert response.status_code in (200, 201), response.text
    document: dict[str, Any] = response.json()
    schemas.ScheduleState.model_validate(document)
    return document


async def test_a_schedule_is_created_once_and_replaced_then(client: httpx2.AsyncClient) -> None:
    first = await client.put("/schedules/nightly", json=REPORT)
    again = await client.put("/schedules/nightly", json=REPORT | {"overlap": "skip"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["created_at"] == first.json()["created_at"]
    assert (await client.get("/schedules/nightly")).json() == again.json()


async def test_it_says_what_it_does_and_when_next_in_words(client: httpx2.AsyncClient) -> None:
    document = await put(client)
    assert document["description"] == "every weekday at 02:30 (Europe/Berlin)"
    assert (document["dst"], document["overlap"], document["catch_up"]) == ("once", "allow", "last")
    assert document["job"] == {"command": "make report"}
    assert document["workflow"] is None
    runs = document["next_runs"]
    assert len(runs) == 5
    assert [run["at"] for run in runs] == sorted(run["at"] for run in runs)
    assert runs[0]["at"] == document["next_run_at"]
    assert all(run["at"].endswith(":30:00.000Z") and " at 02:30 CE" in run["words"] for run in runs)
    assert not any(run["words"].startswith(("Saturday", "Sunday")) for run in runs)


async def test_an_hourly_schedule_goes_on_through_a_repeated_hour(client: httpx2.AsyncClient) -> None:
    assert (await put(client, cron="@hourly"))["dst"] == "twice"
    assert (await put(client, cron="@hourly", dst="once"))["dst"] == "once"


async def test_the_last_runs_are_shown_with_their_jobs(client: httpx2.AsyncClient, store: Store, bench: Bench) -> None:
    await put(client)
    await make_due(bench)
    await fire(store)
    [run] = (await client.get("/schedules/nightly")).json()["runs"]
    [got] = await claim(store)
    assert (run["outcome"], run["job"], run["workflow"]) == ("fired", got.id, None)
    job = (await client.get(f"/jobs/{got.id}")).json()
    assert job["env"] == {"WORKRON_SCHEDULE": "nightly", "WORKRON_SCHEDULED_AT": run["at"]}


async def test_it_may_be_run_now_also_while_it_is_paused(client: httpx2.AsyncClient, store: Store) -> None:
    await put(client, paused=True)
    ran = await client.post("/schedules/nightly/run")
    assert ran.status_code == 201
    schemas.ScheduleRun.model_validate(ran.json())
    [got] = await claim(store)
    assert (ran.json()["job"], ran.json()["outcome"]) == (got.id, "manual")
    document = (await client.get("/schedules/nightly")).json()
    assert (document["next_run_at"], document["next_runs"], document["runs"][0]["job"]) == (None, [], got.id)


async def test_running_it_twice_with_one_key_is_one_run(client: httpx2.AsyncClient, store: Store) -> None:
    await put(client)
    headers = {"idempotency-key": "once only"}
    answers = [await client.post("/schedules/nightly/run", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json()["job"] == answers[1].json()["job"]
    assert len(await claim(store, limit=5)) == 1


async def test_a_run_had_the_time_of_an_api_server_whose_clock_was_wrong(
    client: httpx2.AsyncClient, store: Store, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client)
    right_ns, hour_ns = time.time_ns, 3_600_000_000_000
    before_s, _ = await bench.client.time()
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + hour_ns)
    run = (await client.post("/schedules/nightly/run")).json()
    after_s, _ = await bench.client.time()
    assert before_s <= datetime.fromisoformat(run["at"]).timestamp() <= after_s + 1
    [got] = await claim(store)
    assert got.env["WORKRON_SCHEDULED_AT"] == run["at"]
    assert before_s <= (ids.decode(got.id) >> 80) / 1000 <= after_s + 1


async def test_a_workflow_is_scheduled_as_it_is_submitted(
    client: httpx2.AsyncClient, store: Store, bench: Bench
) -> None:
    response = await client.put("/schedules/build", json={"cron": "@daily", "workflow": WORKFLOW})
    assert response.json()["workflow"] == WORKFLOW
    await make_due(bench, name="build")
    assert await fire(store) == 1
    [run] = (await client.get("/schedules/build")).json()["runs"]
    workflow = (await client.get(f"/workflows/{run['workflow']}")).json()
    assert [(job["name"], job["status"]) for job in workflow["jobs"]] == [("a", "pending"), ("b", "blocked")]


async def test_tasks_of_an_array_are_started_with_it(client: httpx2.AsyncClient, store: Store, bench: Bench) -> None:
    await put(client, job={"command": "true", "array": {"values": ["x", "y"]}})
    for _ in range(2):
        await make_due(bench)
        assert await fire(store) == 1
    jobs = (await client.get("/jobs", params={"limit": 100})).json()["data"]
    arrays = [job for job in jobs if job["array"] is not None]
    assert [array["array"]["size"] for array in arrays] == [2, 2]
    assert len({got.id for got in await claim(store, limit=10)}) == 4


async def test_pausing_and_resuming_may_be_repeated(client: httpx2.AsyncClient) -> None:
    await put(client)
    for action, paused in (("pause", True), ("pause", True), ("resume", False), ("resume", False)):
        answer = await client.post(f"/schedules/nightly/{action}")
        assert (answer.status_code, answer.json()["paused"]) == (200, paused)


async def test_putting_it_again_leaves_it_paused_unless_it_says_otherwise(client: httpx2.AsyncClient) -> None:
    await put(client, paused=True)
    assert (await put(client, overlap="skip"))["paused"] is True
    resumed = await put(client, paused=False)
    assert (resumed["paused"], len(resumed["next_runs"])) == (False, 5)


async def test_schedules_are_listed_and_deleted(client: httpx2.AsyncClient) -> None:
    for name in ("b", "a", "c"):
        await put(client, name)
    page = (await client.get("/schedules", params={"limit": 2})).json()
    schemas.ScheduleList.model_validate(page)
    rest = (await client.get("/schedules", params={"limit": 2, "cursor": page["next_cursor"]})).json()
    assert [one["name"] for one in page["data"] + rest["data"]] == ["a", "b", "c"]
    assert (await client.delete("/schedules/b")).status_code == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/pause"), ("POST", "/resume")):
        assert (await client.request(method, f"/schedules/b{path}")).status_code == 404


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"cron": "61 * * * *"}, "cron", "bad minute '61'. Allowed are five fields: minute 0-59"),
        ({"cron": "every day"}, "cron", "it has 2 fields"),
        ({"cron": "0 0 30 2 1#5", "timezone": "Mars/Olympus"}, "timezone", "Allowed are the names of the IANA"),
        ({"timezone": "Europe/Belrin"}, "timezone", "did you mean Europe/Berlin?"),
        ({"overlap": "perhaps"}, "overlap", "'allow', 'skip' or 'queue'"),
        ({"catch_up": "some"}, "catch_up", "'none', 'last' or 'all'"),
        ({"dst": "thrice"}, "dst", "'once', 'skip' or 'twice'"),
        ({"job": {"command": "x", "run_at": "2030-01-01T00:00:00Z"}}, "job", "can't have run_at"),
        (
            {"job": {"command": "x", "deadline": "2030-01-01T00:00:00Z"}},
            "job",
            "deadline and expires must be durations",
        ),
        (
            {"job": None, "workflow": {"jobs": [{"command": "x", "expires": "2030-01-01T00:00:00Z"}]}},
            "workflow",
            "deadline and expires must be durations",
        ),
        ({"job": {"command": "x", "depends_on": ["01FZpY2zqTkMcXH0Vb8n3R"]}}, "job", "can depend on nothing"),
        ({"job": None, "workflow": {"jobs": [{"command": "x", "depends_on": ["y"]}]}}, "workflow", "not on 'y'"),
    ],
)
async def test_an_error_names_the_field_and_what_is_allowed(
    client: httpx2.AsyncClient, changes: dict[str, Any], field: str, told: str
) -> None:
    answer = await client.put("/schedules/nightly", json=REPORT | changes)
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert field in [fault["loc"][0] for fault in problem["errors"]]
    assert told in problem["detail"]
    assert (await client.get("/schedules/nightly")).status_code == 404


async def test_exactly_one_of_job_and_workflow_is_given(client: httpx2.AsyncClient) -> None:
    for body in ({"cron": "@daily"}, REPORT | {"workflow": WORKFLOW}):
        answer = await client.put("/schedules/nightly", json=body)
        assert answer.status_code == 422
        assert "exactly one of job and workflow" in answer.json()["detail"]


async def test_a_cycle_is_found_when_it_is_put(client: httpx2.AsyncClient) -> None:
    jobs = [{"name": a, "command": "true", "depends_on": [b]} for a, b in ("ab", "ba")]
    answer = await client.put("/schedules/nightly", json={"cron": "@daily", "workflow": {"jobs": jobs}})
    assert answer.json()["type"] == "/problems/dependency-cycle"


async def test_the_work_of_a_schedule_is_limited(client: httpx2.AsyncClient) -> None:
    answer = await client.put("/schedules/nightly", json=REPORT | {"job": {"argv": ["x" * 600_000, "y" * 600_000]}})
    assert answer.status_code in (413, 422)


@pytest.mark.parametrize("name", ["a b", "a:b", "x" * 65, "%00"])
async def test_a_name_is_short_and_plain(client: httpx2.AsyncClient, name: str) -> None:
    assert (await client.put(f"/schedules/{name}", json=REPORT)).status_code == 422
