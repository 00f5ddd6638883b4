"""Describe calls of effects, and register the effects that this process's code defines.

An effect call comes from the workflow's code or from the journal. After a death, the effect to
verify or compensate is looked up here by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from outlast.codec.exceptions import CANCELLED, LEFT_OPEN
from outlast.errors import DuplicateName
from outlast.execution.effects_from_journal import EffectRecord

if TYPE_CHECKING:
    from outlast.execution.definitions import EffectDefinition

R_co = TypeVar("R_co", covariant=True)

DID_NOT = "did not happen"
"""Marks the entry of an attempt or a verify: the effect certainly did not happen."""


class _Key(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "KEY"


KEY: str = _Key("the key was not filled in: call the effect in a run")
"""The default of the parameter that takes the idempotency key: `key: str = KEY`. Outlast fills in
the key, the same for all attempts and workers. You may pass a key of your own instead."""

EFFECT_KEY = "effect_key"
"""The parameter of a compensation that takes the key of the effect it compensates."""


@dataclass(frozen=True)
class Happened(Generic[R_co]):
    """The answer of `verify` if the effect has happened. It holds the effect's result."""

    result: R_co


class Outcome(NamedTuple):
    """The recorded outcome of an effect call.

    With a text, the effect happened. With only an error, it did not.
    """

    text: str | None = None
    value: Any = None
    error: str | None = None
    seconds: float | None = None
    """How long the act took. None if the result came from verify or from a person."""


NOT_DONE = Outcome(error=CANCELLED)
"""The effect did not act because it is no longer wanted."""
NOT_KNOWN = Outcome(error=LEFT_OPEN)
"""The effect may have happened. Its run ends without compensating it, and calling it again would
only make it happen."""


class EffectCall:
    """One call of an effect, to be executed at a call site."""

    __slots__ = ("args", "arguments", "effect", "fingerprint", "kwargs", "resolve_only")

    def __init__(
        self, effect: EffectDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Bind and encode the arguments.

        Raise TypeError if they do not fit, and Unrecordable if they cannot be recorded.
        """
        self.effect = effect
        name = effect.key_name
        if name is not None and effect.signature.bind(args, kwargs).get(name) is KEY:
            args, kwargs = effect.signature.having(args, kwargs, name)
        self.fingerprint: str | None = effect.signature.fingerprint(args, kwargs)
        self.arguments, self.args, self.kwargs = effect.signature.round_trip(
            args, kwargs, partly=True
        )
        """The arguments as recorded text and as decoded from it. The caller may change its own
        objects in the meantime."""
        self.resolve_only = False
        """True if the call only finds out whether the effect happened, and does not act."""

    @classmethod
    def recorded(
        cls, effect: EffectDefinition, effect_record: EffectRecord, *, resolve_only: bool
    ) -> EffectCall:
        """Build an effect call from its record in the journal."""
        effect_call = cls.__new__(cls)
        effect_call.effect = effect
        effect_call.resolve_only = resolve_only
        effect_call.args, effect_call.kwargs = effect.signature.decode(
            effect_record.arguments, partly=True
        )
        effect_call.fingerprint = effect_record.args
        effect_call.arguments = effect_record.arguments
        return effect_call

    @classmethod
    def answered(cls, effect_record: EffectRecord) -> EffectCall:
        """Build an effect call whose outcome is recorded.

        It has no effect, because nothing acts now.
        """
        effect_call = cls.__new__(cls)
        effect_call.resolve_only = True
        effect_call.fingerprint = effect_record.args
        effect_call.arguments = effect_record.arguments
        return effect_call

    @property
    def bound(self) -> dict[str, Any]:
        """Return all arguments by name, including defaults."""
        return self.effect.signature.bind_all(self.args, self.kwargs)

    def make_key(self, seed: str, place: str, generation: int) -> str:
        """Return the caller's own key, or one derived from the call site.

        It is the same for all attempts and workers, and differs once the effect was compensated.
        """
        name = self.effect.key_name
        own = self.bound.get(name, KEY) if name is not None else KEY
        if own is not KEY:
            return str(own) if not generation else f"{own}:{generation}"
        return blake2b(
            f"{generation}:{place}".encode(), key=bytes.fromhex(seed), digest_size=16
        ).hexdigest()

    def for_verify(self, key: str) -> dict[str, Any]:
        """Return the arguments that the effect's verify takes."""
        effect = self.effect
        known = self.bound
        if effect.key_name is not None:
            known[effect.key_name] = key
        wanted = {name: known[name] for name in effect.verify_names if name in known}
        if effect.verify_key is not None:
            wanted[effect.verify_key] = key
        return wanted

    def undo(self, compensation: EffectDefinition, key: str, result: str | None) -> EffectCall:
        """Return the call that compensates this one, given its recorded result.

        `result` is None if it could not be recorded.
        """
        returned = self.effect.signature.returns().decode(result) if result is not None else None
        known = self.bound
        if self.effect.key_name is not None:
            known[self.effect.key_name] = key
        known[EFFECT_KEY] = key
        names = [name for name in compensation.signature.names[1:] if name != compensation.key_name]
        return EffectCall(
            compensation, (returned,), {name: known[name] for name in names if name in known}
        )


class EffectSource(Protocol):
    """Something that defines its effects late, such as an agent to which tools are added."""

    def define_effects(self) -> None:
        """Define every effect that is not defined yet."""


_known: dict[str, dict[str, EffectDefinition]] = {}
_sources: WeakSet[EffectSource] = WeakSet()


def know_source(source: EffectSource) -> None:
    """Ask this source for its effects when an effect is not known. It is held weakly."""
    _sources.add(source)


def know(effect: EffectDefinition) -> None:
    """Register an effect.

    A function that is decorated again, for example in a reloaded module, replaces the earlier one.
    """
    _known.setdefault(effect.name, {})[effect.code] = effect


def check_known(effect: EffectDefinition) -> None:
    """Raise DuplicateName if another effect has replaced this one.

    After a death, the two could not be told apart.
    """
    if _known.get(effect.name, {}).get(effect.code, effect) is not effect:
        raise DuplicateName(
            f"effect {effect.name} was defined twice by the same code ({effect.code}). After a "
            "crash Outlast could not tell them apart. Give each its own name with "
            "@effect(name=...), in the module that defines them."
        )


def find(name: str, code: str = "") -> EffectDefinition | None:
    """Return the effect of this name.

    If several have the name, return the one with that code, or else the only one in that module.
    Return None if this process's code does not define the effect, or if the choice is ambiguous.
    """
    if name not in _known:
        for source in list(_sources):
            source.define_effects()
    same = _known.get(name, {})
    if code in same:
        return same[code]
    module = code.partition(":")[0]
    here = [one for where, one in same.items() if where.partition(":")[0] == module]
    found = here or list(same.values())
    return found[0] if len(found) == 1 else None
