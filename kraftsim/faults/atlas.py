"""Which faults may come together: none may take away so much that a loss becomes legitimate, or a violation would say nothing.

A run spoils in one way only. After a refused flush nobody can know what the next loss of power takes, so the two never meet; and what was flushed is
lost at one host of a run at most, for no quorum promises to outlive more. Source: TigerBeetle's fault atlas, PostgreSQL's fsyncgate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftsim.faults.fault import AT_THE_TRIGGER, Fault, FaultKind, Spoils, fault_kind
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.terrain import Terrain
from kraftsim.faults.trigger import OnDisk, OnEvent, OnFrame, OnState

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the seed)


class Atlas:
    """What one run may spoil, and where. `way` is drawn once per run."""

    def __init__(self, way: Spoils, hosts: tuple[str, ...]) -> None:
        self.way = way
        self._hosts = hosts

    def allows(self, kind: FaultKind) -> bool:
        """Tell whether a kind can be played at all: it spoils nothing, or need not, or spoils in the way of this run."""
        return kind.spoils in (Spoils.NOTHING, self.way) or kind.spoils_if is not None

    def hosts(self, kind: FaultKind, all_hosts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts at which a kind may do all that it can."""
        return all_hosts if kind.spoils is Spoils.NOTHING else self._hosts if kind.spoils is self.way else ()


def draw_atlas(random: "Random", terrain: Terrain) -> Atlas:
    """Draw what a run may spoil."""
    way = random.choice((Spoils.NOTHING, Spoils.UNFLUSHED, Spoils.UNFLUSHED, Spoils.UNFLUSHED, Spoils.TRUST, Spoils.FLUSHED))
    hosts = terrain.may_lose.get(way, ())
    if not hosts:
        return Atlas(Spoils.NOTHING, ())
    return Atlas(way, (random.choice(hosts),) if way is Spoils.FLUSHED else hosts)


def spoils(fault: Fault) -> Spoils:
    """Return what a fault with its parameters can take away."""
    kind = fault_kind(fault.kind)
    if kind.spoils_if is not None and not fault.params.get(kind.spoils_if, kind.params[kind.spoils_if]):
        return Spoils.NOTHING
    return kind.spoils


def clashes(faults: Sequence[Fault], terrain: Terrain) -> list[str]:
    """Return what is wrong with a schedule on a terrain, one line each; nothing for one that was drawn."""
    found = []
    spoiling = [(fault, spoils(fault)) for fault in faults if spoils(fault) is not Spoils.NOTHING]
    ways = sorted({way for _, way in spoiling})
    if len(ways) > 1:
        found.append(f"a run spoils in one way, not in {len(ways)}: {', '.join(ways)}")
    for fault, way in spoiling:
        allowed = terrain.may_lose.get(way, ())
        if any(host not in allowed for host in _struck(fault, terrain)):
            found.append(f"{fault} may take away what a host promised to keep ({way})")
    if len({host for fault, way in spoiling if way is Spoils.FLUSHED for host in _struck(fault, terrain)}) > 1:
        found.append("what was flushed may be lost at one host of a run, not at several")
    return found


def _struck(fault: Fault, terrain: Terrain) -> tuple[str, ...]:
    """Return the hosts that a fault can strike."""
    if fault.target == LEADER_WORD:
        return terrain.leaders
    if fault.target != AT_THE_TRIGGER:
        return (fault.target,)
    roles: list[str | None] = [None]
    match fault.trigger:
        case OnFrame(is_response=is_response, client=client, server=server):
            host = server if is_response else client
        case OnDisk(host=host):
            pass
        case OnEvent(host=host, kind=kind):
            roles = [moment.role if moment.is_only else None for moment in terrain.moments if moment.kind == kind]
        case OnState(host=host, states=states):
            roles = [stay.role if stay.is_only else None for stay in terrain.stays if stay.states == states]
        case _:
            host = None
    if host is not None:
        return (host,)
    if not roles or None in roles:
        return terrain.nodes
    return tuple(host for role in dict.fromkeys(roles) if role is not None for host in terrain.of(role))
