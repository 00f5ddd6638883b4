"""The statements for SQLite, as every version of Python takes them."""

import re

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
