"""A plain field is declared once: the shapes of a job have it, and a made-up one is a change of few product files."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest

from api import schemas
from api.worker_calls.documents import ShortClaim
from tests.local_stack import ROOT
from workron import models
from workron.client.documents import JobDoc
from workron.models.job_fields import DESCRIBED, EXECUTION, FILTERABLE, STORED, JobField
from workron.specs.job import NewJob

PRODUCT: Final = ("api", "lua", "reaper", "workers", "workron")
DECLARATION: Final = """
    nice: int = _plain(
        "whole",
        0,
        least=-20,
        most=19,
        description="The niceness of the command.",
        option=Option("N", "niceness of the command, from -20 to 19 (default: 0)"),
        filterable=True,
    )
"""
"""Of a made-up field: a submission sets it, it is stored and shown, lists find jobs by it, and workers get it."""


@pytest.mark.parametrize("field", STORED, ids=lambda field: field.name)
def test_what_is_stored_is_shown(field: JobField) -> None:
    assert hasattr(models.Job, field.name)
    assert field.shown in schemas.Job.model_fields
    assert field.shown in get_type_hints(JobDoc)
    document = schemas.new_job_document(models.NewJob("1" * 22), 0)
    assert field.shown in document


@pytest.mark.parametrize("field", DESCRIBED, ids=lambda field: field.name)
def test_what_describes_a_job_is_part_of_a_submission(field: JobField) -> None:
    assert field.shown in NewJob.model_fields
    assert hasattr(models.NewJob, field.name)


@pytest.mark.parametrize("field", EXECUTION, ids=lambda field: field.name)
def test_what_a_worker_needs_is_part_of_a_claim(field: JobField) -> None:
    assert hasattr(models.Claim, field.name)
    assert field.shown in ShortClaim.model_fields


def test_the_name_filters_lists() -> None:
    assert "name" in {field.name for field in FILTERABLE}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the product in which `nice` is declared."""
    copy = tmp_path_factory.mktemp("nice")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in (*PRODUCT, "tools", "docs", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    table = copy / "workron" / "models" / "job_fields.py"
    before, end, after = table.read_text().partition(
        "\n\n\n@dataclass(slots=True, kw_only=True, init=False, eq=False, repr=False)\nclass Described"
    )
    table.write_text(f"{before}{DECLARATION.rstrip()}{end}{after}")
    assert run(copy, "-m", "tools.generate").count("wrote") >= 1
    return copy


def run(tree: Path, *args: str) -> str:
    """Return what a program in this tree prints."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    command = [sys.executable, *args]
    ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_made_up_field_is_a_change_of_at_most_4_product_files(tree: Path) -> None:
    files = [path.relative_to(tree) for name in PRODUCT for path in (tree / name).rglob("*") if path.is_file()]
    changed = [
        str(file)
        for file in files
        if not (ROOT / file).exists() or not filecmp.cmp(ROOT / file, tree / file, shallow=False)
    ]
    assert "workron/models/job_fields.py" in changed
    assert len(changed) <= 4, changed


WAY: Final = """
import asyncio, json
import orjson
from api import schemas
from api.routes.jobs import ListQuery
from api.worker_calls.documents import _short_claim
from tests.builders import claim
from tests.servers import Bench
from workers.http_source import _claim
from workron import models
from workron.specs.job import NewJob

async def main():
    bench = Bench("fake", None, "nice")
    store = bench.store()
    given = [{"nice": 7}, {}, {"array": {"size": 1}, "nice": -20}]
    bodies = [NewJob.model_validate_json(json.dumps({"command": "true"} | body)) for body in given]
    jobs = [body.to_new_job(f"{number:022}", ()) for number, body in enumerate(bodies)]
    await store.submit(jobs)
    found = {"new": [schemas.new_job_document(job, 1)["nice"] for job in jobs]}
    found["hash"] = [await bench.client.hget(bench.keys.job(job.id), "nice") for job in jobs]
    found["hash"] = [value and value.decode() for value in found["hash"]]
    found["shown"] = [schemas.job_document(await store.job(job.id))["nice"] for job in jobs]
    for wanted in (7, 0):
        page = await store.list_jobs(ListQuery(nice=str(wanted)).where)
        found[f"list {wanted}"] = sorted({job.id for job in page.jobs} & {job.id for job in jobs})
    claims = await claim(store, limit=3)
    found["claims"] = [one.nice for one in claims]
    found["http"] = [_claim(orjson.loads(orjson.dumps(_short_claim(one)))).nice for one in claims]
    await bench.aclose()
    print(json.dumps(found))

asyncio.run(main())
"""


def test_a_made_up_field_goes_all_the_way_from_a_submission_to_the_worker(tree: Path) -> None:
    found: dict[str, Any] = json.loads(run(tree, "-c", WAY))
    plain, other = "0" * 22, "0" * 21 + "1"
    assert found == {
        "new": [7, 0, -20],
        "hash": ["7", None, "-20"],
        "shown": [7, 0, -20],
        "list 7": [plain],
        "list 0": [other],
        "claims": [7, 0, -20],
        "http": [7, 0, -20],
    }


def test_a_made_up_field_is_checked(tree: Path) -> None:
    program = "from workron.specs.job import NewJob; NewJob(command='x', nice={})"
    run(tree, "-c", program.format(19))
    with pytest.raises(AssertionError, match="less than or equal to 19"):
        run(tree, "-c", program.format(20))


@pytest.mark.parametrize("command", ["submit", "run", "ls"])
def test_a_made_up_field_is_an_option(tree: Path, command: str) -> None:
    assert "--nice" in run(tree, "-m", "workron", command, "--help")


def test_a_made_up_field_is_documented(tree: Path) -> None:
    program = "import json; from api import schemas; print(json.dumps(schemas.Job.model_json_schema()))"
    job = json.loads(run(tree, "-c", program))
    assert job["properties"]["nice"] == {
        "description": "The niceness of the command.",
        "title": "Nice",
        "type": "integer",
    }
