"""The documents are written in plain English: no word of the list below, and short sentences.

Vale would do the same with a vocabulary of its own, but its package downloads the program when it is first run.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
WRITTEN_ELSEWHERE: Final = {"bench/RESULTS.md"}
"""The report that `python -m bench` writes."""
MOST_WORDS: Final = 18
"""The mean length of a document's sentences may not exceed this."""

VOCABULARY: Final = {
    r"beside": "next to, besides, compared with",
    r"anew": "again",
    r"nobody": "no one, no process, nothing",
    r"somebody": "someone, another user, another program",
    r"said": "requested, stated, specified",
    r"told": "notified",
    r"those (?:that|who)": "name the thing: 'jobs that …'",
    r"whoever": "name the actor: 'any worker that …'",
    r"once more": "again",
    r"good no longer": "expired, revoked",
    r"lengths? of time": "duration",
    r"upkeep": "maintenance",
    r"steering": "operator actions",
    r"scarcity": "shortage",
    r"suspects?": "poison job",
    r"(?<!if you )wish(?:es)?": "request",
}
"""Words that the documents do not use, and what to write instead."""
WHO_AS_SUBJECT: Final = r"(?:^|[.!?:;,(]\s+|\b(?:but|so|that|if|when|from|by|of)\s+)who\b(?![^.!?]*\?)"
FORBIDDEN: Final = {
    **{rf"\b(?:{word})\b": instead for word, instead in VOCABULARY.items()},
    WHO_AS_SUBJECT: "name the actor: 'a worker that …'",
}

SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[A-Z`\"(*\[])")
WORD: Final = re.compile(r"[\w'’.,/-]*\w[\w'’.,/-]*")
ITEM: Final = re.compile(r"^(?:[-*]|\d+\.) ")
SAMPLE: Final = """\
# A heading. It does not count

The first paragraph has a sentence of `many words in code`
and a [link](https://example.invalid/nobody). It has two.

<!-- said in a comment -->
```console
$ echo nobody
```

    nobody, indented

- An item.
  Its second sentence.

| a cell | another. Cell |
|---|---|
"""


def documents() -> list[str]:
    """Return the names of all Markdown files that are, or would be, in git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return sorted({name for name in names if name and (ROOT / name).is_file()} - WRITTEN_ELSEWHERE)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, heading, item and row of a table with its first line, without code and comments."""
    fenced, first, lines = False, 0, list[str]()
    for number, line in enumerate([*re.sub(r"<!--.*?-->", "", text).splitlines(), ""], 1):
        begins = line.startswith(("```", "    ", "#", "|")) or ITEM.match(line.lstrip()) or not line.strip()
        if lines and (begins or fenced):
            yield first, plain(" ".join(lines))
            lines = []
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip() and not (line.startswith("    ") and not ITEM.match(line.lstrip())):
            first = first if lines else number
            lines.append(line.strip())


def plain(text: str) -> str:
    """Return text with each piece of code as one word, and without the targets of links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "`code`", text))


def sentences(text: str) -> list[str]:
    """Return the sentences of paragraphs and items. Headings and tables have none."""
    prose = (ITEM.sub("", block, count=1) for _, block in blocks(text) if not block.startswith(("#", "|")))
    return [sentence for block in prose for sentence in SENTENCE_END.split(block)]


def mean_words(text: str) -> float:
    lengths = [len(WORD.findall(sentence)) for sentence in sentences(text)]
    return sum(lengths) / len(lengths)


@pytest.mark.parametrize("name", documents())
def test_a_document_uses_the_words_of_the_field(name: str) -> None:
    found = [
        f"{name}:{line}: {match[0].strip()!r}: write {instead}"
        for line, block in blocks((ROOT / name).read_text())
        for pattern, instead in FORBIDDEN.items()
        for match in re.finditer(pattern, block, re.IGNORECASE)
    ]
    assert found == []


@pytest.mark.parametrize("name", documents())
def test_a_document_has_short_sentences(name: str) -> None:
    text = (ROOT / name).read_text()
    longest = max(sentences(text), key=lambda sentence: len(WORD.findall(sentence)))
    assert mean_words(text) <= MOST_WORDS, f"the longest sentence: {longest}"


def test_code_comments_and_targets_of_links_are_not_prose() -> None:
    assert list(blocks(SAMPLE)) == [
        (1, "# A heading. It does not count"),
        (3, "The first paragraph has a sentence of `code` and a link. It has two."),
        (13, "- An item. Its second sentence."),
        (16, "| a cell | another. Cell |"),
        (17, "|---|---|"),
    ]


def test_sentences_are_counted_in_paragraphs_and_items() -> None:
    assert [len(WORD.findall(each)) for each in sentences(SAMPLE)] == [11, 3, 2, 3]


@pytest.mark.parametrize(
    "sentence",
    ["Who pops it starts it.", "Busy, who is there goes on.", "Nobody waits.", "It waits beside\nit.", "As said."],
)
def test_the_words_of_the_list_are_found(sentence: str) -> None:
    ((_, block),) = blocks(sentence)
    assert any(re.search(pattern, block, re.IGNORECASE) for pattern in FORBIDDEN)


@pytest.mark.parametrize("sentence", ["The audit log records who did what.", "Who may submit?", "Besides, it works."])
def test_plain_sentences_are_accepted(sentence: str) -> None:
    assert not any(re.search(pattern, sentence, re.IGNORECASE) for pattern in FORBIDDEN)
