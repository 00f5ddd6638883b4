"""Check and make the request of a stream to its provider."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeVar

from outlast.codec.signature import canonical
from outlast.errors import SettingsError, Unrecordable

C = TypeVar("C", str, bytes)
By = Literal["restart", "prefill", "cursor"]


class StreamRequest(Generic[C]):
    """The arguments of `resume_stream`, checked. It knows how to ask the provider."""

    __slots__ = ("_args", "_open", "_trim", "by", "name", "type")

    def __init__(
        self,
        open: Callable[..., Any],
        args: tuple[Any, ...],
        by: By,
        type: type[C],
        trim: Callable[[C], C] | None,
    ) -> None:
        self.name = _name(open)
        if by not in ("restart", "prefill", "cursor"):
            raise SettingsError(
                f'resume_stream({self.name}): by="restart", "prefill" or "cursor", not {by!r}.'
            )
        if type not in (str, bytes):
            raise SettingsError(f"resume_stream({self.name}): type is str or bytes, not {type!r}.")
        if trim is not None and by != "prefill":
            raise SettingsError(f'resume_stream({self.name}): trim is for by="prefill".')
        self.by = by
        self.type: Any = type
        self._open = open
        self._args = args
        self._trim: Any = trim

    @property
    def identity(self) -> str:
        """Return the text that identifies the stream in its step.

        The arguments are part of it: an answer to another question is not resumed.
        """
        return f"~{self.name}({_digest(self.name, self._args)})"

    @property
    def beginning(self) -> Any:
        """Return the argument that makes the provider start from the beginning."""
        return self.type() if self.by == "prefill" else None

    def trimmed(self, whole: C) -> C:
        """Return the part of an earlier text to resume from."""
        if self._trim is None:
            return whole
        trimmed: C = self._trim(whole)
        if not whole.startswith(trimmed):
            raise SettingsError(
                f"resume_stream({self.name}): trim must return a beginning of the text, as "
                "str.rstrip does."
            )
        return trimmed

    def ask(self, start: Any) -> Any:
        """Ask the provider for the stream from `start`, and return the iterable of its chunks."""
        asked = self._args if self.by == "restart" else (start, *self._args)
        source = self._open(*asked)
        if isinstance(source, Coroutine):
            # Nothing awaits it.
            source.close()
            raise SettingsError(
                f"resume_stream({self.name}): it is a coroutine function, which returns once. Let "
                "it yield the chunks itself: `async for chunk in await …: yield chunk`."
            )
        return source

    def unpack(self, item: Any) -> tuple[Any, Any]:
        """Return the chunk and the cursor of an item that the provider has yielded.

        Raise Unrecordable if it has the wrong type.
        """
        chunk, cursor = item, None
        if self.by == "cursor":
            if not isinstance(item, tuple) or len(item) != 2:
                raise Unrecordable(
                    f"the stream {self.name} yielded {_excerpt(item)}. "
                    'With by="cursor" it must yield pairs of a chunk and a cursor.'
                )
            chunk, cursor = item
        if not isinstance(chunk, self.type):
            raise Unrecordable(
                f"the stream {self.name} yielded {_excerpt(chunk)}, which is not "
                f"{self.type.__name__}. Yield only the text, or pass "
                "resume_stream(..., type=bytes) for bytes."
            )
        return chunk, cursor


def _name(open: Callable[..., Any]) -> str:
    while isinstance(open, partial):
        open = open.func
    name: str = getattr(open, "__qualname__", type(open).__qualname__)
    return name.rpartition("<locals>.")[2]


def _digest(name: str, args: tuple[Any, ...]) -> str:
    try:
        text = canonical(list(args))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unrecordable(
            f"the arguments of the stream {name} cannot be fingerprinted ({error}). They identify "
            "what is asked. Bind what is not part of that, like a client, with functools.partial "
            "or a lambda."
        ) from error
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}…"
