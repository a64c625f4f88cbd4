"""A worker reduced to its executor, to be killed and stopped by tests.

    python pretend_worker.py LEASE_S renew|silent COMMAND…

runs all commands at once and prints one JSON object per line: first its guardian's pid, then each outcome.
"""

import asyncio
import json
import os
import sys

from tests.commands import claim_for
from workers.attempt import Attempt
from workers.executor import Executor
from workers.guardian import boottime_s
from workron.models import Outcome


def _say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def _report(attempt: Attempt) -> Outcome:
    outcome = await attempt.wait()
    _say(fence=attempt.claim.fence, reason=outcome.reason, exit_code=outcome.exit_code, signal=outcome.signal)
    return outcome


async def _renew(executor: Executor, lease_s: float) -> None:
    while True:
        executor.renew(executor.attempts, boottime_s() + lease_s)
        await asyncio.sleep(lease_s / 5)


async def main(lease_s: float, mode: str, commands: list[str]) -> None:
    async with Executor(kill_grace_s=0.5) as executor:
        _say(guardian=executor.guardian.pid, worker=os.getpid())
        deadline = boottime_s() + lease_s
        attempts = [
            executor.start(claim_for(command, fence=fence), deadline) for fence, command in enumerate(commands, 1)
        ]
        renewing = asyncio.create_task(_renew(executor, lease_s)) if mode == "renew" else None
        await asyncio.gather(*map(_report, attempts))
        if renewing is not None:
            renewing.cancel()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), sys.argv[2], sys.argv[3:]))
