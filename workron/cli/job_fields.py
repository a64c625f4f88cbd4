"""The plain fields of a job as options: written by `make generate` from workron/models/job_fields.py."""

from typing import Final

import click

from workron.cli.values import DURATION, NUMBER

PLAIN: Final = (
    click.option("--name", metavar="TEXT", help="name of the job, for `ls --name`"),
    click.option("--tag", "tags", metavar="TEXT", multiple=True, help="label, for `ls --tag`. May be repeated"),
    click.option("--queue", metavar="NAME", help="queue of the job (default: `default`)"),
    click.option("--priority", metavar="1-9", type=NUMBER, help="priority from 1 to 9, highest first (default: 5)"),
    click.option("--max-attempts", metavar="N", type=NUMBER, help="maximum number of attempts"),
    click.option("--timeout", metavar="TIME", type=DURATION, help="stop an attempt after this time: 30s, 5m, 2h"),
)
"""Each sends the field for which it is named."""
FILTERS: Final = (click.option("--name", metavar="TEXT", help="only jobs with this name"),)
"""Of `ls`."""
FIELDS: Final = (
    "command",
    "argv",
    "timeout",
    "env",
    "cwd",
    "name",
    "tags",
    "metadata",
    "queue",
    "priority",
    "max_attempts",
)
"""What `show` shows in a row of its own, unless it has a better form for it."""
