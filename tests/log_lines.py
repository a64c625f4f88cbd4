"""What is logged while a test looks."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from workron.runtime import logger


@contextmanager
def captured() -> Iterator[list[logger.Event]]:
    """Collect all events, of every level, instead of writing them."""
    events: list[logger.Event] = []
    with logger.sent(logging.DEBUG, events.append):
        yield events
