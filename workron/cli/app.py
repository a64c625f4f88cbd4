"""The command line: all commands, with the examples in their help."""

from collections.abc import Callable
from typing import Any

import typer

from workron.cli import bulk, doctor, jobs, keys, overview, process, queues, schedules, workers, workflows
from workron.cli.command import Command, Group, ListingGroup
from workron.cli.flags import SettingsCommand
from workron.cli.run import run

_RUN_IT, _JOBS, _LOOK = "Run the system", "Jobs and workflows", "Inspect the system"
_COMMAND_FOLLOWS = {"allow_interspersed_args": False}
"""After the first word of the command to run, all options belong to that command."""


def _group(cls: type[Group] = Group, **texts: Any) -> typer.Typer:
    return typer.Typer(
        cls=cls,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **texts,
    )


app = _group(help="Submit commands and have them run, whatever crashes: a distributed job scheduler over Redis.")
workflow_app = _group(help="Submit and show workflows: jobs that depend on each other.")
schedules_app = _group(
    ListingGroup, help="Manage schedules that start commands or workflows periodically (lists them without `ls`)."
)
queues_app = _group(ListingGroup, help="Manage queues: list (also without `ls`), limit, pause and purge them.")
keys_app = _group(
    ListingGroup, help="Manage API keys with limited rights: create, list (also without `ls`) and revoke them."
)
config_app = _group(help="Show the settings in force and their sources.")


@app.callback()
def _root() -> None:
    """Hold the commands; `--version` is answered before typer is imported."""


def _add(
    group: typer.Typer,
    name: str,
    function: Callable[..., Any],
    section: str,
    *examples: str,
    cls: type[Command] = Command,
    context: dict[str, Any] | None = None,
) -> None:
    group.command(name, cls=cls, epilog="\n".join(examples), rich_help_panel=section, context_settings=context or {})(
        function
    )


_add(
    app,
    "up",
    process.up,
    _RUN_IT,
    "workron up",
    "workron up --port 9000 --data-dir /srv/workron --slots 4",
    "workron up --redis redis://db.example:6379/0",
    cls=SettingsCommand,
)
_add(
    app,
    "api",
    process.api,
    _RUN_IT,
    "workron api --redis redis://db.example:6379/0",
    "workron api --redis unix:///run/redis.sock --host 0.0.0.0 --allowed-hosts jobs.example",
    cls=SettingsCommand,
)
_add(
    app,
    "worker",
    process.worker,
    _RUN_IT,
    "workron worker --redis redis://db.example:6379/0",
    "workron worker --redis redis://db.example:6379/0 --queues urgent,default --slots 8",
    "workron worker --redis redis://db.example:6379/0 --queues nightly --until-empty",
    "workron worker --redis redis://db.example:6379/0 --slots 1 --max-jobs 1 --drain-timeout 5m",
    cls=SettingsCommand,
)
_add(
    app,
    "reaper",
    process.reaper,
    _RUN_IT,
    "workron reaper --redis redis://db.example:6379/0",
    "WORKRON_REDIS=redis://db.example:6379/0 workron reaper --retention-done 1h",
    cls=SettingsCommand,
)
_add(app, "demo", process.demo, _RUN_IT, "workron demo")

_add(
    app,
    "run",
    run,
    _JOBS,
    "workron run -- make test",
    "workron run 'make test 2>&1 | tee log'      # one argument: through the shell",
    "workron run --timeout 10m --env CC=clang -- make -j4",
    context=_COMMAND_FOLLOWS,
)
_add(
    app,
    "submit",
    jobs.submit,
    _JOBS,
    "workron submit -- rsync -a out/ backup:",
    "workron submit --name nightly --delay 2h --timeout 30m './report | mail -s report me'",
    "workron submit --concurrency customer-7:2 -- ./import customer-7",
    "id=$(workron submit make); workron submit --after $id -- make install",
    "workron submit --after $id:failed './notify'",
    context=_COMMAND_FOLLOWS,
)
_add(
    app,
    "ls",
    jobs.ls,
    _JOBS,
    "workron ls",
    "workron ls --status failed --queue reports",
    "workron ls --name nightly --all -o jsonl | jq -r .id",
)
_add(app, "show", jobs.show, _JOBS, "workron show 01FZpY2zqTkMcXH0Vb8n3R", "workron show -o json ID | jq .exit_code")
_add(app, "why", jobs.why, _JOBS, "workron why 01FZpY2zqTkMcXH0Vb8n3R", "workron why -o json ID | jq .facts")
_add(app, "logs", jobs.logs, _JOBS, "workron logs 01FZpY2zqTkMcXH0Vb8n3R", "workron logs -f $(workron submit make)")
_add(
    app,
    "wait",
    jobs.wait,
    _JOBS,
    "workron wait ID1 ID2 && echo both are done",
    "workron ls --status running -o jsonl | jq -r .id | workron wait --timeout 1h -",
)
_add(
    app,
    "cancel",
    jobs.cancel,
    _JOBS,
    "workron cancel 01FZpY2zqTkMcXH0Vb8n3R",
    "workron cancel --cascade 01FZpY2zqTkMcXH0Vb8n3R",
    "workron ls --status pending --all -o jsonl | jq -r .id | workron cancel -",
    "workron cancel --queue reports --status pending --all",
)
_add(
    app,
    "retry",
    jobs.retry,
    _JOBS,
    "workron retry 01FZpY2zqTkMcXH0Vb8n3R",
    "workron retry --queue reports --error 'disk full' --dry-run --wait",
    "workron retry --status failed --all --wait",
)
_add(
    app,
    "rm",
    jobs.remove,
    _JOBS,
    "workron rm 01FZpY2zqTkMcXH0Vb8n3R",
    "workron rm --status done --finished-before 2030-01-31 --all",
)
_add(
    app,
    "mv",
    bulk.move,
    _JOBS,
    "workron mv --queue reports --to-queue slow --all",
    "workron mv --tag nightly --to-priority 1 --all --wait",
)
_add(app, "actions", bulk.actions, _JOBS, "workron actions", "workron actions --abort 01FZpY2zqTkMcXH0Vb8n3R")
app.add_typer(workflow_app, name="workflow", rich_help_panel=_JOBS)
_add(
    workflow_app,
    "submit",
    workflows.submit,
    "Commands",
    "workron workflow submit build.yaml",
    "workron workflow submit --wait build.toml && echo all done",
    "./generate | workron workflow submit -",
)
_add(workflow_app, "show", workflows.show, "Commands", "workron workflow show 01FZpY2zqTkMcXH0Vb8n3R")
_add(
    workflow_app,
    "add",
    workflows.add,
    "Commands",
    "workron workflow add more.yaml --to 01FZpY2zqTkMcXH0Vb8n3R",
    "./generate | workron workflow add -         # inside a job of a workflow: to its own",
)
_add(workflow_app, "cancel", workflows.cancel, "Commands", "workron workflow cancel 01FZpY2zqTkMcXH0Vb8n3R")

app.add_typer(schedules_app, name="schedules", rich_help_panel=_JOBS)
_add(
    schedules_app,
    "put",
    schedules.put,
    "Commands",
    "workron schedules put nightly --cron '30 2 * * 1-5' --tz Europe/Berlin -- make report",
    "workron schedules put poll --cron '*/5 * * * *' --overlap skip --timeout 4m './poll | ./import'",
    "workron schedules put build --cron @daily --catch-up none --workflow build.yaml",
)
_add(schedules_app, "ls", schedules.ls, "Commands", "workron schedules", "workron schedules -o jsonl | jq -r .name")
_add(
    schedules_app,
    "show",
    schedules.show,
    "Commands",
    "workron schedules show nightly",
    "workron schedules show poll -o json | jq -r '.next_runs[0].at'",
)
_add(schedules_app, "rm", schedules.rm, "Commands", "workron schedules rm nightly")
_add(
    schedules_app,
    "run",
    schedules.run,
    "Commands",
    "workron schedules run nightly",
    "workron wait $(workron schedules run nightly)",
)
_add(schedules_app, "pause", schedules.pause, "Commands", "workron schedules pause nightly")
_add(schedules_app, "resume", schedules.resume, "Commands", "workron schedules resume nightly")

app.add_typer(queues_app, name="queues", rich_help_panel=_LOOK)
_add(queues_app, "ls", queues.queues, "Commands", "workron queues", "workron queues -o json")
_add(
    queues_app,
    "set",
    queues.set_queue,
    "Commands",
    "workron queues set reports --max-pending 10000",
    "workron queues set reports --max-running 4 --rate 100/1m",
    "workron queues set reports --max-running none --rate none",
)
_add(queues_app, "pause", queues.pause, "Commands", "workron queues pause reports mail")
_add(queues_app, "resume", queues.resume, "Commands", "workron queues resume reports mail")
_add(queues_app, "purge", queues.purge, "Commands", "workron queues purge reports")
_add(queues_app, "rm", queues.remove, "Commands", "workron queues rm reports")
_add(
    app, "workers", workers.workers, _LOOK, "workron workers", "workron workers HOST-Ab3dEf", "workron workers -o json"
)
_add(
    app,
    "drain",
    workers.drain,
    _LOOK,
    "workron drain HOST-Ab3dEf",
    "workron drain --wait --timeout 2h HOST-Ab3dEf && echo it has ended",
    "workron workers -o jsonl | jq -r 'select(.host == \"old\").id' | workron drain --wait -",
)
_add(app, "health", overview.health, _LOOK, "workron health", "workron health --url http://127.0.0.1:9000 -o json")
_add(
    app,
    "doctor",
    doctor.doctor,
    _LOOK,
    "workron doctor",
    "workron doctor --rebuild",
    "workron doctor --redis redis://db.example:6379/0 -o json | jq .faults",
    cls=SettingsCommand,
)
app.add_typer(keys_app, name="keys", rich_help_panel=_LOOK)
_add(
    keys_app,
    "create",
    keys.create,
    "Commands",
    "workron keys create ci --scope submit --scope read --queue builds --ttl 90d",
    "workron keys create host-7 --scope work -o json | jq -r .key",
)
_add(keys_app, "ls", keys.ls, "Commands", "workron keys", "workron keys -o jsonl | jq -r .name")
_add(keys_app, "list", keys.ls, "Commands", "workron keys list -o json")
_add(keys_app, "revoke", keys.revoke, "Commands", "workron keys revoke 01FZpY2zqTkMcXH0Vb8n3R")
_add(
    app,
    "audit",
    keys.audit,
    _LOOK,
    "workron audit",
    "workron audit --limit 1000 -o jsonl | jq 'select(.status >= 400)'",
)
app.add_typer(config_app, name="config", rich_help_panel=_LOOK)
_add(
    config_app,
    "show",
    process.show_config,
    "Commands",
    "workron config show",
    "WORKRON_LEASE=10s workron config show --port 9000",
    cls=SettingsCommand,
)
