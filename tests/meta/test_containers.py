"""The container files, checked as far as that goes without an engine: by lint, by schema, and for what they promise."""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry

import workron
from api import server
from tests.local_stack import ROOT
from workron.durations import parse_duration
from workron.local.valkey import server_binary
from workron.settings import Settings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "redis"}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
CHECK = ["python", "-I", "-m", "workron.healthcheck"]
SETTINGS = {f"WORKRON_{name.upper()}" for name in Settings.model_fields}


def instructions(name: str) -> list[str]:
    """Return the arguments of each instruction of this name, with line continuations joined."""
    joined = re.sub(r"\\\n", " ", DOCKERFILE)
    return [match[1].strip() for match in re.finditer(rf"^{name} (.*)$", joined, re.MULTILINE)]


def test_hadolint_finds_nothing() -> None:
    tool = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([tool, "--no-color", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_compose_yaml_is_valid() -> None:
    tool = str(Path(sys.executable).with_name("check-jsonschema"))
    command = [tool, "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_is_built_in_stages_and_runs_as_a_user_of_its_own_under_an_init() -> None:
    assert len(instructions("FROM")) == 2
    assert instructions("USER")[-1] == "10001:10001"
    assert json.loads(instructions("ENTRYPOINT")[-1])[:2] == ["tini", "--"]
    assert [name for name in instructions("FROM") if not name.startswith("docker.io/")] == []


def test_the_health_check_of_the_image_finds_out_what_runs() -> None:
    """It stood at `api`: a container of a worker, of a reaper or of `up` was unhealthy."""
    [check] = instructions("HEALTHCHECK")
    assert json.loads(check.partition("CMD ")[2]) == CHECK
    for name, service in OURS.items():
        assert service["healthcheck"]["test"] == ["CMD", *CHECK], name


def test_the_last_stage_compiles_the_standard_library_too() -> None:
    """The official image has none compiled, and a read-only container can't write it: a start took 2 CPU seconds."""
    _, _, last = DOCKERFILE.rpartition("\nFROM ")
    assert re.search(
        r"compileall -q --invalidation-mode unchecked-hash .*os\.__file__.* /opt/workron/lib$", last, re.M | re.S
    )


def test_the_image_names_its_source_and_revision() -> None:
    [labels] = instructions("LABEL")
    given = dict(re.findall(r'org\.opencontainers\.image\.(\S+?)="(.*?)"', labels))
    assert (given["source"], given["revision"]) == ("${SOURCE}", "${REVISION}")
    made = subprocess.run(["make", "-n", "image"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"--tag {OURS['api']['image']}" in made
    assert "--build-arg SOURCE=" in made
    assert "--build-arg REVISION=" in made


def test_podman_is_asked_for_the_format_that_keeps_the_health_check() -> None:
    command = ["make", "-n", "image", "ENGINE=podman"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "podman build --format docker " in made


def test_one_service_builds_the_image_and_none_pulls_it() -> None:
    """Three services built one tag: three images raced, and the next change of the number of workers restarted all."""
    assert [name for name, service in SERVICES.items() if "build" in service] == ["api"]
    assert {service["image"] for service in OURS.values()} == {f"localhost/workron:{workron.__version__}"}
    assert {service["pull_policy"] for service in OURS.values()} == {"never"}
    assert SERVICES["redis"]["image"].startswith("docker.io/")


def test_no_variable_changes_what_the_image_is_built_from() -> None:
    """Compose creates a container again when its service has changed: `up --scale` would do so in another shell."""
    assert OURS["api"]["build"] == "."


def test_a_container_of_any_user_can_work_and_write() -> None:
    """With `--user 12345` the working directory was that of another user: workron.toml could not be read."""
    assert instructions("WORKDIR")[-1] == "/tmp"
    assert "install -d -m 1777 /var/lib/workron" in DOCKERFILE


def test_no_file_of_the_image_is_writable_for_all_users() -> None:
    assert "rm -f /opt/workron/.lock" in DOCKERFILE


def test_the_build_works_on_what_the_ignore_file_lets_through(tmp_path: Path) -> None:
    """Run the build stage's own commands on its own context, into a folder of the test."""
    context = tmp_path / "src"
    context.mkdir()
    for arguments in instructions("COPY"):
        *sources, target = shlex.split(arguments)
        if sources[0].startswith("--from"):
            continue
        for source in sources:
            copy_from_context(source.rstrip("/"), context / target)
    environment = tmp_path / "environment"
    commands = [re.sub(r"--mount=\S+", "", arguments).strip() for arguments in instructions("RUN")]
    syncs = [[*shlex.split(command), "--quiet"] for command in commands if command.startswith("uv sync")]
    env = inherited() | {"UV_PROJECT_ENVIRONMENT": str(environment)}
    for sync in syncs:
        subprocess.run([*sync, "--python", sys.executable], cwd=context, env=env, check=True)
    (context / "workron" / "added.py").touch()
    shutil.rmtree(environment)
    for sync in syncs:  # with the cache of the first build
        subprocess.run([*sync, "--python", sys.executable], cwd=context, env=env, check=True)
    assert list(environment.glob("lib/*/site-packages/workron/added.py")), "the code of an earlier build was installed"
    shutil.rmtree(context)
    for package in ("api", "workers", "reaper", "workron"):
        subprocess.run([environment / "bin" / "python", "-c", f"import {package}"], cwd=tmp_path, check=True)
    for shipped in ("lua/attempt_claim.lua", "workron-*.dist-info/licenses/LICENSE"):
        assert list(environment.glob(f"lib/*/site-packages/{shipped}"))
    subprocess.run([environment / "bin" / "workron", "api", "--help"], stdout=subprocess.DEVNULL, check=True)


def copy_from_context(source: str, target: Path) -> None:
    files = [path for path in (ROOT / source, *(ROOT / source).rglob("*")) if path.is_file() and in_context(path)]
    assert files, f"the ignore file keeps {source} out"
    for path in files:
        into = target / path.name if path == ROOT / source else target / path.relative_to(ROOT / source)
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, into)


def in_context(path: Path) -> bool:
    """Tell whether .dockerignore lets a file through: the last line that matches decides."""
    name = path.relative_to(ROOT).as_posix()
    kept = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/").rstrip("/")
        names = [name, *(parent.as_posix() for parent in Path(name).parents)]
        loose = [each.split("/")[-1] for each in names] if "**/" in line else []
        if line and not line.startswith("#") and any(fnmatch.fnmatch(each, pattern) for each in names + loose):
            kept = line.startswith("!")
    return kept


def inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}


def test_no_secret_gets_into_the_image() -> None:
    for name in ("secrets/api_key", ".env", ".git/config", "uv.lock", "tests/conftest.py", "workron.toml"):
        assert not in_context(ROOT / name)
    assert not re.search(r"(?i)(key|password|token|secret)\s*=", DOCKERFILE)


def test_redis_is_durable_never_evicts_and_is_not_published() -> None:
    redis = SERVICES["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "always"
    assert options["--maxmemory-policy"] == "noeviction"
    assert "ports" not in redis
    assert redis["volumes"] == ["redis-data:/data"]
    assert redis["networks"] == ["backend"]
    assert COMPOSE["networks"]["backend"]["internal"] is True


def test_a_server_takes_the_options_of_redis(tmp_path: Path) -> None:
    options = ["64mb" if option.startswith("${") else option for option in SERVICES["redis"]["command"][1:]]
    socket = tmp_path / "socket"
    place = ["--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path)]
    with subprocess.Popen([server_binary(), *options, *place], stdout=subprocess.DEVNULL) as server:
        client = redis.Redis(unix_socket_path=str(socket), retry=Retry(ConstantBackoff(0.05), 200))
        try:
            shown = client.config_get("append*", "maxmemory*")
        finally:
            client.close()
            server.terminate()
    expected = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
    assert shown | expected == shown
    assert shown["maxmemory"] == str(64 * 1024 * 1024)


def test_the_api_is_published_on_loopback_only_and_has_its_key_from_a_secret() -> None:
    api = SERVICES["api"]
    assert [port.split(":")[0] for port in api["ports"]] == ["127.0.0.1"]
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["api"]
    (secret,) = api["secrets"]
    assert api["environment"]["WORKRON_API_KEY_FILE"] == f"/run/secrets/{secret}"
    assert "file" in COMPOSE["secrets"][secret]
    assert "--no-auth" not in api["command"]


@pytest.mark.parametrize("name", OURS, ids="service {}".format)
def test_each_service_has_as_few_rights_as_it_can(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}


@pytest.mark.parametrize("name", SERVICES, ids="service {}".format)
def test_each_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", OURS, ids="service {}".format)
def test_each_service_is_configured_by_settings_that_exist(name: str) -> None:
    variables = {variable for variable in OURS[name]["environment"] if variable.startswith("WORKRON_")}
    assert variables <= SETTINGS


@pytest.mark.parametrize("name", OURS, ids="service {}".format)
def test_each_service_runs_a_command_that_exists(name: str) -> None:
    process, *options = OURS[name]["command"]
    shown = subprocess.run(
        [sys.executable, "-m", "workron", process, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert [option for option in options if option.startswith("--") and option not in shown] == []


def test_workers_get_the_time_to_finish_before_they_are_killed() -> None:
    workers = SERVICES["workers"]
    grace_s = parse_duration(workers["environment"]["WORKRON_DRAIN_TIMEOUT"])
    kill_s = Settings.model_fields["kill_grace"].default
    assert parse_duration(workers["stop_grace_period"]) >= grace_s + kill_s + 5
    assert "container_name" not in workers  # a fixed name can't be scaled


def test_a_plain_docker_stop_gives_every_process_the_time_that_it_takes() -> None:
    most_s = 10 - 2
    [drain] = re.findall(r"WORKRON_DRAIN_TIMEOUT=(\S+)", DOCKERFILE)
    assert parse_duration(drain) + Settings.model_fields["kill_grace"].default <= most_s
    assert most_s >= server.GRACE_S
    assert not instructions("STOPSIGNAL")  # TERM, as the engine sends without it
