"""Make a form of the JSON schema of a message, and a value of what was filled in.

A form says of each field what its text means, so reading it needs no schema. A value that does not
fit is refused by the run that receives it, whatever the form says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from outlast.http.rest.problems import Problem
from outlast.http.web.forms import Form

FIELDS_MAX = 40
OPTIONS_MAX = 100
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
SHAPES = ("one", "object")


class Field(NamedTuple):
    """One field of a form."""

    name: str
    label: str
    kind: str
    """text, integer, number, boolean, choice or json."""
    is_required: bool
    is_nullable: bool
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Of a choice: the JSON of each value, and its label."""
    default: str = ""


class MessageForm(NamedTuple):
    shape: str
    """one: the message is the value of the only field. object: it has the fields."""
    fields: list[Field]

    @property
    def is_question(self) -> bool:
        """Return whether the answer is yes or no."""
        return self.shape == "one" and self.fields[0].kind == "boolean"


def form_of(schema: Any) -> MessageForm | None:
    """Return the form of a schema. None: only JSON can say such a value."""
    if not isinstance(schema, dict):
        return None
    whole = _resolved(schema, schema)
    properties = whole.get("properties")
    if whole.get("type") == "object" and isinstance(properties, dict):
        if not 0 < len(properties) <= FIELDS_MAX or whole.get("additionalProperties"):
            return None
        required = whole.get("required", ())
        fields = [
            _field(str(name), one, schema, is_required=name in required)
            for name, one in properties.items()
        ]
        return MessageForm("object", fields)
    field = _field("", whole, schema, is_required=True)
    return None if field.kind == "json" else MessageForm("one", [field])


def _field(name: str, given: Any, root: Mapping[str, Any], *, is_required: bool) -> Field:
    schema = _resolved(given, root)
    choices = [_resolved(one, root) for one in schema.get("anyOf", ())]
    other = [one for one in choices if one.get("type") != "null"]
    is_nullable = len(other) < len(choices)
    if len(other) == 1:
        schema = {**other[0], **{key: schema[key] for key in ("default", "title") if key in schema}}
    label = str(schema.get("title") or name)
    hint = str(schema.get("description", ""))
    default = schema.get("default")
    kind = _KINDS.get(str(schema.get("type")), "json") if len(other) < 2 else "json"
    options: tuple[tuple[str, str], ...] = ()
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and 0 < len(values) <= OPTIONS_MAX:
        kind = "choice"
        options = tuple((json.dumps(one), str(one)) for one in values)
    is_text = kind == "text" and isinstance(default, str)
    shown = "" if default is None else default if is_text else json.dumps(default)
    return Field(name, label, kind, is_required, is_nullable, hint, options, str(shown))


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Follow references into the definitions of the schema."""
    for _ in range(5):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        found = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
        schema = {**found, **{key: one for key, one in schema.items() if key != "$ref"}}
    return {}


def value_of_form(form: Form) -> Any:
    """Return the value that was filled in. Raise Problem 422 for what is no such value."""
    names, kinds, texts = form.all("field"), form.all("type"), form.all("value")
    if form["shape"] not in SHAPES or not len(names) == len(kinds) == len(texts) <= FIELDS_MAX:
        raise Problem(422, "The form is not complete.", next="Open the page again.")
    if form["shape"] == "one":
        if len(names) != 1:
            raise Problem(422, "The form is not complete.", next="Open the page again.")
        return _value("the value", kinds[0], texts[0])
    found = {}
    for name, kind, text in zip(names, kinds, texts, strict=True):
        if kind.endswith("-left-out") and text == "":
            # The type has a default.
            continue
        found[name] = _value(name, kind.removesuffix("-left-out"), text)
    return found


def _value(name: str, kind: str, text: str) -> Any:
    if kind.endswith("-or-null"):
        if text == "":
            return None
        kind = kind.removesuffix("-or-null")
    if kind == "text":
        # A form has CRLF line ends.
        return text.replace("\r\n", "\n")
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _wrong(name, kind, text) from None
    fits = {
        "integer": type(value) is int,
        "number": type(value) in (int, float),
        "boolean": type(value) is bool,
    }
    if not fits.get(kind, True):
        raise _wrong(name, kind, text)
    return value


def _wrong(name: str, kind: str, text: str) -> Problem:
    what = {"integer": "a whole number", "number": "a number", "boolean": "yes or no"}
    wanted = what.get(kind, "JSON")
    return Problem(
        422,
        f"{name[:60] or 'The value'}: {text[:50]!r} is not {wanted}.",
        next="Go back and correct it.",
    )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
