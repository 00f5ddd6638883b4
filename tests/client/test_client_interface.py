"""A client has the methods of `Outlast`, with the same parameters."""

import inspect
import subprocess
import sys

import pytest

import outlast
import outlast.client

OF_A_PROCESS = {
    "configure": "a client has no store and no worker",
    "settings": "they are those of a process that executes",
    "draining": "it is about this process",
    "drain": "it drains this process",
    "wait_drain": "it is about this process",
    "run_until_drain": "it executes in this process",
    "on_cleanup": "it is about this process",
    "unhealthy": "it is about this process",
    "status_provider": "it is about this process",
    "start": "it executes in this process",
    "each": "it executes in this process",
    "map": "it executes in this process",
    "unit": "it executes in this process",
    "limiter": "it limits calls of this process",
    "claim": "a claim is a lease of this process",
    "consume": "it executes in this process",
}
"""What a client does not have, and why."""
WITHOUT = {"by": "the token says who", "batch": "the server chooses the size of its batches"}
"""Parameters that a client does not have, and why."""
PAIRS = [
    pytest.param(theirs, ours, id=theirs.__name__)
    for theirs, ours in [
        (outlast.Outlast, outlast.client.Client),
        (outlast.Run, outlast.client.Run),
        (outlast.Queue, outlast.client.Queue),
        (outlast.Watch, outlast.client.Watch),
        (outlast.Session, outlast.client.Session),
        (outlast.Checkpoint, outlast.client.Checkpoint),
    ]
]


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_client_has_every_public_method(theirs, ours):
    assert public(theirs) - public(ours) - set(OF_A_PROCESS) == set()
    assert public(ours) - public(theirs) == set()
    assert public(ours) & set(OF_A_PROCESS) == set()


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_methods_take_what_those_of_outlast_take(theirs, ours):
    for name in sorted(public(ours)):
        method = getattr(theirs, name)
        if not inspect.isfunction(method):
            continue
        wanted = [
            (one.name, one.kind, one.default)
            for one in inspect.signature(method).parameters.values()
            if one.name not in WITHOUT
        ]
        found = [
            (one.name, one.kind, one.default)
            for one in inspect.signature(getattr(ours, name)).parameters.values()
        ]
        assert found == wanted, name
        assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(
            getattr(ours, name)
        )


def test_every_public_name_has_a_docstring():
    for name in outlast.client.__all__:
        thing = getattr(outlast.client, name)
        assert (thing.__doc__ or "").strip(), name
        if inspect.isclass(thing):
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                assert method.startswith("_") or (function.__doc__ or "").strip(), method


def test_command_line_loads_the_client_only_for_a_server():
    code = "import sys, outlast.cli.stores, outlast.cli.worker; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    names = {one for one in loaded.stdout.split() if one.startswith("outlast.client.")}
    assert names == {"outlast.client.errors"}


def test_importing_the_client_loads_neither_httpx_nor_a_server():
    heavy = ["fastapi", "httpx", "psycopg", "redis", "sqlite3", "starlette", "uvicorn"]
    code = f"import sys, outlast.client; print(*sorted(set(sys.modules) & set({heavy})))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []
