"""The API key on disk, and finding the instances that run on this machine."""

import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from workron.errors import StartupError
from workron.local import instances, secure_files
from workron.settings import Settings


@pytest.fixture(autouse=True)
def meeting_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of instances of this test's own."""
    directory = tmp_path / "shared"
    monkeypatch.setattr(secure_files, "shared_dir_candidates", lambda: [directory])
    return directory


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data"})


def instance(*, pid: int | None = None, birth: str | None = None, started_at: str = "2026-01-01") -> instances.Instance:
    own_pid, own_birth = instances.this_process()
    return instances.Instance(
        pid=pid or own_pid,
        started_at=started_at,
        url="http://127.0.0.1:8080",
        key_file="/somewhere/api-key",
        data_dir="/somewhere",
        redis=None,
        birth=birth or own_birth,
    )


def test_the_first_start_makes_a_key_that_only_its_user_can_read(settings: Settings) -> None:
    made = instances.api_key(settings)
    assert made
    assert made.file == settings.data_dir / "api-key"
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", made.value)
    assert stat.S_IMODE(made.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    assert [path.name for path in settings.data_dir.iterdir()] == ["api-key"]


def test_the_next_start_finds_the_same_key(settings: Settings) -> None:
    assert instances.api_key(settings) == instances.api_key(settings)


def test_many_first_starts_at_once_agree_on_one_key(settings: Settings) -> None:
    for number in range(10):
        fresh = settings.model_copy(update={"data_dir": settings.data_dir / str(number)})
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(instances.api_key, [fresh] * 16))
        assert len(set(found)) == 1


def test_a_key_from_the_settings_is_taken_and_not_written_down(settings: Settings) -> None:
    given = settings.model_copy(update={"api_key": SecretStr("0123456789abcdef")})
    assert instances.api_key(given) == instances.ApiKey("0123456789abcdef", None)
    assert not settings.data_dir.exists()


def test_without_auth_there_is_no_key(settings: Settings) -> None:
    assert instances.api_key(settings.model_copy(update={"no_auth": True})) is None


@pytest.mark.parametrize("key", ["too-short", "with spaces in between", "naïve-but-long-enough", ""])
def test_a_key_in_the_settings_that_is_no_key_is_refused(settings: Settings, key: str) -> None:
    with pytest.raises(StartupError, match="16 to 512 printable"):
        instances.api_key(settings.model_copy(update={"api_key": SecretStr(key)}))


@pytest.mark.parametrize("content", [b"", b"too-short\n", b"two words are not a key", b"\xff\xfe" * 20, b"\0" * 43])
def test_a_key_file_without_a_key_is_refused_and_not_replaced(settings: Settings, content: bytes) -> None:
    settings.data_dir.mkdir()
    path = settings.data_dir / "api-key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(StartupError, match="holds no usable API key: it must"):
        instances.api_key(settings)
    assert path.read_bytes() == content


def test_a_key_file_that_cannot_be_read_is_one_line(settings: Settings) -> None:
    (settings.data_dir / "api-key").mkdir(parents=True)
    with pytest.raises(StartupError, match=r"can't read the API key in .*: Is a directory"):
        instances.api_key(settings)


def test_an_instance_is_found_until_its_file_is_removed() -> None:
    path = instances.register(instance())
    assert instances.find() == [instance()]
    path.unlink()
    assert instances.find() == []


def test_the_newest_instance_comes_first() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        instances.register(instance(started_at="2026-01-01"))
        instances.register(instance(started_at="2026-01-02", pid=other.pid, birth=instances.birth(other.pid)))
        assert [found.pid for found in instances.find()] == [other.pid, os.getpid()]
        other.communicate(b"\n")


def test_a_dead_instance_is_forgotten(meeting_place: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        instances.register(instance(pid=other.pid, birth=instances.birth(other.pid)))
        other.communicate(b"\n")
    assert instances.find() == []
    assert list(meeting_place.iterdir()) == []


def test_an_unreaped_dead_instance_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert instances.birth(other.pid)
        assert other.stdin
        other.stdin.close()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert instances.birth(other.pid) is None


def test_a_later_process_with_the_same_pid_is_not_the_instance(meeting_place: Path) -> None:
    boot, _, ticks = instances.this_process()[1].partition("/")
    instances.register(instance(birth=f"{boot}/{int(ticks) - 1}"))
    instances.register(instance(birth=f"another-boot/{ticks}"))
    assert instances.find() == []
    assert list(meeting_place.iterdir()) == []


def test_a_damaged_registration_is_ignored(meeting_place: Path) -> None:
    instances.register(instance())
    (meeting_place / "1-1.json").write_text("{")
    (meeting_place / "1-2.json").write_text('{"pid": 1}')
    (meeting_place / "1-3.json").write_bytes(b"\xff")
    assert instances.find() == [instance()]


def test_a_directory_that_others_could_write_to_is_not_believed(meeting_place: Path) -> None:
    instances.register(instance())
    meeting_place.chmod(0o777)
    assert instances.find() == []
    with pytest.raises(StartupError, match="is not a directory of this user with mode 0700"):
        instances.register(instance())


def test_a_link_to_a_directory_is_not_believed(meeting_place: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(0o700)
    meeting_place.symlink_to(real)
    with pytest.raises(StartupError, match="is not a directory of this user with mode 0700"):
        instances.register(instance())


def test_a_place_that_cannot_be_used_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    places = [tmp_path / "missing" / "workron", tmp_path / "file", tmp_path / "usable"]
    monkeypatch.setattr(secure_files, "shared_dir_candidates", lambda: places)
    assert instances.register(instance()).parent == tmp_path / "usable"
    assert instances.find() == [instance()]


def test_importing_it_does_not_import_the_settings() -> None:
    code = "import sys, workron.local.instances; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_instance_of_another_runtime_directory_was_found_from_one_that_tests_had_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    usual = [Path(f"/run/user/{os.geteuid()}/workron"), secure_files.short_dir()]
    for named, places in {
        "": usual,
        f"/run/user/{os.geteuid()}": usual,
        str(tmp_path): [tmp_path / "workron"],
        str(tmp_path / "missing"): usual,
    }.items():
        monkeypatch.setenv("XDG_RUNTIME_DIR", named)
        assert secure_files.shared_dir_candidates() == places
