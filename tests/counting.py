"""Counts what a store sends to Redis."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
