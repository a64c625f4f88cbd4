"""`workron demo`: a tour of half a minute in which a job outlives its worker.

The tour (`tour.py`) starts its own stack (`stack.py`), hidden from other commands, and does
through the API what the user could do with the commands that it shows (`screen.py`).
"""


def run() -> int:
    """Run the tour; return the exit code."""
    from workron.cli.demo import tour

    return tour.run()
