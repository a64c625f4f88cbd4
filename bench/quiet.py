"""Logging as in our processes with `--log-level warning`: peers run with as little."""

import logging

from workron.runtime import logger


def quiet() -> None:
    logger.send(logging.WARNING)
