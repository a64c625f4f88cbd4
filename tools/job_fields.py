"""Source that follows from the plain fields of a job: the options, and what a claim reads."""

import json
import subprocess
import sys
from typing import Final

from workron.models.job_fields import DESCRIBED, EXECUTION, FILTERABLE, JobField, Kind, Option

_ORIGIN: Final = "written by `make generate` from workron/models/job_fields.py"
_PARSED: Final[dict[Kind, str]] = {
    "whole": "type=NUMBER",
    "duration": "type=DURATION",
    "flag": "is_flag=True, default=None",
    "texts": "multiple=True",
}
_FORMAT: Final = (sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "-")


def options(_: str) -> str:
    """Return the options of the plain fields of a job, and the filters of `ls`."""
    options = [_option(field, field.option) for field in sorted(DESCRIBED, key=EXECUTION.__contains__) if field.option]
    shown = ", ".join(f'"{field.shown}"' for field in DESCRIBED)
    return _formatted(f'''"""The plain fields of a job as options: {_ORIGIN}."""

from typing import Final

import click

from workron.cli.values import DURATION, NUMBER

PLAIN: Final = (
{"".join(options)})
"""Each sends the field for which it is named."""
FILTERS: Final = (
{"".join(map(_filter, FILTERABLE))})
"""Of `ls`."""
FIELDS: Final = ({shown})
"""What `show` shows in a row of its own, unless it has a better form for it."""
''')


def _formatted(source: str) -> str:
    ran = subprocess.run(_FORMAT, input=source, text=True, capture_output=True, check=True)  # noqa: S603 - it is ruff
    return ran.stdout


def _option(field: JobField, option: Option) -> str:
    flag = option.flag or f"--{field.shown.replace('_', '-')}"
    names = [flag] if flag[2:].replace("-", "_") == field.shown else [flag, field.shown]
    return _call(field, names, option.metavar, option.help)


def _filter(field: JobField) -> str:
    metavar = field.option.metavar if field.option else field.shown.upper()
    return _call(field, [f"--{field.shown.replace('_', '-')}"], metavar, f"only jobs with this {field.shown}")


def _call(field: JobField, names: list[str], metavar: str, help: str) -> str:
    parts = [*map(_text, names), f"metavar={_text(metavar)}", _PARSED.get(field.kind, ""), f"help={_text(help)}"]
    arguments = ", ".join(part for part in parts if part)
    return f"click.option({arguments}), "


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def claimed(_: str) -> str:
    """Return the names of the fields that a worker gets, for the scripts."""
    names = ", ".join(f"'{field.stored}'" for field in EXECUTION)
    return f"""-- job_fields: the plain job fields that a claim returns, {_ORIGIN}.

local JOB_FIELDS = {{ CLAIMED = {{ {names} }} }}
"""
