"""The sync `Outlast` and `Run`: blocking calls from any thread."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

import outlast
from outlast.sync import (
    Conflict,
    NotInRun,
    Outlast,
    OutlastError,
    SettingsError,
    StoreUnavailable,
    UnknownRun,
    WrongStatus,
    receive,
    run,
    step,
    workflow,
)
from support.waiting import WAIT_SECONDS, wait_until


@step
def double(number: int) -> int:
    return number * 2


@workflow
def doubled(number: int) -> int:
    return double(number)


@workflow
def waiting() -> int:
    return receive("number", int)


def portal_threads():
    return [thread for thread in threading.enumerate() if thread.name == "outlast-sync"]


def test_a_run_is_found_again_by_its_workflow_and_id(app):
    app.start(doubled(2), id="d-1").result()
    again = app.get(doubled, "d-1")
    assert (again.id, again.result(), repr(again)) == ("d-1", 4, "<run 'd-1'>")
    assert app.result("d-1") == 4


def test_same_id_returns_the_recorded_result_or_raises_a_conflict(app):
    assert app.start(doubled(2), id="d-1").result() == 4
    assert app.start(doubled(2), id="d-1").result() == 4
    with pytest.raises(Conflict):
        app.start(doubled(3), id="d-1")


def test_submitted_runs_are_queued(app):
    one = app.submit(doubled(1), id="d-1", queue="slow", priority=2)
    many = app.submit_many([doubled(2), doubled(3)], queue="slow")
    assert one.info().status == "queued"
    queued = app.runs(status="queued", queue="slow")
    assert {info.id for info in queued} == {run.id for run in [one, *many]}


def test_runs_journal_and_prune_behave_like_the_async_methods(app):
    app.start(doubled(1), id="d-1").result()
    assert [info.id for info in app.runs(status=("done", "failed"))] == ["d-1"]
    assert [(entry.kind, entry.key) for entry in app.journal("d-1")] == [("step", "double#1")]
    assert [info.id for info in app.runs(prefix="d-")] == ["d-1"]
    assert app.runs(prefix="e") == []
    assert app.prune(0, dead=True) == 1
    assert app.runs() == []


def test_errors_of_the_async_core_are_raised_unchanged(app):
    with pytest.raises(UnknownRun):
        app.journal("nothing")
    with pytest.raises(UnknownRun):
        app.send("nothing", "number", 1)
    app.start(doubled(1), id="d-1").result()
    with pytest.raises(WrongStatus):
        app.resume("d-1")


def test_result_timeout_does_not_affect_the_sync_run(app):
    run = app.start(waiting(), id="w-1")
    with pytest.raises(TimeoutError):
        run.result(timeout=0.02)
    with pytest.raises(TimeoutError):
        app.result("w-1", timeout=0.02)
    app.send("w-1", "number", 5)
    assert run.result() == 5


def test_sync_app_can_be_used_from_many_threads(app):
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: app.start(doubled(number)).result(), range(40)))
    assert results == [number * 2 for number in range(40)]


def test_async_workflows_execute_too(app):
    @workflow
    async def gathered() -> list[int]:
        return await asyncio.gather(*[double.aio(number) for number in range(3)])

    assert app.start(gathered()).result() == [0, 2, 4]


# -- opening and closing


def test_leaving_the_block_joins_the_portal_thread_after_an_exception(store):
    with pytest.raises(ZeroDivisionError), Outlast(store) as app:
        app.start(waiting())
        assert len(portal_threads()) == 1
        raise ZeroDivisionError
    assert portal_threads() == []


def test_sync_app_cannot_be_used_outside_its_block(store):
    app = Outlast(store)
    with pytest.raises(OutlastError, match="with Outlast"):
        app.start(doubled(1))
    with app:
        run = app.start(doubled(1))
        with pytest.raises(OutlastError, match="already open"), app:
            pass
        assert run.result() == 2
    with pytest.raises(OutlastError, match="with Outlast"):
        app.runs()
    with pytest.raises(OutlastError, match="closed"):
        run.result()


def test_a_store_that_cannot_be_opened_leaves_no_thread_behind():
    for address in ("sqlite:////proc/nowhere/outlast.db", "nonsense:"):
        with pytest.raises(OutlastError), Outlast(address):
            pass
    assert portal_threads() == []


def test_settings_are_checked_at_once_and_can_be_read(store):
    with pytest.raises(SettingsError):
        Outlast(store, leash=3)
    assert Outlast(store, lease=7).settings.lease == 7


def test_closing_wakes_waiters_in_other_threads_with_an_error(store):
    told = []

    def wait(run):
        try:
            run.result()
        except StoreUnavailable as error:
            told.append(str(error))

    with Outlast(store) as app:
        threads = [
            threading.Thread(target=wait, args=(run,))
            for run in (app.start(waiting(), id="here"), app.submit(waiting(), id="queued"))
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(app._portal._waiting) == 2)
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert len(told) == 2, told


def test_hung_step_does_not_block_leaving_the_sync_app(store):
    stubborn, go = threading.Event(), threading.Event()

    @step
    def hangs() -> None:
        stubborn.set()
        go.wait(WAIT_SECONDS)

    @workflow
    def stuck() -> None:
        hangs()

    try:
        with Outlast(store, close_timeout=0.5) as app:
            app.start(stuck())
            assert stubborn.wait(WAIT_SECONDS)
        assert not go.is_set(), "the block ended although the step still executes"
    finally:
        go.set()


def test_sys_exit_in_a_workflow_reaches_the_waiter(store):
    @workflow
    def leaving() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit), Outlast(store) as app:
        app.start(leaving()).result(timeout=WAIT_SECONDS)
    assert portal_threads() == []


# -- event loops


def test_sync_app_on_an_event_loop_names_the_alternative(store):
    async def mistaken():
        with Outlast(store):
            pass

    with pytest.raises(NotInRun, match="event loop"):
        asyncio.run(mistaken())

    async def mistaken_run():
        run(doubled(1), store=store)

    with pytest.raises(NotInRun, match="event loop"):
        asyncio.run(mistaken_run())


def test_open_sync_app_used_on_an_event_loop_names_the_alternative(app):
    async def mistaken():
        app.runs()

    with pytest.raises(NotInRun, match=r"asyncio\.to_thread"):
        asyncio.run(mistaken())

    async def well():
        return await asyncio.to_thread(app.runs)

    assert asyncio.run(well()) == []


def test_async_step_that_uses_the_sync_app_fails_instead_of_hanging(app):
    @step
    async def mistaken() -> int:
        return len(app.runs())

    @workflow
    async def hanging() -> int:
        return await mistaken()

    with pytest.raises(NotInRun, match="event loop"):
        app.start(hanging()).result(timeout=WAIT_SECONDS)


def test_sync_run_rejects_anything_but_a_call():
    with pytest.raises(TypeError, match="call of a workflow"):
        run(doubled)


def test_async_and_sync_apis_share_a_store(tmp_path):
    store = f"sqlite:///{tmp_path}/outlast.db"
    with Outlast(store) as app:
        app.start(doubled(4), id="d-1").result()
    assert outlast.run(doubled(4), id="d-1", store=store) == 8


def test_item_is_not_acked_when_its_sync_handler_returns_a_coroutine():
    told = SimpleQueue()
    with (
        ThreadPoolExecutor() as pool,
        Outlast("memory:", ramp=0, max_attempts=1, on_dead=told.put) as app,
    ):
        app.queue("mail").put("ann", id="letter-1")
        pool.submit(app.queue("mail").consume, lambda _: asyncio.sleep(0))
        assert told.get(timeout=WAIT_SECONDS).id == "mail/letter-1"


@pytest.mark.parametrize("handler", [double, asyncio.sleep], ids=["step", "coroutine function"])
def test_consume_refuses_steps_and_coroutine_functions(handler):
    with Outlast("memory:") as app, pytest.raises(TypeError, match=r"consume\(\)"):
        app.queue("mail").consume(handler)


def test_submissions_in_a_window():
    with Outlast(store="memory:") as app:
        first = app.submit(doubled(1), key="ann", debounce=60)
        assert app.submit(doubled(2), key="ann", debounce=60).id == first.id
        app.submit(doubled(1), id="a", window=60)
        with pytest.raises(Conflict, match="same window"):
            app.submit(doubled(1), id="a", window=60)


def test_workflows_are_paused_and_resumed():
    with Outlast(store="memory:") as app:
        app.pause_workflow(doubled, by="ann")
        assert [(one.name, one.by) for one in app.paused_workflows()] == [("doubled", "ann")]
        app.resume_workflow("doubled")
        assert app.paused_workflows() == []
