"""What commands leave in their files, on both ways to the store."""

import json

from tests.builders import after, new_job, submit
from tests.conftest import WaitUntil
from tests.workers.worker_sources import Place
from workron.models import Status
from workron.models.retry import RetryPolicy


async def test_what_a_command_leaves_in_its_files_reaches_the_store_and_its_dependents(
    place: Place, wait_until: WaitUntil
) -> None:
    async with place.worker():
        parent = new_job(command='echo progress=0.5 > $WORKRON_CONTROL; echo "[1, 2]" > $WORKRON_RESULT', name="first")
        child = new_job(command="cat $WORKRON_PARENTS", depends_on=after(parent.id))
        await submit(place.store, parent, child)
        await wait_until(place.is_(child.id, Status.DONE))
        ended = await place.store.job(parent.id)
        assert (ended.status, ended.result, ended.progress) == (Status.DONE, [1, 2], "0.5")
        told = json.loads((await place.store.output(child.id)).head)
        assert told == {parent.id: {"name": "first", "status": "done", "result": [1, 2]}}


async def test_progress_is_shown_while_a_command_runs(place: Place, wait_until: WaitUntil) -> None:
    async with place.worker():
        (job_id,) = await submit(place.store, new_job(command="echo half > $WORKRON_CONTROL; sleep 60"))

        async def shown() -> bool:
            return (await place.store.job(job_id)).progress == "half"

        await wait_until(shown, within_s=5)


async def test_a_command_that_asks_to_be_tried_later_is(place: Place, wait_until: WaitUntil) -> None:
    script = 'test $WORKRON_ATTEMPT = 2 || { echo "WORKRON_RETRY_AFTER=300ms" > $WORKRON_CONTROL; exit 75; }'
    async with place.worker():
        (job_id,) = await submit(place.store, new_job(command=script, retry=RetryPolicy(delay_ms=3_600_000)))
        await wait_until(place.is_(job_id, Status.DONE), within_s=10)
        assert (await place.store.job(job_id)).attempts == 2
