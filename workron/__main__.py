"""The `workron` command."""

import io
import os
import sys


def main() -> None:
    """Run the command line and exit."""
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.argv[1:] in (["--version"], ["-V"]):
        from workron import __version__

        print(f"workron {__version__}")
        return
    from workron.runtime.gc_tuning import collect_less

    collect_less()
    from workron.cli.app import app

    app(prog_name="workron")


def _open_closed_streams() -> None:
    """Open each standard stream that the caller has closed on /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process


if __name__ == "__main__":
    main()
