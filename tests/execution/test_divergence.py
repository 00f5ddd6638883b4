"""Changed code is detected before anything executes, and the run is parked."""

import asyncio

import pytest

from outlast import RunParked, sleep, step, workflow

acted: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done():
    acted.clear()


def make_step(name: str):
    @step(name=name)
    async def act(label: str = "") -> str:
        acted.append(f"{name} {label}".strip())
        if label == "slow":
            await asyncio.sleep(100)
        return label

    return act


a, b, c = make_step("a"), make_step("b"), make_step("c")


def flow(body, timeout=None):
    return workflow(name="flow", timeout=timeout)(body)


async def old() -> list[str]:
    return [await a("1"), await b("2"), await c("slow")]


def began(world, body=old, after=50):
    """A run of the old code that died in its last step."""
    world.die(flow(body)(), after=after)
    acted.clear()


async def renamed() -> list[str]:
    return [await a("1"), await make_step("b2")("2"), await c("slow")]


async def other_arguments() -> list[str]:
    return [await a("1"), await b("two"), await c("slow")]


async def removed() -> list[str]:
    return [await b("2"), await c("slow")]


async def added_before() -> list[str]:
    return [await make_step("new")("0"), await a("1"), await b("2"), await c("slow")]


async def added_between() -> list[str]:
    return [await a("1"), await make_step("new")("0"), await b("2"), await c("slow")]


async def swapped() -> list[str]:
    return [await b("2"), await a("1"), await c("slow")]


async def early_return() -> list[str]:
    return [await a("1")]


async def early_failure() -> list[str]:
    await a("1")
    raise ValueError("new check")


async def concurrent() -> list[str]:
    async def branch() -> str:
        return await b("2")

    return [*await asyncio.gather(a("1"), branch()), await c("slow")]


async def sleeps_instead() -> list[str]:
    await a("1")
    await sleep(1)
    return [await b("2")]


CHANGES = [
    renamed,
    other_arguments,
    removed,
    added_before,
    added_between,
    swapped,
    early_return,
    early_failure,
    concurrent,
    sleeps_instead,
]


@pytest.mark.parametrize("new", CHANGES, ids=lambda fn: fn.__name__)
def test_a_change_parks_the_run_before_anything_is_executed(world, new):
    began(world)
    with pytest.raises(RunParked, match=r"recorded (step )?.*\(.*outlast resume"):
        world.run(flow(new)())
    assert acted == []
    assert world.status() == "parked"
    assert world.kinds()[:2] == ["step", "step"]
    assert set(world.kinds()[2:]) <= {"death"}


@pytest.mark.parametrize("new", CHANGES, ids=lambda fn: fn.__name__)
def test_parked_run_resumes_with_the_old_code(world, new):
    began(world)
    with pytest.raises(RunParked):
        world.run(flow(new)())
    world.restart()
    world.do(lambda app: app.resume("run"))
    assert world.run(flow(old)()) == ["1", "2", "slow"]
    assert acted == ["c slow"]
    assert "resume" in world.kinds()


def test_a_repeated_resume_does_nothing_even_if_the_run_is_parked_again(world):
    began(world)
    for _ in range(2):
        with pytest.raises(RunParked):
            world.run(flow(renamed)())
        world.restart()
        world.do(lambda app: app.resume("run", token="resume-1"))
    assert world.status() == "parked"
    assert world.kinds().count("resume") == 1


def test_a_parked_run_stays_parked_until_a_person_resumes_it(world):
    began(world)
    with pytest.raises(RunParked):
        world.run(flow(renamed)())
    world.restart()
    with pytest.raises(RunParked):
        world.run(flow(old)())
    assert acted == []


def test_the_reason_names_what_was_recorded_and_what_was_asked(world):
    began(world)
    with pytest.raises(RunParked, match="b#1") as parked:
        world.run(flow(other_arguments)())
    assert '"2"' in parked.value.reason
    assert '"two"' in parked.value.reason


def test_message_about_an_unfitting_result_is_well_formed(world):
    @step(name="a")
    async def counts(label: str) -> int:
        return len(label)

    async def counted() -> int:
        return await counts("1")

    began(world)
    with pytest.raises(
        RunParked,
        match=r"asked for a result of another type: '1' is not int\. The workflow has changed",
    ):
        world.run(flow(counted)())


def test_what_comes_after_the_recorded_part_may_change(world):
    async def longer() -> list[str]:
        return [*[await a("1"), await b("2")], await make_step("d")("new"), await c("3")]

    began(world)
    assert world.run(flow(longer)()) == ["1", "2", "new", "3"]
    assert acted == ["d new", "c 3"]


def test_changing_a_comment_a_local_name_or_a_docstring_changes_nothing(world):
    async def cosmetic() -> list[str]:
        """A docstring."""
        results = []  # a comment
        results.append(await a(label="1"))
        results.append(await b("2"))
        results.append(await c("slow"))
        return results

    began(world)
    assert world.run(flow(cosmetic)()) == ["1", "2", "slow"]
    assert acted == ["c slow"]


def test_a_changed_signature_of_the_workflow_parks_the_run(world):
    async def takes(topic: str) -> str:
        return await c("slow")

    async def takes_another(subject: str) -> str:
        return await c("slow")

    async def takes_a_set(topic: set[int]) -> str:
        return await c("slow")

    async def takes_more(topic: str, depth: int) -> str:
        return await c("slow")

    async def takes_nothing() -> str:
        return await c("slow")

    world.die(flow(takes)("tides"), after=50)
    row = world.row()
    for new in (takes_another, takes_a_set, takes_nothing, takes_more):
        acted.clear()
        call = flow(takes)("tides")
        call.workflow = flow(new)  # as a worker would find it: the recorded arguments, the new code
        with pytest.raises(RunParked, match="tides"):
            world.run(call)
        assert acted == []
        world.restart()
        world.do(lambda app: app.resume("run"))
    assert row.args == world.row().args
    assert world.run(flow(takes)("tides")) == "slow"
