"""What the command of a workflow's job knows of its workflow."""

import os

from workers.command import allowed_environment, program_for
from workron.models import Claim

CLAIM = Claim("job", 1, 1, 1000, "default", command="true")


def test_only_jobs_of_workflows_have_a_workflow_and_a_token() -> None:
    told = {"workflow": "flow", "token": "wf1.x"}
    claim = Claim("job", 1, 1, 1000, "default", told, command="true", env={"WORKRON_TOKEN": "own"})
    env = program_for(claim, {}, "guard").env
    assert (env[b"WORKRON_WORKFLOW_ID"], env[b"WORKRON_TOKEN"]) == (b"flow", b"wf1.x")
    assert not {b"WORKRON_WORKFLOW_ID", b"WORKRON_TOKEN"} & program_for(CLAIM, {}, "guard").env.keys()


def test_commands_know_the_api_but_not_the_keys_of_their_worker() -> None:
    secret = {b"WORKRON_TOKEN": b"x", b"WORKRON_API_KEY": b"x", b"WORKRON_REDIS": b"x"}
    seen = allowed_environment({**os.environb, **secret, b"WORKRON_URL": b"http://127.0.0.1:1"})
    assert seen[b"WORKRON_URL"] == b"http://127.0.0.1:1"
    assert not secret.keys() & seen.keys()
