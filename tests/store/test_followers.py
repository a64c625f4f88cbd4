"""Many arrays that follow one, task by task: bounded work in each call, and no task is lost."""

from array_jobs import array_job
from builders import claim, finish_all, submit
from servers import Bench

from workron.models import Dependency, NewJob, Outcome, When
from workron.store import Store


def followers(job: NewJob, number: int, when: When = When.DONE) -> list[NewJob]:
    assert job.array is not None
    edge = Dependency(job.id, when, matching=True)
    return [array_job(job.array.size, depends_on=[edge], queue="behind") for _ in range(number)]


async def test_followers_of_an_array_do_not_break_the_script_that_ends_its_tasks(store: Store, bench: Bench) -> None:
    job = array_job(150)
    await submit(store, job)
    for one in followers(job, 28):
        await submit(store, one)
    claims = await claim(store, limit=150)
    assert len(claims) == 150
    await finish_all(store, claims, [Outcome(None, 0)] * 150)  # "too many results to unpack"
    assert await bench.client.llen(bench.keys.pending("behind", 5)) == 28 * 150
