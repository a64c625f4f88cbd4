"""Two `workron up` on one data directory: the second says in one line that there is one, and the first goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.up import Up
from tests.local.probe import wait_for
from tests.local_stack import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.chaos]


class Another:
    """Another `up` on the directory of the first, on a port of its own."""

    def __init__(self, first: Up, log: Path, data_dir: Path) -> None:
        self.log = log
        env = first.environment | {
            "WORKRON_LOG_FORMAT": "json",
            "WORKRON_PORT": str(free_port()),
            "WORKRON_DATA_DIR": str(data_dir),
        }
        command = [sys.executable, "-m", "workron", "up", "--slots", "1"]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT)

    def said(self) -> str:
        return self.log.read_text()


@pytest.mark.parametrize("way", ["by its name", "by a symbolic link"])
def test_a_second_up_on_the_directory_ends_with_one_line_and_disturbs_nothing(tmp_path: Path, way: str) -> None:
    with Up(tmp_path, "--slots", "1") as up:
        up.start()
        before = up.pids
        running = up.http.post("/jobs", json={"command": "sleep 1; echo whole"}).json()["id"]
        data_dir = up.data_dir
        if way == "by a symbolic link":
            data_dir = tmp_path / "link"
            data_dir.symlink_to(up.data_dir)
        second = Another(up, tmp_path / "second.log", data_dir)
        assert second.process.wait(60) == 8
        assert second.said() == f"workron: {data_dir} is in use by another workron up (pid {before['supervisor']})\n"
        assert up.http.get(f"/jobs/{running}", params={"wait": 20}).json()["status"] == "done"
        assert up.http.get(f"/jobs/{running}/output").content == b"whole\n"
        assert up.pids == before


def test_of_several_that_are_started_together_one_runs(tmp_path: Path) -> None:
    first = Up(tmp_path)
    others = [Another(first, tmp_path / f"{at}.log", first.data_dir) for at in range(3)]
    try:
        wait_for(lambda: sum(one.process.poll() is None for one in others) == 1, "the end of all but one", within_s=60)
        (winner,) = (one for one in others if one.process.poll() is None)
        wait_for(
            lambda: '"event": "ready"' in winner.said() or winner.process.poll() is not None, "it is ready", within_s=60
        )
        assert winner.process.poll() is None, winner.said()
        for loser in others:
            if loser is not winner:
                assert loser.process.wait(10) == 8
                assert len(loser.said().splitlines()) == 1
                assert "is in use by another workron up" in loser.said()
    finally:
        for one in others:
            one.process.terminate()
        assert [one.process.wait(60) for one in others].count(0) == 1
