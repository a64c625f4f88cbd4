"""Stored output: written at exact offsets under the fence, the last two attempts are kept."""

from tests.builders import claim, finish, new_job, submit
from tests.servers import Bench
from workron.models import OUTPUT_HEAD, OUTPUT_TAIL, Outcome, OutputPatch, Reason, Result
from workron.store import Store


async def test_output_without_any_is_empty_and_costs_nothing(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await finish(store, got)
    assert (await store.output(job_id)).head == b""
    assert [name async for name in bench.client.scan_iter(f"{bench.keys.job(job_id)}*")] == [
        bench.keys.job(job_id).encode()
    ]


async def test_patches_join_and_a_repeated_one_changes_nothing(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    first, second = OutputPatch(0, b"one\n", 4), OutputPatch(4, b"two\x00\xff", 9)
    for patch in (first, second, second):
        await store.attempts.write_output([(job_id, got.fence, patch)])
    last = Result(job_id, got.fence, Outcome(None, exit_code=0), OutputPatch(9, b"!", 10))
    await store.attempts.finish([last], worker="w1")
    assert (await store.output(job_id)).head == b"one\ntwo\x00\xff!"


async def test_a_cut_output_tells_how_much_is_missing(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    stored = b"h" * OUTPUT_HEAD + b"t" * OUTPUT_TAIL
    await store.attempts.write_output([(job_id, got.fence, OutputPatch(0, stored, len(stored) + 1000))])
    output = await store.output(job_id)
    assert (output.head, output.cut, output.tail) == (b"h" * OUTPUT_HEAD, 1000, b"t" * OUTPUT_TAIL)
    assert output.total == len(stored) + 1000


async def test_output_under_a_stale_fence_is_not_written(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    await store.attempts.write_output([(job_id, got.fence - 1, OutputPatch(0, b"stale", 5))])
    assert (await store.output(job_id)).total == 0


async def test_the_output_of_the_last_two_attempts_is_kept(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job(max_attempts=3))
    for attempt in range(3):
        (got,) = await claim(store, wait=True)
        patch = OutputPatch(0, b"attempt %d" % attempt, 9)
        await store.attempts.finish(
            [Result(job_id, got.fence, Outcome(Reason.EXIT_CODE, exit_code=1), patch)], worker="w1"
        )
    names = [name async for name in bench.client.scan_iter(f"{bench.keys.job(job_id)}:output:*")]
    assert len(names) == 2
    assert (await store.output(job_id)).head == b"attempt 2"


async def test_a_full_server_kept_the_end_of_an_output_though_its_last_part_is_missing(bench: Bench) -> None:
    store = bench.store()
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    stored = b"h" * OUTPUT_HEAD + b"t" * 10
    await store.attempts.write_output([(job_id, got.fence, OutputPatch(0, stored, len(stored)))])
    await bench.client.hset(bench.keys.meta, "full", "1")
    last = Result(job_id, got.fence, Outcome(None, exit_code=0), OutputPatch(len(stored), b"x", len(stored) + 1))
    await store.attempts.finish([last], worker="w1")
    output = await store.output(job_id)
    assert (output.head, output.cut, output.tail) == (b"h" * OUTPUT_HEAD, 11, b"")


async def test_a_position_behind_the_head_missed_what_had_moved_when_the_middle_was_cut(store: Store) -> None:
    (job_id,) = await submit(store, new_job())
    (got,) = await claim(store)
    stored = b"h" * OUTPUT_HEAD + b"t" * 10
    for total, left in ((len(stored), 6), (len(stored) + 1000, 10)):
        await store.attempts.write_output([(job_id, got.fence, OutputPatch(0, stored, total))])
        *_, data = await store.scripts.job_output(job_id, got.fence, OUTPUT_HEAD + 4, on=store.connection)
        assert data == b"t" * left
