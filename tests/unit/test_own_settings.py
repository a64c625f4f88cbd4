"""The tests run next to the user's own Workron."""

import os
import subprocess
import sys

from tests.local_stack import ROOT


def test_settings_of_the_user_reached_the_processes_that_tests_start() -> None:
    own = {"WORKRON_URL": "http://127.0.0.1:1", "WORKRON_API": "http://127.0.0.1:1", "WORKRON_TEST_SERVERS": "fake"}
    code = "import os, tests.conftest; print(*(name for name in os.environ if name.startswith('WORKRON_')))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ | own
    )
    assert "WORKRON_TEST_SERVERS" in ran.stdout.split()
    assert not {"WORKRON_URL", "WORKRON_API"} & set(ran.stdout.split())
