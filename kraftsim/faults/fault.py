"""What a fault is: a kind, a target, parameters and a trigger, all plain data; and what a kind of fault is: the function that strikes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from kraftsim.catalogue import Catalogue
from kraftsim.faults.field import AT_THE_TRIGGER as AT_THE_TRIGGER
from kraftsim.faults.trigger import Trigger

if TYPE_CHECKING:
    from kraftsim.faults.field import FieldStrike
    from kraftsim.faults.strike import Strike

Value = int | str | bool | None


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault of a run. Targets are host names, groups of them, or `leader`; between hosts 'a>b' is one direction, 'a<>b' both (see `targets`)."""

    kind: str
    trigger: Trigger
    target: str = AT_THE_TRIGGER
    params: Mapping[str, Value] = {}

    def __str__(self) -> str:
        params = ", ".join(f"{name} {value}" for name, value in self.params.items())
        return f"{self.kind} of {self.target}{f' ({params})' if params else ''} {self.trigger}"


class Family(StrEnum):
    """What a kind of fault strikes."""

    NETWORK = "network"
    DISK = "disk"
    CLOCK = "clock"
    PROCESS = "process"
    PROTOCOL = "protocol"
    STORE = "store"
    """A remote store that all brokers share."""
    ZOOKEEPER = "zookeeper"
    """The server in which brokers of before KRaft keep their metadata, seen by its clients; its process and disk are struck as any other's."""


class Aim(StrEnum):
    """What the target of a kind names: a host, the links between hosts, or nothing at all."""

    HOST = "host"
    LINK = "link"
    ALL = "all"


class Spoils(StrEnum):
    """What a kind can take away that a node relies on. A search keeps kinds apart whose sum no node could survive: see `atlas`."""

    NOTHING = "nothing"
    UNFLUSHED = "unflushed"
    """What was written and not flushed may be gone, as after a power loss."""
    TRUST = "trust"
    """The disk forgot a write that it refused to flush: nobody can know what the next power loss takes."""
    FLUSHED = "flushed"
    """What was flushed may be gone or changed."""


@dataclass(frozen=True, slots=True)
class Between:
    """A parameter is drawn between two numbers, both of them possible; what is drawn below `floor` is `floor`."""

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
    """A kind of fault. `params` are its parameters with their usual values; a fault may set no others.

    `modes` says where it can be played. `draws` says how a search draws a parameter (one that is not named keeps its usual value), and `strikes_on`
    which triggers make sense: 'time', 'disk', 'frame', 'event', 'state'. `spoils` is what it can take away; if `spoils_if` names a parameter, only
    where that is true. `prepare` is called when a fault is armed: a kind that repeats what was said before begins to listen then. `over_sockets` does
    it to a real cluster; `through_proxy` says that it needs somebody between the nodes for that, as all kinds of the network and the protocol do.
    """

    name: str
    title: str
    family: Family
    strike: "Callable[[Strike], None]"
    aim: Aim = Aim.HOST
    modes: tuple[str, ...] = (SIM,)
    strikes_on: tuple[str, ...] = ("time", "disk", "frame", "event", "state")
    params: Mapping[str, Value] = field(default_factory=dict)
    draws: Mapping[str, Between | OneOf] = field(default_factory=dict)
    spoils: Spoils = Spoils.NOTHING
    spoils_if: str | None = None
    needs_releases: bool = False
    """Whether a search draws it only where the terrain says that nodes may be of other releases."""
    needs_quorum: bool = False
    """Whether a search draws it only where there are controllers of KRaft."""
    spares: tuple[str, ...] = ()
    """Roles whose nodes a search does not choose: the kind never bites there."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What nodes are set to in a run for which a search drew it, where the terrain has such settings: so that there is something to strike."""
    prepare: "Callable[[Strike], None] | None" = None
    over_sockets: "Callable[[FieldStrike], Awaitable[None]] | None" = None
    through_proxy: bool = False


APART = (
    "arm",
    "atlas",
    "awaited_frame",
    "damaged_file",
    "field",
    "frame_over_sockets",
    "recorded_answers",
    "remote_objects",
    "schedule",
    "standing",
    "states",
    "strike",
    "swarm",
    "targets",
    "terrain",
    "trigger",
    "zookeeper_servers",
)
"""Files of this room that are no kinds."""
FAULTS: Catalogue[FaultKind] = Catalogue("kraftsim.faults", "FAULT", FaultKind, apart=APART)


@cache
def fault_kind(name: str) -> FaultKind:
    """Return a kind by its name. Raises KeyError naming the ones there are."""
    return FAULTS.named(name)


def to_json(faults: list[Fault]) -> bytes:
    """Write faults down, for a replay."""
    return msgspec.json.encode(faults)


def from_json(data: bytes) -> list[Fault]:
    """Read faults that `to_json` wrote."""
    return msgspec.json.decode(data, type=list[Fault])
