"""Arrays from the command line."""

from tests.command_line import CommandLine


def test_a_task_for_each_line_of_a_file(workron: CommandLine) -> None:
    (workron.cwd / "names").write_text("ada\ngrace hopper\n", "utf-8-sig")

    ran = workron(
        "submit", "--wait", "--array-values", "names", "--", 'echo "$WORKRON_ARRAY_INDEX $WORKRON_ARRAY_VALUE"'
    )

    assert ran.code == 0, ran.err
    array = ran.out.split()[0]
    tasks = workron("ls", "--array", array, "-o", "json").document
    assert [workron("logs", task["id"]).out for task in tasks] == ["0 ada\n", "1 grace hopper\n"]
    assert "2: 2 done" in workron("show", array).out
    assert f"1 of {array}, value grace hopper" in workron("show", tasks[1]["id"]).out


def test_a_form_feed_or_another_separator_does_not_end_a_line_of_values(workron: CommandLine) -> None:
    ran = workron("submit", "--array-values", "-", "--", "true", given="a\x0cb\u2028c\x85d\re\r\nf\n")

    assert ran.code == 0, ran.err
    assert workron("show", ran.out.strip(), "-o", "json").document["array"]["size"] == 2


def test_some_tasks_are_run_again(workron: CommandLine) -> None:
    command = "[ -e fixed ] || [ $WORKRON_ARRAY_INDEX != 1 ]"
    ran = workron("submit", "--wait", "--array", "3", "--max-parallel", "2", "--max-attempts", "1", "--", command)
    assert ran.code == 1
    array = ran.out.split()[0]
    assert "3, 2 at once: 2 done, 1 failed" in workron("show", array).out
    (workron.cwd / "fixed").touch()

    again = workron("retry", "--tasks", "1", array)

    assert again.code == 0, again.err
    assert workron("wait", array).code == 0


def test_max_parallel_is_for_arrays(workron: CommandLine) -> None:
    ran = workron("submit", "--max-parallel", "2", "true")

    assert ran.code == 2
    assert "--array" in ran.err


def test_an_unreadable_file_is_reported(workron: CommandLine) -> None:
    ran = workron("submit", "--array-values", "nowhere", "true")

    assert ran.code == 2
    assert "nowhere can't be read" in ran.err
