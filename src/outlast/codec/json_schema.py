"""Describe what a codec accepts as a JSON schema, for forms."""

from __future__ import annotations

import json
import types
from typing import Any, Union, get_args, get_origin

from outlast.codec.codecs import Codec, FittedCodec, TypedCodec

SCHEMA_MAX = 8_000
"""A schema with more characters is not recorded. No form is made of it."""
_SIMPLE = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema_text(codec: Codec) -> str | None:
    """Return the JSON schema of what a codec accepts, as text. None if it says nothing of use."""
    try:
        if isinstance(codec, FittedCodec):
            schema = _plain(codec.annotation)
        elif isinstance(codec, TypedCodec):
            schema = codec.schema()
        else:
            return None
        text = json.dumps(schema, separators=(",", ":"))
    except Exception:
        # An annotation may be anything, and a form is not worth a run.
        return None
    return text if schema and len(text) <= SCHEMA_MAX else None


def _plain(annotation: Any) -> dict[str, Any]:
    """Return the schema of an annotation that plain JSON restores."""
    if annotation in (None, type(None)):
        return {"type": "null"}
    if annotation in _SIMPLE:
        return {"type": _SIMPLE[annotation]}
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_plain(one) for one in args]}
    if annotation is list or origin is list:
        return {"type": "array", **({"items": _plain(args[0])} if args else {})}
    if annotation is dict or origin is dict:
        return {"type": "object", **({"additionalProperties": _plain(args[1])} if args else {})}
    return {}
