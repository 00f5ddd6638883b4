"""The statements of source files, for tests of what the code imports and defines."""

import ast
from collections.abc import Iterator


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement of a tree. Expressions, which are most of it, are not visited."""
    waiting = [tree]
    while waiting:
        current = waiting.pop()
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for node in getattr(current, block, ()):
                waiting.append(node)
                if isinstance(node, ast.stmt):
                    yield node


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield every attribute that a tree assigns to: `x.y = 1`, `x.y += 1`, `x.y, z = ...`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node
