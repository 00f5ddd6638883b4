"""`zygote.py FD`: a Python that has Outlast and its drivers imported, and forks for each program that it is asked to be. See `spawned.py`.

Asked to import more, it forks a zygote that has those modules too. Any other child is what `python FILE`, `python -c CODE` or `python -m MODULE` would be. It falls out of the loop below to the end of this file.
An exception that the program does not catch ends it as the interpreter does; otherwise `end` does.
"""

import atexit
import faulthandler
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic

import outlast

PRELOADED = (
    "anyio._backends._asyncio", "encodings.idna", "http.client", "httpx", "importlib.resources.readers", "outlast.testing.crash",
    "outlast.tools.bench.command", "outlast.tools.chaos.command", "outlast.tools.demo.command", "outlast.tools.deploy.command", "outlast.tools.doctor.command",
    "pydantic.fields", "pydantic.main", "pydantic.types", "typer._adapters", "typer._click.decorators", "uvicorn.lifespan.off", "uvicorn.lifespan.on",
)  # fmt: skip
"""What most programs of the tests import beside Outlast, and what other packages import when it is first needed."""
NOT_PRELOADED = ("outlast.integrations", "outlast.testing", "outlast.tools")
"""What few programs import (`spawned.FRAMEWORKS` has the integrations), and tools that read settings on import."""


def asked(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next program to be, in a child of this process."""
    while True:
        body, fds, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not body:
            os._exit(0)  # the process that asked is gone
        request = json.loads(body)
        if "reap" in request:
            requests.send(
                json.dumps([request["number"], os.waitpid(request["reap"], 0)[1]]).encode()
            )
        elif pid := os.fork():
            for fd in fds:
                os.close(fd)
            requests.send(json.dumps([request["number"], pid]).encode())
        elif "import" in request:
            requests.close()
            requests = socket.socket(fileno=fds[0])
            preload(request["import"])
        else:
            requests.close()
            return request, fds


def preload(modules: Iterable[str]) -> None:
    """Import the modules, and leave their objects to no garbage collection of a child."""
    gc.enable()
    for name in modules:
        importlib.import_module(name)
    assert threading.active_count() == 1, f"a fork would lose threads of {modules}"
    gc.collect()
    gc.disable()
    gc.freeze()


def modules_of(package: ModuleType) -> Iterator[str]:
    """Yield the modules of a package. Most of Outlast's are imported when they are first needed."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name not in NOT_PRELOADED and not module.name.endswith("__main__"):
            yield module.name
            if module.ispkg:
                yield from modules_of(importlib.import_module(module.name))


def become(request: dict[str, Any], fds: list[int]) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    if paths := os.environ.get("PYTHONPATH"):
        sys.path[1:1] = paths.split(os.pathsep)
    if options := request.get("warnings"):
        sys.warnoptions[:] = options
        warnings._processoptions(options)  # type: ignore[attr-defined]
    if request["unbuffered"]:
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(
            io.FileIO(1, "wb", closefd=False), write_through=True
        )
    gc.enable()


def execute(way: str, what: str, args: list[str]) -> None:
    sys.argv = [what if way == "file" else way, *args]
    sys.path[0] = {"file": str(Path(what).resolve().parent), "-c": "", "-m": str(Path.cwd())}[way]
    if way == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__builtins__ = __builtins__
    if way == "file":
        main.__file__, source = what, Path(what).read_bytes()
    code = compile(source if way == "file" else what, what if way == "file" else "<string>", "exec")
    exec(code, main.__dict__)


def end(code: object) -> None:
    """End this process as `sys.exit(code)` does, without taking apart all that the zygote had imported.

    That takes ten times as long as the rest of a short program, since a fork must copy each page that it changes.
    What the program itself has made is collected: who forgot to close something hears of it.
    """
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if (
        main := vars(sys.modules["__main__"])
    ) is not globals():  # `-m` has taken its module away itself
        main.clear()
    gc.collect()
    sys.stdout.flush()  # a pipe that is closed ends it as the interpreter does
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    preload((*modules_of(outlast), *PRELOADED))
    pydantic.TypeAdapter(int)  # the first one reads the metadata of all packages that are installed
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        program, its_fds = asked(asking)
    become(program, its_fds)
    exit_code: object = 0
    try:
        execute(*program["program"])
    except SystemExit as error:
        exit_code = error.code
    end(exit_code)
