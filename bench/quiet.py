"""Logging as in our processes with `--log-level warning`: peers run with as little."""

import logging

import structlog


def quiet() -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), cache_logger_on_first_use=True
    )
