"""The duties of process 1, for a container without an init: to pass on signals and to reap what others leave.

A command's orphans become children of process 1. So this process leaves its own work to a child, which need not tell
them from its commands, and whose signals have their usual defaults.
"""

import os
import signal
from contextlib import suppress


def divide() -> None:
    """Fork, and return in the child. This process does the duties above, and leaves with the child's exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os._exit(_tend(child))


def _tend(child: int) -> int:
    """Reap all children and pass on signals until this one has ended; return its exit code as a shell does."""
    while True:
        received = signal.sigwaitinfo(signal.valid_signals())
        if received.si_signo == signal.SIGCHLD:
            if (code := _reap(child)) is not None:
                return code if code >= 0 else 128 - code
        # A terminal sends its signals to the child too, but the end of the terminal only to us.
        elif received.si_code <= 0 or received.si_signo == signal.SIGHUP:
            with suppress(ProcessLookupError):
                os.kill(child, received.si_signo)


def _reap(child: int) -> int | None:
    """Reap all that has ended; return this child's exit code, negative for a signal, if it is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    return code
