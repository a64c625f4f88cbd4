"""What the documents point at exists: links, anchors and files. The design pages share one form."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE: Final = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
FILE: Final = re.compile(r"`((?:api|bench|docs|examples|lua|reaper|tests|workers|workron)/[\w./-]+\.\w+)(?:::(\w+))?`")
HEADINGS: Final = ["Problem", "Mechanism", "Invariant", "Tests"]
MOST_LINES: Final = 150
"""ARCHITECTURE.md is read in one go; details belong in docs/design."""
DESIGN: Final = sorted((ROOT / "docs" / "design").glob("*.md"))


def documents() -> list[Path]:
    """Return all Markdown files that are, or would be, in git, without the history."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return sorted({ROOT / name for name in names if name and name != "CHANGELOG.md" and (ROOT / name).is_file()})


def anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(document: Path, target: str) -> bool:
    if re.match(r"https?:", target):
        return False
    name, _, anchor = target.partition("#")
    file = (document.parent / name).resolve() if name else document
    return not file.exists() or (anchor != "" and anchor not in anchors(file.read_text()))


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(CODE.sub("", document.read_text()))
    assert [target for target in targets if broken(document, target)] == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_and_tests_that_are_named_exist(document: Path) -> None:
    missing = [
        f"{file}::{test}" if test else file
        for file, test in FILE.findall(document.read_text())
        if not (ROOT / file).is_file() or (test and f"def {test}(" not in (ROOT / file).read_text())
    ]
    assert missing == []


@pytest.mark.parametrize("page", DESIGN, ids=lambda path: path.stem)
def test_a_design_page_names_problem_mechanism_invariant_and_tests(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert re.search(r"`tests/[\w/]+\.py`", text.partition("## Tests")[2])


def test_the_architecture_links_each_design_page() -> None:
    linked = re.findall(r"\(docs/design/([\w-]+)\.md\)", (ROOT / "ARCHITECTURE.md").read_text())
    assert sorted(set(linked)) == [page.stem for page in DESIGN]


def test_the_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= MOST_LINES


def test_a_link_to_no_file_or_heading_is_found() -> None:
    readme = ROOT / "README.md"
    assert [target for target in ["SECURITY.md", "SECURITY.md#nowhere", "nowhere.md"] if broken(readme, target)] == [
        "SECURITY.md#nowhere",
        "nowhere.md",
    ]
