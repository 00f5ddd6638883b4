"""What `import outlast` and opening an app load: not the parts that few programs use."""

import subprocess
import sys

import pytest

import outlast.sync
from outlast.api.lazy_names import SHARED

RARELY_USED = (
    "outlast.api.schedule", "outlast.api.watch", "outlast.effects", "outlast.engine.bulk", "outlast.engine.documents",
    "outlast.engine.inspection", "outlast.engine.schedule_policy", "outlast.engine.schedule_rows", "outlast.engine.scheduler",
    "outlast.engine.watching.events", "outlast.engine.watching.run_follower", "outlast.engine.watching.stream_follower",
    "outlast.explain", "outlast.fencing", "outlast.http", "outlast.integrations", "outlast.logs", "outlast.store.file",
    "outlast.store.memory", "outlast.store.postgres", "outlast.store.redis", "outlast.streams", "outlast.testing", "outlast.tools",
    "importlib.resources", "platform", "shutil", "sysconfig", "zipfile",
)  # fmt: skip
"""Packages and modules that a program which executes a workflow does not need."""

LOADED_WHEN_OPENED = (
    "outlast.engine.claimer", "outlast.engine.engine", "outlast.execution.run_execution", "outlast.shutdown.coordinator",
    "outlast.store.sqlite", "outlast.store.writer", "outlast.telemetry.meters",
)  # fmt: skip

PROGRAM = """
import asyncio
from outlast import Outlast, step, workflow

@step
async def double(x: int) -> int: return 2 * x

@workflow
async def four() -> int: return await double(2)

async def main():
    async with Outlast("sqlite:///a.db") as app:
        assert await (await app.start(four())).result() == 4

asyncio.run(main())
"""


def loaded_by(code, folder):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return done.stdout.split()


def within(modules, packages):
    return [
        name
        for name in modules
        if any(name == package or name.startswith(f"{package}.") for package in packages)
    ]


@pytest.mark.parametrize("module", ["outlast", "outlast.sync"])
def test_importing_it_loads_no_engine_and_nothing_rarely_used(module, tmp_path):
    loaded = loaded_by(f"import {module}", tmp_path)
    assert within(loaded, (*RARELY_USED, *LOADED_WHEN_OPENED)) == []


def test_executing_a_workflow_loads_nothing_rarely_used(tmp_path):
    loaded = loaded_by(PROGRAM, tmp_path)
    assert set(LOADED_WHEN_OPENED) <= set(loaded)
    assert within(loaded, RARELY_USED) == []


@pytest.mark.parametrize("module", ["outlast", "outlast.sync"])
def test_rarely_used_names_are_loaded_when_they_are_used(module, tmp_path):
    names = [*SHARED, "Watch", "resume_stream"]
    code = "; ".join(
        f"from {module} import {name}; {name} is o.{name} or print(7)" for name in names
    )
    loaded = loaded_by(f"import {module} as o; {code}", tmp_path)
    used = {"outlast.api.schedule", "outlast.engine.bulk", "outlast.engine.watching.events"}
    assert used <= set(loaded)
    assert "7" not in loaded


@pytest.mark.parametrize("module", [outlast, outlast.sync], ids=lambda module: module.__name__)
def test_an_unknown_name_is_an_attribute_error(module):
    with pytest.raises(
        AttributeError, match=f"module '{module.__name__}' has no attribute 'Schedul'"
    ):
        module.Schedul
