"""Print a workflow that audits the sources of this Python's standard library.

For every package (and for the top-level modules together) one job takes the SHA-256 sums of its sources and one
byte-compiles them to a scratch folder; a last job merges all sums into one report. Left out are test suites: they are
not part of the library, and hold sources that are broken on purpose.
"""

import argparse
import json
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

STDLIB: Final = Path(sysconfig.get_path("stdlib"))
MODULES: Final = "modules"
"""Stands for the modules that are in no package."""
TESTS: Final = ("test", "tests", "idle_test")
NOT_OURS: Final = {*TESTS, "__pycache__", "site-packages", "dist-packages"}

PRUNE: Final = " -o ".join(f"-name {name}" for name in TESTS)
FIND_PACKAGE: Final = rf"find {{package}} -type d \( {PRUNE} \) -prune -o -type f -name '*.py' -print0"
FIND_MODULES: Final = "find *.py -prune -type f -print0"
CHECKSUM: Final = (
    'mkdir -p "$SCRATCH/sums" && {find} | LC_ALL=C sort -z | xargs -0 sha256sum >"$SCRATCH/sums/{package}"'
)
# A line of sums is 64 digits, two spaces and the path.
COMPILE: Final = 'cut -c 67- "$SCRATCH/sums/{package}" | "$PYTHON" -m compileall -q -i -'
REPORT: Final = (
    'cd "$SCRATCH/sums" && LC_ALL=C sort -k 2 {packages} >"$SCRATCH/report.txt" && wc -l "$SCRATCH/report.txt"'
)


def packages() -> list[str]:
    """Return the packages of the standard library, in order."""
    folders = (path for path in STDLIB.iterdir() if path.is_dir() and path.name.isidentifier())
    return sorted(path.name for path in folders if path.name not in NOT_OURS and any(path.glob("*.py")))


def workflow(groups: list[str], scratch: Path) -> dict[str, Any]:
    """Return the body of `POST /workflows`: two jobs per group, and one that merges."""
    jobs = [job for group in groups for job in (checksum(group), compilation(group))]
    jobs.append(
        {
            "name": "report",
            "command": REPORT.format(packages=" ".join(groups)),
            "depends_on": [job["name"] for job in jobs],
        }
    )
    env = {"PYTHON": sys.executable, "SCRATCH": str(scratch), "PYTHONPYCACHEPREFIX": str(scratch / "pyc")}
    return {"name": "stdlib-audit", "jobs": [{**job, "cwd": str(STDLIB), "env": env} for job in jobs]}


def checksum(group: str) -> dict[str, Any]:
    find = FIND_MODULES if group == MODULES else FIND_PACKAGE.format(package=group)
    return {"name": f"checksum-{group}", "command": CHECKSUM.format(find=find, package=group)}


def compilation(group: str) -> dict[str, Any]:
    return {
        "name": f"compile-{group}",
        "command": COMPILE.format(package=group),
        "depends_on": [f"checksum-{group}"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="only these; all of them by default")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "stdlib-audit", metavar="DIR")
    arguments = parser.parse_args()
    every = [*packages(), MODULES]
    unknown = set(arguments.packages) - set(every)
    if unknown:
        parser.error(f"not in this standard library: {', '.join(sorted(unknown))}")
    chosen = [group for group in every if group in arguments.packages or not arguments.packages]
    print(json.dumps(workflow(chosen, arguments.scratch.absolute()), indent=2))


if __name__ == "__main__":
    main()
