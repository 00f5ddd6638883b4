"""`outlast demo`: show Outlast at work in less than a minute."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.exit_codes import FAILED
from outlast.cli.options import JsonOption
from outlast.cli.output import answering, document, obey_signals, print_message, write_whole
from outlast.errors import OutlastError

if TYPE_CHECKING:
    from rich.text import Text

    from outlast.tools.demo.facts import Facts
    from outlast.tools.demo.svg import Recording
    from outlast.tools.demo.view import State


def demo(
    *,
    pace: Annotated[
        float,
        typer.Option(min=0.25, max=8.0, help="How fast the fake model answers. 2: twice as fast."),
    ] = 1.0,
    store_file: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The SQLite file to create and keep. A file of an earlier demo is "
            "replaced, any other is rejected.",
        ),
    ] = Path("outlast-demo.db"),
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="Save the board as an animation, and its text beside it (.txt).",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Watch a research agent survive a SIGTERM and a `kill -9`.

    It runs on three workers. A gets SIGTERM in the middle of a tool call, B is killed in the middle
    of a streamed answer, and C finishes every run. This takes less than a minute, needs nothing but
    this package, and leaves a store to inspect. At the end the demo lists the claims that it
    verified. It exits with 1 if one does not hold. It signals only workers that it started.
    """
    if record is not None:
        _check_recording(record)
    with answering(as_json):
        from rich.text import Text

        from outlast.tools.demo import claims
        from outlast.tools.demo.scenario import run_scenario
        from outlast.tools.demo.svg import Recording
        from outlast.tools.demo.view import view_of

        logging.getLogger("outlast").addHandler(logging.NullHandler())
        obey_signals()
        view = view_of(as_json=as_json)
        recording = Recording()

        def show(state: State) -> None:
            view.show(state)
            if record is not None:
                recording.show(state)

        try:
            facts = run_scenario(store_file, show, pace=pace)
        finally:
            view.close()
        checked = claims.check(facts)
        summary = claims.summary(checked, store_file)
        if as_json:
            document(claims.document(facts, checked, store_file))
        else:
            view.print([Text(), *summary])
        if record is not None:
            _save(recording, record, facts, summary)
    if any(claim.problems for claim in checked):
        raise typer.Exit(FAILED)


def _check_recording(file: Path) -> None:
    """Check now that the recording can be saved, not after the demo."""
    if file.suffix != ".svg":
        raise typer.BadParameter("the file's name must end in .svg.", param_hint="--record")
    try:
        with TemporaryFile(dir=file.absolute().parent):
            return
    except (FileNotFoundError, NotADirectoryError):
        why = "there is no such folder."
    except OSError as error:
        why = f"nothing can be written into that folder: {error.strerror}."
    raise typer.BadParameter(why, param_hint="--record")


def _save(recording: Recording, file: Path, facts: Facts, summary: Sequence[Text]) -> None:
    from outlast.tools.demo.svg import transcript

    text_file = file.with_suffix(".txt")
    try:
        write_whole(file, recording.picture(summary))
        write_whole(text_file, transcript(facts.events, summary))
    except OSError as error:
        raise OutlastError(f"{file} or {text_file} could not be written: {error}") from error
    print_message(f"saved the animation as {file} and its text as {text_file}")
