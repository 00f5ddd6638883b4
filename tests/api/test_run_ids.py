"""An id is an idempotency key."""

import asyncio

import pytest

from outlast import BadName, Conflict, DuplicateName, LimitExceeded, step, workflow

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def work(label: str, seconds: float = 0.0) -> str:
    done.append(label)
    await asyncio.sleep(seconds)
    return label


@workflow
async def report(topic: str, seconds: float = 0.0) -> str:
    return await work(topic, seconds)


@workflow
async def other(topic: str) -> str:
    return await work(topic)


@workflow
async def fails() -> None:
    raise ValueError("no")


def test_a_finished_run_returns_its_result_and_executes_nothing(world):
    assert world.run(report("tides")) == "tides"
    world.restart()
    assert world.run(report("tides")) == "tides"
    assert done == ["tides"]


def test_a_failed_run_raises_again_and_executes_nothing(world):
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            world.run(fails())


def test_other_arguments_raise_a_conflict_that_names_both_calls(world):
    world.run(report("tides"))
    with pytest.raises(Conflict, match=r"tides.*moon"):
        world.run(report("moon"))
    assert done == ["tides"]


def test_another_workflow_is_a_conflict(world):
    world.run(report("tides"))
    with pytest.raises(Conflict, match=r"report.*other"):
        world.run(other("tides"))


def test_conflict_does_not_disturb_the_running_run(world):
    async def main(app) -> str:
        run = await app.start(report("tides", 10), id="run")
        for start in (app.start, app.submit):
            with pytest.raises(Conflict):
                await start(report("moon"), id="run")
        return await run.result(timeout=100)

    assert world.do(main) == "tides"


def test_start_joins_a_running_run_in_the_same_process(world):
    async def main(app) -> list[str]:
        runs = [await app.start(report("tides", 10), id="run") for _ in range(5)]
        return await asyncio.gather(*[run.result(timeout=100) for run in runs])

    assert world.do(main) == ["tides"] * 5
    assert done == ["tides"]


def test_start_joins_a_running_run_from_another_process(file_world):
    async def main(app) -> list[str]:
        first = await app.start(report("tides", 10), id="run")
        async with file_world.another() as another:
            second = await another.start(report("tides", 10), id="run")
            return await asyncio.gather(first.result(timeout=100), second.result(timeout=100))

    assert file_world.do(main) == ["tides", "tides"]
    assert done == ["tides"]


def test_many_starts_at_once_execute_it_once(world):
    async def main(app) -> list[str]:
        async def one() -> str:
            return await (await app.start(report("tides", 1), id="run")).result(timeout=100)

        return await asyncio.gather(*[one() for _ in range(50)])

    assert world.do(main) == ["tides"] * 50
    assert done == ["tides"]


def test_runs_without_an_id_are_separate(world):
    async def main(app) -> set[str]:
        return {(await app.start(report("tides"))).id for _ in range(3)}

    assert len(world.do(main)) == 3


@pytest.mark.parametrize(
    "id", ["", "a\x00b", "line\nbreak", "\x1b[31m", "\ud800", "\u2028", "\x7f", "\x85"]
)
@pytest.mark.parametrize(
    "command", ["start", "submit", "get", "cancel", "retry", "resume", "send", "result", "journal"]
)
def test_an_id_that_cannot_be_stored_or_shown_is_refused_by_every_call(world, id, command):
    async def main(app) -> None:
        call = {
            "start": lambda: app.start(report("x"), id=id),
            "submit": lambda: app.submit(report("x"), id=id),
            "send": lambda: app.send(id, "name", 1),
        }.get(command, lambda: getattr(app, command)(id))
        with pytest.raises(BadName):
            if command == "get":
                app.get(report, id)
            else:
                await call()

    world.do(main)
    assert world.do(lambda app: app.runs()) == []


@pytest.mark.parametrize(
    "id",
    [
        "../../etc/passwd",
        "'; DROP TABLE runs; --",
        "%s{0}$x",
        "a b",
        "日本",
        "🌊",
        "a/b#1",
        " ",
        "-x",
    ],
)
def test_any_printable_text_is_an_id(world, id):
    assert world.run(report("tides"), id=id) == "tides"
    world.restart()
    assert world.run(report("tides"), id=id) == "tides"
    assert [info.id for info in world.do(lambda app: app.runs())] == [id]
    assert done == ["tides"]


def test_an_id_that_is_too_long_is_refused_before_anything_is_written(world):
    assert world.run(report("x"), id="i" * 500) == "x"
    with pytest.raises(LimitExceeded, match="id_length_max"):
        world.run(report("x"), id="i" * 501)
    assert len(world.do(lambda app: app.runs())) == 1


def test_two_workflows_of_one_name_are_an_error(world):
    @workflow(name="report")
    async def imposter(topic: str) -> str:
        return "fake"

    async def main(app) -> None:
        await app.start(report("x"), id="run")
        for act in (lambda: app.start(imposter("x")), lambda: app.submit(imposter("x"))):
            with pytest.raises(DuplicateName, match=r"imposter.*@workflow\(name="):
                await act()
        with pytest.raises(DuplicateName):
            app.get(imposter, "run")

    world.do(main)


def test_decorating_the_same_workflow_again_is_not_a_duplicate(world):
    def make():
        @workflow
        async def again() -> int:
            return 1

        return again

    async def main(app) -> list[int]:
        return [await (await app.start(make()(), id=str(n))).result(timeout=10) for n in range(2)]

    assert world.do(main) == [1, 1]
