"""LangGraph keeps its checkpoints in the sessions of any store."""

import asyncio
import operator
import signal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from support_saver import CONFIG, RESULT, graph

from outlast import LimitExceeded, NotInRun, NotOwner, Outlast, OutlastError, sync
from outlast.integrations.langgraph import OutlastSaver
from support.agent_programs import AgentProgram

PROGRAM = AgentProgram.at(Path(__file__).with_name("support_saver.py"))
INPUT = {"done": []}


def on_saver(address, main, **options):
    """Return what `main(app, saver)` returns."""

    async def run():
        async with Outlast(address) as app:
            return await main(app, OutlastSaver(app, **options))

    return asyncio.run(run())


async def history(saver, thread="r", **options):
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    return [found async for found in saver.alist(config, **options)]


async def names(app, prefix, thread="r"):
    info = await app.session(f"langgraph:{thread}").info()
    return [] if info is None else [name for name in info.fields if name.startswith(prefix)]


def test_saver_passes_the_conformance_suite(place):
    @checkpointer_test(name="OutlastSaver")
    async def saver():
        async with Outlast(place) as app:
            yield OutlastSaver(app)

    report = asyncio.run(validate(saver))
    failures = [name for result in report.results.values() for name in result.failures]
    assert not failures
    assert all(result.detected and result.passed for result in report.results.values())
    assert report.conformance_level() == "FULL"


@pytest.mark.parametrize(
    "calls",
    [
        [1, 2, 2],
        pytest.param([2, 1, 2], marks=pytest.mark.extended),
        pytest.param([4, 1, 1], marks=pytest.mark.extended),
    ],
    ids=str,
)
def test_kill_repeats_at_most_the_nodes_in_flight(place, tmp_path, calls):
    PROGRAM.check_kills(PROGRAM.interrupted(place, tmp_path, signal.SIGKILL, calls))


def test_a_superstep_is_one_commit_of_its_writes_and_the_next_checkpoint(address):
    async def main(app, saver):
        async def sequence():
            state = await graph(saver).ainvoke(INPUT, CONFIG, durability="sync")
            return state, (await app.session("langgraph:r").info()).version

        return await sequence(), len(await history(saver))

    (state, version), count = on_saver(address, main)
    assert str(state["done"]) == RESULT
    # Two tasks of one superstep end one after the other, so one commit may be more.
    assert count == 6
    assert version <= count + 2


def test_sync_programs_use_the_same_saver(address):
    with sync.Outlast(address) as app:
        saver = OutlastSaver(app)
        builder = StateGraph(Counted)
        builder.add_node("add", lambda state: {"count": 1})
        builder.add_edge(START, "add")
        compiled, config = builder.compile(checkpointer=saver), saver.take("r")
        assert compiled.invoke({"count": 0}, config, durability="sync") == {"count": 1}
        assert compiled.invoke({"count": 0}, config) == {"count": 2}
        assert [one.values for one in compiled.get_state_history(config, limit=2)] == [
            {"count": 2},
            {"count": 1},
        ]
        # From another event loop, the async methods work too.
        assert len(asyncio.run(history(saver))) == 6
        saver.copy_thread("r", "copy")
        saver.prune(["r"])
        saver.delete_for_runs(["none"])
        saver.delete_thread("r")
        assert saver.get_tuple(config) is None
        copy = {"configurable": {"thread_id": "copy"}}
        assert saver.get_tuple(copy).checkpoint["channel_values"]["count"] == 2


def test_the_sync_methods_are_refused_on_the_loop_of_the_app(address):
    async def main(app, saver):
        await graph(saver).ainvoke(INPUT, CONFIG)
        with pytest.raises(NotInRun, match="would block"):
            saver.get_tuple(CONFIG)
        return await asyncio.to_thread(saver.get_tuple, CONFIG)

    assert str(on_saver(address, main).checkpoint["channel_values"]["done"]) == RESULT


# -- the fence


class Counted(TypedDict):
    count: Annotated[int, operator.add]


def pausing(saver):
    """Return a graph whose first node sets `paused` and waits for `resumed`."""
    paused, resumed = asyncio.Event(), asyncio.Event()

    async def first(state: Counted) -> dict[str, int]:
        paused.set()
        await resumed.wait()
        return {"count": 1}

    builder = StateGraph(Counted)
    builder.add_node("first", first)
    builder.add_node("second", lambda state: {"count": 10})
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=saver), paused, resumed


@pytest.mark.parametrize("lost_by", ["take", "delete"])
def test_a_run_that_lost_its_thread_cannot_write(place, lost_by):
    async def main(app, saver):
        compiled, paused, resumed = pausing(saver)
        config = await saver.atake("r")
        stale = asyncio.ensure_future(compiled.ainvoke({"count": 0}, config, durability="sync"))
        await paused.wait()
        # Another process takes over, or deletes the thread.
        other = OutlastSaver(app)
        if lost_by == "take":
            new = await other.atake("r")
        else:
            await other.adelete_thread("r")
        before = await names(app, "")
        resumed.set()
        with pytest.raises(NotOwner, match="Nothing was written"):
            await stale
        assert await names(app, "") == before
        if lost_by == "take":
            finished, _, goes_on = pausing(other)
            goes_on.set()
            assert (await finished.ainvoke(None, new))["count"] == 11

    on_saver(place, main)


def test_the_owner_is_no_metadata_and_reaches_subgraphs(address):
    async def main(app, saver):
        class Inner(TypedDict):
            count: Annotated[int, operator.add]

        inner = StateGraph(Inner)
        inner.add_node("ask", lambda state: {"count": interrupt("how many?")})
        inner.add_edge(START, "ask")
        outer = StateGraph(Inner)
        outer.add_node("desk", inner.compile())
        outer.add_edge(START, "desk")
        compiled = outer.compile(checkpointer=saver)
        config = await saver.atake("r")
        await compiled.ainvoke({"count": 0}, config)
        everything = {"configurable": {"thread_id": "r"}}
        found = [one async for one in saver.alist(everything)]
        assert len({one.config["configurable"]["checkpoint_ns"] for one in found}) == 2
        assert not [name for one in found for name in one.metadata if "owner" in name]
        order = [one.checkpoint["id"] for one in found]
        assert order == sorted(order, reverse=True)
        await OutlastSaver(app).atake("r")
        with pytest.raises(NotOwner):
            await compiled.ainvoke(Command(resume=3), config)
        return await compiled.ainvoke(Command(resume=3), everything)

    assert on_saver(address, main) == {"count": 3}


# -- what is stored


class Documents(TypedDict):
    pages: list[str]
    count: Annotated[int, operator.add]


def reader(saver, supersteps=4):
    builder = StateGraph(Documents)
    builder.add_node("read", lambda state: {"count": 1})
    builder.add_edge(START, "read")
    builder.add_conditional_edges(
        "read", lambda state: "read" if state["count"] < supersteps else "__end__"
    )
    return builder.compile(checkpointer=saver)


def test_values_that_do_not_change_are_stored_once(address):
    async def main(app, saver):
        await reader(saver).ainvoke({"pages": ["long"] * 50, "count": 0}, CONFIG)
        # The input, the pages and what starts the first node.
        return len(await names(app, "b/")), [
            found.checkpoint["channel_values"].get("pages") for found in await history(saver)
        ]

    blobs, pages = on_saver(address, main)
    assert blobs <= 2
    assert pages[:-1] == [["long"] * 50] * (len(pages) - 1)


def test_pruning_deletes_what_the_newest_checkpoint_does_not_need(address):
    async def main(app, saver):
        compiled = reader(saver)
        await compiled.ainvoke({"pages": ["first"] * 50, "count": 0}, CONFIG)
        await compiled.ainvoke({"pages": ["second"] * 50, "count": 0}, CONFIG)
        before = await compiled.aget_state(CONFIG)
        await saver.aprune(["r", "none"])
        after = await compiled.aget_state(CONFIG)
        assert (after.values, after.config) == (before.values, before.config)
        assert [len(await names(app, prefix)) for prefix in ("c/", "b/", "w/")] == [1, 1, 0]
        # It goes on from there.
        state = await compiled.ainvoke({"count": -4}, CONFIG)
        assert state == {"pages": ["second"] * 50, "count": 4 + 1 - 1}
        with pytest.raises(ValueError, match="'keep_latest' or 'delete'"):
            await saver.aprune(["r"], strategy="keep_some")

    on_saver(address, main)


def test_pruning_keeps_what_a_delta_channel_is_built_from(address):
    """Such a channel has a value in few checkpoints. The others count the steps since then."""

    async def main(app, saver):
        parent = None
        for step in range(5):
            values = {"log": ["long"]} if step == 1 else {}
            since = {"counters_since_delta_snapshot": {"log": (1, step - 1)}} if step != 1 else {}
            checkpoint = empty_checkpoint() | {
                "id": f"{step}",
                "channel_values": values,
                "channel_versions": {"log": f"{step}"},
            }
            config = {"configurable": {"thread_id": "r", "checkpoint_ns": ""}}
            config["configurable"] |= {} if parent is None else {"checkpoint_id": parent}
            metadata = {"source": "loop", "step": step, **since}
            config = await saver.aput(config, checkpoint, metadata, {"log": f"{step}"})
            await saver.aput_writes(config, [("log", step)], f"task {step}")
            parent = f"{step}"
        await saver.aprune(["r"])
        kept = [one.checkpoint["id"] for one in await history(saver)]
        built = await saver.aget_delta_channel_history(config=config, channels=["log"])
        return kept, built["log"]["seed"], [value for _, _, value in built["log"]["writes"]]

    assert on_saver(address, main) == (["4", "3", "2", "1"], ["long"], [1, 2, 3])


def test_a_checkpoint_whose_values_are_gone_is_refused(address):
    async def main(app, saver):
        await reader(saver).ainvoke({"pages": ["long"] * 50, "count": 0}, CONFIG)
        await app.session("langgraph:r").delete(*await names(app, "b/"))
        with pytest.raises(OutlastError, match="lacks values: they were deleted"):
            await saver.aget_tuple(CONFIG)

    on_saver(address, main)


def test_a_run_that_forks_an_old_checkpoint_survives_a_prune(address):
    """Its first checkpoint writes every value again, since the old ones may be gone."""

    async def main(app, saver):
        compiled = reader(saver)
        await compiled.ainvoke({"pages": ["long"] * 50, "count": 0}, CONFIG)
        await compiled.ainvoke({"pages": ["other"] * 50, "count": 0}, CONFIG)
        old = [one for one in await history(saver) if one.metadata["step"] == 1][-1]

        async def load_then_prune(config):
            found = await OutlastSaver.aget_tuple(saver, config)
            await OutlastSaver(app).aprune(["r"])
            return found

        saver.aget_tuple = load_then_prune
        fork = await compiled.aupdate_state(old.config, {"count": 1}, as_node="read")
        del saver.aget_tuple
        return (await compiled.aget_state(fork)).values

    assert on_saver(address, main)["pages"] == ["long"] * 50


def test_a_thread_has_a_limit(address):
    async def main(app, saver):
        with pytest.raises(LimitExceeded, match=r"langgraph:r.*fields_max=20"):
            await reader(saver, 50).ainvoke({"pages": [], "count": 0}, CONFIG, durability="sync")
        await saver.aprune(["r"])
        return len(await history(saver))

    assert on_saver(address, main, fields_max=20) == 1


def test_requests_that_are_too_large_together_are_written_one_by_one(address):
    async def main():
        async with Outlast(address, value_size_max=2_000) as app:
            saver = OutlastSaver(app)
            config = {"configurable": {"thread_id": "r", "checkpoint_ns": "", "checkpoint_id": "1"}}
            await asyncio.gather(
                *(saver.aput_writes(config, [("a", "x" * 1_000)], f"task {n}") for n in range(3))
            )
            with pytest.raises(LimitExceeded, match="value_size_max"):
                await saver.aput_writes(config, [("a", "x" * 2_000)], "task 4")
            return len(await names(app, "w/"))

    assert asyncio.run(main()) == 3


def test_writes_of_a_task_stay_and_special_ones_are_replaced(address):
    async def main(app, saver):
        first = await history_of_one(saver)
        await saver.aput_writes(first.config, [("a", 1)], "task", "~path")
        await saver.aput_writes(first.config, [("a", 2), ("b/c", 3)], "task", "~path")
        await saver.aput_writes(first.config, [("__interrupt__", "x")], "task/2")
        await saver.aput_writes(first.config, [("__interrupt__", "y")], "task/2")
        return (await saver.aget_tuple(first.config)).pending_writes

    assert on_saver(address, main) == [
        ("task/2", "__interrupt__", "y"),
        ("task", "a", 1),
        ("task", "b/c", 3),
    ]


async def history_of_one(saver) -> Any:
    await reader(saver, 0).ainvoke({"pages": [], "count": 0}, CONFIG)
    return (await history(saver, limit=1))[0]


def test_all_threads_are_listed_and_filtered(address):
    async def main(app, saver):
        for thread in ("a", "b"):
            config = {"configurable": {"thread_id": thread}, "metadata": {"user": thread}}
            await reader(saver, 2).ainvoke({"pages": [], "count": 0}, config)
        every = [one async for one in saver.alist(None)]
        assert [one.config["configurable"]["thread_id"] for one in every] == ["a"] * 4 + ["b"] * 4
        of_b = [one async for one in saver.alist(None, filter={"user": "b"}, limit=3)]
        assert [one.metadata["user"] for one in of_b] == ["b"] * 3
        last = {"configurable": {"thread_id": "b", "checkpoint_id": of_b[0].checkpoint["id"]}}
        before = [
            one async for one in saver.alist({"configurable": {"thread_id": "b"}}, before=last)
        ]
        assert [one.checkpoint["id"] for one in before[:2]] == [
            one.checkpoint["id"] for one in of_b[1:]
        ]

    on_saver(address, main)


def test_an_interrupted_copy_has_only_complete_checkpoints_and_can_be_repeated(address):
    async def main(app, saver):
        compiled = reader(saver)
        await compiled.ainvoke({"pages": ["long"] * 50, "count": 0}, CONFIG)
        target = app.session("langgraph:copy", ttl=None)
        values = await app.session("langgraph:r").all()
        # The process died after it had copied the values, the writes and two checkpoints.
        found = sorted(name for name in values if name.startswith("c/"))[:2]
        others = [name for name in values if not name.startswith("c/")]
        await target.update({name: values[name] for name in [*others, *found]})
        assert len(await history(saver, "copy")) == 2
        await saver.acopy_thread("r", "copy")
        return await app.session("langgraph:copy").all() == values

    assert on_saver(address, main)
