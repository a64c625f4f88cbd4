"""A pytest plugin in place of pytest's own loop: tests are collected once, then each change runs in a fork."""

import json
import logging
import os
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from tests.mutation.mutants import LUA, Mutant, conditions, instrument, mutants_of
from workron import scripts

LONGEST_S: Final = 300.0
"""What a change may take, before it counts as noticed: it made a loop endless."""


class Seen(logging.Handler):
    """Hears which conditions are evaluated."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        word, _, number = record.getMessage().partition(" ")
        if word == "seen":
            self.numbers.add(int(number))


class Mutation:
    """Tries the changes one after the other; `survivors` and `unreached` are what no test noticed."""

    def __init__(self, names: Sequence[str], most_tests: int, choose: Callable[[list[Mutant]], list[Mutant]]) -> None:
        self.texts = {name: LUA.joinpath(f"{name}.lua").read_text("utf-8") for name in names}
        self.conditions = [found for name, text in self.texts.items() for found in conditions(name, text)]
        self.mutants = choose([mutant for condition in self.conditions for mutant in mutants_of(condition)])
        self.most_tests = most_tests
        self.survivors: list[str] = []
        self.unreached: list[str] = []
        self.finished = False
        self._failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = list(session.items)
        evaluated = self._evaluated_by(items)
        began = time.monotonic()
        for number, mutant in enumerate(self.mutants, 1):
            about = mutant.describe(self.texts[mutant.condition.file])
            tests = evaluated.get(self.conditions.index(mutant.condition), [])
            if not tests:
                self.unreached.append(about)
                verdict = "unreached"
            elif self._is_noticed(mutant, [items[at] for at in tests]):
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
        """Return the tests that evaluate each condition, by number: those first that evaluate the fewest."""
        numbered = list(enumerate(self.conditions))
        changed = {
            name: instrument(text, [pair for pair in numbered if pair[1].file == name])
            for name, text in self.texts.items()
        }
        answer = _in_fork(lambda: self._watch(items, changed), limit_s=None)
        by_test: list[list[int]] = json.loads(answer or b"[]")
        if len(by_test) != len(items):
            raise pytest.UsageError("the tests fail without any change; run them alone to see why")
        evaluated: dict[int, list[int]] = defaultdict(list)
        for test in sorted(range(len(items)), key=lambda at: len(by_test[at])):
            for number in by_test[test]:
                evaluated[number].append(test)
        return evaluated

    def _watch(self, items: Sequence[pytest.Item], changed: Mapping[str, str]) -> bytes:
        seen, found = Seen(), []
        logger = logging.getLogger("fakeredis")
        logger.addHandler(seen)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        _use(changed)
        for item in items:
            seen.numbers = set()
            self._run(item)
            if self._failed:
                print(f"fails without any change: {item.nodeid}", file=sys.__stderr__, flush=True)
                return b""
            found.append(sorted(seen.numbers))
        return json.dumps(found).encode()

    def _is_noticed(self, mutant: Mutant, items: Sequence[pytest.Item]) -> bool:
        file = mutant.condition.file

        def try_it() -> bytes:
            _use({file: mutant.apply(self.texts[file])})
            for item in items[: self.most_tests]:
                self._run(item)
                if self._failed:
                    return b"noticed"
            return b"survived"

        return _in_fork(try_it, limit_s=LONGEST_S) != b"survived"

    def _run(self, item: pytest.Item) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _use(changed: Mapping[str, str]) -> None:
    """Have scripts made of these texts from now on."""
    texts = {tuple(f"{name}.lua".split("/")): text for name, text in changed.items()}
    original: Any = scripts._text

    def text_of(*path: str) -> str:
        return texts.get(path) or str(original(*path))

    scripts._text = text_of  # type: ignore[assignment]


def _in_fork(work: Callable[[], bytes], *, limit_s: float | None) -> bytes | None:
    """Do it in a child, silently; returns what it returned, or None if it died or took too long."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        status = 1
        try:
            os.setpgid(0, 0)
            answer = work()
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    answer, until = b"", None if limit_s is None else time.monotonic() + limit_s
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                os.killpg(child, signal.SIGKILL)
                break
            part = pipe.read(1 << 16)
            if not part:
                break
            answer += part
    _, status = os.waitpid(child, 0)
    return answer if status == 0 else None
