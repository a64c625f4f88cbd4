"""The results of dependencies, as passed to a job's command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from workers.source import JobSource
from workron.errors import CallRefused, StoreUnavailable
from workron.models import Parent

FetchParents = Callable[[str], Awaitable[bytes]]
"""Returns the document for a job."""
_PAUSE_S: Final = 0.2


async def no_parents(_: str) -> bytes:
    """Return the document of a job without dependencies."""
    return b"{}"


class Parents:
    """Reads the results from the source, with retries."""

    def __init__(self, source: JobSource) -> None:
        self._source = source

    async def document(self, job_id: str) -> bytes:
        """Return the JSON for `$WORKRON_PARENTS`: id → name, status, result."""
        while True:
            try:
                found = await self._source.parents(job_id)
            except CallRefused:
                raise
            except StoreUnavailable:  # the heartbeat logs the outage
                await asyncio.sleep(_PAUSE_S)
            else:
                return orjson.dumps({parent.id: _about(parent) for parent in found})


def _about(parent: Parent) -> dict[str, Any]:
    about = {"name": parent.name, "status": parent.status, "result": parent.result}
    return about | {"left_out": True} if parent.left_out else about
