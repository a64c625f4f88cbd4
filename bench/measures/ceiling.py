"""What the server itself can do: `redis-benchmark` with 50 connections, one command at a time and 16 in a pipeline."""

import csv
import shutil
import subprocess

from bench.plan import Plan

REQUESTS = 60_000


def measure(plan: Plan, _turn: int) -> None:
    program = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    if program is None:
        plan.results.missing["redis-benchmark"] = "not installed"
        return
    for pipeline in (1, 16):
        command = [program, "-p", str(plan.server.port), "-n", str(plan.scaled(REQUESTS, least=2000)), "-c", "50"]
        command += ["-P", str(pipeline), "-t", "lpush,get", "--csv"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - fixed command
        for row in csv.DictReader(done.stdout.splitlines()):
            name = f"{row['test']}, {'one at a time' if pipeline == 1 else 'pipelined by 16'}"
            plan.results.add("redis-benchmark", name, float(row["rps"]))
    plan.server.clear()
