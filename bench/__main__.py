"""`python -m bench`: measure everything in one run, write `bench/RESULTS.md` and `bench/drain.svg`."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import report
from bench.idle import measure as idle
from bench.measures import (
    ceiling,
    command,
    http,
    latency,
    limits,
    recovery,
    remote,
    scale,
    shell,
    single,
    startup,
    throughput,
)
from bench.peers import OURS, PEERS, Installed, InstallError, cache_folder, install
from bench.plan import Measure, Plan
from bench.quiet import quiet
from bench.results import Results
from bench.running import RunError, Runner
from bench.server import Server
from workron.errors import WorkronError

MEASURES: Final[dict[str, Measure]] = {
    "throughput": throughput.measure,
    "single": single.measure,
    "latency": latency.measure,
    "command": command.measure,
    "idle": idle,
    "http": http.measure,
    "remote": remote.measure,
    "shell": shell.measure,
    "ceiling": ceiling.measure,
    "limits": limits.measure,
    "startup": startup.measure,
    "recovery": recovery.measure,
    "scale": scale.measure,
}


def arguments(given: Sequence[str]) -> argparse.Namespace:
    names = ", ".join(MEASURES)
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare Workron with other queues.")
    parser.add_argument("--quick", action="store_true", help="few jobs and one round: shows that it works")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=MEASURES,
        default=list(MEASURES),
        metavar="NAME",
        help=f"measure only some of: {names}",
    )
    parser.add_argument("--peers", help="only these peers, with commas between; empty for none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recovery", action="store_true", help="also recovery with default settings: takes a minute")
    parser.add_argument("--server", choices=("redis", "valkey"), default="redis")
    parser.add_argument("--fsync", choices=("everysec", "always", "no"), default="everysec", help="of the server's AOF")
    parser.add_argument("--into", type=Path, default=Path(__file__).parent, help="folder for the report")
    parser.add_argument("--raw", type=Path, help="file for all values, as JSON")
    return parser.parse_args(given)


def installed(results: Results, wanted: str | None) -> list[Installed]:
    """Return the systems that can be measured; the others are noted."""
    names = None if wanted is None else {name for name in wanted.split(",") if name}
    found = []
    for system in (OURS, *PEERS):
        if system is not OURS and names is not None and system.name not in names:
            continue
        try:
            found.append(install(system))
        except InstallError as error:
            results.missing[system.name] = str(error)
            print(f"{system.name}: {error}", flush=True)
    return found


def describe(server: Server, options: argparse.Namespace) -> dict[str, str]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        "Python": platform.python_version(),
        "server": f"{server.version}, appendonly {server.options['appendonly']}, appendfsync {options.fsync}, "
        "on 127.0.0.1, for all systems",
        "rounds": f"{options.rounds}{', quick' if options.quick else ''}",
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def main() -> int:
    options = arguments(sys.argv[1:])
    quiet()
    options.rounds = 1 if options.quick else options.rounds
    results = Results()
    systems = installed(results, options.peers)
    raw = options.raw or cache_folder() / "last.json"
    raw.parent.mkdir(parents=True, exist_ok=True)
    with Server(options.server, fsync=options.fsync) as server:
        results.machine = describe(server, options)
        runner = Runner(server)
        plan = Plan(server, runner, systems, results, options.rounds, options.quick, options.recovery)
        for turn in range(options.rounds):
            for name in options.only:
                plan.say(f"round {turn + 1}, {name}")
                try:
                    MEASURES[name](plan, turn)
                except (RunError, WorkronError) as error:
                    results.note(f"{name}: {error}")
                    plan.say(f"  {error}")
                results.save(raw)
        runner.close()
    options.into.mkdir(parents=True, exist_ok=True)
    report.write(results, options.into)
    print(f"wrote {options.into / 'RESULTS.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
