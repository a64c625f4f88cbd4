"""The shape of the repository: what lies where, and what is shipped; `.importlinter` says what may import what."""

import ast
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import workron
from tests.local_stack import ROOT

PACKAGES = ["api", "lua", "reaper", "workers", "workron"]
FIXED = {"pyproject.toml", "compose.yaml", "api", "workers", "reaper", "lua", "tests"}
"""Top-level names that the customer set."""
OTHERS = {
    *(".ci", ".dockerignore", ".gitignore", ".importlinter", "Dockerfile", "Makefile"),
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"),
    *("bench", "docs", "examples", "tools", "workron"),
}
MAY_SPELL_KEYS = re.compile(r"workron/redis/keys\.py|workron/doctor/\w+\.py")
"""The doctor goes over all keys by their names."""
KEY_NAME = re.compile(
    r"workron:\{|(^|:)(job|queue|worker|batch|workflow|idempotency|unique|limit|rate|schedule):(\S|$)"
)
MOST_LINES = 350
REGISTRY = re.compile(r"https?://[^/\s\"']*(pypi|pythonhosted|registry|mirror|npm|debian)|index[-_]url\s*=")
MACHINE_PATH = re.compile(r"(?<![\w.-])/(work|farm|root|home/\w+)/(?!\.cache/uv)|/opt/(pypi|wheels)|pyenv/")


def kept_files() -> list[Path]:
    """Return all files that are, or would be, in git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


FILES = kept_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]
PRODUCT = [path for path in PYTHON if path.relative_to(ROOT).parts[0] in PACKAGES]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_top_level_holds_what_the_customer_set_and_no_strangers() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in FILES}
    assert top >= FIXED
    assert top - FIXED - OTHERS == set()


def test_key_names_are_spelled_in_one_place() -> None:
    spelled = {
        (name_of(path), text)
        for path in PRODUCT
        for text in string_constants(path.read_text())
        if KEY_NAME.search(text)
    }
    assert {(name, text) for name, text in spelled if not MAY_SPELL_KEYS.fullmatch(name)} == set()


def string_constants(code: str) -> Iterator[str]:
    """Yield the strings of a module, also the fixed parts of f-strings, but no docstrings."""
    tree = ast.parse(code)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def test_the_rule_about_key_names_finds_them() -> None:
    code = '"""job:1 in a docstring"""\nprint(f"{prefix}job:{id}", "no such job: x", "workron:{a}:meta", "queue:")'
    assert {each for each in string_constants(code) if KEY_NAME.search(each)} == {
        *("job:", "workron:{a}:meta", "queue:")
    }


def test_no_module_is_long() -> None:
    modules = [path for path in FILES if path.suffix in {".py", ".lua"}]
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in modules}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_file_names_a_registry_or_a_path_of_some_machine() -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in FILES
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if REGISTRY.search(line) or MACHINE_PATH.search(line)
    ]
    assert found == []


def test_there_is_one_version() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == workron.__version__
    assert f'image.version="{workron.__version__}"' in (ROOT / "Dockerfile").read_text()
    assert f"image: localhost/workron:{workron.__version__}\n" in (ROOT / "compose.yaml").read_text()
    assert f"## [{workron.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_holds_the_scripts_and_the_types_but_no_tests(tmp_path: Path) -> None:
    subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    wanted = {name_of(path) for path in FILES if path.relative_to(ROOT).parts[0] in PACKAGES}
    assert {"lua/attempt_claim.lua", "lua/lib/core.lua", "workron/py.typed"} <= wanted
    metadata = {name for name in shipped if ".dist-info/" in name}
    assert shipped - metadata == wanted
    assert any(name.endswith("licenses/LICENSE") for name in metadata)
