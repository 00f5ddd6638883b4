"""The statements for SQLite, as every version of Python takes them."""

import re
from importlib import resources

from outlast.store.sqlite import statements


def test_statements_have_no_numbered_placeholders():
    """`?1` is a name to Python's sqlite3: with a sequence of values that is deprecated since 3.12, and an error from 3.14 on."""
    texts = {
        name: text
        for name, text in vars(statements).items()
        if isinstance(text, str) and "SELECT" in text
    }
    assert len(texts) > 10
    assert [name for name, text in texts.items() if re.search(r"\?\d", text)] == []


def named() -> set[str]:
    """Return every statement that `statements` names, alone or in a group."""
    found: set[str] = set()
    for value in vars(statements).values():
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, tuple):
            found |= set(value)
        elif isinstance(value, dict):
            found |= {text for text in value.values() if isinstance(text, str)}
    return found


def test_every_statement_of_the_files_has_a_name_in_python():
    files = statements._sql
    words = {"level": 1, "new": 1, "above": ">=", "order": "ASC", "where": "{where}"}
    texts = {name: files(name, **words) for name in files.texts if name.isupper()}
    assert len(texts) > 100
    assert [name for name, text in texts.items() if text not in named()] == []


def test_comments_above_a_statement_are_left_out_and_fragments_filled_in():
    assert "-- The index" in (resources.files("outlast.store.sqlite.sql") / "claim.sql").read_text()
    assert statements.COME_DUE.startswith("UPDATE runs SET ready = CASE WHEN deaths_in_a_row >= 2")
    # The conditions of a list of runs are chosen at each call.
    assert [text for text in named() if "{" in text] == [statements._RUNS]
