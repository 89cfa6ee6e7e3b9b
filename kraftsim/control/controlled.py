"""What HTTP controls: a cluster whose nodes this process starts, or a proxy in front of any Kafka.

`Controlled` is all that the routes know. A verb that a cluster does not have raises
`NotInThisCluster` (`kraftsim.cluster.cluster_operations`) with the reason; `verbs` has these
reasons beforehand, so that a page need not offer such a verb.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

import msgspec

from kraftsim.cluster.cluster_operations import (
    ClusterOperations,
    ImposedCondition,
    NodeOutcome,
    NotInThisCluster,
)
from kraftsim.cluster.disk_faults import DISK_FAULTS
from kraftsim.control.state.cluster_snapshot import (
    ControlledState,
    NetworkConditionEntry,
    NodeCondition,
    NodeStatus,
    RequestFaultEntry,
    VerbStatus,
)
from kraftsim.lab.faults.fault import FAULTS, Family
from kraftsim.lab.faults.field import Condition, Effect
from kraftsim.lab.faults.request_fault_text import request_fault_text
from kraftsim.lab.faults.rules_request_faults import (
    RequestFault,
    RequestFaultStatus,
)


class Verb(Enum):
    """What can be done to a cluster: the names in `ClusterSnapshot.verbs`."""

    KILL = "kill"
    STOP = "stop"
    RESTART = "restart"
    UPGRADE = "upgrade"
    PAUSE = "pause"
    RESUME = "resume"
    CUT = "cut"
    SLOW = "slow"
    RESET = "reset"
    HEAL = "heal"
    FAIL_DISK = "fail-disk"
    INJECT = "inject"


ALL: Final = "*"
NODE_VERBS: Final = (Verb.KILL, Verb.STOP, Verb.RESTART, Verb.UPGRADE)
PAUSE_VERBS: Final = (Verb.PAUSE, Verb.RESUME)
LINK_VERBS: Final = (Verb.CUT, Verb.SLOW, Verb.RESET, Verb.HEAL)


class Controlled(ControlledState, Protocol):
    """A cluster that HTTP controls. The verbs raise NotPossible, with one line.

    Targets are names of nodes, patterns, several with commas, or `leader`; those of links also
    'A>B' and 'A<>B'.
    """

    mode: str
    """`processes`, `embedded` or `proxy`."""
    name: str
    events: Path | None
    """Where its event logs are."""
    place: str
    """Its data directory: what DATA means in a hint."""

    async def kill(self, target: str) -> list[NodeOutcome]:
        """End nodes by SIGKILL."""
        ...

    async def stop(self, target: str) -> list[NodeOutcome]:
        """Stop nodes cleanly."""
        ...

    async def restart(
        self, target: str, release: str | None, settings: Mapping[str, str]
    ) -> list[NodeOutcome]:
        """Start nodes again on their disks, with another release and other settings, if given."""
        ...

    async def upgrade(self, target: str, release: str) -> list[NodeOutcome]:
        """Restart nodes with another release, one after the other, as in a rolling upgrade."""
        ...

    async def pause(self, target: str) -> list[NodeOutcome]:
        """Pause processes."""
        ...

    async def resume(self, target: str) -> list[NodeOutcome]:
        """Resume paused processes; of all nodes (`*`) those that are paused."""
        ...

    async def impose(self, target: str, condition: Condition) -> list[ImposedCondition]:
        """Impose a condition on links until it is lifted."""
        ...

    def imposed(self) -> Sequence[ImposedCondition]:
        """Return the conditions that are in force, oldest first."""
        ...

    async def lift(self, number: int) -> Effect:
        """End one condition of links; return how much it affected."""
        ...

    async def reset(self, target: str) -> Effect:
        """Reset the connections over links, once."""
        ...

    async def heal(self, targets: Sequence[str]) -> int:
        """End the conditions of links that concern some nodes, or all; return how many."""
        ...

    async def fail_disk(self, target: str, fault: str) -> list[NodeOutcome]:
        """Damage the disks of nodes that are down."""
        ...

    async def inject(self, fault: RequestFault) -> RequestFaultStatus:
        """Add a fault of requests."""
        ...

    async def end_fault(self, number: int) -> RequestFaultStatus:
        """End a fault of requests. Raises UnknownTarget for a number that was never given."""
        ...

    async def end_faults(self) -> int:
        """End all faults of requests that are not over; return how many."""
        ...

    async def refresh(self) -> tuple[RequestFaultStatus, ...]:
        """Return the faults of requests that there were, oldest first, and keep them for
        `request_faults`.
        """
        ...


def fault_entry(status: RequestFaultStatus) -> RequestFaultEntry:
    """Return a fault of requests as a snapshot has it."""
    return RequestFaultEntry(
        number=status.number,
        text=request_fault_text(status.fault),
        matched=status.matched,
        effects=status.effects,
        is_over=status.is_over,
        recent=tuple(map(str, status.recent_hits)),
    )


def condition_entry(imposed: ImposedCondition) -> NetworkConditionEntry:
    """Return a condition of links as a snapshot has it."""
    return NetworkConditionEntry(
        link=imposed.target, condition=imposed.words, since_ms=imposed.since_ms
    )


def verb_statuses(reasons: Mapping[Verb, str]) -> tuple[VerbStatus, ...]:
    """Return all verbs; `reasons` has why those are missing that are."""
    return tuple(
        VerbStatus(verb=verb.value, is_possible=verb not in reasons, reason=reasons.get(verb, ""))
        for verb in Verb
    )


def only_simulated(fault: str) -> str | None:
    """Return why a fault of disks is possible in simulation only; None if it is no such fault."""
    kinds = {each.name: each for each in FAULTS.all() if each.family is Family.DISK}
    if fault not in kinds or fault in {each.name for each in DISK_FAULTS}:
        return None
    return (
        f"a disk of this machine cannot have {kinds[fault].title}; simulation has it: kraftsim "
        f"scenario NAME --mode sim, fault {fault}"
    )


class ControlledCluster:
    """A cluster whose nodes this process starts, as processes or embedded; `Controlled` of it."""

    def __init__(self, operations: ClusterOperations, *, mode: str) -> None:
        self.mode = mode
        self.name = operations.cluster.spec.run
        self.events: Path | None = operations.cluster.directory.events
        self.place = str(operations.cluster.directory.root)
        self._operations = operations
        self._reasons = self._missing_verbs()
        self._entries: tuple[RequestFaultEntry, ...] = ()

    # Verbs
    # ----------------------------------------------------------------------------------------------

    async def kill(self, target: str) -> list[NodeOutcome]:
        """See Controlled."""
        return await self._operations.kill((target,))

    async def stop(self, target: str) -> list[NodeOutcome]:
        """See Controlled."""
        return await self._operations.stop((target,))

    async def restart(
        self, target: str, release: str | None, settings: Mapping[str, str]
    ) -> list[NodeOutcome]:
        """See Controlled."""
        return await self._operations.restart(
            (target,), self._operations.settings_of(release, settings)
        )

    async def upgrade(self, target: str, release: str) -> list[NodeOutcome]:
        """See Controlled."""
        return await self._operations.upgrade((target,), release)

    async def pause(self, target: str) -> list[NodeOutcome]:
        """See Controlled."""
        return await self._operations.pause((target,))

    async def resume(self, target: str) -> list[NodeOutcome]:
        """See Controlled."""
        return await self._operations.resume(() if target == ALL else (target,))

    async def impose(self, target: str, condition: Condition) -> list[ImposedCondition]:
        """See Controlled."""
        return await self._operations.impose((target,), condition)

    def imposed(self) -> Sequence[ImposedCondition]:
        """See Controlled."""
        return self._operations.imposed

    async def lift(self, number: int) -> Effect:
        """See Controlled."""
        return await self._operations.lift(number)

    async def reset(self, target: str) -> Effect:
        """See Controlled."""
        return await self._operations.reset((target,))

    async def heal(self, targets: Sequence[str]) -> int:
        """See Controlled."""
        return await self._operations.heal(targets)

    async def fail_disk(self, target: str, fault: str) -> list[NodeOutcome]:
        """See Controlled."""
        reason = only_simulated(fault)
        if reason is not None:
            raise NotInThisCluster(reason)
        return await self._operations.fail_disk(target, fault)

    # Faults of requests
    # ----------------------------------------------------------------------------------------------

    async def inject(self, fault: RequestFault) -> RequestFaultStatus:
        """See Controlled."""
        return await self._operations.inject(fault)

    async def end_fault(self, number: int) -> RequestFaultStatus:
        """See Controlled."""
        status, _ = await self._operations.end_fault(number)
        return status

    async def end_faults(self) -> int:
        """See Controlled."""
        return len(await self._operations.end_faults())

    async def refresh(self) -> tuple[RequestFaultStatus, ...]:
        """See Controlled."""
        if Verb.INJECT in self._reasons:
            return ()
        statuses = await self._operations.request_faults()
        self._entries = tuple(map(fault_entry, statuses))
        return statuses

    # State
    # ----------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeStatus, ...]:
        """See ControlledState."""
        cluster, driver = self._operations.cluster, self._operations.driver
        return tuple(
            NodeStatus(
                name=node.name,
                node_id=node.node_id,
                role=role_of(cluster.spec.broker_names, cluster.spec.controller_names, node.name),
                condition=self._condition(node.name),
                release=self._operations.release_of(node.name) or cluster.spec.release,
                address=f"{node.host}:{node.port}",
            )
            for node in map(cluster.spec.node, driver.node_names)
        )

    def _condition(self, node: str) -> NodeCondition:
        cluster, driver = self._operations.cluster, self._operations.driver
        if driver.is_down(node) or cluster.has_ended(node):
            return NodeCondition.DOWN
        if node in driver.paused:
            return NodeCondition.PAUSED
        is_up = node in cluster.spec.zookeeper_names or cluster.is_ready(node)
        return NodeCondition.UP if is_up else NodeCondition.STARTING

    def request_faults(self) -> tuple[RequestFaultEntry, ...]:
        """See ControlledState."""
        return self._entries

    def network(self) -> tuple[NetworkConditionEntry, ...]:
        """See ControlledState."""
        return tuple(map(condition_entry, self._operations.imposed))

    def verbs(self) -> tuple[VerbStatus, ...]:
        """See ControlledState."""
        return verb_statuses(self._reasons)

    def _missing_verbs(self) -> dict[Verb, str]:
        reasons: dict[Verb, str] = {}
        for verbs, require in (
            (PAUSE_VERBS, self._operations.require_processes),
            (LINK_VERBS, self._operations.require_proxy),
            ((Verb.INJECT,), self._operations.require_readable_requests),
        ):
            try:
                require()
            except NotInThisCluster as missing:
                reasons |= dict.fromkeys(verbs, str(missing).replace("DATA", self.place))
        return reasons


def role_of(brokers: Sequence[str], controllers: Sequence[str], name: str) -> str:
    """Return the role of a node: 'broker', 'controller', 'broker,controller' or 'zookeeper'."""
    roles = [
        role for role, names in (("broker", brokers), ("controller", controllers)) if name in names
    ]
    return ",".join(roles) or "zookeeper"


class ControlledDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What is controlled: its name, how its nodes run (`processes`, `embedded`, or `proxy` in front
    of nodes that others run), bootstrap.servers, and what can be done to it.
    """

    name: str
    mode: str
    bootstrap: str
    version: str
    verbs: tuple[VerbStatus, ...]
