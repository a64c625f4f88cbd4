"""The options of the plain fields of a job: each sends the field it is named for."""

from typing import Final

import click

from workron.cli.values import DURATION, NUMBER

PLAIN: Final = (
    click.option("--name", metavar="TEXT", help="name of the job, for `ls --name`"),
    click.option("--tag", "tags", metavar="TEXT", multiple=True, help="label, for `ls --tag`. May be repeated"),
    click.option("--queue", metavar="NAME", help="queue of the job (default: `default`)"),
    click.option("--priority", metavar="1-9", type=NUMBER, help="priority from 1 to 9, highest first (default: 5)"),
    click.option("--max-attempts", type=NUMBER, help="maximum number of attempts"),
    click.option("--timeout", type=DURATION, help="stop an attempt after this time: 30s, 5m, 2h"),
)
