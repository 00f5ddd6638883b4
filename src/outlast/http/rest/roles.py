"""Define who may do what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from outlast.codec.identifiers import check_name
from outlast.errors import SettingsError

NAME_LENGTH_MAX = 100


class Role(StrEnum):
    """Define what a caller of the HTTP API may do."""

    VIEWER = "viewer"
    """Read everything, and change nothing."""
    SUBMITTER = "submitter"
    """Submit runs, and read, watch, message and cancel its own runs. It sees nothing else."""
    OPERATOR = "operator"
    """Do everything."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    The name is recorded with every action. Raise SettingsError for an invalid name or role.
    """

    name: str
    role: Role

    def __post_init__(self) -> None:
        if self.role not in tuple(Role):
            roles = ", ".join(Role)
            raise SettingsError(
                f"caller {self.name!r}: {self.role!r} is not a role. Use one of {roles}."
            )
        object.__setattr__(self, "role", Role(self.role))
        check_name(self.name, NAME_LENGTH_MAX, "the name of a caller")
        if ":" in self.name or self.name != self.name.strip():
            raise SettingsError(
                f"caller {self.name!r}: a name must not contain ':', or begin or end with a space. "
                "A colon is reserved for users of the command line, like 'os:ann'."
            )


class Access(Enum):
    """Who may use a route. Each route declares one of these."""

    ANYONE = frozenset(Role)
    """Any caller: the answer is about the caller or the program."""
    READ = frozenset({Role.VIEWER, Role.OPERATOR})
    READ_RUNS = frozenset({*Role, "own"})
    """Any caller. A submitter sees only its own runs."""
    SUBMIT = frozenset({Role.SUBMITTER, Role.OPERATOR})
    ACT_ON_OWN = frozenset({Role.SUBMITTER, Role.OPERATOR, "own"})
    """An operator, and a submitter for its own runs."""
    OPERATE = frozenset({Role.OPERATOR})

    def admits(self, role: Role) -> bool:
        """Return whether callers with this role may use the route at all."""
        return role in self.value
