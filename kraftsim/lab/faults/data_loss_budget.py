"""The data-loss budget: which faults may be combined in a run.

With more losses, missing data would be legitimate, and a violation meaningless.

A run has one data-loss class only. After a failed flush the losses of the next power loss are
unpredictable, so the two are never combined; and flushed data is lost at one host of a run at most,
for no quorum survives more. Source: TigerBeetle's fault atlas, PostgreSQL's fsyncgate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftsim.lab.faults.fault import AT_THE_TRIGGER, DataLoss, Fault, FaultKind, fault_kind
from kraftsim.lab.faults.fault_space import FaultSpace
from kraftsim.lab.faults.targets import LEADER_TARGET
from kraftsim.lab.faults.trigger import OnDisk, OnEvent, OnFrame, OnState

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)


class DataLossBudget:
    """The data-loss class of one run, and the hosts that may lose data.

    `way` is drawn once per run.
    """

    def __init__(self, data_loss: DataLoss, hosts: tuple[str, ...]) -> None:
        self.way = data_loss
        self._hosts = hosts

    def allows(self, kind: FaultKind) -> bool:
        """Return whether this run can have a kind: it loses no data, or only with some parameters,
        or its data-loss class is that of this run.
        """
        return kind.data_loss in (DataLoss.NOTHING, self.way) or kind.data_loss_if is not None

    def hosts(self, kind: FaultKind, all_hosts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts at which a kind may lose data."""
        return (
            all_hosts
            if kind.data_loss is DataLoss.NOTHING
            else self._hosts
            if kind.data_loss is self.way
            else ()
        )


def draw_data_loss_budget(random: "Random", fault_space: FaultSpace) -> DataLossBudget:
    """Draw the data-loss budget of a run."""
    data_loss = random.choice(
        (
            DataLoss.NOTHING,
            DataLoss.UNFLUSHED,
            DataLoss.UNFLUSHED,
            DataLoss.UNFLUSHED,
            DataLoss.TRUST,
            DataLoss.FLUSHED,
        )
    )
    hosts = fault_space.may_lose.get(data_loss, ())
    if not hosts:
        return DataLossBudget(DataLoss.NOTHING, ())
    return DataLossBudget(
        data_loss, (random.choice(hosts),) if data_loss is DataLoss.FLUSHED else hosts
    )


def data_loss(fault: Fault) -> DataLoss:
    """Return the data-loss class of a fault with its parameters."""
    kind = fault_kind(fault.kind)
    if kind.data_loss_if is not None and not fault.params.get(
        kind.data_loss_if, kind.params[kind.data_loss_if]
    ):
        return DataLoss.NOTHING
    return kind.data_loss


def clashes(faults: Sequence[Fault], fault_space: FaultSpace) -> list[str]:
    """Return how a schedule exceeds the data-loss budget of a fault space, one line each; empty for
    a random schedule.
    """
    found = []
    spoiling = [
        (fault, data_loss(fault)) for fault in faults if data_loss(fault) is not DataLoss.NOTHING
    ]
    losses = sorted({loss for _, loss in spoiling})
    if len(losses) > 1:
        found.append(f"a run has one data-loss class, not {len(losses)}: {', '.join(losses)}")
    for fault, loss in spoiling:
        allowed = fault_space.may_lose.get(loss, ())
        if any(host not in allowed for host in _targets(fault, fault_space)):
            found.append(f"{fault} may lose data that a host must keep ({loss})")
    if (
        len(
            {
                host
                for fault, loss in spoiling
                if loss is DataLoss.FLUSHED
                for host in _targets(fault, fault_space)
            }
        )
        > 1
    ):
        found.append("flushed data may be lost at one host of a run, not at several")
    return found


def _targets(fault: Fault, fault_space: FaultSpace) -> tuple[str, ...]:
    """Return the hosts that a fault can be injected at."""
    if fault.target == LEADER_TARGET:
        return fault_space.leaders
    if fault.target != AT_THE_TRIGGER:
        return (fault.target,)
    roles: list[str | None] = [None]
    match fault.trigger:
        case OnFrame(is_response=is_response, client=client, server=server):
            host = server if is_response else client
        case OnDisk(host=host):
            pass
        case OnEvent(host=host, kind=kind):
            roles = [
                moment.role if moment.is_only else None
                for moment in fault_space.moments
                if moment.kind == kind
            ]
        case OnState(host=host, states=states):
            roles = [
                lasting_state.role if lasting_state.is_only else None
                for lasting_state in fault_space.lasting_states
                if lasting_state.states == states
            ]
        case _:
            host = None
    if host is not None:
        return (host,)
    if not roles or None in roles:
        return fault_space.nodes
    return tuple(
        host for role in dict.fromkeys(roles) if role is not None for host in fault_space.of(role)
    )
