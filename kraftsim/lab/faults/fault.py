"""A fault: a kind, a target, parameters and a trigger, all plain data."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from kraftsim import former_names
from kraftsim.catalogue import Catalogue
from kraftsim.extensions import Extension, extensions
from kraftsim.world.simulated import FileClass as FileClass
from kraftsim.world.simulated.triggers import REMOTE_STORE as REMOTE_STORE

if TYPE_CHECKING:
    from kraftsim.lab.faults.field import SocketInjection
    from kraftsim.lab.faults.injection import Injection


AT_THE_TRIGGER = "*"
"""As a target: the host at which the trigger fired."""
CONTACTING, CONTACTED = "contacting", "contacted"
"""In a target of a fault with the trigger OnContact: the host that contacts, and the one that it
contacts.
"""

# --------------------------------------------------------------------------------------------------
# Triggers of faults: a virtual time, the nth operation of some type at a node, or a node that
# enters a state
#
# Random times hardly ever hit a crash window: of 250 runs with random power losses none showed a
# vote that was not persisted, of 250 with power losses tied to writes five did.


class AtTime(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="time"):
    """At a time since the beginning of the run."""

    at_ms: int

    def __str__(self) -> str:
        return f"at {self.at_ms} ms"


class OnDisk(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="disk"):
    """Before or after the nth write, flush or rename of a class of files, on one host or on any."""

    operation: str = "write"
    file_class: FileClass | None = None
    host: str | None = None
    nth: int = 1
    moment: str = "after"

    def __str__(self) -> str:
        return (
            f"{self.moment} {self.operation} {self.nth} of {self.file_class or 'any file'} on "
            f"{self.host or 'any host'}"
        )


class OnFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="frame"):
    """Before or after the nth request of an API, or the nth response to it, is sent."""

    api_key: int
    is_response: bool = False
    client: str | None = None
    server: str | None = None
    nth: int = 1
    moment: str = "before"

    def __str__(self) -> str:
        what = "response" if self.is_response else "request"
        return (
            f"{self.moment} {what} {self.nth} of API {self.api_key} from "
            f"{self.client or 'any host'} to {self.server or 'any host'}"
        )


class OnEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="event"):
    """Right after the nth event of a kind, on one host or on any, with given values in its
    fields.
    """

    kind: str
    host: str | None = None
    nth: int = 1
    fields: dict[str, int | str | bool | None] = {}

    def __str__(self) -> str:
        wanted = "".join(f" with {name} {value}" for name, value in self.fields.items())
        return f"after {self.kind} {self.nth}{wanted} on {self.host or 'any host'}"


class OnState(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="state"):
    """Right after a node, on one host or on any, has entered all of some states (`states.STATES`)
    for the nth time.
    """

    states: tuple[str, ...]
    host: str | None = None
    nth: int = 1

    def __str__(self) -> str:
        return (
            f"as {self.host or 'any host'} is {' and '.join(self.states)} for the "
            f"{_ordinal(self.nth)} time"
        )


class OnContact(msgspec.Struct, frozen=True, kw_only=True, tag_field="on", tag="contact"):
    """As a process contacts a service for the first time since it started.

    `client` and `service` are hosts or groups of them, a service may be REMOTE_STORE. With
    `request` 0 the process is about to connect; else it is about to send its request of that
    number (from 1 on) to the service, of one API or of any. `nth` counts processes.
    """

    service: str
    client: str | None = None
    api_key: int | None = None
    request: int = 1
    nth: int = 1

    def __str__(self) -> str:
        what = (
            "connects"
            if self.request == 0
            else f"sends request {self.request}"
            + ("" if self.api_key is None else f" of API {self.api_key}")
        )
        return (
            f"before the {_ordinal(self.nth)} process of {self.client or 'any host'} {what} to "
            f"{self.service}"
        )


def _ordinal(number: int) -> str:
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


Trigger = AtTime | OnDisk | OnFrame | OnEvent | OnState | OnContact


# --------------------------------------------------------------------------------------------------
# A fault: a kind, a target, parameters and a trigger, all plain data
#
# A kind of fault: the function that injects it.

Value = int | str | bool | None


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault of a run.

    Targets are host names, groups of them, or `leader`; between hosts 'a>b' is one direction,
    'a<>b' both (see `targets`). `armed_after_ms` is virtual time between the arming of the schedule
    and that of this fault: until then it does not exist, and its trigger counts from then. Only a
    simulation can do that.
    """

    kind: str
    trigger: Trigger
    target: str = AT_THE_TRIGGER
    params: Mapping[str, Value] = {}
    armed_after_ms: int = 0

    def __str__(self) -> str:
        params = ", ".join(f"{name} {value}" for name, value in self.params.items())
        later = f", armed after {self.armed_after_ms} ms" if self.armed_after_ms else ""
        what = f"{self.kind} of {self.target}{f' ({params})' if params else ''}"
        return f"{what} {self.trigger}{later}"


class Family(StrEnum):
    """The layer that a kind of fault acts on."""

    NETWORK = "network"
    DISK = "disk"
    CLOCK = "clock"
    PROCESS = "process"
    PROTOCOL = "protocol"
    REQUEST = "request"
    """Requests as a server sees them, by what they are about."""
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
    `kraftsim.lab.faults.random_faults`.
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


FLUSHES_EVERY_BATCH: Mapping[str, str] = {"log.flush.interval.messages": "1"}
"""Settings of a kind that loses what is not flushed: with them a broker flushes a batch before it
answers, so that any broker may lose power. A fault space without the setting lets none do so.
"""
SIM, PROCESSES, EMBEDDED = "sim", "processes", "embedded"
EVERYWHERE = (SIM, PROCESSES, EMBEDDED)


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultKind:
    """A kind of fault. `params` are its parameters with their defaults; a fault may set no others.

    `modes` are those that support it. `draws` has the range of each random parameter (others keep
    their defaults), and `triggers_on` the valid triggers: 'time', 'disk', 'frame', 'event',
    'state'; what fires on events fires at first contacts, too. `data_loss` is its data-loss class;
    if `data_loss_if` names a parameter, only while that is true. `prepare` is called when a fault
    is armed: a kind that replays old answers starts recording then, and one with a text in its
    parameters reads it (and raises ValueError).
    `over_sockets` injects it into a real cluster; `through_proxy` means that it needs the proxy
    between the nodes, as all network and protocol kinds do.
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
    judges_requests: bool = False
    """Whether the proxy of a cluster of processes must read requests for it."""
    is_drawn_apart: bool = False
    """Whether random schedules draw it apart from the other kinds."""


FAULTS: Catalogue[FaultKind] = Catalogue(
    "kraftsim.lab.faults.kinds", "FAULT", FaultKind, former=former_names.FAULTS
)


def fault_kind(name: str) -> FaultKind:
    """Return a kind by its name. Raises KeyError with the known names."""
    return _kind_with(name, extensions())


@cache
def _kind_with(name: str, loaded: tuple[Extension, ...]) -> FaultKind:
    """Return a kind; look again, when other extensions are loaded."""
    return FAULTS.named(name)


def to_json(faults: list[Fault]) -> bytes:
    """Encode faults, for a replay."""
    return msgspec.json.encode(faults)


def from_json(data: bytes) -> list[Fault]:
    """Decode faults that `to_json` encoded."""
    return msgspec.json.decode(data, type=list[Fault])


# --------------------------------------------------------------------------------------------------
# Targets of faults: a host, several hosts, the present leader, or links between them
#
# A host is given by name; 'controller-*' and other patterns match several hosts, 'a,b' means both,
# and `leader` means the leader of the metadata quorum at that moment, or the controller in
# ZooKeeper mode. Between such groups 'a>b' is one direction, 'a<>b' both, and 'a' alone means all
# links between a and all other hosts.

BOTH_WAYS = "<>"
ONE_WAY = ">"
LEADER_TARGET = "leader"
PATTERN_SIGNS = ("*", "?", "[")


def directions(target: str, hosts: list[str], *, may_lack: bool = False) -> list[tuple[str, str]]:
    """Return the (source, target) pairs that a target names.

    Raises KeyError for an unknown host, unless `may_lack`.
    """
    if BOTH_WAYS in target:
        ones, others = (members(side, hosts, may_lack=may_lack) for side in target.split(BOTH_WAYS))
        pairs = [
            pair
            for one in ones
            for other in others
            if one != other
            for pair in ((one, other), (other, one))
        ]
    elif ONE_WAY in target:
        ones, others = (members(side, hosts, may_lack=may_lack) for side in target.split(ONE_WAY))
        pairs = [(one, other) for one in ones for other in others if one != other]
    else:
        ones = members(target, hosts, may_lack=may_lack)
        pairs = [
            pair
            for one in ones
            for other in hosts
            if other != one
            for pair in ((one, other), (other, one))
        ]
    return list(dict.fromkeys(pairs))


def members(group: str, hosts: Sequence[str], *, may_lack: bool = False) -> list[str]:
    """Return the hosts of a group, in the order of their names in it.

    Raises KeyError for an unknown host, or a pattern without a match, unless `may_lack`.
    """
    found: dict[str, None] = {}
    for name in group.split(","):
        fitting = [
            host
            for host in hosts
            if host == name
            or (any(sign in name for sign in PATTERN_SIGNS) and fnmatchcase(host, name))
        ]
        if not fitting and not may_lack:
            raise KeyError(f"unknown host {name} (known hosts: {', '.join(hosts)})")
        found.update(dict.fromkeys(fitting))
    return list(found)


def names_leader(target: str) -> bool:
    """Return whether a target contains the leader."""
    return LEADER_TARGET in _words(target)


def with_leader(target: str, leader: str) -> str:
    """Return a target with the name of the leader in place of `leader`."""
    return with_names(target, {LEADER_TARGET: leader})


def with_names(target: str, names: Mapping[str, str]) -> str:
    """Return a target with the names of hosts in place of words."""
    pieces = [
        ",".join(names.get(name, name) for name in side.split(",")) for side in _sides(target)
    ]
    return _sign(target).join(pieces)


def is_in_group(name: str, group: str) -> bool:
    """Return whether a host is one of a group: names and patterns, separated by commas."""
    return any(fnmatchcase(name, each) for each in group.split(","))


def is_group(target: str) -> bool:
    """Return whether a target may mean several hosts, and no links."""
    return not _sign(target) and ("," in target or any(sign in target for sign in PATTERN_SIGNS))


def _words(target: str) -> list[str]:
    return [name for side in _sides(target) for name in side.split(",")]


def _sides(target: str) -> list[str]:
    sign = _sign(target)
    return target.split(sign) if sign else [target]


def _sign(target: str) -> str:
    return BOTH_WAYS if BOTH_WAYS in target else ONE_WAY if ONE_WAY in target else ""
