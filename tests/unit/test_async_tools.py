"""Background tasks end when they are told to."""

import asyncio

from workron.runtime.async_tools import end


async def test_a_task_that_swallows_a_cancel_is_ended_all_the_same() -> None:
    """A worker hung at its stop: redis-py's `wait_for` had swallowed the cancel on Python 3.11."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end([task])
    assert task.cancelled()
