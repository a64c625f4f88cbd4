"""Every clone resolves to the same versions, although uv.lock is not kept."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXACT = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)(?:\s*;.*)?")


def pins(constraints: list[str]) -> set[tuple[str, str]]:
    exact = {constraint: EXACT.fullmatch(constraint) for constraint in constraints}
    assert all(exact.values()), f"not exact: {[each for each, match in exact.items() if not match]}"
    return {(match[1], match[2]) for match in exact.values() if match}


def test_every_package_that_a_fresh_clone_resolves_has_an_exact_version(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run(["uv", "lock", "--quiet"], cwd=tmp_path, check=True)
    lock = tomllib.loads((tmp_path / "uv.lock").read_text())
    resolved = {(each["name"], each["version"]) for each in lock["package"] if "editable" not in each["source"]}
    pinned = pins(PYPROJECT["tool"]["uv"]["constraint-dependencies"])
    assert resolved - pinned == set(), "resolved but not pinned; run `make pins`"
    assert pinned - resolved == set(), "pinned but not resolved any more; run `make pins`"


def test_the_build_backend_has_an_exact_version() -> None:
    wanted = {re.split(r"[<>=]", each)[0] for each in PYPROJECT["build-system"]["requires"]}
    pinned = {name for name, _ in pins(PYPROJECT["tool"]["uv"]["build-constraint-dependencies"])}
    assert wanted <= pinned
