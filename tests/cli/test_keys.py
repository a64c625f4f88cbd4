"""API keys and the record from the command line."""

import re

from tests.command_line import Answer, CommandLine, ScriptedApi


def test_a_key_is_made_used_listed_and_revoked(workron: CommandLine) -> None:
    made = workron("keys", "create", "ci", "--scope", "submit", "--scope", "read", "--queue", "builds", "--ttl", "1h")
    key = made.out.strip()
    assert made.code == 0
    assert re.fullmatch(r"wk1\.[0-9A-Za-z]{22}\.[\w-]{43}", key)
    assert "this key is shown only once" in made.err

    job = workron("submit", "--queue", "builds", "true", WORKRON_API_KEY=key)
    assert job.code == 0
    assert workron("show", job.out.strip(), WORKRON_API_KEY=key).code == 0
    refused = workron("submit", "true", WORKRON_API_KEY=key)
    assert (refused.code, refused.err) == (6, "workron: this key has no access to the queue default\n")
    assert workron("keys", WORKRON_API_KEY=key).code == 6

    [listed] = [one for one in workron("keys", "-o", "json").document if one["name"] == "ci"]
    assert (listed["scopes"], listed["queues"], listed["state"]) == (["read", "submit"], ["builds"], "active")
    assert "key" not in listed
    assert "builds" in workron("keys", "list").out

    assert workron("keys", "revoke", listed["id"]).code == 0
    assert workron("ls", "--queue", "builds", WORKRON_API_KEY=key).code == 6
    assert workron("keys", "revoke", listed["id"]).code == 3


def test_the_audit_log_is_listed(workron: CommandLine) -> None:
    made = workron("keys", "create", "told", "--scope", "read", "-o", "json").document
    job = workron("submit", "true").out.strip()
    assert workron("cancel", job, WORKRON_API_KEY=made["key"]).code == 6

    def told() -> list[tuple[str, str, int]]:
        entries = workron("audit", "--limit", "1000", "-o", "json").document
        return [(entry["key_name"] or entry["key"], entry["action"], entry["status"]) for entry in entries]

    expected = [("told", "cancel_job", 403), ("master", "submit_job", 201), ("master", "create_key", 201)]
    while told()[:1] != expected[:1]:  # it is written a moment after the answer
        pass
    assert told()[:3] == expected
    assert "cancel_job" in workron("audit").out


def test_an_unknown_scope_and_a_taken_name_are_reported(workron: CommandLine) -> None:
    ran = workron("keys", "create", "x", "--scope", "root")
    assert ran.code == 2
    assert "'root' is not one of 'read', 'submit', 'work', 'admin'" in ran.err
    assert workron("keys", "create", "x").code == 2
    assert workron("keys", "create", "--scope", "read", "--", "--flag").code == 2
    assert workron("keys", "create", "x", "--scope", "admin", "--queue", "a").code == 2
    assert workron("keys", "create", "twice", "--scope", "read").code == 0
    again = workron("keys", "create", "twice", "--scope", "read")
    assert again.code == 4
    assert "there is a key named twice" in again.err


def test_names_in_the_record_cannot_steer_the_terminal(scripted: CommandLine, api: ScriptedApi) -> None:
    entry = {"id": "1-0", "at": "2030-01-01T00:00:00.000Z", "key": "master", "key_name": None, "status": 404}
    evil = {"action": "delete_job", "target": "\x1b]0;pwned\x07\nroot", "address": "127.0.0.1"}
    api.script(Answer({"data": [entry | evil], "next_cursor": None}))
    shown = scripted("audit", COLUMNS="200").out
    assert "\\x1b]0;pwned\\x07\\nroot" in shown
