"""Nothing in a run comes from outside: all that is random follows from the seed."""

import logging
import os
import platform
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from unittest import mock

from fakeredis.commands_mixins import scripting_mixin

from tests.simulation.timeline import EPOCH_S, Timeline
from workron import ids
from workron.runtime import logger


def seeded(what: str) -> Random:
    """Return a source of chance for one purpose, so that what one takes changes nothing for the others."""
    return Random(what)  # noqa: S311 - to be the same again


@contextmanager
def chance_of(seed: int, timeline: Timeline) -> Iterator[None]:
    """Have ids, jitter and secrets follow from the seed, and processes say the same of themselves everywhere."""
    before, source = random.getstate(), seeded(f"ids {seed}")

    def new_id() -> str:
        ms = int((EPOCH_S + timeline.now + timeline.running.skew_s) * 1000)
        return ids.encode(ms << 80 | 7 << 76 | source.getrandbits(74))

    def token_hex(size: int) -> str:
        return f"{source.getrandbits(8 * size):0{2 * size}x}"

    random.seed(seed)
    with (
        mock.patch.object(ids, "new_id", new_id),
        mock.patch.object(secrets, "token_hex", token_hex),
        mock.patch.object(os, "getpid", return_value=1),
        mock.patch.object(platform, "node", return_value="host"),
    ):
        yield
    random.setstate(before)


@contextmanager
def quickly() -> Iterator[None]:
    """Leave out what only takes time: logs, and the look for global variables after each command of a script."""
    with (
        logger.sent(logging.CRITICAL),
        mock.patch.object(scripting_mixin, "_check_for_lua_globals", _unchecked),
    ):
        yield


def _unchecked(*_: object) -> None:
    """Another test does it."""
