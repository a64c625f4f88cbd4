"""`workron up` with stand-ins for api, worker and reaper: starting, keeping, stopping, and surviving its own death."""

import itertools
import os
import resource
import shlex
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.local.probe import alive, answers, command_line, processes_of, shell, wait_for
from tests.local.stack import Stack
from workron.cli.config import load
from workron.local import child_specs, instances, secure_files
from workron.local.supervisor import Backoff
from workron.settings import Settings

pytestmark = pytest.mark.chaos


def test_when_ready_it_says_all_that_one_needs_to_go_on(tmp_path: Path) -> None:
    with Stack(tmp_path, port=0) as stack:
        [ready] = stack.ready().entries("ready")
        port = int(ready["url"].removeprefix("http://127.0.0.1:"))
        socket.create_connection(("127.0.0.1", port)).close()
        assert ready["key"] == str(stack.data_dir / "api-key")
        assert len(Path(ready["key"]).read_text().strip()) == 43
        assert ready["data"] == str(stack.data_dir)
        assert shell(f"{ready['redis']} ping") == "PONG\n"
        assert shlex.split(ready["try"])[-3:] == ["--", "echo", "hello"]


def test_people_get_it_as_lines_to_copy_from(tmp_path: Path) -> None:
    with Stack(tmp_path, log_format="console") as stack:
        wait_for(lambda: "workron is ready" in stack.log(), "ready")
        assert f"  key       {stack.data_dir}/api-key\n" in stack.log()
        assert f"  redis     redis-cli -s {stack.socket}\n" in stack.log()


def test_it_is_found_while_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(secure_files, "short_dir", lambda: tmp_path / "none")
    with Stack(tmp_path) as stack:
        stack.ready()
        [found] = [instance for instance in instances.find() if instance.pid == stack.process.pid]
        assert (found.url, found.data_dir) == (stack.entries("ready")[0]["url"], str(stack.data_dir))
        assert found.key_file == str(stack.data_dir / "api-key")
        assert found.redis == f"unix://{stack.socket}"
        stack.stop()
        assert list((tmp_path / "workron").iterdir()) == []
        assert [instance for instance in instances.find() if instance.pid == stack.process.pid] == []


def test_the_first_signal_stops_the_worker_then_the_api_then_the_rest(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"worker": "drain 0.3"}) as stack:
        stack.ready()
        assert stack.stop() == 0
        steps = [(event.name, event.what) for event in stack.trace() if event.what != "started"]
        assert steps == [
            ("worker", "asked"),
            ("worker", "drained"),
            ("worker", "served"),
            ("worker", "ended"),
            ("api", "asked"),
            ("api", "ended"),
            ("reaper", "asked"),
            ("reaper", "ended"),
        ]
    wait_for(lambda: not processes_of(tmp_path), "the end of everything")


def test_the_server_is_there_until_the_last_child_has_ended(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"reaper": "drain 0.5"}) as stack:
        stack.ready()
        assert stack.stop() == 0
        assert stack.trace("reaper", "served")


def test_one_ctrl_c_that_arrives_twice_is_one(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"worker": "drain 1"}) as stack:
        stack.ready().signal(signal.SIGINT)
        time.sleep(0.1)
        stack.signal(signal.SIGINT)
        assert stack.end() == 0
        assert stack.trace("worker", "drained")


def test_a_second_ctrl_c_half_a_second_later_hurries_everyone(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"worker": "drain 30", "api": "stubborn"}) as stack:
        wait_for(lambda: len(stack.trace(what="started")) == 3, "all are started")
        stack.signal(signal.SIGINT)
        wait_for(lambda: stack.trace("worker", "asked"), "the worker is asked")
        time.sleep(0.6)
        stack.signal(signal.SIGINT)
        assert stack.end() == 0
        assert stack.trace("worker", "hurried")
        assert not any(alive(pid) for pid in stack.pids())


def test_a_child_that_does_not_stop_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"worker": "stubborn"}, grace_s=0.3) as stack:
        stack.ready()
        assert stack.stop() == 0
        [killed] = stack.entries("process did not stop in time, killing it")
        assert killed["child"] == "worker"
        assert not any(alive(pid) for pid in stack.pids())


def test_the_end_of_the_terminal_stops_it_but_not_under_nohup(tmp_path: Path) -> None:
    (tmp_path / "nohup").mkdir()
    with Stack(tmp_path / "nohup", launcher=["nohup"]) as kept, Stack(tmp_path) as stack:
        kept.ready().signal(signal.SIGHUP)
        stack.ready().signal(signal.SIGHUP)
        assert stack.end() == 0
        assert kept.entries("stopping") == []
        assert kept.stop() == 0


def test_a_signal_while_it_starts_is_a_clean_stop(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"api": ""}) as stack:
        wait_for(lambda: stack.trace("api", "started"), "the api is started")
        assert stack.stop() == 0
        assert stack.entries("ready") == []


def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        [first] = stack.ready().trace("worker", "started")
        os.kill(first.pid, signal.SIGKILL)
        wait_for(lambda: len(stack.trace("worker", "started")) == 2, "a new worker")
        [note] = stack.entries("process ended, restarting")
        assert (note["child"], note["how"]) == ("worker", "SIGKILL")
        assert len(stack.trace("api", "started")) == 1
        assert stack.stop() == 0


def test_where_nothing_is_forked_the_first_children_are_programs_too(tmp_path: Path) -> None:
    with Stack(tmp_path, forks=False) as stack:
        assert all(b"stack.py" in command_line(pid) for pid in stack.ready().pids())
        assert stack.stop() == 0


def test_a_child_that_keeps_dying_is_started_more_and_more_slowly(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"worker": "exit 0"}) as stack:
        wait_for(lambda: len(stack.trace("worker", "started")) >= 4, "the fourth start")
        times_s = [event.at_s for event in stack.trace("worker", "started")]
        gaps_s = [later - earlier for earlier, later in itertools.pairwise(times_s)]
        assert gaps_s[0] >= 0.2
        assert gaps_s[1] >= 0.4
        assert gaps_s[2] >= 0.8
        assert stack.stop() == 0


def test_delays_between_starts_have_an_end_and_forget() -> None:
    backoff = Backoff()
    delays_s = [backoff.after(1.0) for _ in range(12)]
    assert delays_s[0] < delays_s[1] < delays_s[2]
    assert delays_s[-1] == delays_s[-2] == 30
    assert backoff.after(3600.0) == delays_s[0]


def test_a_child_that_cannot_even_start_ends_everything_with_its_exit_code(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"api": "exit 7"}) as stack:
        assert stack.end() == 7
        assert stack.log() == "", "more than what the child itself said"
        assert len(stack.trace("api", "started")) == 1
    wait_for(lambda: not processes_of(tmp_path), "the end of everything")


def test_when_the_first_child_cannot_start_no_other_is_tried(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"api": "exit 7"}, first=True) as stack:
        assert stack.end() == 7
        assert {event.name for event in stack.trace()} == {"api"}


def test_after_kill_9_of_the_supervisor_all_end_by_themselves(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"worker": "drain 0.5"}) as stack:
        stack.ready().signal(signal.SIGKILL)
        assert stack.end() == -signal.SIGKILL
        wait_for(lambda: not any(alive(pid) for pid in stack.pids()), "the end of the children")
        assert stack.trace("worker", "drained")
        assert stack.trace("worker", "served")
    wait_for(lambda: not processes_of(tmp_path), "the end of the server")


def test_after_kill_9_the_next_start_finds_everything_while_the_old_worker_still_drains(tmp_path: Path) -> None:
    with Stack(tmp_path, children={"worker": "drain 5", "api": "web 1"}) as stack:
        url = stack.ready().entries("ready")[0]["url"]
        stack.call("SET", "a", "kept")
        stack.signal(signal.SIGKILL)
        stack.end()
    with Stack(tmp_path, port=int(url.rpartition(":")[2])) as stack:
        stack.ready(times=2)
        assert stack.call("GET", "a") == b"kept"
        assert stack.trace("worker", "drained") == []
        wait_for(lambda: stack.trace("worker", "drained"), "the end of the old worker")
        assert stack.call("GET", "a") == b"kept"
        assert stack.stop() == 0


def test_a_killed_server_comes_back_with_its_data_and_the_children_stay(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.ready().call("SET", "a", "kept")
        [server] = [pid for pid in processes_of(stack.socket) if b"valkey-server" in command_line(pid)]
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: stack.entries("embedded server ended, restarting"), "the end is noticed")
        wait_for(lambda: answers(stack.socket), "the server's return")
        assert stack.call("GET", "a") == b"kept"
        assert len(stack.trace(what="started")) == 3
        assert stack.stop() == 0


def test_a_worker_that_is_killed_again_and_again_is_never_long_away(tmp_path: Path) -> None:
    """Jobs may do that, and the others are not to wait for it."""
    with Stack(tmp_path) as stack:
        stack.ready()
        for times in range(1, 7):
            wait_for(lambda times=times: len(stack.trace("worker", "started")) == times, "a worker")
            os.kill(stack.trace("worker", "started")[-1].pid, signal.SIGKILL)
        wait_for(lambda: len(stack.trace("worker", "started")) == 7, "the last worker")
        waits_s = [entry["in_s"] for entry in stack.entries("process ended, restarting")]
        assert waits_s == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_server_without_room_is_started_again_when_there_is_some_and_never_in_a_loop(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        stack.ready()
        for _ in range(2):  # each start runs into the limit again, and no probe tells: it takes a file of that size
            wait_for(lambda: answers(stack.socket), "a server")
            [server] = [pid for pid in processes_of(stack.socket) if b"valkey-server" in command_line(pid)]
            resource.prlimit(server, resource.RLIMIT_FSIZE, (20_000, 20_000))
            assert stack.call("SET", "a", "x" * 50_000) == b""
        wait_for(lambda: len(stack.entries("embedded server restarted")) == 2, "the second return")
        full = stack.entries("embedded server out of disk space, waiting to restart")
        assert [entry["error"].partition(": ")[0] for entry in full] == [
            f"the embedded server can't write to {stack.data_dir}/valkey"
        ] * 2
        away_s = [entry["away_s"] for entry in stack.entries("embedded server restarted")]
        assert away_s[1] >= 0.4, "the pause has not grown"
        assert len(stack.trace(what="started")) == 3
        assert stack.stop() == 0


def test_a_disk_that_is_full_at_the_start_is_one_line(tmp_path: Path) -> None:
    limited = ("prlimit", "--fsize=400")
    with Stack(tmp_path, launcher=limited) as stack:
        assert stack.end() == 8
        assert stack.log().startswith("workron: ")
        assert len(stack.log().splitlines()) == 1


def test_a_taken_port_is_one_line_and_nothing_was_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Stack(tmp_path, port=port) as stack:
            assert stack.end() == 8
            assert stack.log() == f"workron: port {port} on 127.0.0.1 is taken; choose another one with --port\n"
            assert stack.trace() == []
            assert not stack.socket.exists()


def test_an_address_of_another_machine_is_one_line(tmp_path: Path) -> None:
    with Stack(tmp_path, host="192.0.2.1", port=8080) as stack:
        assert stack.end() == 8
        assert stack.log().startswith("workron: can't listen on 192.0.2.1, port 8080: ")
        assert stack.log().count("\n") == 1


def test_a_second_one_on_the_same_directory_is_one_line_that_names_the_first(tmp_path: Path) -> None:
    with Stack(tmp_path) as first:
        first.ready()
        first.log_file = tmp_path / "log of the first"
        (tmp_path / "log").rename(first.log_file)
        with Stack(tmp_path) as second:
            assert second.end() == 8
            line = f"workron: {first.data_dir} is in use by another workron up (pid {first.process.pid})\n"
            assert second.log() == line
        assert first.call("PING") == b"+PONG"
        assert first.stop() == 0


def test_with_a_server_of_ones_own_none_is_started(tmp_path: Path) -> None:
    with Stack(tmp_path, redis="redis://127.0.0.1:1/0") as stack:
        [ready] = stack.ready().entries("ready")
        assert ready["redis"] == "your own server"
        assert not stack.socket.parent.exists()
        assert stack.stop() == 0


# --- The real children, as data


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


def test_children_get_exactly_the_settings_of_their_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(
        redis="redis://:secret@localhost/1",
        allowed_hosts=["a.example", "b.example"],
        queues=["x", "y"],
        lease="90s",
        retry_delay="0.1s",
        slots=3,
        data_dir=tmp_path / "ünïcode dir",
        log_level="debug",
    )
    environment = child_specs.environment(given)
    for name in [name for name in os.environ if name.startswith("WORKRON_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert load({}) == given


def test_a_variable_that_a_flag_overrode_does_not_reach_the_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKRON_SLOTS", "7")
    monkeypatch.setenv("workron_redis", "redis://elsewhere")
    environment = child_specs.environment(settings(slots=2, redis=None))
    assert environment["WORKRON_SLOTS"] == "2"
    assert "redis://elsewhere" not in environment.values()


def test_secrets_stand_in_no_command_line_and_the_key_only_with_the_api() -> None:
    given = settings(redis="redis://:hunter2-hunter2@localhost/1", api_key=SecretStr("given-key-given-key"))
    family = child_specs.specs(given, "the-key-the-key-the-key", embedded=False)
    assert [spec.name for spec in family] == ["api", "reaper", "worker"]
    for spec in family:
        assert spec.argv == (sys.executable, "-m", "workron", spec.name)
        assert spec.env["WORKRON_REDIS"] == "redis://:hunter2-hunter2@localhost/1"
        assert spec.env.get("WORKRON_API_KEY") == ("the-key-the-key-the-key" if spec.name == "api" else None)


def test_without_slots_there_is_no_worker() -> None:
    assert [spec.name for spec in child_specs.specs(settings(slots=0), None, embedded=True)] == ["api", "reaper"]


def test_a_worker_may_use_all_of_its_grace_before_it_is_killed() -> None:
    given = settings(drain_timeout="100s", kill_grace="20s")
    [worker] = [spec for spec in child_specs.specs(given, None, embedded=True) if spec.name == "worker"]
    assert worker.stop_grace_s > 120
