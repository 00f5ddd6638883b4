"""The table of docs/upgrading.md: each change of a workflow's code, made while a run is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Call, Conflict, Outlast, RunParked, receive, sleep, step, workflow

PAGE = (Path(__file__).parents[2] / "docs/upgrading.md").read_text()
RECORDED = 3  # entries: two steps and a timer


@step
async def research(part: int) -> str:
    return f"finding {part}"


@step(name="research")
async def look_up(part: int) -> str:
    return f"finding {part}"


@step(name="research", retries=3, timeout=60)
async def with_another_body(part: int) -> str:
    return f"something else on {part}"


@step(name="research")
async def with_a_parameter_more(part: int, deep: bool = False) -> str:
    return f"finding {part}, {deep}"


@step(name="research")
async def with_another_result(part: int) -> int:
    return part


@step
async def write(findings: list[str]) -> str:
    return ", ".join(findings)


@workflow(name="report")
async def old(parts: int) -> str:
    findings = [await research(part) for part in range(1, parts + 1)]
    await sleep(0.05)
    await receive("approve", bool)
    return await write(findings)


def changed(
    findings: Callable[[int], Awaitable[list[str]]], seconds: float | None = 0.05
) -> Callable[[int], Call[str]]:
    """The same workflow with other code before what is recorded."""

    @workflow(name="report")
    async def new(parts: int) -> str:
        found = await findings(parts)
        if seconds is not None:
            await sleep(seconds)
        await receive("approve", bool)
        return await write(found)

    return new


def calling(body: Callable[[int], Awaitable[object]]) -> Callable[[int], Call[str]]:
    async def findings(parts: int) -> list[str]:
        return [str(await body(part)) for part in range(1, parts + 1)]

    return changed(findings)


async def one_after_the_other(parts: int) -> list[str]:
    return [await research(part) for part in range(1, parts + 1)]


async def together(parts: int) -> list[str]:
    return list(await asyncio.gather(*[research(part) for part in range(1, parts + 1)]))


async def one_more_before(parts: int) -> list[str]:
    await write([])
    return await one_after_the_other(parts)


async def one_less(parts: int) -> list[str]:
    return await one_after_the_other(parts - 1)


async def backwards(parts: int) -> list[str]:
    return [await research(part) for part in range(parts, 0, -1)]


@step
async def find(part: int) -> str:
    return f"finding {part}"


@dataclass
class Finding:
    text: str


def later_edition() -> tuple[type[Any], type[Any]]:
    """Of the same names."""

    @dataclass
    class Finding:
        text: str
        source: str = "the web"

    class Note(BaseModel):
        text: str
        source: str = "the web"

    return Finding, Note


SourcedFinding, SourcedNote = later_edition()


@dataclass
class Result:
    text: str


@step
async def note(part: int) -> Finding:
    return Finding(f"finding {part}")


@step(name="note")
async def note_with_a_field_more(part: int) -> SourcedFinding:
    return SourcedFinding(f"finding {part}")


@step
async def check(finding: Finding) -> str:
    return finding.text


@step(name="check")
async def check_with_a_field_more(finding: SourcedFinding) -> str:
    return finding.text


@step
async def ask(prompt: str) -> str:
    return prompt.removeprefix("please: ")


async def passed_on(part: int) -> str:
    return await check(await note(part))


async def passed_on_with_a_field_more(part: int) -> str:
    return await check_with_a_field_more(await note_with_a_field_more(part))


async def given(part: int) -> str:
    return await check(Finding(f"finding {part}"))


async def given_with_a_field_more(part: int) -> str:
    return await check_with_a_field_more(SourcedFinding(f"finding {part}"))


async def given_another_name(part: int) -> str:
    return await check(Result(f"finding {part}"))


async def given_another_value(part: int) -> str:
    return await check_with_a_field_more(SourcedFinding(f"finding {part}", "a book"))


class Note(BaseModel):
    text: str


@step
async def check_note(note: Note) -> str:
    return note.text


async def given_a_model(part: int) -> str:
    return await check_note(Note(text=f"finding {part}"))


async def given_a_model_with_a_field_more(part: int) -> str:
    return await check_note(SourcedNote(text=f"finding {part}"))


async def prompted(part: int) -> str:
    return await ask(f"finding {part}")


async def prompted_in_other_words(part: int) -> str:
    return await ask(f"please: finding {part}")


@workflow(name="report")
async def a_step_after(parts: int) -> str:
    findings = await one_after_the_other(parts)
    await sleep(0.05)
    await research(99)
    await receive("approve", bool)
    return await write(findings)


@workflow(name="report")
async def a_parameter_more(parts: int, edition: int = 1) -> str:
    findings = await one_after_the_other(parts)
    if edition > 1:
        findings = await one_after_the_other(edition)
    await sleep(0.05)
    await receive("approve", bool)
    return await write(findings)


@workflow(name="report")
async def a_parameter_renamed(count: int) -> str:
    return await write(await one_after_the_other(count))


@workflow(name="report")
async def a_parameter_without_a_default(parts: int, deep: bool) -> str:
    return f"{await write(await one_after_the_other(parts))}, {deep}"


@workflow(name="report")
async def a_parameter_gone() -> str:
    return await write(await one_after_the_other(2))


@workflow(name="report")
async def a_parameter_of_another_type(parts: list[int]) -> str:
    return await write([await research(part) for part in parts])


GOES_ON = {
    "another body": calling(with_another_body),
    "renamed, and its name kept": calling(look_up),
    "a step after what is recorded": a_step_after,
    "a parameter of the workflow": a_parameter_more,
    "a parameter of a step": calling(with_a_parameter_more),
    "a longer sleep": changed(one_after_the_other, 3600),
    "no sleep": changed(one_after_the_other, None),
    "gather": changed(together),
}
IS_PARKED = {
    "a step more": changed(one_more_before),
    "a step less": changed(one_less),
    "renamed": calling(find),
    "another order": changed(backwards),
    "other arguments": calling(lambda part: research(part + 1)),
    "another result": calling(with_another_result),
}
HAS_A_FIELD_MORE = {
    "passed on": (calling(passed_on), calling(passed_on_with_a_field_more)),
    "given": (calling(given), calling(given_with_a_field_more)),
    "a model's": (calling(given_a_model), calling(given_a_model_with_a_field_more)),
}
IS_PARKED_BY_AN_ARGUMENT = {
    "another value of a field": (
        calling(given),
        calling(given_another_value),
        "step check#1",
    ),
    "another name": (calling(given), calling(given_another_name), "step check#1"),
    "a prompt": (calling(prompted), calling(prompted_in_other_words), "step ask#1"),
}
TAKES_OTHERS = {
    "renamed": (a_parameter_renamed, [2]),
    "new without a default": (a_parameter_without_a_default, [2, True]),
    "gone": (a_parameter_gone, []),
    "another type": (a_parameter_of_another_type, [[1, 2]]),
}


async def begin(store: str, code: Callable[[int], Call[str]] = old) -> None:
    """With the old code, until it waits."""
    async with Outlast(store) as app:
        await app.start(code(2), id="r")
        while len(await app.journal("r")) < RECORDED:
            await asyncio.sleep(0.01)


async def go_on(store: str, call: Call[str]) -> str:
    async with Outlast(store) as app:
        await app.send("r", "approve", True)
        return await (await app.start(call, id="r")).result()


@pytest.fixture
def store(tmp_path):
    address = f"sqlite:///{tmp_path}/upgrade.db"
    asyncio.run(begin(address))
    return address


@pytest.mark.parametrize("new", GOES_ON.values(), ids=GOES_ON)
def test_a_run_under_way_does_not_notice(store, new) -> None:
    assert asyncio.run(go_on(store, new(2))) == "finding 1, finding 2"


@pytest.mark.parametrize("new", IS_PARKED.values(), ids=IS_PARKED)
def test_a_run_under_way_is_parked_and_goes_on_with_the_old_code(store, new) -> None:
    with pytest.raises(RunParked, match="the journal recorded step research#"):
        asyncio.run(go_on(store, new(2)))

    async def resumed() -> str:
        async with Outlast(store) as app:
            await app.resume("r")
        return await go_on(store, old(2))

    assert asyncio.run(resumed()) == "finding 1, finding 2"


@pytest.mark.parametrize(("was", "new"), HAS_A_FIELD_MORE.values(), ids=HAS_A_FIELD_MORE)
def test_a_run_goes_on_with_a_field_more_that_has_a_default(tmp_path, was, new) -> None:
    store = f"sqlite:///{tmp_path}/upgrade.db"
    asyncio.run(begin(store, was))
    assert asyncio.run(go_on(store, new(2))) == "finding 1, finding 2"


@pytest.mark.parametrize(
    ("was", "new", "place"), IS_PARKED_BY_AN_ARGUMENT.values(), ids=IS_PARKED_BY_AN_ARGUMENT
)
def test_a_run_is_parked_by_what_its_steps_are_given_and_is_to_be_resumed_before_it_goes_on(
    tmp_path, was, new, place
) -> None:
    store = f"sqlite:///{tmp_path}/upgrade.db"
    asyncio.run(begin(store, was))
    with pytest.raises(RunParked, match=f"the journal recorded {place}"):
        asyncio.run(go_on(store, new(2)))
    with pytest.raises(RunParked):
        asyncio.run(go_on(store, was(2)))

    async def resumed() -> str:
        async with Outlast(store) as app:
            await app.resume("r")
            return await (await app.start(was(2), id="r")).result()

    assert asyncio.run(resumed()) == "finding 1, finding 2"


@pytest.mark.parametrize(("new", "args"), TAKES_OTHERS.values(), ids=TAKES_OTHERS)
def test_parameters_that_the_recorded_arguments_do_not_fit_are_a_conflict_for_who_starts_it(
    store, new, args
) -> None:
    with pytest.raises(Conflict):
        asyncio.run(go_on(store, new(*args)))


@pytest.mark.parametrize("new", [new for new, _ in TAKES_OTHERS.values()], ids=TAKES_OTHERS)
def test_changed_workflow_parks_the_run_of_a_worker(store, new) -> None:
    async def parked() -> str:
        async with Outlast(store, worker=True, workflows=[new], ramp=0) as app:
            await app.send("r", "approve", True)
            return await app.get(new, "r").result()

    with pytest.raises(RunParked, match="the journal recorded the arguments"):
        asyncio.run(parked())


def test_the_table_has_these_rows_and_no_others() -> None:
    section = PAGE.partition("## What a run compares")[2].partition("\n## ")[0]
    rows = [
        line.split(" | ")[0].strip("| *") for line in section.splitlines() if line.startswith("| ")
    ]
    assert rows[1:] == [
        "the body, retries or time-out of a step or an effect",
        # The functions of this module are not in the module of the page.
        "comments, variable names, functions moved to another module",
        "a step added after the last recorded one",
        "a parameter with a default added to the workflow or to a step",
        "a field with a default added to a dataclass or model of a recorded argument or result",
        "a `sleep` removed or changed",
        "`gather` instead of sequential calls of the same steps in the same order",
        "a step added, removed or renamed before the last recorded one",
        "steps in another order or with other arguments",
        "a dataclass or model renamed** that a recorded step received",
        "a prompt reworded** that the workflow builds",
        "a result type changed** so that the recorded value does not fit",
        "a workflow parameter renamed, removed, given another type, or added without a default",
        # See test_unknown_workflow_waits_and_is_reported in tests/cli/test_cli_worker.py.
        "the workflow renamed",
    ]
