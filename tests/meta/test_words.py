"""Comments, docstrings and messages of the product use plain words: subject, verb, object."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
WORDS: Final = re.compile(
    r"(?<!`)\b(nobody|whoever|anew|beside|lengths? of time|(is|are) told|who (is|are|has|have|asks|comes|waits))\b",
    re.IGNORECASE,
)
ROOMS: Final = ("api", "workers", "reaper", "workron")
NOT_YET: Final = ("workron/doctor/", "workron/store/retention.py")


def texts(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_the_words_of_the_product_are_plain() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word[0]}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(NOT_YET)
        for line, text in texts(path.read_text())
        for word in WORDS.finditer(text)
    ]
    assert found == []


def test_a_word_of_the_list_is_found() -> None:
    assert [line for line, text in texts("x = 1  # nobody\n'beside `beside`'\n") for _ in WORDS.finditer(text)] == [
        2,
        1,
    ]
