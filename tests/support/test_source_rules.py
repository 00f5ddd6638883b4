"""Test files are short, and no test waits for a number of seconds."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LINES_MAX = 400
SLEEP_SECONDS = 0.1
FOREVER_SECONDS = 60.0
"""A sleep this long never ends within a test: it stands for work that is interrupted."""
ANY_SLEEP = re.compile(r"\b(time|asyncio)\.sleep\((?!0(\.0\d*)?\))[\d.]")
"""Only files with a match are parsed."""
VIRTUAL_FIXTURES = {"world", "memory_world", "file_world", "clock"}
VIRTUAL_CALLS = ("App(", ".do(", "VirtualClock")
"""What a test on the virtual clock uses, where `asyncio.sleep` moves the clock and takes no time."""
LONG_FORM = re.compile(
    r"OUTLAST_TEST_(KILLS|PROPERTY_CASES|ITEMS|MODEL_EXAMPLES)\"|^from hypothesis", re.MULTILINE
)
"""What a test reads, or draws from, whose long form `make soak` runs."""
ALLOWED = {
    "test_two_interrupts_leave_no_worker_behind": "two signals at once would be one, and nothing tells that "
    "the first has arrived",
    "test_time_to_abandon_starts_when_a_message_arrives": "on the virtual clock of a helper",
    "test_crash_test_reports_a_child_left_by_a_failed_run": "on the virtual clock of crash_test",
    "test_a_drain_begins_over_http_while_the_loop_is_blocked": "the loop must have been blocked for a while, "
    "and a longer one changes nothing",
    "test_on_dead_ends_for_an_item_that_fails_in_the_drain": "the hook's own work",
    "test_a_second_signal_is_a_second_call": "signals that are closer together count as one",
    "test_loop_handlers_work_after_restore": "nothing must happen; a slow machine cannot make it fail",
    "test_settings_of_a_role_do_not_weaken_a_commit": "the background writer of the server must be idle, "
    "and the test passes also when it is not",
}
"""Tests that sleep, and why. Prefer what can be observed: see support/waiting.py."""


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}


def test_no_test_file_is_longer_than_400_lines(texts):
    long = {
        str(path.relative_to(TESTS)): count
        for path, text in texts.items()
        if (count := text.count("\n")) > LINES_MAX
    }
    assert not long, "split these files"


def test_no_test_waits_for_a_fixed_number_of_seconds(texts):
    found = {name: lines for text in texts.values() for name, lines in sleeping_tests(text)}
    new = {name: lines for name, lines in found.items() if name not in ALLOWED}
    assert not new, "wait for something observable: see support/waiting.py"
    assert found.keys() == ALLOWED.keys(), "remove what is not needed any more"


def test_make_soak_runs_every_long_form(texts):
    makefile = (TESTS.parent / "Makefile").read_text()
    (words,) = re.findall(
        r"^SOAK := \$\(addprefix tests/,(.*?)\)$", makefile, re.MULTILINE | re.DOTALL
    )
    paths = [TESTS / word for word in words.replace("\\", " ").split()]
    assert all(path.exists() for path in paths)
    long = [path for path, text in texts.items() if is_test_file(path) and LONG_FORM.search(text)]
    assert len(long) > 20
    left_out = [path for path in long if not any(path.is_relative_to(each) for each in paths)]
    assert not left_out, "add these files or their folders to SOAK in the Makefile"


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("def test_it():\n    time.sleep(0.3)", True),
        ("def test_it(place):\n    async def main():\n        await asyncio.sleep(1)", True),
        ("def test_it():\n    time.sleep(0.05)", False),
        ("def test_it(world):\n    async def main():\n        await asyncio.sleep(1)", False),
        ("def test_it(world):\n    time.sleep(1)", True),
        ("def test_it():\n    @step\n    def work():\n        time.sleep(1)", False),
        ("def test_it():\n    while waiting():\n        time.sleep(0.1)", False),
    ],
)
def test_fixed_sleeps_are_found(source, is_found):
    assert bool(list(sleeping_tests(source))) is is_found


def sleeping_tests(text: str) -> Iterator[tuple[str, list[int]]]:
    """Yield each test of a file that sleeps in real time, with the lines of its sleeps."""
    if not ANY_SLEEP.search(text):
        return
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_test(node):
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            found = [
                line for line, is_real in sleeps(node) if is_real or not is_virtual(node, source)
            ]
            if found:
                yield node.name, found


def is_test_file(path: Path) -> bool:
    return path.name.startswith("test_")


def is_test(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return node.name.startswith("test_")


def is_virtual(node: ast.FunctionDef | ast.AsyncFunctionDef, source: str) -> bool:
    fixtures = {argument.arg for argument in node.args.args}
    return bool(fixtures & VIRTUAL_FIXTURES) or any(call in source for call in VIRTUAL_CALLS)


def sleeps(node: ast.AST) -> Iterator[tuple[int, bool]]:
    """Yield the line of each fixed sleep, and whether it blocks the thread.

    Decorated functions are steps and workflows, whose sleeps stand for work. A sleep in a loop is a pause
    between two looks.
    """
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(child, ast.While) or (is_function and child.decorator_list):
            continue
        match child:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="time" | "asyncio" as module), attr="sleep"),
                args=[ast.Constant(value=int() | float() as seconds)],
            ) if SLEEP_SECONDS <= seconds < FOREVER_SECONDS:
                yield child.lineno, module == "time"
        yield from sleeps(child)
