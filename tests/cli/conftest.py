"""Fixtures for tests of the command line: one `workron up` for all of them, and an API that does as told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import local_stack
from tests.command_line import CommandLine, ScriptedApi


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_stack.Stack]:
    """A `workron up` on a free port, with two slots and quick retries."""
    quick = {"WORKRON_SLOTS": "2", "WORKRON_RETRY_DELAY": "0.1s", "WORKRON_KILL_GRACE": "1s"}
    env = local_stack.environment(tmp_path_factory.mktemp("home")) | quick
    with local_stack.running(["workron", "up"], env) as running:
        yield running


@pytest.fixture
def workron(stack: local_stack.Stack, tmp_path: Path) -> CommandLine:
    """The command line of a user whose environment names the stack's API and key."""
    endpoint = {"WORKRON_URL": stack.url, "WORKRON_API_KEY": stack.key}
    return CommandLine({**stack.environment, **endpoint}, tmp_path)


@pytest.fixture
def api() -> Iterator[ScriptedApi]:
    with ScriptedApi().serving() as api:
        yield api


@pytest.fixture
def alone(tmp_path: Path) -> CommandLine:
    """The command line of a user who has nothing but a home."""
    home = tmp_path / "home"
    home.mkdir()
    env = local_stack.environment(home)
    for name in ("WORKRON_PORT", "WORKRON_DATA_DIR"):
        del env[name]
    work = tmp_path / "work"
    work.mkdir()
    return CommandLine(env, work)


@pytest.fixture
def scripted(alone: CommandLine, api: ScriptedApi) -> CommandLine:
    """The command line of a user whose environment names the scripted API."""
    alone.env |= {"WORKRON_URL": api.url, "WORKRON_API_KEY": "0123456789abcdef"}
    return alone
