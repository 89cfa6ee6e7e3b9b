"""What a fault is: a kind, a target, parameters and a trigger, all plain data; and what a kind of fault is: the function that strikes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from kraftsim.catalogue import Catalogue
from kraftsim.faults.trigger import Trigger

if TYPE_CHECKING:
    from kraftsim.faults.strike import Strike

Value = int | str | bool | None
AT_THE_TRIGGER = "*"
"""As a target: the host at which the trigger went off."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault of a run. Targets are host names; between hosts 'a>b' is one direction, 'a<>b' both, and 'a' alone means all of its links."""

    kind: str
    trigger: Trigger
    target: str = AT_THE_TRIGGER
    params: dict[str, Value] = {}

    def __str__(self) -> str:
        params = ", ".join(f"{name} {value}" for name, value in self.params.items())
        return f"{self.kind} of {self.target}{f' ({params})' if params else ''} {self.trigger}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultKind:
    """A kind of fault. `params` are its parameters with their usual values; a fault may set no others."""

    name: str
    title: str
    strike: "Callable[[Strike], None]"
    params: Mapping[str, Value] = field(default_factory=dict)


FAULTS: Catalogue[FaultKind] = Catalogue("kraftsim.faults", "FAULT", FaultKind, apart=("arm", "schedule", "strike", "trigger", "targets"))


def to_json(faults: list[Fault]) -> bytes:
    """Write faults down, for a replay."""
    return msgspec.json.encode(faults)


def from_json(data: bytes) -> list[Fault]:
    """Read faults that `to_json` wrote."""
    return msgspec.json.decode(data, type=list[Fault])
