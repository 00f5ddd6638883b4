"""Read untrusted YAML and JSON: execute nothing, and bound how much a small file can expand to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from outlast.errors import SettingsError

NODES_MAX = 1_000_000
"""Values in one document. Each reference counts again."""


def documents(path: str, text: str) -> list[dict[str, Any]]:
    """Return all documents of a file, with the items of a List one by one.

    Raise SettingsError if the text is not YAML, has no document, or has one that is not a table.
    """
    try:
        found = [one for one in _loaded(path, text) if one is not None]
    except RecursionError:
        raise SettingsError(f"{path}: this is nested too deeply for a manifest.") from None
    if not found or not all(isinstance(one, dict) for one in found):
        raise SettingsError(
            f"{path} has no manifest: the doctor reads Kubernetes YAML, a compose file, a .service "
            "unit or a Dockerfile."
        )
    return [one for document in found for one in _items(document)]


def table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a scalar as text. Empty for a list or a table."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int, float)) else ""


def words_of(value: Any) -> tuple[str, ...]:
    return tuple(text_of(word) for word in listed(value))


def _items(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if str(document.get("kind")).endswith("List") and "items" in document:
        kind = str(document["kind"]).removesuffix("List")
        for one in map(table, listed(document["items"])):
            yield from _items({"kind": kind, **one} if kind else one)
    else:
        yield document


def _loaded(path: str, text: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            # YAML accepts most of JSON, but no tabs.
            yield json.loads(text)
        except ValueError:
            yield from _yaml(path, text)
    else:
        yield from _yaml(path, text)


def _yaml(path: str, text: str) -> Iterator[Any]:
    try:
        import yaml
    except ImportError:
        raise SettingsError(
            "--manifest reads YAML with PyYAML: pip install 'outlast[manifest]'."
        ) from None
    loader = None
    try:
        loader = _loader()(text)
        while loader.check_node():
            node = loader.get_node()
            if _weight(node, {}) > NODES_MAX:
                raise SettingsError(
                    f"{path}: its references (&, *) expand to more than {NODES_MAX:,} values, too "
                    "many for a manifest."
                )
            yield loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise SettingsError(
            f"{path}{line}: this is not valid YAML "
            f"({getattr(error, 'problem', None) or 'it cannot be read'})."
        ) from None
    except SettingsError:
        raise
    # A date or a number is invalid.
    except ValueError as error:
        raise SettingsError(f"{path}: this is not valid YAML ({error}).") from None
    finally:
        if loader is not None:
            loader.dispose()


@cache
def _loader() -> Any:
    """Return a safe loader that accepts the tags of other tools, such as compose's `!reset`."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def plain(loader: Any, tag: str, node: Any) -> Any:
        if tag == "reset":
            return None
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    Loader.add_multi_constructor("!", plain)
    return Loader


def _weight(node: Any, known: dict[int, int]) -> int:
    """Return how many values a node expands to. A node that refers to itself exceeds the limit."""
    if id(node) in known:
        return known[id(node)]
    # A visit before the count is known means a cycle.
    known[id(node)] = NODES_MAX + 1
    inner = node.value if isinstance(node.value, list) else ()
    parts = [part for one in inner for part in (one if isinstance(one, tuple) else (one,))]
    known[id(node)] = min(NODES_MAX + 1, 1 + sum(_weight(part, known) for part in parts))
    return known[id(node)]
