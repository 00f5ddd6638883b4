"""Oversized or deeply nested values are refused before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlast import (
    LimitExceeded,
    Outlast,
    Unrecordable,
    checkpoint,
    effect,
    progress,
    receive,
    session,
    step,
    workflow,
)

LIMIT = 2_000
LARGE = "x" * LIMIT


def deep(levels: int = 5_000, value: Any = 1) -> Any:
    for _ in range(levels):
        value = [value]
    return value


@dataclass
class Node:
    below: list[Node] = field(default_factory=list)


def deep_node(levels: int) -> Node:
    node = Node()
    for _ in range(levels):
        node = Node([node])
    return node


@workflow
async def waits(value: Any = None) -> Any:
    return await receive("go", Any)


@workflow
async def takes(node: Node) -> None:
    await receive("go", Any)


@step
async def returns(what: str) -> Any:
    return LARGE if what == "large" else deep()


@step
async def typed(levels: int) -> Node:
    return deep_node(levels)


@step
async def saves(what: str) -> None:
    async with progress() as saved:
        saved.save(LARGE if what == "large" else deep())


@effect(timeout=5.0, undo=None)
async def acts(value: Any) -> Any:
    return value


Entrance = Callable[[Outlast, Any], Awaitable[Any]]
OUTSIDE: dict[str, Entrance] = {
    "start": lambda app, value: app.start(waits(value), id="new"),
    "submit": lambda app, value: app.submit(waits(value), id="new"),
    "submit_many": lambda app, value: app.submit_many([waits(1), waits(value)], ids=["a", "b"]),
    "send": lambda app, value: app.send("there", "go", value),
    "put": lambda app, value: app.queue("mail").put(value),
    "put_many": lambda app, value: app.queue("mail").put_many([1, value]),
    "session.set": lambda app, value: app.session("s").set("f", value),
    "session.append": lambda app, value: app.session("s").append("f", value),
    "checkpoint.save": lambda app, value: app.checkpoint("s").save(f=value),
}


@pytest.mark.parametrize("what", ["large", "deep", "deep object"])
@pytest.mark.parametrize("entrance", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_oversized_or_deep_values_are_refused_from_outside(world, entrance, what) -> None:
    world.restart(value_size_max=LIMIT)
    value: Any = LARGE if what == "large" else deep() if what == "deep" else deep_node(150)
    refused: tuple[type[Exception], str] = (
        (LimitExceeded, "VALUE_SIZE_MAX")
        if what == "large"
        else (Unrecordable, "nested deeper|cannot take this|not plain JSON")
    )

    async def main(app: Outlast) -> tuple[list[str], int, int]:
        await app.submit(waits(), id="there")
        with pytest.raises(refused[0], match=refused[1]):
            await entrance(app, value)
        ids = [run.id for run in await app.runs()]
        return ids, len(world.store.messages(world.row("there").pk)), len(await app.sessions())

    assert world.do(main) == (["there"], 0, 0)
    assert [queue.name for queue in world.store.queues() if queue.queued] == ["default"]


def _from_a_run(entrance: Callable[[], Awaitable[Any]]) -> Any:
    @workflow(name="run")
    async def body() -> str:
        try:
            await entrance()
        except (LimitExceeded, Unrecordable) as error:
            return str(error)
        return "it was taken"

    return body


INSIDE: dict[str, tuple[Callable[[], Awaitable[Any]], str]] = {
    "a large result": (lambda: returns("large"), "value_size_max"),
    "a deep result": (lambda: returns("deep"), "nested deeper"),
    "a deep object": (lambda: typed(150), "nested deeper"),
    "large progress": (lambda: saves("large"), "value_size_max"),
    "deep progress": (lambda: saves("deep"), "nested deeper"),
    "large arguments of an effect": (lambda: acts(LARGE), "value_size_max"),
    "deep arguments of an effect": (lambda: acts(deep()), "maximum recursion depth"),
    "a large field of a session": (lambda: session("s").set("f", LARGE), "value_size_max"),
    "a deep field of a session": (lambda: session("s").set("f", deep()), "cannot take this list"),
    "a large field of a checkpoint": (lambda: checkpoint("s").save(f=LARGE), "value_size_max"),
}


@pytest.mark.parametrize(("entrance", "said"), INSIDE.values(), ids=INSIDE.keys())
def test_oversized_or_deep_values_are_refused_inside_runs(world, entrance, said) -> None:
    world.restart(value_size_max=LIMIT)
    assert said in world.run(_from_a_run(entrance)())
    assert max([len(entry.value or "") for entry in world.journal()], default=0) <= LIMIT
    assert world.store.progress(world.row().pk) == {}


def test_deeply_nested_object_is_refused_for_its_depth(world) -> None:
    assert takes(deep_node(50)).args
    with pytest.raises(Unrecordable, match="nested deeper than 200 levels"):
        takes(deep_node(150))


@pytest.mark.parametrize(
    "payload", ["[" * 60_000, "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, "9" * 5_000]
)
def test_the_command_line_refuses_json_that_is_too_deep_without_a_traceback(
    tmp_path, capsys, payload
) -> None:
    from security_tools import Shell

    from outlast.store.address import store_at
    from outlast.store.commands import Submit

    address = f"sqlite:///{tmp_path}/outlast.db"
    store = store_at(address)
    store.open()
    store.commit([Submit("r", "flow", "{}", "t", "00" * 16)])
    store.close()
    answer = Shell(address, capsys)("send", "r", "name", payload)
    assert answer.code in (1, 2)
    assert len(answer.err.splitlines()) <= 4
