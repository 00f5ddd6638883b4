"""The message of a divergence names the resume command and the line of code."""

import inspect

import pytest

from outlast import Diverged, RunParked, step, workflow
from outlast.testing.store_hooks import reopen

caught: list[Diverged] = []


@step
async def work(label: str) -> str:
    return label


@step
async def other(label: str) -> str:
    return label


@workflow(name="one")
async def as_it_was() -> str:
    return await work("a") + await work("b")


@workflow(name="one")
async def as_it_is() -> str:
    try:
        return await work("a") + await work("z")
    except Diverged as diverged:
        caught.append(diverged)
        raise


@pytest.mark.parametrize(("id", "quoted"), [("r-1", "r-1"), ("order 7", "'order 7'")])
def test_divergence_names_the_command_that_resumes_the_run(world, id, quoted):
    caught.clear()
    world.run(as_it_was(), id=id)
    world.restart()
    reopen(world.store, id)
    with pytest.raises(RunParked) as parked:
        world.run(as_it_is(), id=id)
    assert f"then run `outlast resume {quoted}`." in str(parked.value)
    [diverged] = caught
    assert f"then run `outlast resume {quoted}`." in str(diverged)
    assert diverged.line == f"{__file__}:{inspect.getsourcelines(as_it_is.fn)[1] + 3}"
    assert (diverged.recorded, diverged.asked) == (
        'step work#2({"label":"b"})',
        'step work#2({"label":"z"})',
    )


def test_arguments_that_do_not_fit_any_more_name_it_too(world):
    @workflow(name="two")
    async def before(n: str) -> str:
        return await work(n)

    @workflow(name="two")
    async def after(n: int) -> str:
        return await work(str(n))

    world.run(before("x"), id="r-1")
    world.restart(worker=True, workflows=[after])
    reopen(world.store, "r-1")

    async def wait(app):
        with pytest.raises(RunParked) as parked:
            await app.result("r-1", timeout=1e5)
        return str(parked.value)

    assert "then run `outlast resume r-1`." in world.do(wait)
