"""`outlast submit`: queue a run for the workers.

The command imports the run's file but executes nothing of the run.
"""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from outlast.api.internals import internals
from outlast.cli.options import (
    ArgsArgument,
    DebounceMaxOption,
    DebounceOption,
    DelayOption,
    JsonOption,
    KeyOption,
    KwargsOption,
    OnRepeatOption,
    RunIdOption,
    StoreOption,
    TargetArgument,
    WaitOption,
    WindowOption,
)
from outlast.cli.output import answering, document
from outlast.cli.server import App, caller_options, server_of
from outlast.cli.stores import acting_over_http, doing, shared
from outlast.cli.target import call_of, load
from outlast.cli.text import safe
from outlast.cli.worker_target import app_beside
from outlast.codec.identifiers import check_id, check_queue_name, new_ids
from outlast.engine.documents import run_document
from outlast.engine.submission import PRIORITY_MAX, OnConflict
from outlast.engine.submission_windows import policy_of
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
    debounce: DebounceOption = None,
    debounce_max: DebounceMaxOption = None,
    window: WindowOption = None,
    on_repeat: OnRepeatOption = None,
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

    --debounce and --window need --id or --key. With --debounce, the last run of a burst is
    executed. With --window, one run is accepted in that time.
    """
    if not math.isfinite(delay):
        raise typer.BadParameter(
            "it must be a finite number of seconds, like 30 or 5m.", param_hint="--delay"
        )
    windowed: dict[str, Any] = {
        "debounce": debounce,
        "debounce_max": debounce_max,
        "window": window,
        "on_repeat": None if on_repeat is None else on_repeat.value,
    }
    on_conflict: OnConflict = "join" if join else "raise"
    with answering(as_json):
        policy = policy_of(**windowed, id=id, key=key, delay=delay, on_conflict=on_conflict)
        settings = Settings.load({})
        given = None if id is None else check_id(id, settings.id_length_max, "run id")
        # The id of a run in a window is made of its name and the time.
        chosen = new_ids(1)[0] if given is None and policy is None else given
        check_queue_name(queue, settings.name_length_max)
        # Importing the program may print something.
        with redirect_stdout(sys.stderr):
            call = call_of(load(target), tuple(args or ()), kwargs)
            theirs = app_beside(target)
        url = server_of(store)

        async def action(app: App, opened: Store) -> tuple[str, RunRow | None]:
            run = await app.submit(
                call,
                id=chosen,
                queue=queue,
                priority=priority,
                delay=delay,
                wait=wait,
                on_conflict=on_conflict,
                key=key,
                **windowed,
                **caller_options(app),
            )
            return run.id, opened.run(run.id)

        try:
            if url is not None:
                submitted, row = acting_over_http(url, action)
            else:
                place = store or (
                    internals(theirs).config.address() if theirs is not None else None
                )
                submitted, row = doing(shared(place), action, theirs)
        except StoreUnavailable as error:
            if chosen is None or policy is not None:
                raise
            raise StoreUnavailable(
                f"{error} Submit it again with --id {shlex.quote(chosen)}: it is queued once."
            ) from None
        if as_json:
            document({"id": submitted, "run": None if row is None else run_document(row)})
        else:
            print(safe(submitted), flush=True)
