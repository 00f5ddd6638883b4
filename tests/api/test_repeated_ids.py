"""A repeated id joins the existing run or raises Conflict."""

import asyncio
from dataclasses import dataclass

import pytest

from outlast import Conflict, Outlast, SettingsError, sync, workflow


@dataclass
class Source:
    url: str


def later_source() -> type:
    @dataclass
    class Source:
        url: str
        pages: int = 1

    return Source


LaterSource = later_source()


@workflow(name="report")
async def old(topic: str) -> str:
    return topic


@workflow(name="report")
async def new(topic: str, edition: int = 1) -> str:
    return f"{topic}, edition {edition}"


@workflow(name="read")
async def read(source: Source, tags: set[str]) -> str:
    return source.url


@workflow(name="read")
async def read_later(source: LaterSource, tags: set[str]) -> str:
    return source.url


@workflow
async def other(topic: str) -> str:
    return topic


def start(app, call, **options):
    return app.start(call, id="run", **options)


def submit(app, call, **options):
    return app.submit(call, id="run", **options)


async def submit_many(app, call, **options):
    runs = await app.submit_many([other("x"), call], ids=["x", "run"], **options)
    return runs[1]


WAYS = pytest.mark.parametrize("again", [start, submit, submit_many])


def recorded(world, call) -> None:
    assert world.run(call) is not None
    world.restart()


def result(world, again, call, **options) -> str:
    async def main(app) -> str:
        return await (await again(app, call, **options)).result(timeout=10)

    return world.do(main)


@WAYS
def test_a_run_recorded_before_a_parameter_with_a_default_was_added_is_joined(world, again):
    recorded(world, old("tides"))
    assert result(world, again, new("tides")) == "tides"
    assert result(world, again, new("tides", edition=1)) == "tides"


@WAYS
def test_a_call_that_leaves_out_a_recorded_default_is_joined(world, again):
    recorded(world, new("tides", edition=1))
    assert result(world, again, new("tides")) == "tides, edition 1"


@WAYS
def test_a_field_with_a_default_that_was_added_to_an_argument_is_no_conflict(world, again):
    recorded(world, read(Source("a.example"), {"a", "b", "c"}))
    call = read_later(LaterSource("a.example"), {"c", "b", "a"})
    assert result(world, again, call) == "a.example"


@WAYS
@pytest.mark.parametrize("call", [new("tides", edition=2), new("moon"), other("tides")])
def test_other_arguments_are_still_a_conflict(world, again, call):
    recorded(world, old("tides"))
    with pytest.raises(Conflict, match=r"report\(.*tides"):
        result(world, again, call)


@WAYS
def test_join_returns_the_existing_run_with_its_own_arguments(world, again):
    recorded(world, old("tides"))
    assert result(world, again, new("moon", edition=2), on_conflict="join") == "tides"
    assert world.store.run("run").args == '{"topic":"tides"}'


@WAYS
def test_join_does_not_join_a_run_of_another_workflow(world, again):
    recorded(world, old("tides"))
    with pytest.raises(Conflict):
        result(world, again, other("tides"), on_conflict="join")


def test_a_queued_run_that_is_joined_executes_with_the_recorded_arguments(world):
    world.do(lambda app: app.submit(old("tides"), id="run"))
    world.restart()
    assert result(world, start, new("moon", edition=2), on_conflict="join") == "tides, edition 1"


@WAYS
def test_a_policy_that_does_not_exist_is_refused_before_anything_is_written(world, again):
    with pytest.raises(SettingsError, match=r'on_conflict=.* must be "raise" or "join"'):
        result(world, again, old("tides"), on_conflict="ignore")
    assert world.do(lambda app: app.runs()) == []


def test_a_batch_joins_what_is_there_and_queues_the_rest_on_every_store(place):
    async def main() -> tuple[list[str], list[str]]:
        async with Outlast(place) as app:
            await app.submit(old("tides"), id="there")
        async with Outlast(place) as app:
            calls = [new("tides"), new("moon"), new("moon", 1), new("winds")]
            runs = await app.submit_many(calls, ids=["there", "twice", "twice", "winds"])
            return [run.id for run in runs], sorted(info.id for info in await app.runs())

    assert asyncio.run(main()) == (
        ["there", "twice", "twice", "winds"],
        ["there", "twice", "winds"],
    )


def test_a_batch_with_a_conflict_queues_nothing_on_any_store(place):
    async def main() -> list[str]:
        async with Outlast(place) as app:
            await app.submit(old("tides"), id="there")
        async with Outlast(place) as app:
            for ids in (["new", "there"], ["new", "new"]):
                with pytest.raises(Conflict):
                    await app.submit_many([new("moon"), new("moon", 2)], ids=ids)
            return [info.id for info in await app.runs()]

    assert asyncio.run(main()) == ["there"]


def test_the_sync_api_has_the_same_policy(tmp_path):
    @sync.workflow(name="report")
    def old(topic: str) -> str:
        return topic

    @sync.workflow(name="report")
    def new(topic: str, edition: int = 1) -> str:
        return f"{topic}, edition {edition}"

    store = f"sqlite:///{tmp_path}/sync.db"
    assert sync.run(old("tides"), id="run", store=store) == "tides"
    assert sync.run(new("moon"), id="run", store=store, on_conflict="join") == "tides"
    with sync.Outlast(store) as app:
        assert app.submit(new("tides"), id="run").result() == "tides"
        assert app.submit(new("moon"), id="run", on_conflict="join").result() == "tides"
        with pytest.raises(Conflict):
            app.submit(new("moon"), id="run")


def test_a_conflict_of_arguments_says_how_to_join():
    assert 'on_conflict="join"' in str(Conflict("r", "report(1)", "report(2)"))
    assert "renamed" in str(Conflict("r", "report(1)", "summary(1)"))
