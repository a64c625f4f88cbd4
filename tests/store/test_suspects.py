"""Jobs with which workers were lost again and again are claimed alone."""

from builders import claim, jobs, new_job, submit
from servers import Bench

from workron.models import Claim, Concurrency


def ids_of(claims: list[Claim]) -> list[str]:
    return [one.id for one in claims]


async def test_a_suspect_is_claimed_alone_and_those_behind_it_stay_in_order(bench: Bench) -> None:
    store = bench.store()
    first, suspect, third, fourth = await submit(store, *jobs(4))
    await bench.client.hset(bench.keys.job(suspect), "losses", "2")
    got = [ids_of(await claim(store, limit=4)) for _ in range(3)]
    assert got == [[first], [suspect], [third, fourth]]


async def test_a_suspect_that_starts_in_place_of_another_job_of_its_key_is_claimed_alone(bench: Bench) -> None:
    store, pending = bench.store(), bench.keys.pending("default", 5)
    key = Concurrency("k", 5)
    first, suspect, other = await submit(store, new_job(), new_job(concurrency=key), new_job(concurrency=key))
    await bench.client.hset(bench.keys.job(suspect), "losses", "2")
    await bench.client.lrem(pending, 1, suspect)
    await bench.client.rpush(pending, suspect)  # behind the other, which has to let it go first
    got = [ids_of(await claim(store, limit=4)) for _ in range(3)]
    assert got == [[first], [suspect], [other]]
