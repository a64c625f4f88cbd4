"""`workron demo`: a tour of half a minute in which a job outlives its worker.

The tour (`tour.py`) starts a stack of its own (`stack.py`), which no other command takes for the user's, and does
through the API what its reader could do by the commands that it shows (`screen.py`).
"""


def run() -> int:
    """Make the tour; returns the exit code."""
    from workron.cli.demo import tour

    return tour.run()
