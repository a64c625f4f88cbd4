"""The validator's messages in plain words: it speaks of inputs, of strings and of the names of its own parts."""

import re
from typing import Final

from workron.names import NAME, NAME_IN_WORDS

_PLAIN: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Value error, (.*)", r"\1"),
        (r"Field required", "is required"),
        (r"Extra inputs are not permitted", "there is no such field"),
        (r"Unexpected keyword argument", "there is no such field"),
        (r"Input should be a valid boolean.*", "must be true or false"),
        (r"Input should be a valid integer.*", "must be a whole number"),
        (r"Input should be a valid (.*?), unable to .*", r"must be a \1"),
        (r"Input should be a finite number", "must be a finite number"),
        (r"Input should be a valid (list|array)", "must be a list"),
        (r"Input should be an? (?:valid )?(?:dictionary|object)", "must be an object"),
        (r"Input should be a valid (.*)", r"must be a \1"),
        (r"Input should be less than or equal to (.*)", r"must be at most \1"),
        (r"Input should be greater than or equal to (.*)", r"must be at least \1"),
        (r"Input should be greater than (.*)", r"must be more than \1"),
        (r"Input should be (.*)", r"must be \1"),
        (r"String should have (at \w+) (\d+ characters?)", r"must have \1 \2"),
        (r"(?:List|Dictionary) should have (at \w+ \d+ items?) after validation, not .*", r"must have \1"),
        (rf"String should match pattern '\^{re.escape(NAME)}.*'", NAME_IN_WORDS),
        (r"String should match pattern '(.*)'", r"must match the pattern \1"),
    )
)


def in_words(message: str) -> str:
    """Return one of pydantic's messages without its own terms."""
    for pattern, words in _PLAIN:
        if match := pattern.fullmatch(message):
            return match.expand(words)
    return message
