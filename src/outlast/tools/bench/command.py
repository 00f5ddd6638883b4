"""`outlast bench`: measure what a store delivers here, and what limits it."""

from __future__ import annotations

import logging
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.exit_codes import TRY_AGAIN
from outlast.cli.options import JsonOption, StoreOnlyOption
from outlast.cli.output import answering, console, document, print_message
from outlast.cli.stores import existing
from outlast.cli.text import one_line, safe
from outlast.settings.load import load
from outlast.settings.redaction import masked

if TYPE_CHECKING:
    from rich.text import Text

    from outlast.tools.bench.figures import Figures, Recovery

WIDTH = 80
RECOVERY_SECONDS = 5.0
"""The approximate duration of the recovery measurement."""


def bench(
    *,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=1, max=3600, help="How long to measure commits and steps, in seconds."
        ),
    ] = 12.0,
    store: StoreOnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure an existing store, and say what limits it.

    It measures a durable commit, the steps of one run and of a hundred concurrent runs, and how
    soon another worker takes over after a kill -9. It works in a queue of its own, outlast.bench,
    which no other worker claims from, and deletes its runs when it ends, even after Ctrl-C. It is a
    load like any other: other users of the store share it.
    """
    with answering(as_json), _until_signal():
        loaded = load({"store": store})
        if not loaded.settings.store.startswith("memory:"):
            existing(store)
        from outlast.tools.bench.bench import bench as measured

        # Whatever Outlast would warn about appears in the report.
        logging.getLogger("outlast").addHandler(logging.NullHandler())
        print_message(
            f"measuring {masked(loaded.settings.store)} for about {seconds + RECOVERY_SECONDS:.0f} "
            "s"
        )
        figures = measured(loaded, seconds)
        if as_json:
            document(figures.document())
        else:
            _show(figures)


@contextmanager
def _until_signal() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, on which every part cleans up. The exit code stays distinct."""
    is_signalled = False

    def on_signal(*_: object) -> None:
        nonlocal is_signalled
        is_signalled = True
        signal.raise_signal(signal.SIGINT)

    # A shell's & starts processes with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    except KeyboardInterrupt:
        if is_signalled:
            print_message("stopped by SIGTERM.")
            raise typer.Exit(TRY_AGAIN) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(figures: Figures) -> None:
    out = console()
    out.print(f"{safe(figures.store)}\n")
    for line in _table(figures):
        out.print(line)
    for text in (_recovery(figures.recovery), *(limit.text for limit in figures.limits)):
        out.print(f"\n{textwrap.fill(text, WIDTH)}")


def _table(figures: Figures) -> list[Text]:
    from outlast.cli.grid import Cell, Column, grid
    from outlast.tools.bench.limits import ms

    columns = [
        Column(""),
        *(
            Column(name, right=True)
            for name in ("STEPS/S", "P50", "P99", "CPU/STEP", "STEPS/COMMIT")
        ),
    ]
    commit = figures.commit
    rows = [["one durable commit", "-", ms(commit.p50), ms(commit.p99), "-", "-"]]
    for name, steps in (
        ("a single run", figures.lone),
        (f"{figures.hundred.runs} runs at once", figures.hundred),
    ):
        spread = steps.latency
        each = ms(steps.cpu_each)
        rows.append(
            [
                name,
                f"{steps.per_second:,.0f}",
                ms(spread.p50),
                ms(spread.p99),
                each,
                f"{steps.per_commit:.1f}",
            ]
        )
    return grid(columns, [[Cell(text) for text in row] for row in rows])


def _recovery(recovery: Recovery) -> str:
    if recovery.not_measured is not None:
        return f"Recovery was not measured: {one_line(recovery.not_measured)}"
    *laps, last = (f"{seconds:.2f}" for seconds in recovery.seconds)
    return (
        f"Recovery: {', '.join(laps)} and {last} s from a kill -9 until another worker continued."
    )
