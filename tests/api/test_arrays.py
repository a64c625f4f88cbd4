"""Arrays over HTTP."""

from typing import Any

import httpx2
import pytest

from tests.builders import claim, finish
from workron.store import Store


async def submit(client: httpx2.AsyncClient, **job: Any) -> dict[str, Any]:
    response = await client.post("/jobs", json={"command": "true", **job})
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_an_array_is_one_job_with_counts_of_its_tasks(client: httpx2.AsyncClient) -> None:
    job = await submit(client, array={"size": 2500, "max_parallel": 3})
    assert job["status"] == "blocked"
    assert (job["array"]["size"], job["array"]["max_parallel"]) == (2500, 3)
    assert job["array"]["counts"]["pending"] == 2500
    assert job["task"] is None
    assert (await client.get(f"/jobs/{job['id']}")).json() == job


@pytest.mark.parametrize(
    ("short", "size"), [(5, 5), (5.0, 5), (["a", "b"], 2), ({"size": 5}, 5), ({"values": ["a", "b"]}, 2)]
)
async def test_a_size_or_a_list_of_values_is_short_for_an_array(
    client: httpx2.AsyncClient, short: Any, size: int
) -> None:
    assert (await submit(client, array=short))["array"]["size"] == size
    sent = {"jobs": [{"name": "a", "command": "true", "array": short}]}
    assert (await client.post("/workflows", json=sent)).status_code == 201
    schedule = {"cron": "@daily", "job": {"command": "c", "array": short}}
    assert (await client.put("/schedules/s", json=schedule)).is_success


@pytest.mark.parametrize(
    ("wrong", "place", "message"),
    [
        (0, ["array", "size"], "must be at least 1"),
        (2.5, ["array", "size"], "must be a whole number"),
        (True, ["array"], "must be an object"),
        ("3", ["array"], "must be an object"),
        ([], ["array", "values"], "must have at least 1 item"),
        (["a", 1], ["array", "values", 1], "must be a string"),
    ],
)
async def test_a_wrong_short_form_is_refused_with_its_place(
    client: httpx2.AsyncClient, wrong: Any, place: list[Any], message: str
) -> None:
    response = await client.post("/jobs", json={"command": "true", "array": wrong})
    assert response.status_code == 422
    assert response.json()["errors"] == [{"loc": place, "msg": message}]


async def test_its_tasks_are_listed_in_order_and_page_by_page(client: httpx2.AsyncClient, store: Store) -> None:
    job = await submit(client, name="many", array={"values": ["a", "b", "c", "d", "e"]})
    await finish(store, (await claim(store))[0])
    seen, cursor = [], None
    while True:
        params = {"array": job["id"], "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/jobs", params=params)).json()
        seen += page["data"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [task["task"] for task in seen] == [
        {"array": job["id"], "index": index, "value": value} for index, value in enumerate("abcde")
    ]
    assert [task["status"] for task in seen] == ["done", *["pending"] * 4]
    assert {(task["name"], task["command"], task["array"]) for task in seen} == {("many", "true", None)}


async def test_a_simple_worker_gets_tasks_like_any_job(client: httpx2.AsyncClient) -> None:
    job = await submit(client, command="echo $WORKRON_ARRAY_VALUE", array={"values": ["x"]})
    task = (await client.get("/jobs/next", params={"worker_id": "w"})).json()
    assert task["command"] == "echo $WORKRON_ARRAY_VALUE"
    assert task["task"] == {"array": job["id"], "index": 0, "value": "x"}
    done = await client.post(f"/jobs/{task['id']}/done", json={"fence": task["fence"]})
    assert done.status_code == 200
    assert (await client.get(f"/jobs/{job['id']}")).json()["status"] == "done"


async def test_some_tasks_are_cancelled_and_retried(client: httpx2.AsyncClient, store: Store) -> None:
    job = await submit(client, array={"size": 10})
    await claim(store)
    answer = await client.post(f"/jobs/{job['id']}/cancel", json={"tasks": "0-2,9"})
    assert answer.status_code == 202
    assert answer.json()["array"]["counts"]["cancelled"] == 3
    again = await client.post(f"/jobs/{job['id']}/retry", json={"tasks": "2"})
    assert again.status_code == 200
    assert again.json()["array"]["counts"]["cancelled"] == 2


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ("10", "has the tasks 0 to 9"),
        ("3-1", "selects no task"),
        ("0-9999999", "more than 100,000"),
        ("1,,2", "like 0-9,20"),
        ("a", "like 0-9,20"),
    ],
)
async def test_tasks_that_are_not_there_are_refused(client: httpx2.AsyncClient, tasks: str, said: str) -> None:
    job = await submit(client, array={"size": 10})
    answer = await client.post(f"/jobs/{job['id']}/cancel", json={"tasks": tasks})
    assert answer.status_code == 422
    assert said in answer.text


@pytest.mark.parametrize(
    "array",
    [
        {},
        {"size": 1, "values": ["a"]},
        {"size": 0},
        {"size": 1_000_001},
        {"values": []},
        {"size": 2, "max_parallel": 0},
    ],
)
async def test_an_array_that_is_not_valid_is_refused(client: httpx2.AsyncClient, array: dict[str, Any]) -> None:
    answer = await client.post("/jobs", json={"command": "true", "array": array})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"][0] == "array"


async def test_matching_needs_arrays_of_one_size(client: httpx2.AsyncClient) -> None:
    three = await submit(client, array={"size": 3})
    plain = await submit(client)

    async def refused(parent: str, **job: Any) -> str:
        depends_on = [{"job": parent, "matching": True}]
        answer = await client.post("/jobs", json={"command": "true", "depends_on": depends_on, **job})
        assert answer.status_code == 422
        return str(answer.json()["detail"])

    assert "has 3 tasks, this one has 4" in await refused(three["id"], array={"size": 4})
    assert "is not an array" in await refused(plain["id"], array={"size": 4})
    assert "on another array" in await refused(three["id"])
    assert "0000000000000000000000" in await refused("0" * 22, array={"size": 4})


async def test_arrays_follow_each_other_in_a_workflow(client: httpx2.AsyncClient, store: Store) -> None:
    jobs = [
        {"name": "make", "command": "true", "array": {"size": 3}},
        {
            "name": "test",
            "command": "true",
            "queue": "test",
            "array": {"size": 3},
            "depends_on": [{"job": "make", "matching": True}],
        },
        {"name": "report", "command": "true", "queue": "report", "depends_on": ["test"]},
    ]
    workflow = (await client.post("/workflows", json={"jobs": jobs})).json()
    assert [job["dependencies"] and job["dependencies"][0]["matching"] for job in workflow["jobs"]] == [[], True, False]
    for one in await claim(store, limit=3):
        await finish(store, one)
        [follows] = await claim(store, queues=["test"], limit=3)
        assert follows.more["array"]["index"] == one.more["array"]["index"]
        await finish(store, follows)
    assert len(await claim(store, queues=["report"])) == 1
