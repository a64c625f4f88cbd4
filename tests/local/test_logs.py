"""The log as it leaves a process: through a real pipe or terminal."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SETUP = """
import logging, os, sys, warnings
from workron.runtime import logs
from workron.runtime.logger import log
from workron.settings import Settings
logs.configure(Settings(**{settings!r}), "worker")
"""
HOSTILE = [
    "line\nbreak",
    "\r\x1b[2Joverwritten",
    "\x9b31mC1",
    "\u2028separator\u2029",
    "\u202eevil",
    "tab\there",
    "nul\0",
    "\x7f",
    'quo"te\\ =',
    "☃ umläut 🎉",
    "",
]
TIMESTAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def program(code: str, **settings: str) -> list[str]:
    return [sys.executable, "-c", SETUP.format(settings=settings) + code]


def through_a_pipe(code: str, **settings: str) -> str:
    done = subprocess.run(program(code, **settings), capture_output=True, check=True, timeout=60)
    assert done.stdout == b""
    return done.stderr.decode()


def as_json(code: str, **settings: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in through_a_pipe(code, **settings).split("\n")[:-1]]


def through_a_terminal(code: str, env: dict[str, str], **settings: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(program(code, **settings), stderr=theirs, env=os.environ | {"TERM": "xterm"} | env)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        text = b""
        try:
            while data := terminal.read(4096):
                text += data
        except OSError:  # how a terminal says that its other side is closed
            pass
    assert process.wait(60) == 0
    return text.decode().replace("\r\n", "\n")


def test_a_pipe_gets_one_json_object_a_line() -> None:
    [entry] = as_json("log.info('lease lost', job='J1', attempt=2, worker='w')")
    assert re.fullmatch(TIMESTAMP, entry.pop("timestamp"))
    assert isinstance(entry.pop("pid"), int)
    assert entry == {
        "level": "info",
        "process": "worker",
        "event": "lease lost",
        "job": "J1",
        "attempt": 2,
        "worker": "w",
    }


def test_a_terminal_gets_colours_and_a_file_of_it_does_not() -> None:
    code = "log.warning('lease lost', job='J1', hint='two words')"
    coloured = through_a_terminal(code, {})
    assert "\x1b[33mwarning" in coloured
    plain = re.sub(r"\x1b\[\d+m", "", coloured)
    assert re.fullmatch(TIMESTAMP + r" warning worker lease lost job=J1 hint=\"two words\"\n", plain)
    assert re.sub(TIMESTAMP, "", through_a_terminal(code, {"NO_COLOR": "1"})) == re.sub(TIMESTAMP, "", plain)
    assert re.sub(TIMESTAMP, "", through_a_pipe(code, log_format="console")) == re.sub(TIMESTAMP, "", plain)


def test_json_can_be_had_on_a_terminal() -> None:
    assert json.loads(through_a_terminal("log.info('hello')", {}, log_format="json"))["event"] == "hello"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_what_users_wrote_neither_breaks_a_line_nor_steers_a_terminal(log_format: str) -> None:
    code = f"for text in {HOSTILE!r}: log.info('job named ' + text, name=text, nested=[text])"
    text = through_a_pipe(code, log_format=log_format)
    assert len(text.split("\n")) == len(HOSTILE) + 1
    unsafe = {character for character in text if not character.isprintable()} - {"\n"}
    assert unsafe == set()


def test_json_keeps_what_users_wrote() -> None:
    entries = as_json(f"for text in {HOSTILE!r}: log.info('x', name=text)")
    assert [entry["name"] for entry in entries] == HOSTILE


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_name_that_is_not_utf_8_is_logged(log_format: str) -> None:
    text = through_a_pipe("log.info('x', name=os.fsdecode(b'a\\xffb'))", log_format=log_format)
    assert "a\\udcffb" in text


def test_a_traceback_is_one_field_of_the_entry() -> None:
    code = "try: 1 / 0\nexcept ZeroDivisionError: log.exception('failed', job='J1')"
    [entry] = as_json(code)
    assert (entry["level"], entry["job"]) == ("error", "J1")
    assert entry["exception"].startswith("Traceback (most recent call last):\n")
    assert entry["exception"].endswith("ZeroDivisionError: division by zero")


def test_text_inside_an_exception_cannot_pass_for_a_line_of_the_log() -> None:
    code = "try: raise ValueError('x\\n2026-01-01 forged\\x1b[2J')\nexcept ValueError: log.exception('failed')"
    first, *rest = through_a_pipe(code, log_format="console").rstrip("\n").split("\n")
    assert first.endswith("error   worker failed")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_a_logger_with_fields_adds_them_to_each_of_its_events() -> None:
    code = """
ours = log.bind(worker='w', level='its own')
ours.info('a', job='J1')
ours.info('b', worker='x')
log.info('c')
"""
    first, second, third = as_json(code)
    assert (first["event"], first["worker"], first["job"], first["level"]) == ("a", "w", "J1", "info")
    assert second["worker"] == "x"
    assert "worker" not in third


def test_a_program_that_has_its_own_logging_gets_our_events_there() -> None:
    code = """
import logging
from workron.runtime.logger import log
logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level="DEBUG")
log.debug("noise")
log.warning("lease lost", job="J1", percent="100%d")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "WARNING workron lease lost job='J1' percent='100%d'\n"


def test_the_level_decides_what_is_logged() -> None:
    code = "log.debug('a'); log.info('b'); log.warning('c'); log.error('d')"
    assert [entry["event"] for entry in as_json(code, log_level="warning")] == ["c", "d"]
    assert len(as_json(code, log_level="debug")) == 4


def test_libraries_log_through_it_from_warning_on() -> None:
    code = """
logging.getLogger("uvicorn.error").info("noise")
logging.getLogger("uvicorn.error").error("bad %s", "request\\nforged")
warnings.warn("old")
"""
    error, warning = as_json(code)
    assert (error["event"], error["logger"], error["level"]) == ("bad request\nforged", "uvicorn.error", "error")
    assert (warning["logger"], warning["level"]) == ("py.warnings", "warning")


def test_uvicorns_own_handlers_are_replaced() -> None:
    code = """
import uvicorn
uvicorn.Config(app=None)
logs.configure(Settings(), "api")
logging.getLogger("uvicorn.access").warning("x")
logging.getLogger("uvicorn.error").warning("y")
"""
    assert [entry["event"] for entry in as_json(code)] == ["x", "y"]


def test_long_values_are_cut_so_that_a_line_fits_into_one_write_to_a_pipe() -> None:
    text = through_a_pipe("log.info('x', name='a' * 100_000, other='☃' * 5_000, job='J1')")
    assert len(text.encode()) <= 4096
    entry = json.loads(text)
    assert entry["job"] == "J1"
    assert re.fullmatch(r"a+ … .*a+", entry["name"])


def test_lines_of_many_processes_do_not_mix(tmp_path: Path) -> None:
    code = "for n in range(400): log.info('x', name=f'{n}' + 'y' * 6000)"
    ours, theirs = os.pipe()
    writers = [subprocess.Popen(program(code), stderr=theirs) for _ in range(3)]
    os.close(theirs)
    with open(ours) as lines:
        entries = [json.loads(line) for line in lines]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(entries) == 1200


def test_an_unread_log_stops_no_process() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    process = subprocess.Popen(program("for _ in range(100): log.info('x')\nsys.exit(7)"), stderr=theirs)
    os.close(theirs)
    assert process.wait(60) == 7
