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


NO = "no is true or false in some versions of YAML: put it in quotes, or write true or false"


def number(text: str) -> str:
    return f"{text} is not the same number in all versions of YAML: put it in quotes, or write a decimal number"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("no", NO),
        ("011", number("011")),
        ("08", number("08")),
        ("-010", number("-010")),
        ("1:30", number("1:30")),
        ("190:20:30.15", number("190:20:30.15")),
        ("1_000", number("1_000")),
        ("0b11", number("0b11")),
        ("0o17", number("0o17")),
        ("1e3", number("1e3")),
        ("1.5e3", number("1.5e3")),
        ("=", "= is not text in all versions of YAML: put it in quotes"),
    ],
)
@pytest.mark.parametrize("line", ["  x: {}", "  - {}", "  {}: x", "  x: {{<<: {{y: {}}}}}"])
def test_a_value_that_versions_of_yaml_read_differently_was_changed_in_silence(
    value: str, error: str, line: str
) -> None:
    """`timeout: 1:30` was 90, `priority: 011` was 9, and `name: no` was false."""
    with pytest.raises(InvalidRequest) as caught:
        parse(f"jobs: []\nx:\n{line.format(value)}\n", ".yaml", source="f")
    assert str(caught.value) == f"f: line 3: {error}"


@pytest.mark.parametrize("word", ["yes", "No", "ON", "off"])
def test_each_word_for_true_and_false_is_refused_with_advice(word: str) -> None:
    with pytest.raises(InvalidRequest, match=f"line 1: {word} is true or false .* put it in quotes"):
        parse(f"name: {word}\njobs: []\n", ".yaml", source="f")


def test_values_that_all_versions_of_yaml_read_alike_are_taken() -> None:
    values = "[0, -7, 12, 0x1F, 1.5, 1.5e+3, true, False, null, ~, y, n, '011', \"no\", 1h, 10.0.0.1, 2030-01-31, a:b]"
    assert parse(f"jobs: []\nx: {values}\n", ".yaml", source="f")["x"] == [
        *(0, -7, 12, 31, 1.5, 1500.0, True, False, None, None),
        *("y", "n", "011", "no", "1h", "10.0.0.1", "2030-01-31", "a:b"),
    ]


@pytest.mark.parametrize("start", ["[x, x, x, x, x, x, x, x, x]", "{x: x}", "x"])
@pytest.mark.parametrize("member", ["[{}]", "{{<<: [{}]}}"])
def test_five_hundred_bytes_of_aliases_took_minutes_and_gigabytes(start: str, member: str) -> None:
    if "<<" in member and start != "{x: x}":
        start = "{x: x, y: y}"
    lines = [f"a0: &a0 {start}"]
    for level in range(1, 15):
        inner = member.format(", ".join([f"*a{level - 1}"] * 9))
        lines.append(f"a{level}: &a{level} {inner}")
    with pytest.raises(InvalidRequest) as caught:
        parse("\n".join([*lines, "jobs: []"]), ".yaml", source="f")
    assert str(caught.value) == "f: aliases make it larger than 33,554,432 characters"


def test_aliases_of_a_long_text_do_not_multiply_it_without_end() -> None:
    text = f"text: &text {'x' * 10_000}\njobs: []\nmany: [{', '.join(['*text'] * 10_000)}]\n"
    with pytest.raises(InvalidRequest, match="aliases make it larger"):
        parse(text, ".yaml", source="f")


def test_jobs_may_share_what_is_written_once() -> None:
    shared = "\n".join(f"  VARIABLE_{number}: some value of {number}" for number in range(20))
    jobs = "\n".join(f"- {{command: a, env: *env, name: job-{number}}}" for number in range(2_000))
    document = parse(f"env: &env\n{shared}\njobs:\n{jobs}\n", ".yaml", source="f")
    assert {len(job["env"]) for job in document["jobs"]} == {20}


def test_a_value_that_overrides_one_merged_at_another_depth_was_called_a_duplicate() -> None:
    text = """
base: &base {queue: q, priority: 1}
more: &more
  <<: *base
  priority: 2
jobs:
- <<: *more
  priority: 3
  name: a
- {<<: [*more, *base], name: b}
again: *more
"""
    document = parse(text, ".yaml", source="f")
    assert document["jobs"] == [
        {"queue": "q", "priority": 3, "name": "a"},
        {"queue": "q", "priority": 2, "name": "b"},
    ]
    assert document["again"] == {"queue": "q", "priority": 2}


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".yaml", "jobs: [{name: 2030-01-31 18:00:00}]"),
        (".toml", "[[jobs]]\nname = 2030-01-31T18:00:00Z"),
    ],
)
def test_a_name_that_looks_like_a_time_was_written_in_another_form(suffix: str, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text, suffix, source="f")
    assert str(caught.value) == "f: jobs[0].name: a time is not allowed here; put it in quotes if it is text"


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".json", '{"jobs": [{"timeout": 1e400}]}'),
        (".yaml", "jobs: [{timeout: .inf}]"),
        (".toml", "[[jobs]]\ntimeout = inf"),
    ],
)
def test_infinity_is_refused_in_every_format(suffix: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^f: jobs\[0\].timeout: inf is not a JSON number$"):
        parse(text, suffix, source="f")


def test_ten_thousand_jobs_are_read_quickly() -> None:
    text = "jobs:\n" + "".join(f"- {{name: job{n}, command: echo {n}, depends_on: []}}\n" for n in range(10_000))

    assert len(parse(text, ".yaml", source="f")["jobs"]) == 10_000
