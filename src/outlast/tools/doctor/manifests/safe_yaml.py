"""Load untrusted YAML: execute nothing, and bound how much a small file can expand to."""

from __future__ import annotations

from typing import Any

import yaml

NODES_MAX = 1_000_000
"""Values in one document. Each reference counts again."""


def load(text: str) -> list[Any]:
    """Return all documents. Raise ValueError if the text is not YAML, or expands to too much."""
    documents = []
    try:
        loader: Any = _Loader(text)
        while loader.check_data():
            documents.append(loader.get_data())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f"line {mark.line + 1}: "
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ValueError(f"{line}{problem}") from None
    return documents


class _Loader(yaml.SafeLoader):
    def construct_document(self, node: yaml.Node) -> Any:
        if _weight(node, {}) > NODES_MAX:
            raise ValueError(f"its references (&, *) expand to more than {NODES_MAX:,} values")
        return super().construct_document(node)

    def construct_tagged(self, tag: str, node: yaml.Node) -> Any:
        """Accept the tags of other tools, such as compose's `!reset`."""
        if tag == "reset":
            return None
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        return node.value


_Loader.add_multi_constructor("!", _Loader.construct_tagged)


def _weight(node: Any, known: dict[int, int]) -> int:
    """Return how many values a node expands to. A node that refers to itself exceeds the limit."""
    if id(node) not in known:
        # A visit before the count is known means a cycle.
        known[id(node)] = NODES_MAX + 1
        inner = node.value if isinstance(node.value, list) else ()
        parts = [part for one in inner for part in (one if isinstance(one, tuple) else (one,))]
        known[id(node)] = min(NODES_MAX + 1, 1 + sum(_weight(part, known) for part in parts))
    return known[id(node)]
