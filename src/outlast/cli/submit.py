"""`outlast submit`: queue a run for the workers.

The command imports the run's file but executes nothing of the run.
"""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from outlast.api.internals import internals
from outlast.cli.options import (
    ArgsArgument,
    DelayOption,
    JsonOption,
    KeyOption,
    KwargsOption,
    RunIdOption,
    StoreOption,
    TargetArgument,
    WaitOption,
)
from outlast.cli.output import answering, document
from outlast.cli.server import App, caller_options, server_of
from outlast.cli.stores import acting_over_http, doing, shared
from outlast.cli.target import call_of, load
from outlast.cli.text import safe
from outlast.cli.worker_target import app_beside
from outlast.codec.identifiers import check_id, check_queue_name, new_ids
from outlast.engine.documents import run_document
from outlast.engine.submission import PRIORITY_MAX
from outlast.errors import StoreUnavailable
from outlast.settings import Settings
from outlast.store.protocol import Store
from outlast.store.rows import RunRow


def submit(
    target: TargetArgument,
    args: ArgsArgument = None,
    *,
    id: RunIdOption = None,
    kwargs: KwargsOption = None,
    queue: Annotated[
        str, typer.Option("--queue", metavar="NAME", help="The queue it waits in.")
    ] = "default",
    priority: Annotated[
        int,
        typer.Option(
            "--priority", min=-PRIORITY_MAX, max=PRIORITY_MAX, help="The highest is claimed first."
        ),
    ] = 0,
    delay: DelayOption = 0.0,
    wait: WaitOption = 0.0,
    key: KeyOption = None,
    join: Annotated[
        bool,
        typer.Option(
            "--join", help="Accept a run that has the id with other arguments; it keeps them."
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Queue a run for the workers. Print its id once it is durable.

    If the module has an Outlast object named `app`, its store and settings are used, as in a
    worker. Repeating the same --id is harmless. With other arguments it is an error, unless you
    pass --join. A full queue is an error (75); --wait waits for room first.
    """
    if not math.isfinite(delay):
        raise typer.BadParameter(
            "it must be a finite number of seconds, like 30 or 5m.", param_hint="--delay"
        )
    with answering(as_json):
        settings = Settings.load({})
        chosen = new_ids(1)[0] if id is None else check_id(id, settings.id_length_max, "run id")
        check_queue_name(queue, settings.name_length_max)
        # Importing the program may print something.
        with redirect_stdout(sys.stderr):
            call = call_of(load(target), tuple(args or ()), kwargs)
            theirs = app_beside(target)
        url = server_of(store)

        async def action(app: App, opened: Store) -> RunRow | None:
            await app.submit(
                call,
                id=chosen,
                queue=queue,
                priority=priority,
                delay=delay,
                wait=wait,
                on_conflict="join" if join else "raise",
                key=key,
                **caller_options(app),
            )
            return opened.run(chosen)

        try:
            if url is not None:
                row = acting_over_http(url, action)
            else:
                place = store or (
                    internals(theirs).config.address() if theirs is not None else None
                )
                row = doing(shared(place), action, theirs)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{error} Submit it again with --id {shlex.quote(chosen)}: it is queued once."
            ) from None
        if as_json:
            document({"id": chosen, "run": None if row is None else run_document(row)})
        else:
            print(safe(chosen), flush=True)
