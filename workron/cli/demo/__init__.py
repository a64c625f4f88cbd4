"""`workron demo`: a tour of half a minute in which a job outlives its worker.

The tour (`tour.py`) starts its own stack (`stack.py`), hidden from other commands, and does
through the API what the user could do with the commands that it shows (`screen.py`).
"""

from workron.cli.command import command


@command("workron demo")
def demo() -> int:
    """Run a tour of half a minute: a job recovers from a crash. It cleans up after itself."""
    from workron.cli.demo import tour

    return tour.run()
