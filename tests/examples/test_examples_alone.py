"""The examples that are one process: each ended in the middle of what it is for, again and again, and started again, until it is done; then nothing is.

By SIGTERM all of them; by SIGKILL those that the sessions of docs/examples*.md do not kill there, which are judged alike.
"""

import contextlib
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from example_tools import ExampleProcess, Stage
from judges import (
    judge_approval,
    judge_batch,
    judge_booked,
    judge_checkpoint,
    judge_langgraph,
    judge_openai,
    judge_pydantic,
    judge_report,
    judge_stream,
    judge_undone,
)

from outlast.store.address import store_at
from support.waiting import wait_until

SIGKILL, SIGTERM = signal.SIGKILL, signal.SIGTERM
TRY_AGAIN, BY_SIGTERM = 75, -SIGTERM
SHORT = {"OUTLAST_GRACE": "60", "OUTLAST_CHECKPOINT_RESERVE": "50", "OUTLAST_EXIT_RESERVE": "9.6"}
"""Steps have a tenth of a second in a drain. The answer takes longer, so the stream is asked to stop."""


@dataclass(frozen=True)
class Example:
    file: str
    judge: Callable[[Stage, list[ExampleProcess], int], None]
    moments: tuple[tuple[str, int], ...]
    """Each process but the last is killed at the `n`th line that is like this."""
    exits: int
    """How it ends by SIGTERM: `run` asks to be tried again, a program of one's own ends by the signal."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    at_once: int = 1
    """How much is under way at a time: what one SIGKILL may make it do again."""
    redone_by_sigterm: int = 0
    ends_in_the_last: bool = False
    """What is under way at its last moment is all that is left: a drain lets that end, and the run is done."""
    model: bool = False
    """It wants a model's server beside it."""
    deeds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Commands of `outlast` that a person types once a process has printed this line (when it has been killed, if it is killed there)."""

    @property
    def name(self) -> str:
        return " ".join((self.file, *self.args))


REFUSED, APPROVED = ("send", "trip-1", "approval", "false"), ("send", "trip-1", "approval", "true")
REWRITE = ("send", "article-1", "interrupt:review", "false")
PUBLISH = ("send", "article-1", "interrupt:review", "true")

TABLE = [
    Example("report.py", judge_report, (("part 3", 1), ("part 6", 1)), TRY_AGAIN),
    Example(
        "batch.py", judge_batch, (("^price", 20), ("^invoice", 10)), BY_SIGTERM, ("60",), at_once=8,
    ),
    Example("checkpoint.py", judge_checkpoint, (("page 10", 1), ("page 25", 1)), BY_SIGTERM, redone_by_sigterm=1),
    Example(
        "trip.py", judge_booked, (("book flight", 1), ("book hotel", 1), ("book car", 1)), TRY_AGAIN, ("Lisbon",),
        ends_in_the_last=True,
    ),
    Example(
        "trip.py", judge_undone, (("book hotel", 1), ("cancel hotel", 1), ("cancel flight", 1)), TRY_AGAIN,
        ("Porto", "--no-car"), ends_in_the_last=True,
    ),
    Example(
        "stream.py", judge_stream, (('"append"', 10), ('"append"', 10)), TRY_AGAIN, ("prefill",), SHORT, model=True,
    ),
    Example(
        "stream.py", judge_stream, (('"append"', 10),), TRY_AGAIN, ("cursor",), SHORT, model=True,
    ),
    Example(
        "approval.py", judge_approval, (("searches by air", 1), ("asks: .* by air", 1), ("asks: .* by train", 1), ("books", 1)), TRY_AGAIN,
        env={"OUTLAST_EFFECT_MARGIN": "0.5"}, deeds={"asks: .* by air": REFUSED, "asks: .* by train": APPROVED},
    ),
    Example("openai_agent.py", judge_openai, (("looks up", 1), ("refunds", 1)), TRY_AGAIN),
    Example("pydantic_agent.py", judge_pydantic, (("advises", 1), ("books", 1)), TRY_AGAIN),
    Example(
        "langgraph_agent.py", judge_langgraph, (("researches", 1), ("asks: .* draft 1", 1), ("asks: .* draft 2", 1), ("publishes", 1)), TRY_AGAIN,
        ends_in_the_last=True, deeds={"asks: publish draft 1": REWRITE, "asks: publish draft 2": PUBLISH},
    ),
]  # fmt: skip

KILLED = {"batch.py 60", "trip.py Lisbon", "stream.py cursor"}
"""Those that no session of the page kills, or not at all of these moments."""
FRAMEWORKS = {"openai_agent.py", "pydantic_agent.py", "langgraph_agent.py"}
"""Those that take seconds to start. tests/integrations stops the same adapters."""
ALONE = {"checkpoint.py", "approval.py"}
"""Of which SIGTERM may redo something; whose question is answered while it runs."""


def saved_by(process: ExampleProcess, stage: Stage, run: str) -> str:
    """What of the answer is in the store, once this process has saved something."""
    begun = json.loads(process.like('"set"')[0])["set"]
    store = store_at(f"sqlite:///{stage.folder / 'outlast.db'}")
    store.open()

    def saved() -> str:
        row = store.run(run)
        return "".join(json.loads(text)["str"] for text in store.progress(row.pk).values())

    try:
        wait_until(lambda: len(saved()) > len(begun), process.describe)
        return saved()
    finally:
        store.close()


def play(stage: Stage, example: Example, number: int | None) -> list[ExampleProcess]:
    """Its processes, each but the last killed at its moment (unless nobody kills), and what people type meanwhile."""
    processes: list[ExampleProcess] = []
    typed: set[str] = set()

    def type_deeds(process: ExampleProcess) -> None:
        for line, words in example.deeds.items():
            if line not in typed and process.like(line):
                typed.add(line)
                stage.answer(*words)

    env = example.env
    server: ExampleProcess | None = None
    if example.model:
        server = stage.start("model_server.py", 0)
        env = {**env, "MODEL_URL": f"http://127.0.0.1:{json.loads(server.until('port'))['port']}"}
    for line, times in example.moments if number is not None else ():
        saves = example.model and number == SIGKILL
        process = stage.start(
            example.file, *example.args, stop=None if saves else (line, times), **env
        )
        processes.append(process)
        if saves:
            process.until(line, times)
            process.saved = saved_by(process, stage, f"answer-{example.args[0]}")
        else:
            process.until_stopped()
        # However slow the drain is, the answer must not be complete before it.
        with contextlib.nullcontext() if server is None else server.paused():
            code = process.end(number)
        assert code == exit_code(example, number, is_last=(line, times) == example.moments[-1]), (
            process.errors
        )
        type_deeds(process)
    process = stage.start(example.file, *example.args, **env)
    processes.append(process)
    for line in example.deeds:
        if line not in typed:
            process.until(line)
            type_deeds(process)
    stage.said(process)
    return processes


def exit_code(example: Example, number: int, *, is_last: bool) -> int:
    if number == SIGKILL:
        return -SIGKILL
    return 0 if is_last and example.ends_in_the_last else example.exits


def again_at_most(example: Example, number: int) -> int:
    return len(example.moments) * (
        example.at_once if number == SIGKILL else example.redone_by_sigterm
    )


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(one, marks=pytest.mark.extended if one.file in FRAMEWORKS else ())
        for one in TABLE
    ],
    ids=lambda example: example.name,
)
def test_example_resumes_after_sigterm_without_repetition(stage, example):
    processes = play(stage, example, SIGTERM)
    example.judge(stage, processes, again_at_most(example, SIGTERM))
    again = stage.start(example.file, *example.args, **example.env)
    assert stage.said(again) == processes[-1].lines[-1:]
    example.judge(stage, [*processes, again], again_at_most(example, SIGTERM))


@pytest.mark.parametrize(
    "example", [one for one in TABLE if one.name in KILLED], ids=lambda one: one.name
)
def test_example_resumes_after_sigkill_without_duplicates(stage, example):
    processes = play(stage, example, SIGKILL)
    example.judge(stage, processes, again_at_most(example, SIGKILL))


@pytest.mark.parametrize(
    "example", [one for one in TABLE if one.name in ALONE], ids=lambda one: one.name
)
def test_example_does_everything_once_without_signals(stage, example):
    example.judge(stage, play(stage, example, None), 0)
