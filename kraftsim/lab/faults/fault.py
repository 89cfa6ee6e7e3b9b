"""A fault: a kind, a target, parameters and a trigger, all plain data.

A kind of fault: the function that injects it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from kraftsim import former_names
from kraftsim.catalogue import Catalogue
from kraftsim.lab.faults.field import AT_THE_TRIGGER as AT_THE_TRIGGER
from kraftsim.lab.faults.trigger import Trigger

if TYPE_CHECKING:
    from kraftsim.lab.faults.field import SocketInjection
    from kraftsim.lab.faults.injection import Injection

Value = int | str | bool | None


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault of a run.

    Targets are host names, groups of them, or `leader`; between hosts 'a>b' is one direction,
    'a<>b' both (see `targets`).
    """

    kind: str
    trigger: Trigger
    target: str = AT_THE_TRIGGER
    params: Mapping[str, Value] = {}

    def __str__(self) -> str:
        params = ", ".join(f"{name} {value}" for name, value in self.params.items())
        return f"{self.kind} of {self.target}{f' ({params})' if params else ''} {self.trigger}"


class Family(StrEnum):
    """The layer that a kind of fault acts on."""

    NETWORK = "network"
    DISK = "disk"
    CLOCK = "clock"
    PROCESS = "process"
    PROTOCOL = "protocol"
    STORE = "store"
    """A remote store that all brokers share."""
    ZOOKEEPER = "zookeeper"
    """The server in which brokers in ZooKeeper mode keep their metadata, as its clients see it; its
    process and disk are those of any node.
    """


class Aim(StrEnum):
    """What the target of a kind is: a host, the links between hosts, or no target."""

    HOST = "host"
    LINK = "link"
    ALL = "all"


class DataLoss(StrEnum):
    """The data-loss class of a kind.

    Random schedules do not combine kinds that no node could survive together: see
    `kraftsim.lab.faults.data_loss_budget`.
    """

    NOTHING = "nothing"
    UNFLUSHED = "unflushed"
    """Unflushed data may be lost, as after a power loss."""
    TRUST = "trust"
    """The disk dropped a write that it failed to flush: the losses of the next power loss are
    unpredictable.
    """
    FLUSHED = "flushed"
    """Flushed data may be lost or corrupted."""


@dataclass(frozen=True, slots=True)
class Between:
    """A parameter is drawn between two numbers (inclusive); values below `floor` become `floor`."""

    low: int
    high: int
    floor: int = 0


@dataclass(frozen=True, slots=True)
class OneOf:
    """A parameter is drawn from a few values."""

    values: tuple[Value, ...]


SIM, PROCESSES, EMBEDDED = "sim", "processes", "embedded"
EVERYWHERE = (SIM, PROCESSES, EMBEDDED)


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultKind:
    """A kind of fault. `params` are its parameters with their defaults; a fault may set no others.

    `modes` are those that support it. `draws` has the range of each random parameter (others keep
    their defaults), and `triggers_on` the valid triggers: 'time', 'disk', 'frame', 'event',
    'state'. `data_loss` is its data-loss class; if `data_loss_if` names a parameter, only while
    that is true. `prepare` is called when a fault is armed: a kind that replays old answers starts
    recording then. `over_sockets` injects it into a real cluster; `through_proxy` means that it
    needs the proxy between the nodes, as all network and protocol kinds do.
    """

    name: str
    title: str
    family: Family
    inject: "Callable[[Injection], None]"
    aim: Aim = Aim.HOST
    modes: tuple[str, ...] = (SIM,)
    triggers_on: tuple[str, ...] = ("time", "disk", "frame", "event", "state")
    params: Mapping[str, Value] = field(default_factory=dict)
    draws: Mapping[str, Between | OneOf] = field(default_factory=dict)
    data_loss: DataLoss = DataLoss.NOTHING
    data_loss_if: str | None = None
    needs_releases: bool = False
    """Whether it is drawn only where the fault space allows other releases."""
    needs_quorum: bool = False
    """Whether it is drawn only in clusters with KRaft controllers."""
    spares: tuple[str, ...] = ()
    """Roles that are never targets: the kind is never effective there."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of nodes in a run with this kind, if the fault space has them: so that the fault can
    be effective.
    """
    prepare: "Callable[[Injection], None] | None" = None
    over_sockets: "Callable[[SocketInjection], Awaitable[None]] | None" = None
    through_proxy: bool = False


FAULTS: Catalogue[FaultKind] = Catalogue(
    "kraftsim.lab.faults.kinds", "FAULT", FaultKind, former=former_names.FAULTS
)


@cache
def fault_kind(name: str) -> FaultKind:
    """Return a kind by its name. Raises KeyError with the known names."""
    return FAULTS.named(name)


def to_json(faults: list[Fault]) -> bytes:
    """Encode faults, for a replay."""
    return msgspec.json.encode(faults)


def from_json(data: bytes) -> list[Fault]:
    """Decode faults that `to_json` encoded."""
    return msgspec.json.decode(data, type=list[Fault])
