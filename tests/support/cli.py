"""The command line, called in this process."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outlast.cli import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def answer_of(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> Answer:
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        main(words)
    return Answer(int(exit.value.code or 0), *capsys.readouterr())


def answer_in(
    folder: Path, words: Sequence[object], capsys: pytest.CaptureFixture[str], **env: str
) -> Answer:
    """The same as if typed in a folder, with these variables. What it imported from there is forgotten."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        for name, value in env.items():
            patch.setenv(name, value)
        try:
            return answer_of([str(word) for word in words], capsys)
        finally:
            for name in set(sys.modules) - before:
                file = getattr(sys.modules[name], "__file__", None)
                if file and Path(file).is_relative_to(folder):
                    del sys.modules[name]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may enter every folder, and write into it. What is imported here must be so already: libraries may be root's alone."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
