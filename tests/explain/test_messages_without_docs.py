"""Messages name commands: who has installed the package has no docs/ beside it."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src/outlast"
PAGE = re.compile(
    r"\bdocs/[\w-]+\.md|(?<![\w-])(architecture|guarantees|shutdown|redis|postgres|effects|queues|settings)\.md\b"
)
OF_PAGES = {"explain/pages.py"}
"""What is written into docs/ may link there."""


def documented(tree: ast.AST) -> set[int]:
    """Strings that are docstrings, of attributes too: nobody is shown them at three in the morning."""
    blocks = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
    return {
        id(statement.value)
        for block in blocks
        for statement in block
        if isinstance(statement, ast.Expr)
    }


def literals(source: str) -> list[str]:
    tree = ast.parse(source)
    apart = documented(tree)
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
    ]


def test_no_message_names_a_page():
    found = [
        (str(path.relative_to(PACKAGE)), text)
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in OF_PAGES
        if ".md" in (source := path.read_text())  # to parse a file takes long
        for text in literals(source)
        if PAGE.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "source", ['x("docs/redis.md says")', 'raise E(f"{x}: see docs/redis.md")']
)
def test_message_that_names_a_page_is_found(source):
    assert any(PAGE.search(text) for text in literals(source))


def test_docstrings_may_name_a_page():
    assert (
        literals(
            '"""See docs/redis.md."""\nx = 1\n"""docs/redis.md"""\ndef f():\n    """docs/redis.md"""'
        )
        == []
    )
