"""The `workron` command."""

# Not `signal`: in the milliseconds of its import, Ctrl-C would be a traceback.
import _signal  # type: ignore[import-not-found] # built in, without a stub
import io
import os
import sys


def main() -> None:
    """Run the command line and exit."""
    _end_quietly_at_interrupts()
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.argv[1:] in (["--version"], ["-V"]):
        from workron import __version__

        print(f"workron {__version__}")
        return
    if os.getpid() == 1:
        from workron.runtime.first_process import divide

        divide()
    from workron.runtime.gc_tuning import collect_less

    collect_less()
    from workron.cli.app import app

    app(prog_name="workron")


def _end_quietly_at_interrupts() -> None:
    """Let Ctrl-C end the process without a traceback, until a command catches it."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Open each standard stream that the caller has closed on /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process


if __name__ == "__main__":
    main()
