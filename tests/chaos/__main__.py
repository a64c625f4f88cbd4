"""`python -m tests.chaos`: a whole deployment under load while everything goes wrong, and what came of it."""

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.account import Account
from tests.chaos.faults import WEIGHTS
from tests.chaos.harness import PACE_S, Run
from tests.chaos.topologies import GROUNDS

EXAMPLES: Final = """
examples:
  python -m tests.chaos --minutes 2
  python -m tests.chaos --minutes 60 --json account.json
  python -m tests.chaos --minutes 5 --topology sentinel --faults move,kill
  python -m tests.chaos --minutes 1 --faults none
"""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Run a whole deployment under load while everything goes wrong, and account for every job.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long things go wrong (default: 2)")
    parser.add_argument("--seed", type=int, help="decides load and faults; a random one by default")
    parser.add_argument("--topology", choices=GROUNDS, default="single", help="where the data are (default: single)")
    parser.add_argument("--faults", type=_kinds, default=list(WEIGHTS), help=f"some of {','.join(WEIGHTS)}; or none")
    parser.add_argument("--pace", type=float, default=PACE_S, help="seconds between two faults, on average")
    parser.add_argument("--json", type=Path, help="file for the account")
    parser.add_argument("--keep", action="store_true", help="keep logs and records also of a good run")
    return parser.parse_args(given)


def _kinds(text: str) -> list[str]:
    kinds = [] if text == "none" else text.split(",")
    if unknown := set(kinds) - WEIGHTS.keys():
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(sorted(unknown))}")
    return kinds


async def _until_told(run: Run) -> Account:
    """Run; on SIGTERM, too, end what was started before leaving."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await run.run()


def main() -> int:
    options = arguments(sys.argv[1:])
    seed = random.randrange(1_000_000) if options.seed is None else options.seed  # noqa: S311
    folder = Path(tempfile.mkdtemp(prefix="workron-chaos-"))
    print(f"seed {seed}, records in {folder}", file=sys.stderr)
    run = Run(
        folder,
        seed=seed,
        seconds=60 * options.minutes,
        topology=options.topology,
        kinds=options.faults,
        pace_s=options.pace,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    account = asyncio.run(_until_told(run))
    print(account.table())
    if options.json:
        options.json.write_text(account.json() + "\n")
    if account.wrong or options.keep:
        print(f"wrong: {account.wrong}\nrecords are in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return 1 if account.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
