"""Workflow files, format by format."""

import pytest

from workron.client.workflow_file import parse
from workron.errors import InvalidRequest


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".json", '{"jobs": [', "f: line 1, column 11: Expecting value"),
        (".json", '{"jobs": [], "jobs": []}', "f: duplicate key 'jobs'"),
        (".json", '{"jobs": [{"timeout": NaN}]}', "f: NaN is not JSON"),
        (".json", "[" * 100_000, "f: nested too deeply"),
        (".yaml", "jobs: [\n", "f: line 2, column 1: did not find expected node content"),
        (".yaml", "jobs:\n\t- x", "f: line 2, column 1: found character that cannot start any token"),
        (".yaml", "jobs:\n- name: a\n  name: b\n", "f: line 2: duplicate key 'name'"),
        (".yaml", "jobs: !!python/object:os.system x", "f: line 1, column 7: could not determine a constructor"),
        (".yaml", "jobs: &a [*a]", "f: nested too deeply"),
        (".yaml", "jobs: [{run_at: 2030-13-45}]", "f: month must be in 1..12"),
        (".yaml", "jobs: [{name: !!binary aGk=}]", "f: jobs[0].name: bytes is not allowed here"),
        (".yaml", "jobs: [{env: {1: x}}]", "f: jobs[0].env: the key 1 must be a string"),
        (".yaml", "jobs: \x00", "f: "),
        (".yaml", "", "f: a workflow is a mapping with a list `jobs`"),
        (".yml", "- a\n- b\n", "f: a workflow is a mapping with a list `jobs`"),
        (".yaml", "jobs: [a]", "f: jobs[0] must be a mapping"),
        (".toml", "jobs = [1,\nx", "f: "),
        (".toml", "[jobs]\n", "f: a workflow is a mapping with a list `jobs`"),
        (".txt", "jobs: []", "f: the name of a workflow file must end in .json, .yaml, .yml, .toml"),
    ],
)
def test_an_error_is_reported_in_one_line_with_its_place(suffix: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text, suffix, source="f")

    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".yaml", "jobs: [{run_at: 2030-01-31T18:00:00+01:00}]"),
        (".yaml", "jobs: [{run_at: '2030-01-31T17:00:00.000Z'}]"),
        (".toml", "[[jobs]]\nrun_at = 2030-01-31T18:00:00+01:00"),
    ],
)
def test_times_become_rfc_3339(suffix: str, text: str) -> None:
    assert parse(text, suffix, source="f") == {"jobs": [{"run_at": "2030-01-31T17:00:00.000Z"}]}


def test_without_a_suffix_a_brace_distinguishes_json_from_yaml() -> None:
    assert parse('  {"jobs": [{"name": "a"}]}', "", source="f") == {"jobs": [{"name": "a"}]}
    assert parse("jobs:\n- name: a\n", "", source="f") == {"jobs": [{"name": "a"}]}


def test_anchors_and_merge_keys_of_yaml_work() -> None:
    text = "base: &base {queue: q, priority: 1}\njobs:\n- {<<: *base, name: a, priority: 2}\n"

    assert parse(text, ".yaml", source="f")["jobs"] == [{"queue": "q", "priority": 2, "name": "a"}]


def test_ten_thousand_jobs_are_read_quickly() -> None:
    text = "jobs:\n" + "".join(f"- {{name: job{n}, command: echo {n}, depends_on: []}}\n" for n in range(10_000))

    assert len(parse(text, ".yaml", source="f")["jobs"]) == 10_000
