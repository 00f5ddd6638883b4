"""Hostile texts, an in-process command line and stores with hostile rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outlast.cli import main

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m[red]x[/red]\u202e\x9b1m\r\n\x7f\u2028end"
"""What a terminal would obey: a title, clear, colour, markup, direction, a C1 control, line ends."""
FORBIDDEN = frozenset("\x1b\x07\x9b\r\x7f\u202e\u2028")

JSON_TEXTS = {
    "deep list": "[" * 5_000 + "]" * 5_000,
    "deep object": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "deep, never closed": "[" * 5_000,
    "digits": "9" * 5_000,
    "overflow": "1e999",
    "nan": "NaN",
    "null": "null",
    "number": "7",
    "negative": "-1e300",
    "text": json.dumps(ESCAPES),
    "list": '[1,"a",null,[],{}]',
    "object": '{"__proto__":{"x":1},"__class__":"os.system","type":["x"],"message":{"a":1},"args":"x"}',
    "empty object": "{}",
    "duplicate keys": '{"type":1,"type":null,"key":1,"key":[]}',
    "surrogate": '"\\ud800"',
    "no JSON": ESCAPES,
    "empty": "",
    "markup": "<script>alert(1)</script> [link=x]y[/link] %s %(x)s {x} ${x}",
}
"""What a column that should hold JSON may hold."""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """The command line on one store. A traceback is an answer that no command may give."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.address, self._capsys = address, capsys

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", self.address])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err, words
        return Answer(int(ended.value.code or 0), out, err)


def harmless(answer: Answer) -> bool:
    """Nothing in it has power over a terminal."""
    return not FORBIDDEN & set(answer.out + answer.err)


def columns_of(db: sqlite3.Connection, table: str, kind: str) -> list[str]:
    """Those of this declared type."""
    return [
        name
        for _, name, declared, *_ in db.execute(f"PRAGMA table_info({table})")
        if declared == kind
    ]


def clone(db: sqlite3.Connection, table: str, where: str, **changed: Any) -> None:
    """The first row like that once more, otherwise."""
    cursor = db.execute(f"SELECT * FROM {table} WHERE {where} LIMIT 1")
    names = [one[0] for one in cursor.description]
    row = dict(zip(names, cursor.fetchone(), strict=True)) | changed
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def rewrite(path: Path, change: Callable[[sqlite3.Connection], Any]) -> Any:
    """Change a store as a program does that has the file and not Outlast."""
    with closing(sqlite3.connect(path)) as db, db:
        return change(db)


def chosen(texts: Sequence[str]) -> dict[str, str]:
    return {name: JSON_TEXTS[name] for name in texts}
