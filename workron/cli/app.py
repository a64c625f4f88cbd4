"""The command line: the table of all commands. Only the module of the command that is called is imported."""

from workron.cli.command import Group, Root

_workflow = Group(
    {
        "Commands": {
            "submit": (
                "workflows:submit",
                "Submit the jobs of a JSON, YAML or TOML file, all or nothing; print the id of the workflow.",
            ),
            "show": ("workflows:show", "Show a workflow and its jobs."),
            "add": (
                "workflows:add",
                "Add the jobs of a file to an unfinished workflow, all or nothing; print their ids.",
            ),
            "cancel": (
                "workflows:cancel",
                "Cancel all unfinished jobs of a workflow; running commands are stopped, a final job still runs.",
            ),
        },
    },
    help="Submit and show workflows: jobs that depend on each other.",
)
_schedules = Group(
    {
        "Commands": {
            "put": ("schedules:put", "Create or replace a schedule of a command or a workflow."),
            "ls": ("schedules:ls", "List schedules by name."),
            "show": ("schedules:show", "Show a schedule with its next and its latest runs."),
            "rm": ("schedules:rm", "Delete a schedule; jobs it has started continue."),
            "run": ("schedules:run", "Start a run now; print the id of its job or workflow."),
            "pause": ("schedules:pause", "Pause a schedule."),
            "resume": ("schedules:resume", "Resume a schedule from now on."),
        },
    },
    default="ls",
    help="Manage schedules that start commands or workflows periodically (lists them without `ls`).",
)
_queues = Group(
    {
        "Commands": {
            "ls": ("queues:queues", "List queues with their settings and the number of jobs in each status."),
            "set": ("queues:set_queue", "Limit a queue."),
            "pause": ("queues:pause", "Pause queues: no more jobs start; running jobs continue."),
            "resume": ("queues:resume", "Resume queues: their jobs start again."),
            "purge": ("queues:purge", "Cancel all jobs of a queue that are ready to run."),
            "rm": ("queues:remove", "Delete an empty queue and its settings."),
        },
    },
    default="ls",
    help="Manage queues: list (also without `ls`), limit, pause and purge them.",
)
_keys = Group(
    {
        "Commands": {
            "create": ("keys:create", "Create an API key and print it."),
            "ls": ("keys:ls", "List API keys with their scopes and expiry, except the API's own key in the key file."),
            "list": (
                "keys:ls",
                "List API keys with their scopes and expiry, except the API's own key in the key file.",
            ),
            "revoke": ("keys:revoke", "Revoke API keys: they are rejected within 5 s."),
        },
    },
    default="ls",
    help="Manage API keys with limited rights: create, list (also without `ls`) and revoke them.",
)
_config = Group(
    {
        "Commands": {
            "show": ("process:show_config", "Show all settings in force and their sources; secrets are masked.")
        },
    },
    help="Show the settings in force and their sources.",
)
app = Root(
    {
        "Run the system": {
            "up": ("process:up", "Start everything on this machine: Redis (embedded), API, worker and reaper."),
            "api": ("process:api", "Start one API server."),
            "worker": ("process:worker", "Start one worker."),
            "reaper": ("process:reaper", "Start one reaper: it recovers the jobs of lost workers."),
            "demo": ("demo:demo", "Run a tour of half a minute: a job recovers from a crash."),
        },
        "Jobs and workflows": {
            "run": ("run:run", "Submit a command, stream its output and leave with its exit code."),
            "submit": ("jobs:submit", "Submit a command; print the id of its job."),
            "ls": ("jobs:ls", "List jobs, newest first."),
            "show": ("jobs:show", "Show all details of a job."),
            "why": ("jobs:why", "Explain why a job has its status, and what must happen next."),
            "logs": ("jobs:logs", "Print the output of a job's latest attempt."),
            "wait": ("jobs:wait", "Wait until jobs have ended; the exit code is 0 if all are done."),
            "cancel": ("bulk:cancel", "Cancel jobs; running commands are stopped."),
            "retry": ("bulk:retry", "Run ended jobs again."),
            "rm": ("bulk:remove", "Delete finished jobs with their output."),
            "mv": ("bulk:move", "Move all matching waiting jobs to another queue or priority, in the background."),
            "actions": ("bulk:actions", "List bulk actions with their progress, newest first."),
            "workflow": _workflow,
            "schedules": _schedules,
        },
        "Inspect the system": {
            "workers": ("workers:workers", "List live workers, and those lost within the last hour."),
            "drain": ("workers:drain", "Drain workers: they claim no more jobs, let their jobs finish, and stop."),
            "health": ("overview:health", "Show the health of the API, its Redis and the reaper."),
            "doctor": ("doctor:doctor", "Recount everything in Redis, also on a live system, and report all faults."),
            "audit": ("keys:audit", "Show the audit log, newest first: changes through the API and rejected requests."),
            "queues": _queues,
            "keys": _keys,
            "config": _config,
        },
    },
    help="Submit commands and have them run, whatever crashes: a distributed job scheduler over Redis.",
)
