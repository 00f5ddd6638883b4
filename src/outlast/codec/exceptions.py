"""Record exceptions and rebuild them.

An exception comes back as its own type where that is safe. Its class must be found by name in a
module that is already loaded, because a journal must not cause an import. It is rebuilt without
calling its constructor, and when it was recorded, the rebuilt exception matched the original.
Otherwise it comes back as a `StepFailed`. The live execution also receives the rebuilt exception,
so `except` clauses behave the same in every execution.

A journal is untrusted input here. Printing a traceback acts on some attributes: Python 3.12 and
later import the module that `ImportError.name` names, and up to 3.12 Python draws as many
characters as `SyntaxError.end_offset` says. So rebuilding restores an attribute only if it is a
plain entry of the instance's `__dict__`, or is listed in `_RESTORED`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import traceback
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

from outlast.codec import plain_json
from outlast.codec.error_codec import ErrorCodec, own_data, rebuild_own
from outlast.errors import StepFailed, Unrecordable
from outlast.errors.explained import EXPLAIN

_PACKAGE = str(Path(__file__).parents[1])
_PAGE = re.compile(rf"{EXPLAIN} \w+")
"""The note that every Outlast error has."""

SEQ = "__outlast_seq__"
"""The attribute of a delivered exception that holds the number of its journal entry."""

UNREADABLE = "unreadable"
"""The type of an error whose record cannot be read."""
EXCERPT_MAX = 100
"""Characters of an unreadable record that a message shows."""

_TEXT, _NUMBER = (str,), (int,)
_ANY = (type(None), bool, int, float, str)
_Kinds = dict[str, tuple[type, ...]]
_UNICODE: _Kinds = {"object": _TEXT, "start": _NUMBER, "end": _NUMBER, "reason": _TEXT}
_RESTORED: dict[type, _Kinds] = {
    AttributeError: {"name": _TEXT},
    ImportError: {"msg": _TEXT},
    OSError: {
        "errno": _ANY,
        "strerror": _ANY,
        "filename": _ANY,
        "filename2": _ANY,
        "winerror": _ANY,
        "characters_written": _NUMBER,
    },
    StopIteration: {"value": _ANY},
    SyntaxError: {"msg": _TEXT},
    UnicodeEncodeError: {"encoding": _TEXT, **_UNICODE},
    UnicodeTranslateError: _UNICODE,
}
"""The attributes of built-in exceptions that are restored, and the types they may have."""
_LOST: dict[type, frozenset[str]] = {
    AttributeError: frozenset({"obj"}),
    ImportError: frozenset({"name", "name_from", "path"}),
    NameError: frozenset({"name"}),
    SyntaxError: frozenset(
        {"filename", "lineno", "offset", "text", "end_lineno", "end_offset", "print_file_and_line"}
    ),
}
"""The attributes that are not recorded, because Python acts on them. Rebuilding sets them to None.
"""

CANCELLED = '{"type":"asyncio.exceptions:CancelledError","message":"","args":[]}'
LEFT_OPEN = (
    '{"type":"asyncio.exceptions:CancelledError","message":"whether it happened is not known",'
    '"args":["whether it happened is not known"]}'
)
"""The outcome of an effect whose run ended before it was known whether the effect happened."""


class RecordedTraceback(Exception):
    """The original traceback, shown as the cause of the rebuilt exception."""

    def __str__(self) -> str:
        return f"\n{self.args[0].rstrip()}"


_RECORDED = re.compile(
    rf"^[ |]*{RecordedTraceback.__module__}\.{RecordedTraceback.__qualname__}: *\n", re.MULTILINE
)
"""The line that Python prints above the text of a RecordedTraceback."""


def encode_error(error: BaseException, text_max: int, codec: ErrorCodec | None = None) -> str:
    """Encode an exception as JSON. Messages and tracebacks are cut at `text_max` characters.

    If `codec` encodes the error, its data is recorded in addition.
    """
    if isinstance(error, asyncio.CancelledError):
        return CANCELLED
    if isinstance(error, StepFailed):
        name, message, trace = error.type_name, error.message, error.traceback_text
    else:
        name, message = _type_name(type(error)), message_of(error)
        trace = _trace(error)
    recorded: dict[str, Any] = {"type": name, "message": _cut(message, text_max)}
    if trace:
        recorded["traceback"] = _cut_middle(trace, text_max)
    state = _state(error, text_max)
    if state is not None:
        recorded.update(state)
    if codec is not None:
        data = own_data(error, codec, text_max)
        if data is not None:
            recorded["data"] = data
    return json.dumps(recorded, separators=(",", ":"))


def decode_error(text: str, codec: ErrorCodec | None = None) -> BaseException:
    """Rebuild a recorded exception, with the step's own codec if that has recorded it.

    Raise ValueError if the text is not a recorded exception. A replayed run is then parked instead
    of continuing with wrong data.
    """
    recorded = _read(text)
    if recorded is None:
        raise ValueError(f"a recorded error cannot be read: {text[:EXCERPT_MAX]}")
    error = rebuild_own(recorded, codec) or _rebuild(recorded)
    trace = recorded.get("traceback", "")
    if error is None or not _can_speak(error, recorded["message"]):
        error = StepFailed(recorded["type"].replace(":", "."), recorded["message"], trace)
    if trace:
        # Bypass the exception's own __setattr__: a frozen class would refuse.
        BaseException.__setattr__(error, "__cause__", RecordedTraceback(trace))
    return error


def describe_error(text: str) -> str:
    """Return `type: message` for people, or the text itself if it is not a recorded exception."""
    name, message = parts_of_error(text)
    if name == UNREADABLE:
        return message
    return f"{name}: {message}" if message else name


def parts_of_error(text: str) -> tuple[str, str]:
    """Return the type and message of a recorded exception.

    If the text is not one, return UNREADABLE and the text.
    """
    recorded = _read(text)
    if recorded is None:
        return UNREADABLE, text
    return recorded["type"].replace(":", ".").removeprefix("builtins."), recorded["message"]


def _read(text: str) -> dict[str, Any] | None:
    """Return the parsed record, or None if `encode_error` did not write it."""
    try:
        recorded = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(recorded, dict):
        return None
    texts = (recorded.get("type"), recorded.get("message"), recorded.get("traceback", ""))
    return recorded if all(isinstance(one, str) for one in texts) else None


def _can_speak(error: BaseException, message: str) -> bool:
    """Return whether str() of the exception works, or fails exactly as it did for the original.

    A rebuilt exception may have other arguments than its constructor would set, and its str() may
    fail on them. If the original failed the same way, `except` clauses can still catch it by its
    type.
    """
    try:
        str(error)
    except Exception:
        return message_of(error) == message
    return True


def _state(error: BaseException, text_max: int) -> dict[str, Any] | None:
    """Return what rebuilding needs, or None if rebuilding is not safe."""
    if any(kind.__dict__.get("__slots__") for kind in type(error).__mro__):
        # Values in slots are not part of its state.
        return None
    try:
        reduced = error.__reduce__()
    except Exception:
        # An exception that cannot be reduced cannot be rebuilt.
        return None
    if not isinstance(reduced, tuple) or len(reduced) < 2 or reduced[0] is not type(error):
        return None
    kept = reduced[2] if len(reduced) > 2 and isinstance(reduced[2], dict) else {}
    attributes = {
        name: value
        for name, value in {**kept, **vars(error), **_members(error)}.items()
        if name not in ("args", "__notes__", SEQ) and not _is_lost(type(error), name)
    }
    if not all(_is_restorable(type(error), name, value) for name, value in attributes.items()):
        return None
    # Try the constructor's arguments as __reduce__ reports them, then `args`. They differ for a
    # JSONDecodeError, which takes a text and reports where the text is wrong.
    for args in (reduced[1], error.args):
        state = _rebuilding(error, list(args), attributes, text_max)
        if state is not None:
            return state
    return None


def _rebuilding(
    error: BaseException, args: list[Any], attributes: dict[str, Any], text_max: int
) -> dict[str, Any] | None:
    """Return the state that rebuilds the error, or None if it does not.

    Text arguments are cut like the message. The error can still be caught by its type.
    """
    cut = [_cut(one, text_max) if type(one) is str else one for one in args]
    if sum(len(one) for one in cut if type(one) is str) > 2 * text_max + EXCERPT_MAX:
        return None
    rest = [one for one in cut if type(one) is not str]
    try:
        if len(plain_json.encode([rest, attributes])) > text_max:
            return None
    except Unrecordable:
        return None
    state: dict[str, Any] = {"args": cut, **({"state": attributes} if attributes else {})}
    rebuilt = _rebuild({"type": _type_name(type(error)), **state})
    if rebuilt is None or _members(rebuilt) != _members(error):
        return None
    return state if cut != args or message_of(rebuilt) == message_of(error) else None


def _members(error: BaseException) -> dict[str, Any]:
    """Return the JSON values that a built-in exception holds besides its arguments (errno, ...)."""
    members: dict[str, Any] = {}
    for kind in type(error).__mro__:
        for name, member in vars(kind).items():
            if (
                name[0] != "_"
                and name != "args"
                and isinstance(member, (MemberDescriptorType, GetSetDescriptorType))
                and not _is_lost(type(error), name)
            ):
                value = getattr(error, name, None)
                if value is not None and type(value) in plain_json.SCALARS:
                    members[name] = value
    return members


def _rebuild(recorded: dict[str, Any]) -> BaseException | None:
    found, args, state = _find(recorded["type"]), recorded.get("args"), recorded.get("state", {})
    if found is None or not isinstance(args, list) or not isinstance(state, dict):
        return None
    try:
        error = found.__new__(found, *args)
        if type(error) is not found:
            return None
        # A subclass with its own __init__ sets its arguments there.
        if isinstance(error, OSError) and not error.args:
            # Like OSError, leave the file name out.
            error.args = tuple(args[:2])
        return error if _restore(error, state) else None
    except Exception:
        return None


def _restore(error: BaseException, state: dict[str, Any]) -> bool:
    """Set the attributes that may be set. Return False if they do not form a valid exception."""
    if isinstance(error, UnicodeError) and not _is_sound(error, state):
        return False
    for name, value in state.items():
        if not _is_restorable(type(error), name, value):
            continue
        if _owner(type(error), name) in _RESTORED:
            BaseException.__setattr__(error, name, value)
        else:
            # This calls no property and no __setattr__.
            BaseException.__getattribute__(error, "__dict__")[name] = value
    return True


def _is_sound(error: UnicodeError, state: dict[str, Any]) -> bool:
    """Return whether all its attributes are given and valid.

    str() of a Unicode error with other attributes reads arbitrary memory.
    """
    # It holds bytes, which JSON does not have.
    if isinstance(error, UnicodeDecodeError):
        return False
    if not isinstance(error, (UnicodeEncodeError, UnicodeTranslateError)):
        return True
    needed = _RESTORED[
        UnicodeEncodeError if isinstance(error, UnicodeEncodeError) else UnicodeTranslateError
    ]
    return all(type(state.get(name)) in kinds for name, kinds in needed.items()) and all(
        0 <= state[name] <= sys.maxsize for name in ("start", "end")
    )


def _owner(kind: type, name: str) -> type | None:
    """Return the class that defines this attribute, or None if only instances have it."""
    return next((one for one in kind.__mro__ if name in vars(one)), None)


def _is_lost(kind: type, name: str) -> bool:
    """Return whether Python acts on this attribute.

    This checks the name, because a later Python may define more such attributes than this one.
    """
    return any(name in names and issubclass(kind, one) for one, names in _LOST.items())


def _is_restorable(kind: type[BaseException], name: str, value: Any) -> bool:
    if name == "args" or (name.startswith("__") and name.endswith("__")) or _is_lost(kind, name):
        return False
    owner = _owner(kind, name)
    if owner is None:
        return True
    if owner in _RESTORED:
        return type(value) in _RESTORED[owner].get(name, ())
    defined = vars(owner)[name]
    # A default or a cached property may be set; a method, a property or a C member may not.
    return not (
        callable(defined) or isinstance(defined, classmethod) or hasattr(type(defined), "__set__")
    )


def _find(name: str) -> type[BaseException] | None:
    module_name, _, qualname = name.partition(":")
    main = sys.modules.get("__main__")
    module = sys.modules.get(module_name)
    if module is None and main is not None and _main_name() == module_name:
        module = main
    # Avoid getattr, hasattr and isinstance: a lazy module or a proxy loads something to answer
    # them.
    if not issubclass(type(module), ModuleType):
        return None
    found: Any = object.__getattribute__(module, "__dict__").get(qualname.partition(".")[0])
    for part in qualname.split(".")[1:]:
        if not issubclass(type(found), type):
            return None
        found = type.__getattribute__(found, "__dict__").get(part)
    if issubclass(type(found), type) and issubclass(found, (Exception, asyncio.CancelledError)):
        return found  # type: ignore[no-any-return]
    return None


def _type_name(kind: type[BaseException]) -> str:
    # A program is `__main__` when run as a file and has a name when imported. Use one name for
    # both.
    module = _main_name() if kind.__module__ == "__main__" else kind.__module__
    return f"{module}:{kind.__qualname__}"


def _main_name() -> str:
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(path).stem if path else "__main__"


def _trace(error: BaseException) -> str:
    """Return the traceback, starting at the user's own code."""
    tb = error.__traceback__
    while (
        tb is not None
        and tb.tb_next is not None
        and tb.tb_frame.f_code.co_filename.startswith(_PACKAGE)
    ):
        tb = tb.tb_next
    if tb is None:
        return ""
    summary = traceback.TracebackException(type(error), error, tb, compact=True)
    _tidy(summary)
    return _RECORDED.sub("", "".join(summary.format()))


def _tidy(summary: traceback.TracebackException) -> None:
    """Remove notes that name an explanation, which depend on the release, and Outlast's own frames.

    The frames are those that raise a recorded exception again, below the call in the workflow.
    """
    waiting = [summary]
    while waiting:
        one = waiting.pop()
        notes = one.__notes__
        # A program may assign anything to __notes__.
        if isinstance(notes, (list, tuple)):
            one.__notes__ = [
                note for note in notes if not (isinstance(note, str) and _PAGE.fullmatch(note))
            ]
        # Only a recorded traceback is a cause without frames.
        if one.__cause__ is not None and not one.__cause__.stack:
            while len(one.stack) > 1 and one.stack[-1].filename.startswith(_PACKAGE):
                one.stack.pop()
        waiting += [
            more
            for more in (one.__cause__, one.__context__, *(one.exceptions or ()))
            if more is not None
        ]


def message_of(error: BaseException) -> str:
    """Return the error's message, or a note that it cannot be read."""
    try:
        return str(error)
    except Exception as failure:
        # A broken __str__ must not hide the error.
        return f"(its message could not be read: {type(failure).__name__})"


def _cut(text: str, length: int) -> str:
    return (
        text if len(text) <= length else f"{text[:length]}… ({len(text) - length} more characters)"
    )


def _cut_middle(text: str, length: int) -> str:
    half = length // 2
    return text if len(text) <= length else f"{text[:half]}\n  … cut …\n{text[-half:]}"
