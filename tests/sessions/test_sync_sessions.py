"""Sessions and checkpoints of sync programs, workflows and steps."""

import threading
from contextlib import suppress

import pytest

from outlast import NotInRun as AsyncNotInRun
from outlast import session as async_session
from outlast import sync
from outlast import workflow as async_workflow
from outlast.sync import (
    NotInRun,
    NotInStep,
    Outlast,
    VersionConflict,
    checkpoint,
    session,
    step,
    workflow,
)


@pytest.fixture
def app(address):
    with Outlast(address, signals=0) as app:
        yield app


def test_sync_program_uses_sessions(app):
    s = app.session("s", ttl=60)
    assert s.id == "s"
    assert repr(s) == "<session 's'>"
    assert [s.set("name", "Ada"), s.update(age=36), s.update({"born": 1815}, died=1852)] == [
        1,
        2,
        3,
    ]
    assert s.append("turns", "a", "b", "c", keep=2) == 4
    assert (s.get("name"), s.get("none", 7), s.get("age", type=int)) == ("Ada", 7, 36)
    assert (s.last("turns"), s.last("turns", 1, type=str)) == (["b", "c"], ["c"])
    assert s.delete("age", "born") == 5
    assert s.all() == {"died": 1852, "name": "Ada", "turns": ["b", "c"]}
    info = s.info()
    assert info is not None
    assert (info.version, info.lists) == (5, {"turns": 2})
    assert [one.id for one in app.sessions("s")] == ["s"]
    with pytest.raises(VersionConflict):
        s.set("name", "Bob", version=1)
    s.clear()
    assert (s.info(), app.sessions()) == (None, [])


def test_field_may_have_any_name(app):
    names = ("method", "fn", "self", "make", "fields", "args", "kwargs", "func", "field")
    app.checkpoint("c").save(**dict.fromkeys(names, 1))
    app.session("s").update(**dict.fromkeys(names, 1))
    assert app.checkpoint("c").get() == app.session("s").all() == dict.fromkeys(names, 1)


def test_threads_append_to_one_session(app):
    def append(name):
        for n in range(10):
            app.session("s").append("l", f"{name}{n}")

    threads = [threading.Thread(target=append, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    items = app.session("s").last("l", None)
    assert len(items) == 20
    for name in "ab":
        assert [item for item in items if item[0] == name] == [f"{name}{n}" for n in range(10)]


@step
def body(said: str) -> int:
    return session("s").append("turns", f"body {said}")


@workflow
def chat(said: str) -> list:
    s = session("s")
    first = s.append("turns", said)
    name = s.get("name", "nobody")
    checkpoint("c").mark("told", name)
    try:
        s.set("name", "Bob", version=99)
    except VersionConflict as conflict:
        return [
            first,
            name,
            body(said),
            conflict.current,
            s.last("turns"),
            checkpoint("c").result("told"),
        ]
    return []


def test_sync_workflow_records_its_calls(app):
    app.session("s").set("name", "Ada")
    result = [2, "Ada", 3, 2, ["hi", "body hi"], "Ada"]
    assert app.start(chat("hi"), id="run").result() == result
    assert [entry.key for entry in app.journal("run")] == [
        "session.append#1", "session.get#1", "checkpoint.mark#1", "session.set#1", "body#1", "session.last#1",
        "checkpoint.get#1",
    ]  # fmt: skip
    assert app.start(chat("hi"), id="run").result() == result
    assert app.session("s").last("turns") == ["hi", "body hi"]


def test_session_of_the_app_can_be_used_in_its_workflows_and_steps(app):
    s = app.session("s")

    @step
    def inside() -> int:
        return s.append("turns", "step")

    @workflow
    def flow() -> list:
        return [s.append("turns", "flow"), inside(), app.checkpoint("c").done("x")]

    assert app.start(flow(), id="run").result() == [1, 2, False]
    assert [entry.kind for entry in app.journal("run")] == ["session", "step", "session"]


def test_session_of_a_run_is_refused_outside_it(app):
    kept = []

    @step
    def body() -> None:
        kept.extend([session("s"), checkpoint("c")])

    @workflow
    def flow() -> None:
        body()

    app.start(flow(), id="run").result()
    with pytest.raises(NotInRun, match=r"app\.session\(id\)"):
        kept[0].get("a")
    with pytest.raises(NotInRun, match=r"checkpoint\(\) is for .* app\.checkpoint\(id\)"):
        kept[1].get("a")


def test_session_in_the_wrong_place_is_refused(app):
    with pytest.raises(NotInRun, match=r"app\.session"):
        session("s")
    with pytest.raises(NotInRun, match=r"app\.checkpoint"):
        checkpoint("c")

    @async_workflow
    async def flow() -> None:
        session("s")

    with pytest.raises(NotInStep):
        app.start(flow(), id="one").result()

    @workflow
    def sync_flow() -> None:
        async_session("s")

    with pytest.raises(AsyncNotInRun, match=r"outlast\.sync\.session"):
        app.start(sync_flow(), id="two").result()

    @workflow
    def threads() -> None:
        def other():
            with suppress(NotInRun):
                sync.session("s").get("a")

        import contextvars

        thread = threading.Thread(target=contextvars.copy_context().run, args=(other,))
        thread.start()
        thread.join()

    with pytest.raises(NotInRun, match="its own thread"):
        app.start(threads(), id="three").result()


def test_sync_script_continues_from_its_checkpoint(address):
    with Outlast(address, signals=0) as app:
        task = app.checkpoint("import")
        assert (task.id, repr(task), task.get()) == ("import", "<checkpoint 'import'>", {})
        task.save(page=3, cursor="x")
        task.mark("fetched", {"rows": 7})
        task.mark("told")
        assert (task.get("page"), task.get("none", 1), task.get("page", type=int)) == (3, 1, 3)
        assert task.get() == {"page": 3, "cursor": "x"}
        assert (task.done("fetched"), task.done("told"), task.done("never")) == (True, True, False)
        assert (task.result("fetched"), task.result("told", 5), task.result("never", 5)) == (
            {"rows": 7},
            None,
            5,
        )
        task.clear()
        assert (task.get(), task.done("told")) == ({}, False)
