"""Counts what a store sends to Redis, and what Redis runs for it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers import Bench
from workron.store import Store


@contextmanager
def commands_of(store: Store) -> Iterator[Counter[str]]:
    """Counts the commands that a store sends, by name; those of a script are one."""
    counted: Counter[str] = Counter()
    connection = store.connection
    call, pipeline, each = connection.call, connection.pipeline, connection.each

    async def counted_call(*command: Any, **options: Any) -> Any:
        counted[command[0]] += 1
        return await call(*command, **options)

    def counting(run: Callable[..., Any]) -> Callable[..., Any]:
        async def counted_run(commands: Any, *rest: Any, **options: Any) -> Any:
            counted.update(command[0] for command in commands)
            return await run(commands, *rest, **options)

        return counted_run

    connection.call = counted_call  # type: ignore[method-assign]
    connection.pipeline = counting(pipeline)  # type: ignore[method-assign]
    connection.each = counting(each)  # type: ignore[method-assign]
    try:
        yield counted
    finally:
        connection.call, connection.pipeline, connection.each = call, pipeline, each  # type: ignore[method-assign]


async def commands_inside(bench: Bench, call: Callable[[], Awaitable[object]]) -> Counter[str]:
    """Make a call and return the commands that Redis has run for it, those in scripts too; empty on the fake server."""
    before = await _calls(bench)
    await call()
    return await _calls(bench) - before


async def _calls(bench: Bench) -> Counter[str]:
    if bench.url is None:
        return Counter()
    rows = await bench.client.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in rows.items()})
