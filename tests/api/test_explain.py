"""Explaining over HTTP."""

import httpx2


async def test_a_job_is_explained_in_a_sentence(client: httpx2.AsyncClient) -> None:
    job = (await client.post("/jobs", json={"command": "true"})).json()
    explained = (await client.get(f"/jobs/{job['id']}/explain")).json()
    assert explained["sentence"].startswith("It is the next one in queue default, which no worker serves now")
    assert (explained["id"], explained["status"], explained["facts"]["workers"]) == (job["id"], "pending", 0)


async def test_an_unknown_job_has_no_explanation(client: httpx2.AsyncClient) -> None:
    assert (await client.get(f"/jobs/{'0' * 22}/explain")).status_code == 404
