"""The file of the first API key: at no moment can others read it, and nobody can have another one taken for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workron.errors import StartupError
from workron.local import instances, secure_files
from workron.settings import Settings

WATCHED = """
import json, os, sys
from workron.local import instances
from workron.cli.config import load

folder, seen, looking = sys.argv[1], set(), False

def look(event, _):
    global looking
    if not looking:  # what it does itself is told too
        looking = True
        with os.scandir(folder) as files:
            seen.update((one.name, oct(one.stat(follow_symlinks=False).st_mode & 0o777)) for one in files)
        looking = False

settings = load({})
os.umask(int(sys.argv[2], 8))
sys.addaudithook(look)
instances.api_key(settings)
print(json.dumps(sorted(seen)))
"""
"""Makes a key, and before each thing that Python does with files it looks at what is there by then."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "data").mkdir(0o700)
    return Settings(data_dir=tmp_path / "data")


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_the_key_is_never_to_be_seen_with_a_wider_mode(settings: Settings, umask: str) -> None:
    command = [sys.executable, "-c", WATCHED, str(settings.data_dir), umask]
    env = os.environ | {"WORKRON_DATA_DIR": str(settings.data_dir)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    seen = json.loads(done.stdout)
    names = {name for name, _ in seen}
    assert "api-key" in names
    assert len(names) == 2  # and the draft
    assert {mode for _, mode in seen} == {"0o600"}


@pytest.mark.parametrize("target", ["missing", "present"])
def test_a_link_that_lies_there_already_is_not_followed(settings: Settings, tmp_path: Path, target: str) -> None:
    """Else who can write to the directory has a key of his choice taken, or the key written where he can read it."""
    elsewhere = tmp_path / "elsewhere"
    if target == "present":
        secure_files.write_file(elsewhere, b"a-key-of-somebody-else\n")
    (settings.data_dir / "api-key").symlink_to(elsewhere)
    with pytest.raises(StartupError, match="api-key"):
        instances.api_key(settings)
    assert elsewhere.exists() is (target == "present")


def test_a_key_of_another_user_is_not_taken(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settings.data_dir / "api-key"
    secure_files.write_file(path, b"a-key-of-somebody-else\n")
    be_another_user(monkeypatch)
    with pytest.raises(StartupError, match="not a file of this user"):
        secure_files.read_own(path)


def be_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666, 0o644])
def test_a_key_that_others_can_read_or_write_is_not_taken(settings: Settings, mode: int) -> None:
    made = instances.api_key(settings)
    assert made
    assert made.file
    made.file.chmod(mode)
    with pytest.raises(StartupError, match=r"everybody may read or write .*: chmod o-rwx"):
        instances.api_key(settings)
    made.file.chmod(0o600)
    assert instances.api_key(settings) == made


def test_a_fifo_in_its_place_holds_up_no_process(settings: Settings) -> None:
    os.mkfifo(settings.data_dir / "api-key", 0o600)
    with pytest.raises(StartupError, match="not a file of this user"):
        instances.api_key(settings)


def test_a_world_writable_directory_is_refused(settings: Settings) -> None:
    settings.data_dir.chmod(0o777)
    with pytest.raises(StartupError, match="chmod o-w"):
        instances.api_key(settings)
    settings.data_dir.chmod(0o1777)  # as /tmp is: others can't touch our files there
    assert instances.api_key(settings)


def test_a_directory_of_another_user_is_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.stat(settings.data_dir)
    of_another = os.stat_result((*found[:4], os.geteuid() + 1, *found[5:]))
    monkeypatch.setattr(Path, "stat", lambda *_, **__: of_another)
    with pytest.raises(StartupError, match="belongs to another user"):
        secure_files.check_place(settings.data_dir)
