"""`outlast demo`: show Outlast at work in about a minute."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from outlast.cli.exit_codes import FAILED
from outlast.cli.options import JsonOption
from outlast.cli.output import answering, document, obey_signals, say, write_whole
from outlast.errors import OutlastError

PACE_MAX = 8.0


def demo(
    *,
    pace: Annotated[
        float,
        typer.Option(
            "--pace",
            min=0.25,
            max=PACE_MAX,
            help="How fast the stand-in answers: 2 is twice as fast.",
        ),
    ] = 1.0,
    store_file: Annotated[
        Path,
        typer.Option(
            "--store-file",
            metavar="FILE",
            help="The SQLite file to create and keep. A file of an earlier demo is "
            "replaced, any other is rejected.",
        ),
    ] = Path("outlast-demo.db"),
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE.svg",
            help="Save the board as an animation, and its text beside it (.txt).",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch a research agent survive a SIGTERM and a `kill -9`.

    It runs on two workers. One gets SIGTERM in the middle of a tool call, the other SIGKILL in the
    middle of a streamed answer, and a third carries on. This takes about a minute, needs nothing
    but this package, and leaves a store to inspect. The demo kills only workers that it started.
    Exits with 1 if a claim that it shows does not hold.
    """
    if record is not None and record.suffix != ".svg":
        raise typer.BadParameter("the name of a picture ends in .svg.", param_hint="--record")
    if record is not None:
        _try_folder(record.absolute().parent)
    with answering(as_json):
        from outlast.tools.demo.facts import facts_of
        from outlast.tools.demo.scenario import Scenario
        from outlast.tools.demo.summary import document as summary_document
        from outlast.tools.demo.summary import summary
        from outlast.tools.demo.svg import picture, transcript
        from outlast.tools.demo.verdict import checks
        from outlast.tools.demo.view import Recorded, view_of

        logging.getLogger("outlast").addHandler(logging.NullHandler())
        obey_signals()
        shown = view_of(as_json=as_json)
        recorded = None if record is None else Recorded(shown)
        view = recorded or shown
        try:
            result = Scenario(store_file, view, pace=pace).run()
        finally:
            view.close()
        facts = facts_of(result)
        checked = checks(facts)
        end = summary(facts, checked, store_file)
        if as_json:
            document(summary_document(facts, checked, store_file))
        else:
            view.tell(end)
        if record is not None and recorded is not None:
            date = datetime.now(UTC).strftime("%Y-%m-%d")
            try:
                write_whole(record, picture(recorded.frames, end, date))
                write_whole(record.with_suffix(".txt"), transcript(result.events, end))
            except OSError as error:
                raise OutlastError(f"{record} or its text could not be written: {error}") from error
            say(f"the picture: {record}; its text: {record.with_suffix('.txt')}")
    if any(check.wrong for check in checked):
        raise typer.Exit(FAILED)


def _try_folder(folder: Path) -> None:
    """Check now that the folder is writable, not after the demo's minute."""
    try:
        with TemporaryFile(dir=folder):
            pass
    except (FileNotFoundError, NotADirectoryError):
        raise typer.BadParameter("there is no such folder.", param_hint="--record") from None
    except OSError as error:
        why = f"nothing can be written into that folder: {error.strerror}."
        raise typer.BadParameter(why, param_hint="--record") from None
