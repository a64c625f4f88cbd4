"""Lines of text, as all of Workron reads them."""


def lines_of(text: str) -> list[str]:
    """Return the lines, each of which ends in a line feed, alone or after a carriage return.

    `str.splitlines` also ends a line at a form feed, at U+2028 and at eight other characters.
    """
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
