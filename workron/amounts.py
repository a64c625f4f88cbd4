"""Amounts in messages: a number and its noun."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return `1 job` or `2,000 jobs`; `many` is the plural if it is not `one` with an s, such as `jobs wait`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
