"""docs/keys.md shows the key schema by which the doctor checks all keys."""

import re
from pathlib import Path
from typing import Final

import pytest

from tools import key_docs
from tools.generate import ROOT
from workron.doctor.key_schema import GROUPS, shape_of
from workron.models.job_fields import STORED
from workron.redis.keys import Keys

ID: Final = "0" * 22
PAGE: Final = ROOT / "docs" / "keys.md"


def test_the_page_about_keys_has_a_table_for_each_group_of_the_schema() -> None:
    assert [each["heading"] for each in key_docs.SECTION.finditer(PAGE.read_text())] == [*GROUPS]


def test_a_changed_row_of_the_page_about_keys_is_written_again() -> None:
    text = PAGE.read_text()
    assert key_docs.page(text.replace("all job ids", "some job ids")) == text


def test_the_page_about_keys_names_each_plain_field_of_a_job() -> None:
    page = PAGE.read_text()
    table = page[page.index("### Fields of a job") : page.index("## Queues")]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    named = {field for row in rows for field in re.findall(r"`([^`]+)`", row)}
    assert {field.stored for field in STORED} - named == set()


def test_each_key_that_python_spells_is_in_the_schema() -> None:
    keys = Keys("made-up")
    special = {
        "output": keys.output(ID, "7"),
        "pending": keys.pending("q", 5),
        "index": keys.index("q", "done"),
        "in_line": keys.in_line("k", "q"),
        "idempotency": keys.idempotency("scope:key"),
    }
    fixed = {name: key for name, key in vars(keys).items() if name != "prefix"}
    methods = {name for name in vars(Keys) if not name.startswith("_")} - {*special}
    spelled = fixed | special | {name: getattr(keys, name)(ID) for name in methods}
    unknown = {name for name, key in spelled.items() if shape_of(key.removeprefix(keys.prefix), "hash") is None}
    assert unknown == {"cancels", "guard"}, "a channel, and a key that never exists"


@pytest.mark.parametrize(
    ("name", "type_", "template"),
    [
        (f"job:{ID}", "hash", "job:<id>"),
        ("job:1", "hash", None),
        (f"job:{ID}:output:7", "string", "job:<id>:output:<fence>"),
        ("concurrency:k", "hash", "concurrency:<key>"),
        ("concurrency:k:running", "zset", "concurrency:<key>:running"),
        ("concurrency:k:running", "hash", "concurrency:<key>"),
        ("idempotency::k", "string", "idempotency:<api key>:<key>"),
        ("unknown", "hash", None),
    ],
)
def test_the_kind_of_a_key_follows_from_its_name_and_else_from_its_type(
    name: str, type_: str, template: str | None
) -> None:
    shape = shape_of(name, type_)
    assert (shape and shape.name) == template


@pytest.mark.parametrize("file", sorted((ROOT / "lua").rglob("*.lua")), ids=lambda path: path.name)
def test_each_first_word_of_a_key_that_lua_spells_is_in_the_schema(file: Path) -> None:
    words = {each.name.partition(":")[0] for group in GROUPS.values() for each in group}
    assert set(re.findall(r"\bP \.\. '([a-z-]+)", file.read_text())) - words == set()
