"""A step works on a copy of its arguments, live and on replay."""

import asyncio
import logging
import threading
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, PrivateAttr, field_serializer

from outlast import Unrecorded, step, sync, workflow
from outlast.testing import crash_everywhere

seen: list[object] = []


@pytest.fixture(autouse=True)
def _fresh():
    seen.clear()


@dataclass
class State:
    history: list[str] = field(default_factory=list)


class Config(BaseModel):
    model: str
    tags: set[str] = set()
    api_key: str = Field("", exclude=True)
    card: str = ""

    @field_serializer("card")
    def masked(self, card: str) -> str:
        return f"…{card[-4:]}"


@step
async def add(state: State, word: str) -> int:
    state.history.append(word)
    return len(state.history)


@step
def add_in_thread(state: State, word: str) -> int:
    state.history.append(word)
    return len(state.history)


@step
async def add_within(state: State) -> list[str]:
    await add(state, "inner")
    return state.history


@workflow
async def three_kinds() -> list[object]:
    state = State(["first"])
    counts = [await add(state, "a"), await add_in_thread.aio(state, "b"), await add_within(state)]
    return [*counts, state.history]


def test_caller_does_not_see_argument_changes_of_a_step():
    report = crash_everywhere(three_kinds())
    assert report.result == [2, 2, ["first"], ["first"]]
    assert report.crashes > 0


def test_sync_caller_does_not_see_argument_changes_of_a_step(world):
    @sync.workflow
    def flow() -> list[str]:
        state = State()
        add_in_thread(state, "a")
        return state.history

    assert world.run(flow()) == []


def test_step_does_not_see_later_changes_of_its_arguments(world):
    @step
    async def look(words: list[str]) -> list[str]:
        return words

    @workflow
    async def flow() -> list[str]:
        words = ["given"]
        call = look(words)
        words.append("later")
        return await call

    assert world.run(flow()) == ["given"]


def test_each_attempt_gets_the_arguments_as_they_were_given(world):
    @step(retries=2)
    async def fails_twice(words: list[str]) -> list[str]:
        words.append("tried")
        seen.append(list(words))
        if len(seen) < 3:
            raise ValueError
        return words

    @workflow
    async def flow() -> list[str]:
        return await fails_twice([])

    assert world.run(flow()) == ["tried"]
    assert seen == [["tried"]] * 3


def test_unrecorded_argument_is_passed_without_copying(world):
    client = threading.Lock()

    @step
    async def use(words: list[str], client: Annotated[object, Unrecorded]) -> None:
        seen.append(client)

    @workflow
    async def flow() -> None:
        await use(["a"], client)

    world.run(flow())
    assert seen == [client]


def test_copyable_parts_of_an_uncopyable_argument_are_copied(world):
    class Alive(BaseModel):
        words: list[str]
        client: object = Field(None, exclude=True)
        _lock: object = PrivateAttr(default_factory=threading.Lock)

    class Odd(str):
        __slots__ = ()

        def __new__(cls, text: str, more: int):
            return super().__new__(cls, text * more)

    @step
    async def use(alive: Alive, odd: str) -> None:
        alive.words.append("more")
        seen.append((alive.client, alive._lock, odd))

    @workflow
    async def flow() -> list[str]:
        alive = Alive(words=["a"], client=client)
        await use(alive, Odd("a", 2))
        return alive.words

    client = threading.Lock()
    assert world.run(flow()) == ["a"]
    assert seen[0][0] is client
    assert seen[0][2] == "aa"


def test_change_detection_never_fails_a_successful_step(world):
    @dataclass
    class Scratch:
        text: str

    @step(retries=2)
    async def takes_apart(scratch: Scratch) -> str:
        seen.append(scratch)
        text = scratch.text
        del scratch.text
        return text

    @workflow
    async def flow() -> str:
        return await takes_apart(Scratch("a"))

    assert world.run(flow()) == "a"
    assert len(seen) == 1


def test_changed_arguments_are_warned_about_once(world, caplog):
    @step
    async def adds(words: list[str]) -> None:
        words.append("more")

    @step
    async def looks(words: list[str]) -> None: ...

    @workflow
    async def flow() -> None:
        for _ in range(3):
            await adds(["a"])
            await looks(["a"])

    with caplog.at_level(logging.WARNING):
        world.run(flow())
    assert [record.getMessage().split(".")[0] for record in caplog.records] == [
        f"Step {adds.name} changes its arguments"
    ]


def test_excluded_model_fields_reach_the_step_and_are_not_recorded(world):
    @step
    async def ask(config: Config) -> str:
        seen.append((config.api_key, config.card))
        return "answer"

    @workflow
    async def flow() -> str:
        return await ask(
            Config(model="m", tags={"a", "b", "c"}, api_key="hush-hush", card="4111111111111234")
        )

    assert world.run(flow()) == "answer"
    assert seen == [("hush-hush", "4111111111111234")]
    recorded = "".join(str(entry) for entry in world.journal())
    assert "hush" not in recorded
    assert "4111" not in recorded
    assert '"model":"m"' in recorded
    assert world.replays(flow()) == "answer"


def test_models_that_differ_in_a_field_of_a_subclass_are_different_calls(world):
    class Message(BaseModel):
        text: str

    class Answer(Message):
        tool: str = ""

    class Chat(BaseModel):
        messages: list[Message]

    asks = ["search"]

    @step
    async def reply(chat: Chat) -> None:
        seen.append(chat)

    @workflow
    async def flow() -> None:
        await reply(Chat(messages=[Answer(text="hm", tool=asks[0])]))

    world.run(flow())
    assert '"tool":"search"' in (world.journal()[0].args or "")
    assert type(seen[0].messages[0]) is Answer


def test_waiting_step_is_not_affected_by_changes_of_the_callers_object(world):
    @step
    async def slow(words: list[str]) -> list[str]:
        await asyncio.sleep(10)
        return words

    @workflow
    async def flow() -> list[str]:
        words = ["given"]
        task = asyncio.create_task(slow(words))
        await asyncio.sleep(0)
        words.clear()
        return await task

    assert world.run(flow()) == ["given"]
