"""`python -m tests.mutation`: change one check of the scripts at a time, and say which changes no test notices."""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.mutation.mutants import Mutant, files
from tests.mutation.plugin import Mutation

ROOT: Final = Path(__file__).resolve().parents[2]
EXAMPLES: Final = """
examples:
  python -m tests.mutation --files lib/claims
  python -m tests.mutation --sample 100
  python -m tests.mutation --tests tests/store tests/model --part 1/2   # and elsewhere --part 2/2
"""


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description="Change one check of the Lua scripts at a time, and say which changes no test notices.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--files", nargs="+", choices=files(), default=files(), metavar="FILE", help="e.g. lib/claims")
    parser.add_argument("--tests", nargs="+", default=["tests/store"], help="what is to notice (default: tests/store)")
    parser.add_argument("--sample", type=int, help="try only so many changes, chosen at random")
    parser.add_argument("--seed", type=int, default=1, help="decides the sample")
    parser.add_argument("--part", default="1/1", help="try one part of the changes: 2/3 is the second of three")
    parser.add_argument("--most-tests", type=int, default=200, help="tests for each change, at most (default: 200)")
    parser.add_argument(
        "--seen", type=Path, default=ROOT / ".mutation-seen", help="keeps which test evaluates what, for further runs"
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    wanted = arguments(given)
    part, _, parts = wanted.part.partition("/")

    def choose(mutants: list[Mutant]) -> list[Mutant]:
        if wanted.sample is not None:
            mutants = random.Random(wanted.seed).sample(mutants, min(wanted.sample, len(mutants)))  # noqa: S311
        return mutants[int(part) - 1 :: int(parts)]

    mutation = Mutation(wanted.files, wanted.most_tests, choose, wanted.seen.absolute())
    os.chdir(ROOT)
    options = [
        "--soak",
        "-o",
        "addopts=--import-mode=importlib",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
    ]
    code = pytest.main([*options, *wanted.tests], plugins=[mutation])
    if not mutation.finished:
        return int(code)
    for about in mutation.survivors:
        print(f"survived: {about}")
    for about in mutation.unreached:
        print(f"no test comes to: {about}")
    for about in mutation.stale:
        print(f"in accepted.txt, and not in the scripts: {about}")
    print(f"{len(mutation.mutants)} changes, {len(mutation.survivors)} survived, {len(mutation.unreached)} not reached")
    return 1 if mutation.survivors or mutation.unreached or mutation.stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
