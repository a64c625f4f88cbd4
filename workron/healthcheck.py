"""`python -m workron.healthcheck api|reaper|worker`: a health check of this container for its engine.

Exit code 0, or 1 with the reason in one line. Settings come from the environment and `workron.toml`, as those of the
process itself.
"""

import argparse
import asyncio
import socket
import sys
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Final

from workron.cli.config import load
from workron.durations import to_seconds
from workron.errors import WorkronError
from workron.models.workers import WorkerStatus
from workron.settings import Settings
from workron.store import Store

_TIMEOUT_S: Final = 4.0
_MISSED_PASSES: Final = 3
_PASS_MARGIN_S: Final = 5.0
_ALL: Final = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="workron.healthcheck")
    parser.add_argument("process", choices=["api", "reaper", "worker"])
    process = parser.parse_args().process
    try:
        settings = load({})
        if process == "api":
            problem = api_problem(f"http://127.0.0.1:{settings.port}/readyz")
        else:
            problem = asyncio.run(_ask_store(process, settings))
    except (WorkronError, TimeoutError) as error:
        problem = str(error) or "no answer in time"
    sys.exit(problem)


async def _ask_store(process: str, settings: Settings) -> str | None:
    async with Store.connect(settings) as store, asyncio.timeout(_TIMEOUT_S):
        if process == "reaper":
            return await reaper_problem(store, settings.reap_every)
        return await worker_problem(store, socket.gethostname())


def api_problem(url: str) -> str | None:
    """Return why the API is not ready, None if it is."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S):  # noqa: S310 - http, and ours
            return None
    except urllib.error.HTTPError as error:
        return f"the API is not ready: {HTTPStatus(error.code).phrase}"
    except OSError as error:
        return f"the API does not answer: {error}"


async def reaper_problem(store: Store, pass_s: float) -> str | None:
    """Return why passes are missing, None if any reaper makes them: one is enough."""
    age_ms = (await store.health()).last_pass_age_ms
    if age_ms is None:
        return "no reaper has run yet"
    if age_ms > 1000 * (_MISSED_PASSES * pass_s + _PASS_MARGIN_S):
        return f"the last pass of a reaper was {to_seconds(age_ms):.0f} s ago"
    return None


async def worker_problem(store: Store, host: str) -> str | None:
    """Return why no worker of this host counts as alive, None if one does."""
    page = await store.workers(limit=_ALL)
    if any(one.info.host == host and one.status is not WorkerStatus.LOST for one in page.workers):
        return None
    return f"no worker on {host} has shown life within its lease"


if __name__ == "__main__":
    main()
