"""Refresh the exact versions in pyproject.toml: resolve everything anew, then write down what came out.

`uv.lock` itself is not kept in git because it names the registry it was made with; these constraints give
every clone the same versions. Run by `make pins`.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PYPROJECT: Final = ROOT / "pyproject.toml"
BLOCK: Final = re.compile(r"(?<=# pins: begin\n).*?(?=# pins: end\n)", re.DOTALL)
PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")


def main() -> None:
    before = PYPROJECT.read_text()
    try:
        write_block("")
        run("uv", "lock", "--upgrade", "--quiet")
        lock = tomllib.loads((ROOT / "uv.lock").read_text())
        write_block(render(pin_groups(lock), build_pins()))
        run("uv", "lock", "--quiet")
    except BaseException:
        PYPROJECT.write_text(before)
        raise
    if before == PYPROJECT.read_text():
        print("pyproject.toml: every version is still the newest that fits")
    else:
        print("pyproject.toml: versions changed; look at `git diff pyproject.toml` and run `make check`")


def pin_groups(lock: dict[str, Any]) -> dict[str, list[str]]:
    """Return the pins of a lock file under a heading each."""
    packages = {package["name"]: package for package in lock["package"]}
    project = next(package for package in lock["package"] if "editable" in package["source"])
    imported = names(project.get("dependencies", []))
    needed = reach(imported, packages)
    tools = {name for group in project.get("dev-dependencies", {}).values() for name in names(group)}
    members = {
        "what Workron imports": imported,
        "what those need": needed - imported,
        "development: tools and test libraries": tools - needed,
        "development: what those need": packages.keys() - needed - tools - {project["name"]},
    }
    return {
        heading: [pin(package) for package in lock["package"] if package["name"] in group]
        for heading, group in members.items()
    }


def pin(package: dict[str, Any]) -> str:
    """Return one constraint; a package that is resolved differently per platform carries its markers."""
    markers = " or ".join(f"({marker})" for marker in package.get("resolution-markers", []))
    return f"{package['name']}=={package['version']}" + (f" ; {markers}" if markers else "")


def names(requirements: list[dict[str, Any]]) -> set[str]:
    return {requirement["name"] for requirement in requirements}


def reach(start: set[str], packages: dict[str, dict[str, Any]]) -> set[str]:
    """Return these packages and all that they need, directly or not."""
    found: set[str] = set()
    to_visit = list(start)
    while to_visit:
        name = to_visit.pop()
        if name not in found:
            found.add(name)
            to_visit += names(packages[name].get("dependencies", []))
    return found


def build_pins() -> list[str]:
    """Return exact versions of the build backend and what it needs (these never reach uv.lock)."""
    wanted = tomllib.loads(PYPROJECT.read_text())["build-system"]["requires"]
    resolved = run("uv", "pip", "compile", "--universal", "--no-header", "--no-annotate", "-", given="\n".join(wanted))
    return [line for line in resolved.splitlines() if PIN.match(line)]


def render(groups: dict[str, list[str]], build: list[str]) -> str:
    lines = ["constraint-dependencies = ["]
    for heading, pins in groups.items():
        lines += [f"    # {heading}", *(f"    {toml_string(each)}," for each in pins)]
    lines += [
        "]",
        "build-constraint-dependencies = [",
        *(f"    {toml_string(each)}," for each in build),
        "]",
        "",
    ]
    return "\n".join(lines)


def toml_string(text: str) -> str:
    return f"'{text}'" if '"' in text else f'"{text}"'


def write_block(block: str) -> None:
    text, count = BLOCK.subn(lambda _: block, PYPROJECT.read_text())
    if count != 1:
        sys.exit("pyproject.toml: the lines '# pins: begin' and '# pins: end' are missing")
    PYPROJECT.write_text(text)


def run(*command: str, given: str | None = None) -> str:
    done = subprocess.run(command, cwd=ROOT, input=given, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout


if __name__ == "__main__":
    main()
