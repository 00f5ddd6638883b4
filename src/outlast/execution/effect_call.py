"""An errand: one call of an effect, as the workflow's code makes it or the journal tells it. And the effects that this process's code has:
what is to be verified or undone after a death is found here, by name."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from outlast.codec.exceptions import CANCELLED, LEFT_OPEN
from outlast.errors import DuplicateName
from outlast.execution.effect_log import EffectRecord

if TYPE_CHECKING:
    from outlast.api.effect import EffectBase

R_co = TypeVar("R_co", covariant=True)

DID_NOT = "did not happen"
"""In the entry of an attempt, or of verify: that it did not happen is certain."""


class _Key(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "KEY"


KEY: str = _Key("the key was not filled in: call the effect in a run")
"""The default of the parameter that takes the idempotency key: `key: str = KEY`. It is filled in at the call, the same over
attempts and workers; a caller may pass a key of its own."""

EFFECT_KEY = "effect_key"
"""The parameter of a compensation that takes the key of the effect which it undoes."""


@dataclass(frozen=True)
class Happened(Generic[R_co]):
    """What `verify` answers if the effect has happened: its result."""

    result: R_co


class Outcome(NamedTuple):
    """What is recorded of an errand. A value: it happened. Only an error: it did not."""

    text: str | None = None
    value: Any = None
    error: str | None = None
    seconds: float | None = None
    """How long the act took whose result it is; None where somebody else knew: verify, or a person."""


NOT_DONE = Outcome(error=CANCELLED)
"""It was not done, because it is not wanted any more."""
NOT_KNOWN = Outcome(error=LEFT_OPEN)
"""It may have happened. Its run ends without undoing it, and another call could only make it happen."""


class EffectCall:
    """What is to be done at a place."""

    __slots__ = ("args", "arguments", "effect", "fingerprint", "kwargs", "resolve_only")

    def __init__(
        self, effect: EffectBase[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """TypeError or Unrecordable if it cannot be called so, or not be recorded."""
        self.effect = effect
        name = effect.key_name
        if name is not None and effect.signature.bind(args, kwargs).get(name) is KEY:
            args, kwargs = effect.signature.having(args, kwargs, name)
        self.fingerprint: str | None = effect.signature.fingerprint(args, kwargs)
        self.arguments, self.args, self.kwargs = effect.signature.round_trip(
            args, kwargs, partly=True
        )
        """As they are recorded, and as reading that gives them: the caller may change its own meanwhile."""
        self.resolve_only = False
        """Nothing is to be done, but to find out whether it was."""

    @classmethod
    def recorded(
        cls, effect: EffectBase[..., Any], effect_record: EffectRecord, *, resolve_only: bool
    ) -> EffectCall:
        """One that is known from the journal alone."""
        effect_call = cls.__new__(cls)
        effect_call.effect, effect_call.resolve_only = effect, resolve_only
        effect_call.args, effect_call.kwargs = effect.signature.decode(
            effect_record.arguments, partly=True
        )
        effect_call.fingerprint, effect_call.arguments = effect_record.args, effect_record.arguments
        return effect_call

    @classmethod
    def answered(cls, effect_record: EffectRecord) -> EffectCall:
        """One whose outcome is on record. It has no effect: nothing of it is done any more."""
        effect_call = cls.__new__(cls)
        effect_call.resolve_only, effect_call.fingerprint, effect_call.arguments = (
            True,
            effect_record.args,
            effect_record.arguments,
        )
        return effect_call

    @property
    def bound(self) -> dict[str, Any]:
        """Every argument by its name, defaults too."""
        return self.effect.signature.bind_all(self.args, self.kwargs)

    def make_key(self, seed: str, place: str, generation: int) -> str:
        """The caller's own key, else one for the place: the same over attempts and workers, another one once it was undone."""
        name = self.effect.key_name
        own = self.bound.get(name, KEY) if name is not None else KEY
        if own is not KEY:
            return str(own) if not generation else f"{own}:{generation}"
        return blake2b(
            f"{generation}:{place}".encode(), key=bytes.fromhex(seed), digest_size=16
        ).hexdigest()

    def for_verify(self, key: str) -> dict[str, Any]:
        """What the effect's verify asks for."""
        effect = self.effect
        known = self.bound
        if effect.key_name is not None:
            known[effect.key_name] = key
        wanted = {name: known[name] for name in effect.verify_names if name in known}
        if effect.verify_key is not None:
            wanted[effect.verify_key] = key
        return wanted

    def undo(self, compensation: EffectBase[..., Any], key: str, result: str | None) -> EffectCall:
        """The errand that undoes it, given its recorded result; None if it could not be recorded."""
        returned = self.effect.signature.returns().decode(result) if result is not None else None
        known = self.bound
        if self.effect.key_name is not None:
            known[self.effect.key_name] = key
        known[EFFECT_KEY] = key
        names = [name for name in compensation.signature.names[1:] if name != compensation.key_name]
        return EffectCall(
            compensation, (returned,), {name: known[name] for name in names if name in known}
        )


_known: dict[str, dict[str, EffectBase[..., Any]]] = {}


def know(effect: EffectBase[..., Any]) -> None:
    """A function that is decorated again, as in a module that is loaded again, takes the place of the earlier one."""
    _known.setdefault(effect.name, {})[effect.code] = effect


def check_known(effect: EffectBase[..., Any]) -> None:
    """DuplicateName if another effect has taken its place: what it does could not be told from what the other does after a death."""
    if _known.get(effect.name, {}).get(effect.code, effect) is not effect:
        raise DuplicateName(
            f"effect {effect.name} was made twice by the same code ({effect.code}), and after a death nobody could tell which was meant. Give "
            "each a name of its own, as in @effect(name=...), in the module that makes them."
        )


def find(name: str, code: str = "") -> EffectBase[..., Any] | None:
    """The effect of this name; where several have it, the one with that code, else the only one in that module. None: this process's
    code does not have it, or cannot tell which."""
    same = _known.get(name, {})
    if code in same:
        return same[code]
    module = code.partition(":")[0]
    here = [one for where, one in same.items() if where.partition(":")[0] == module]
    found = here or list(same.values())
    return found[0] if len(found) == 1 else None
