"""Why jobs of workflows, and those that were cancelled with others, are where they are."""

from tests.builders import after, claim, finish, jobs, submit
from tests.servers import Bench
from tests.workflows import FAILURE, start
from workron.models import NewJob, OnFailure, Together
from workron.store import Store


async def test_a_final_job_says_how_many_it_waits_for(store: Store) -> None:
    a, b, last = jobs(3)
    last.final = True
    workflow = await start(store, a, b, last)
    await finish(store, *(await claim(store)))
    told = await store.explain(last.id)
    assert "the final job" in told.sentence
    assert "1 of 2 others have not" in told.sentence
    assert (told.facts["workflow"], told.facts["others_left"]) == (workflow, 1)


async def test_a_job_of_a_stopped_workflow_names_the_one_that_has_failed(store: Store) -> None:
    a, b = jobs(2, max_attempts=1)
    await start(store, a, b, on_failure=OnFailure.STOP)
    await finish(store, *(await claim(store)), FAILURE)
    told = await store.explain(b.id)
    assert f"job {a.id}, which has failed and stops the workflow, before it had started" in told.sentence
    assert told.facts["caused_by"] == [a.id]


async def test_a_job_of_a_cancelled_workflow_says_so(store: Store) -> None:
    (a,) = jobs(1)
    workflow = await start(store, a)
    await store.cancel_workflow(workflow)
    told = await store.explain(a.id)
    assert f"cancelled with its workflow {workflow}" in told.sentence
    assert told.facts["workflow"] == workflow


async def test_a_job_that_was_cancelled_with_another_names_it(store: Store) -> None:
    a, b = jobs(2)
    b.depends_on = after(a.id)
    await submit(store, a, b)
    await store.cancel(a.id, cascade=True)
    assert f"job {a.id}, on which it depends" in (await store.explain(b.id)).sentence
    assert (await store.explain(a.id)).sentence.startswith("It was cancelled, before it had started")


async def test_why_a_job_was_cancelled_does_not_depend_on_the_words_of_its_error(bench: Bench) -> None:
    """An explanation was chosen by the English of the stored text."""
    store = bench.store()

    async def told(job: NewJob) -> tuple[Together | None, str]:
        await bench.client.hset(bench.keys.job(job.id), "error", "reworded")
        return (await store.job(job.id)).cancelled_with, (await store.explain(job.id)).sentence

    a, b = jobs(2, max_attempts=1)
    await start(store, a, b, on_failure=OnFailure.STOP)
    await finish(store, *(await claim(store)), FAILURE)
    cause, sentence = await told(b)
    assert (cause, f"job {a.id}, which has failed and stops the workflow" in sentence) == (Together.FAILURE, True)
    (alone,) = jobs(1)
    workflow = await start(store, alone)
    await store.cancel_workflow(workflow)
    cause, sentence = await told(alone)
    assert (cause, f"cancelled with its workflow {workflow}" in sentence) == (Together.WORKFLOW, True)
    await store.retry(alone.id)
    assert (await store.job(alone.id)).cancelled_with is None
    await store.cancel(alone.id)
    assert (await told(alone))[1].startswith("It was cancelled, before it had started")
