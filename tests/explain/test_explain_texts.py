"""The texts: everything with a name has one, of one form, and the commands in it exist."""

import importlib
import pkgutil
import re
import shlex
import signal
from pathlib import Path

import pytest

import outlast
from outlast.cli import exit_codes
from outlast.cli.app import command_line
from outlast.errors import OutlastError
from outlast.errors.explained import Explained
from outlast.explain.pages import PAGES
from outlast.explain.texts import PARTS, close, entries, find
from outlast.shutdown.watchdog import _EndAsInit
from outlast.tools.doctor.registry import HERE, IN_MANIFESTS
from support.alert_rules import rules_of

DOCS = Path(__file__).parents[2] / "docs"
ALL = {entry.name: entry for entry in entries()}


def of(kind: str) -> list[str]:
    return [entry.name for entry in entries() if entry.kind == kind]


def every_error() -> set[type]:
    """All of the package, whichever module has them."""
    for module in pkgutil.walk_packages(outlast.__path__, "outlast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, waiting = set(), [Explained]
    while waiting:
        more = [
            one for one in waiting.pop().__subclasses__() if one.__module__.startswith("outlast.")
        ]
        found.update(more)
        waiting += more
    return found


def test_every_error_of_the_package_has_a_text_or_names_its_parents():
    kinds = every_error()
    assert {kind.explained_as for kind in kinds} == set(of("error"))
    for kind in kinds:
        assert kind.explained_as in [parent.__name__ for parent in kind.__mro__], kind
    assert {"Backpressure", "Diverged", "Evicted", "HTTPUnclear", "NoStore"} <= set(of("error"))
    assert issubclass(OutlastError, Explained)


def test_every_alert_exit_code_and_check_has_one():
    assert set(of("alert")) == set(rules_of("alert"))
    assert of("exit code") == [str(code) for code in (*exit_codes.MEANINGS, *exit_codes.FORCED)]
    assert set(of("check")) == {*HERE, *IN_MANIFESTS, "files", "determinism"}


def test_a_process_that_was_ended_is_explained_by_what_a_shell_or_a_container_says_of_it():
    signals = (signal.SIGKILL, signal.SIGALRM, signal.SIGTERM)
    assert exit_codes.FORCED == (_EndAsInit.number, *(128 + number for number in signals))


def test_names_are_told_apart_in_any_case_and_so_are_their_headings():
    names = [entry.name.casefold() for entry in entries()]
    assert len(names) == len(set(names))
    for kinds in (["alert"], ["error", "parked", "exit code", "check"]):
        anchors = [entry.anchor for entry in entries() if entry.kind in kinds]
        assert len(anchors) == len(set(anchors))


@pytest.mark.parametrize("name", ALL)
def test_an_entry_is_a_sentence_and_all_its_parts(name):
    entry = ALL[name]
    assert re.fullmatch(r"[A-Z`][^\n]+\.", entry.summary), entry.summary
    assert list(entry.parts) == [label.rstrip(".") for label in PARTS[entry.kind]]
    assert all(text.strip() for text in entry.parts.values())
    assert (entry.summary + entry.body).replace("…", "").isascii()
    assert "docs/" not in entry.body, "who reads it may have the package alone"
    for other in re.findall(r"`outlast explain (\w+)`", entry.body):
        assert other in ALL


def commands_in(text: str) -> list[str]:
    shown = re.findall(r"^    (outlast .+)$", text, re.MULTILINE)
    return shown + [found for found in re.findall(r"`(outlast [^`]+)`", text) if "…" not in found]


def parse(line: str) -> None:
    """As the command line would, without executing anything."""
    line, _, piped = line.partition(" | xargs outlast ")
    if piped:
        parse(f"outlast {piped} ID")
    name, *words = shlex.split(line)[1:]
    command = command_line().commands[name]
    if words:  # without any it is a way to name the command
        command.make_context(name, words)


def everything_named() -> list[str]:
    texts = [f"{entry.summary}\n{entry.body}" for entry in entries()]
    texts += [rule["annotations"]["action"] for rule in rules_of("alert").values()]
    return sorted({line for text in texts for line in commands_in(text)})


@pytest.mark.parametrize(
    "line", [line for line in everything_named() if line != "outlast --version"]
)
def test_a_command_that_is_named_exists_with_its_options(line):
    parse(line)


def test_a_command_that_does_not_exist_is_noticed():
    for line in ("outlast shwo ID", "outlast show ID --everything", "outlast runs --status lost"):
        with pytest.raises(Exception, match=r"shwo|everything|lost"):
            parse(line)


@pytest.mark.parametrize("file", PAGES)
def test_the_pages_are_what_the_texts_make_of_them(file):
    assert (DOCS / file).read_text() == PAGES[file](), "outlast explain --write docs"


def test_the_runbook_begins_with_what_hurts_most():
    severity = {name: rule["labels"]["severity"] for name, rule in rules_of("alert").items()}
    order = [severity[name] for name in of("alert")]
    assert order == sorted(order), "critical ones first"
    assert of("alert")[0] == "OutlastCompensationsStuck"


@pytest.mark.parametrize(
    "asked",
    [
        "Backpressure",
        "backpressure",
        "outlast.errors.Backpressure",
        "outlast.errors:Backpressure",
        " Backpressure ",
        "Backpressure.",
        "outlast.errors.Backpressure:",
        "`outlast explain Backpressure`.",
    ],
)
def test_a_name_is_found_as_tracebacks_and_journals_write_it(asked):
    assert find(asked) is ALL["Backpressure"]


def test_close_names_are_offered():
    assert close("Backpresure")[0] == "Backpressure"
    assert close("deadletter") == ["OutlastDeadLetters"]
    assert "StoreUnavailable" in close("unavailable")
    assert close("zzzzzz") == []
    assert find("zzzzzz") is None
    assert find("") is None
    assert find(".") is None
