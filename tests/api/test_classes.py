"""Classes stay small enough to read, and only a class itself writes its attributes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from support.source_trees import assigned

ROOT = Path(outlast.__file__).parent
WITHOUT_REASON_MAX = 15
ATTRIBUTES_MAX = 20
REASON = re.compile(r"# (\d+) attributes: \w")

OWNERS = {"body", "drain", "ending", "lease", "outer", "owner", "uses", "whole", "within"}
"""What variables are called that hold the state of a step, the end of a run, or a lease."""

Module = tuple[Path, str, ast.Module]


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    """Return the path, text and tree of every module of the package."""
    texts = [(path, path.read_text()) for path in sorted(ROOT.rglob("*.py"))]
    return [(path.relative_to(ROOT), text, ast.parse(text)) for path, text in texts]


def classes(modules: list[Module]) -> Iterator[tuple[str, int, str]]:
    """Yield the name, the number of own attributes, and the text of every class."""
    for path, text, tree in modules:
        lines = text.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own = {target.attr for target in assigned(node) if is_self(target.value)}
                body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                yield f"{path}: {node.name}", len(own), body


def is_self(receiver: ast.expr) -> bool:
    return isinstance(receiver, ast.Name) and receiver.id == "self"


def test_no_class_has_more_than_twenty_attributes(modules):
    assert [name for name, count, _ in classes(modules) if count > ATTRIBUTES_MAX] == []


def test_large_class_has_a_comment_with_its_size_and_the_reason(modules):
    """`# 18 attributes: the call, ...`. The number makes whoever adds one read the comment."""
    wrong = []
    for name, count, text in classes(modules):
        said = REASON.search(text)
        if count > WITHOUT_REASON_MAX and (said is None or int(said[1]) != count):
            wrong.append(f"{name} has {count} attributes")
    assert wrong == []


def test_state_is_written_by_the_class_that_owns_it(modules):
    found = [
        f"{path}:{target.lineno}: {ast.unparse(target)}"
        for path, _, tree in modules
        for target in assigned(tree)
        if receiver_name(target.value).lstrip("_") in OWNERS
    ]
    assert found == []


def receiver_name(receiver: ast.expr) -> str:
    """Return the last name of `a.b.receiver`, or an empty string."""
    if isinstance(receiver, ast.Attribute):
        return receiver.attr
    return receiver.id if isinstance(receiver, ast.Name) else ""


CORE = {"store", "execution", "engine", "shutdown"}
OF_ASYNCIO = {"_log_destroy_pending", "_scheduled"}


def test_private_attributes_are_written_in_their_own_module(modules):
    found = []
    for path, _, tree in modules:
        if path.parts[0] in CORE:
            targets = list(assigned(tree))
            own = {target.attr for target in targets if is_self(target.value)}
            found += [
                f"{path}:{target.lineno}: {ast.unparse(target)}"
                for target in targets
                if re.match("_[^_]", target.attr) and target.attr not in own | OF_ASYNCIO
            ]
    assert found == []
