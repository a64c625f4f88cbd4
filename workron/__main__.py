"""The `workron` command."""

import io
import os
import sys


def main() -> None:
    """Run the command line and exit."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.argv[1:] in (["--version"], ["-V"]):
        from workron import __version__

        print(f"workron {__version__}")
        return
    from workron.cli.app import app

    app(prog_name="workron")


if __name__ == "__main__":
    main()
