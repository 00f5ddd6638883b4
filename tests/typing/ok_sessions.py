"""What the type checkers must infer of sessions and checkpoints. Never executed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from outlast import Checkpoint, Outlast, Session, SessionInfo, checkpoint, session, sync, workflow


@dataclass
class Turn:
    who: str
    text: str


@workflow
async def chat(said: str) -> str:
    s = session("user:ada", ttl=3600)
    assert_type(s, Session)
    assert_type(await s.append("turns", Turn("user", said), keep=50), int)
    assert_type(await s.last("turns", 5, type=Turn), list[Turn])
    assert_type(await s.last("turns"), list[Any])
    name = await s.get("name", "stranger", type=str)
    assert_type(name, str)
    assert_type(await s.get("age", type=int), int | None)
    assert_type(await s.get("age", None, type=int), int | None)
    assert_type(await s.get("anything"), Any)
    assert_type(await s.set("name", name, version=3), int)
    assert_type(await s.update({"a": 1}, b=2), int)
    assert_type(await s.delete("a", "b"), int)
    assert_type(await s.all(), dict[str, Any])
    assert_type(await s.info(), SessionInfo | None)
    await s.clear()
    assert_type(await checkpoint("c").done("x"), bool)
    return name


async def program(app: Outlast) -> None:
    assert_type(app.session("s"), Session)
    assert_type(await app.sessions("user:", limit=5), list[SessionInfo])
    task = app.checkpoint("import")
    assert_type(task, Checkpoint)
    await task.save(page=3)
    assert_type(await task.get(), dict[str, Any])
    assert_type(await task.get("page", 0, type=int), int)
    assert_type(await task.get("page"), Any)
    await task.mark("fetch", [1])
    assert_type(await task.result("fetch", type=list[int]), list[int] | None)
    await app.session("s").append()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await app.session("s").last("turns", "5")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    app.session(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def blocking(app: sync.Outlast) -> None:
    s = app.session("s")
    assert_type(s, sync.Session)
    assert_type(s.get("n", 0, type=int), int)
    assert_type(s.last("turns", type=Turn), list[Turn])
    assert_type(s.set("n", 1), int)
    assert_type(s.info(), SessionInfo | None)
    assert_type(app.sessions(), list[SessionInfo])
    assert_type(app.checkpoint("c").get("page", 0, type=int), int)
    assert_type(app.checkpoint("c").done("x"), bool)
