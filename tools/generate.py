"""Write every generated file. Run by `make generate`; `tests/meta/test_generated.py` compares them with the disk."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools import client_documents, job_fields, key_docs

ROOT: Final = Path(__file__).resolve().parent.parent
GENERATED: Final[Mapping[str, Callable[[str], str]]] = {
    "docs/keys.md": key_docs.page,
    "workron/client/documents.py": client_documents.module,
    "lua/lib/job_fields.lua": job_fields.claimed,
    "workron/cli/job_fields.py": job_fields.options,
}
"""File → what makes its text, from its present text."""


def main() -> None:
    for name, text_of in GENERATED.items():
        path = ROOT / name
        before = path.read_text() if path.exists() else ""
        if (text := text_of(before)) != before:
            path.write_text(text)
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
