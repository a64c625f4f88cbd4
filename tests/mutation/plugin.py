"""A pytest plugin in place of pytest's own loop: tests are collected once, then each change runs in a fork."""

import functools
import gc
import hashlib
import json
import logging
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.mutation.mutants import LUA, Mutant, accepted, conditions, files, instrument, mutants_of
from tests.shared_lua import compile_now, share_one_runtime
from workron.redis import script_source

LONGEST_S: Final = 15
"""What one test may take of a processor, besides ten times its usual: then the change has made a loop endless."""


KILLERS: Final = 3
"""So many of the tests that noticed the last changes are run first with the next one."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What a test did without any change: the numbers of the conditions that were true, the negative ones of those that
    were false, and its processor time."""

    numbers: list[int]
    took_s: float


class Seen(logging.Handler):
    """Hears which conditions are true, and which are false."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        word, _, number = record.getMessage().partition(" ")
        if word == "seen":
            self.numbers.add(int(number))


class Mutation:
    """Tries the changes one after the other; `survivors` and `unreached` are what no test noticed."""

    def __init__(
        self, names: Sequence[str], most_tests: int, choose: Callable[[list[Mutant]], list[Mutant]], seen: Path
    ) -> None:
        self.texts = {name: LUA.joinpath(f"{name}.lua").read_text("utf-8") for name in files()}
        self.conditions = [found for name, text in self.texts.items() for found in conditions(name, text)]
        wanted = [condition for name in names for condition in self.conditions if condition.file == name]
        found = [mutant for condition in wanted for mutant in mutants_of(condition)]
        spared = [(one.condition.file, one.change(self.texts[one.condition.file])) for one in found]
        reasons = accepted()
        self.mutants = choose([one for one, change in zip(found, spared, strict=True) if change not in reasons])
        self.stale = [f"{file}: {change}" for file, change in set(reasons) - set(spared) if file in names]
        self.most_tests = most_tests
        self.seen = seen
        self.survivors: list[str] = []
        self.unreached: list[str] = []
        self.finished = False
        self._failed = False
        self._watched: dict[str, Watched] = {}
        self._killers: list[int] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = [item for item in session.items if not _on_a_server(item)]
        share_one_runtime()
        compile_now(name for name in self.texts if "/" not in name)
        gc.collect()
        gc.freeze()  # else each fork copies all pages as it goes over what was collected here
        evaluated = self._evaluated_by(items)
        began = time.monotonic()
        for number, mutant in enumerate(self.mutants, 1):
            about = mutant.describe(self.texts[mutant.condition.file])
            tests = self._order(evaluated, items, mutant)
            at = self.conditions.index(mutant.condition) + 1
            if at not in evaluated and -at not in evaluated:
                self.unreached.append(about)
                verdict = "unreached"
            elif self._is_noticed(mutant, items, tests):
                verdict = "noticed"
            else:
                self.survivors.append(about)
                verdict = "SURVIVED"
            took = time.monotonic() - began
            print(f"{number}/{len(self.mutants)} {took:.0f} s {verdict}: {about}", file=sys.__stdout__, flush=True)
        self.finished = True
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def _evaluated_by(self, items: Sequence[pytest.Item]) -> Mapping[int, list[int]]:
        """Return the tests in which a condition was true, by its number, and false, by its negative."""
        lua = _digest("".join(self.texts.values()))
        self._watched = self._remembered(lua)
        if any(_key(item) not in self._watched for item in items):
            _in_fork(lambda: self._watch(items, lua))
            self._watched = self._remembered(lua)
        watched = [self._watched.get(_key(item)) for item in items]
        if None in watched:
            raise pytest.UsageError("the tests could not be watched")
        evaluated: dict[int, list[int]] = defaultdict(list)
        for at, found in enumerate(watched):
            for number in found.numbers if found else ():
                evaluated[number].append(at)
        return evaluated

    def _order(self, evaluated: Mapping[int, list[int]], items: Sequence[pytest.Item], mutant: Mutant) -> list[int]:
        """Return the tests that may notice a change, the likeliest ones first.

        Only where a condition was false can it matter that it, or what `and` and `or` connect in it, is true; unless
        what is left out does something. Closest are the tests where it had both values, or others of their files did;
        then those that evaluate few conditions; one of each file, then another one of each.
        """
        number = self.conditions.index(mutant.condition) + 1
        number = -number if mutant.value == "true" else number
        otherwise = evaluated.get(-number, [])
        files = Counter(items[at].path for at in otherwise)

        def distance(at: int) -> tuple[bool, bool, int, int]:
            watched = self._watched[_key(items[at])]
            return watched.took_s > 1, at not in otherwise, -files[items[at].path], len(watched.numbers)

        tests = evaluated.get(number, [])
        if mutant.has_effects(self.texts[mutant.condition.file]):
            tests = [*tests, *(at for at in otherwise if at not in tests)]
        killers = [at for at in self._killers if at in tests]
        ranks: Counter[Path] = Counter()
        spread: list[tuple[int, int]] = []
        for at in sorted(set(tests) - set(killers), key=distance):
            spread.append((ranks[items[at].path], at))
            ranks[items[at].path] += 1
        return [*killers, *(at for _, at in sorted(spread, key=itemgetter(0)))][: self.most_tests]

    def _remembered(self, lua: str) -> dict[str, "Watched"]:
        """Read what was seen by this run or an earlier one, if the scripts are still the same."""
        lines = self.seen.read_text("utf-8").splitlines() if self.seen.exists() else []
        if not lines or lines[0] != lua:
            self.seen.write_text(lua + "\n", "utf-8")
            return {}
        return {test: Watched(numbers, took_s) for test, numbers, took_s in map(json.loads, lines[1:])}

    def _watch(self, items: Sequence[pytest.Item], lua: str) -> bytes:
        """Run the tests that were not watched yet, and append to the file which conditions each evaluates."""
        seen = Seen()
        logger = logging.getLogger("fakeredis")
        logger.addHandler(seen)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        numbered = list(enumerate(self.conditions, 1))
        _use(
            {
                name: instrument(text, [pair for pair in numbered if pair[1].file == name])
                for name, text in self.texts.items()
            }
        )
        for item in items:
            if _key(item) in self._watched:
                continue
            seen.numbers = set()
            began = time.process_time()
            self._run(item)
            if self._failed:
                print(f"fails without any change, and is not asked: {item.nodeid}", file=sys.__stderr__, flush=True)
                self._failed, seen.numbers = False, set()
            with self.seen.open("a", encoding="utf-8") as file:
                file.write(json.dumps([_key(item), sorted(seen.numbers), round(time.process_time() - began, 3)]) + "\n")
        return b""

    def _is_noticed(self, mutant: Mutant, items: Sequence[pytest.Item], tests: Sequence[int]) -> bool:
        """Run the tests until one fails."""
        file = mutant.condition.file

        def try_it() -> bytes:
            _use({file: mutant.apply(self.texts[file])})
            for at in tests:
                longest_s = LONGEST_S + 10 * self._watched[_key(items[at])].took_s
                signal.setitimer(signal.ITIMER_PROF, longest_s)  # it ends the fork: that is noticed, too
                self._run(items[at])
                if self._failed:
                    return str(at).encode()
            return b"survived"

        answer = _in_fork(try_it)
        if answer and answer != b"survived":
            killer = int(answer)
            self._killers = [killer, *(at for at in self._killers if at != killer)][:KILLERS]
        return answer != b"survived"

    def _run(self, item: pytest.Item) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _on_a_server(item: pytest.Item) -> bool:
    """Whether a test runs on another server than fakeredis: that takes longer, and says the same."""
    call = getattr(item, "callspec", None)
    return call is not None and not {"valkey", "redis"}.isdisjoint(map(str, call.params.values()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _key(item: pytest.Item) -> str:
    """Name a test, and the text of its file."""
    return f"{item.nodeid} {_digest_of_file(item.path)}"


@functools.cache
def _digest_of_file(path: Path) -> str:
    return _digest(path.read_text("utf-8"))


def _use(changed: Mapping[str, str]) -> None:
    """Have scripts made of these texts from now on."""
    texts = {tuple(f"{name}.lua".split("/")): text for name, text in changed.items()}
    original: Any = script_source._text

    def text_of(*path: str) -> str:
        return texts.get(path) or str(original(*path))

    script_source._text = text_of  # type: ignore[assignment]
    script_source.forget()


def _in_fork(work: Callable[[], bytes]) -> bytes | None:
    """Do it in a child, silently; returns what it returned, or None if it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        status = 1
        try:
            answer = work()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return answer if status == 0 else None
