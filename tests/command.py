"""The command line, called in this process."""

import json
from collections.abc import Sequence
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
