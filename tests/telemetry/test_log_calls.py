"""Every log call in the source that is about a run names the run and redacts its traceback."""

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "outlast"


@cache
def calls() -> list[tuple[str, ast.Call]]:
    """Return every call of a logger in the source that is about a run, an item or a step."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text()
        if "log." not in source:
            continue
        tree = ast.parse(source)
        texts = {
            node.targets[0].id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
        }  # fmt: skip
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):  # fmt: skip
                continue
            if node.func.value.id != "log" or not node.args:
                continue
            first = node.args[0]
            text = (
                first.value
                if isinstance(first, ast.Constant)
                else texts.get(getattr(first, "id", ""), "")
            )
            if any(f"{what} %s" in str(text) for what in ("run", "item", "step", "effect")):
                found.append((f"{path.relative_to(SOURCE)}:{node.lineno} {text}", node))
    return found


def test_run_log_lines_name_their_run():
    found = calls()
    assert len(found) >= 15
    without = [
        where for where, call in found if not any(word.arg == "extra" for word in call.keywords)
    ]
    assert without == []


def test_run_log_lines_have_no_unmasked_traceback():
    """What an exception says is the program's: it is redacted."""
    for where, call in calls():
        assert call.func.attr != "exception", where
        for word in call.keywords:
            if word.arg == "exc_info":
                assert isinstance(word.value, (ast.Name, ast.Call)), where
                assert "redact" in ast.unparse(word.value), where
