"""The examples that are one process: each killed by SIGKILL and by SIGTERM in the middle of what it is for, again and again, and started again.

What happened outside is counted where it happened: nothing is lost, nothing is there twice, and little is done again. Without a kill nothing is.
"""

import json
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from example_tools import Life, Stage, until

from outlast.store.address import store_at

SIGKILL, SIGTERM = signal.SIGKILL, signal.SIGTERM
TRY_AGAIN, BY_SIGTERM = 75, -SIGTERM
TOKENS, SECONDS_A_TOKEN = 120, 0.03
SHORT = {"OUTLAST_GRACE": "2"}  # the answer takes longer than that: the stream is told to stop


@dataclass(frozen=True)
class Example:
    file: str
    judge: Callable[[Stage, list[Life], int], None]
    """Looks at what is outside and at all lives; the last argument is how often something may have been done again."""
    moments: tuple[tuple[str, int], ...]
    """Each life but the last is killed at the `n`th line that is like this."""
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
    """Commands of `outlast` that a person types once a life has printed this line (when it has been killed, if it is killed there)."""

    @property
    def name(self) -> str:
        return " ".join((self.file, *self.args))


def count(lives: list[Life], first_word: str) -> Counter[str]:
    return Counter(line for life in lives for line in life.lines if line.startswith(first_word))


def at_most(counted: Counter[str], different: int, again: int) -> None:
    assert len(counted) == different, sorted(counted)
    assert different <= counted.total() <= different + again, counted.most_common(12)


# --- judges: one an example ---


def judge_report(stage: Stage, lives: list[Life], again: int) -> None:
    at_most(count(lives, "researching"), 10, again)
    assert lives[-1].lines[-1] == str([f"finding {part}" for part in range(1, 11)])


def judge_batch(stage: Stage, lives: list[Life], again: int) -> None:
    at_most(count(lives, "price"), 1000, again)
    at_most(count(lives, "invoice"), 1000, again)
    written = {file.name: file.read_text() for file in (stage.folder / "invoices").iterdir()}
    assert written == {f"order-{n}.txt": f"order-{n}: {(100 + n % 900) / 100:.2f}\n" for n in range(1, 1001)}
    assert lives[-1].lines[-1] == "1000 invoices, 5096.00 in all"


def judge_checkpoint(stage: Stage, lives: list[Life], again: int) -> None:
    at_most(count(lives, "page"), 40, again)
    assert count(lives, "tell") == {"tell somebody": 1}
    assert lives[-1].lines[-1] == f"{sum(n * n for n in range(40))} of 40 pages"


def judge_booked(stage: Stage, lives: list[Life], again: int) -> None:
    assert [line.rpartition(" ")[0] for line in stage.ledger("ledger.txt")] == [
        "book flight", "book hotel", "book car",
    ]  # fmt: skip
    assert lives[-1].lines[-1] == "booked: flight in Lisbon, hotel in Lisbon, car in Lisbon"


def judge_undone(stage: Stage, lives: list[Life], again: int) -> None:
    assert [line.rpartition(" ")[0] for line in stage.ledger("ledger.txt")] == [
        "book flight", "book hotel", "cancel hotel", "cancel flight",
    ]  # fmt: skip
    assert lives[-1].lines[-1] == "no trip: no car left in Porto"


def judge_approval(stage: Stage, lives: list[Life], again: int) -> None:
    at_most(count(lives, "thinks"), 5, again)
    at_most(count(lives, "searches"), 2, again)
    at_most(count(lives, "asks"), 2, again)
    assert [line.partition(" ")[2] for line in stage.ledger("bookings.txt")] == ["Lisbon by train, 70 euros"]
    assert lives[-1].lines[-1] == "booked: Lisbon by train, 70 euros"


def judge_stream(stage: Stage, lives: list[Life], again: int) -> None:
    """One answer, in one voice: what was shown when a life ended is what the next one began with, up to what was not saved yet."""
    told = [[json.loads(line) for line in life.lines] for life in lives]
    saved = ""
    shown = ""
    for life, lines in zip(lives, told, strict=True):
        if any("set" in line for line in lines):
            begun = next(line["set"] for line in lines if "set" in line)
            assert shown.startswith(begun)
            assert begun.startswith(saved), "what was saved is not asked for again"
            assert again or begun == shown
            shown = begun + "".join(line["append"] for line in lines if "append" in line)
            saved = life.saved
    voice = shown.partition("-")[0]
    assert shown == told[-1][-1]["answer"] == "".join(f"{voice}-{n} " for n in range(TOKENS))


REFUSED, APPROVED = ("send", "trip-1", "approval", "false"), ("send", "trip-1", "approval", "true")

TABLE = [
    Example("report.py", judge_report, (("part 3", 1), ("part 6", 1)), TRY_AGAIN),
    Example(
        "batch.py", judge_batch, (("^price", 300), ("^invoice", 100)), BY_SIGTERM, at_once=8,
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
        "stream.py", judge_stream, (('"append"', 30), ('"append"', 20)), TRY_AGAIN, ("prefill",), SHORT, model=True,
    ),
    Example(
        "stream.py", judge_stream, (('"append"', 40),), TRY_AGAIN, ("cursor",), SHORT, model=True,
    ),
    Example(
        "approval.py", judge_approval, (("searches by air", 1), ("asks: .* by air", 1), ("asks: .* by train", 1), ("books", 1)), TRY_AGAIN,
        env={"OUTLAST_EFFECT_MARGIN": "0.5"}, deeds={"asks: .* by air": REFUSED, "asks: .* by train": APPROVED},
    ),
]  # fmt: skip


def saved_by(life: Life, stage: Stage, run: str) -> str:
    """What of the answer is in the store, once this life has saved something."""
    begun = json.loads(life.like('"set"')[0])["set"]
    store = store_at(f"sqlite:///{stage.folder / 'outlast.db'}")
    store.open()

    def saved() -> str:
        row = store.run(run)
        return "".join(json.loads(text)["str"] for text in store.progress(row.pk).values())

    try:
        until(
            lambda: len(saved()) > len(begun), lambda: f"nothing was saved: {life.lines[-5:]}\n{life.errors}"
        )
        return saved()
    finally:
        store.close()


def play(stage: Stage, example: Example, number: int | None) -> list[Life]:
    """Its lives, each but the last killed at its moment (unless nobody kills), and what people type meanwhile."""
    lives: list[Life] = []
    typed: set[str] = set()

    def type_deeds(life: Life) -> None:
        for line, words in example.deeds.items():
            if line not in typed and life.like(line):
                typed.add(line)
                stage.said(stage.outlast(*words))

    env = example.env
    if example.model:
        server = stage.start("model_server.py", 0, SECONDS_A_TOKEN)
        env = {**env, "MODEL_URL": f"http://127.0.0.1:{json.loads(server.until('port'))['port']}"}
    for line, times in example.moments if number is not None else ():
        life = stage.start(example.file, *example.args, **env)
        lives.append(life)
        life.until(line, times)
        if example.model and number == SIGKILL:
            life.saved = saved_by(life, stage, f"answer-{example.args[0]}")
        code = life.end(number)
        assert code == exit_code(example, number, is_last=(line, times) == example.moments[-1]), life.errors
        type_deeds(life)
    life = stage.start(example.file, *example.args, **env)
    lives.append(life)
    for line in example.deeds:
        if line not in typed:
            life.until(line)
            type_deeds(life)
    stage.said(life)
    return lives


def exit_code(example: Example, number: int, *, is_last: bool) -> int:
    if number == SIGKILL:
        return -SIGKILL
    return 0 if is_last and example.ends_in_the_last else example.exits


def again_at_most(example: Example, number: int) -> int:
    return len(example.moments) * (example.at_once if number == SIGKILL else example.redone_by_sigterm)


@pytest.mark.parametrize("number", [SIGKILL, SIGTERM], ids=["kill", "term"])
@pytest.mark.parametrize("example", TABLE, ids=lambda example: example.name)
def test_killed_in_the_middle_it_goes_on_and_nothing_is_there_twice(stage, example, number):
    lives = play(stage, example, number)
    example.judge(stage, lives, again_at_most(example, number))


@pytest.mark.parametrize("example", TABLE, ids=lambda example: example.name)
def test_left_alone_it_does_everything_once_and_started_again_nothing(stage, example):
    lives = play(stage, example, None)
    example.judge(stage, lives, 0)
    again = stage.start(example.file, *example.args, **example.env)
    assert stage.said(again) == lives[-1].lines[-1:]
    example.judge(stage, [*lives, again], 0)
