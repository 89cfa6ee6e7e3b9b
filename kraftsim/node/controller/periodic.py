"""Periodic tasks of an active controller: they start with its activation and end when it resigns."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final

from kraftsim.core.decision import Decision
from kraftsim.node.controller.partition_upkeep import elect_leaders
from protocol.metadata.m20_no_op import NoOpRecord

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller

Periodic = Callable[["Controller"], Coroutine[None, None, None]]


async def write_no_ops(controller: "Controller") -> None:
    """Write a NoOpRecord periodically, so that followers see a live leader and learn the high watermark. Source: KIP-835."""
    interval_ms = controller.config.metadata_max_idle_interval_ms
    while interval_ms:
        await asyncio.sleep(interval_ms / 1000)
        if controller.is_active and controller.metadata_writer.state.features.metadata_level.has_no_op_records:
            controller.metadata_writer.write([NoOpRecord()])


async def fence_silent_brokers(controller: "Controller") -> None:
    """Fence brokers whose session has expired, each at its own time. No session can expire earlier than the next check.

    Source: org.apache.kafka.controller.BrokerHeartbeatManager, QuorumController.maybeFenceReplicas.
    """
    cluster = controller.metadata_writer.state.cluster
    while True:
        due_ms = cluster.next_stale_at_ms()
        pause_ms = controller.config.broker_session_timeout_ms if due_ms is None else due_ms - controller.now_ms()
        await asyncio.sleep(max(pause_ms, 1) / 1000)
        while controller.is_active and (decision := _fencing(controller)) is not None:
            controller.metadata_writer.write(decision.records, decision.facts, is_atomic=False)


def _fencing(controller: "Controller") -> Decision[int] | None:
    """Return the decision to fence a broker, if any session has expired. No broker is fenced before the migration from ZooKeeper."""
    state = controller.metadata_writer.state
    return None if state.is_before_migration else state.decide_fence_stale(controller.now_ms())


PERIODIC: Final[tuple[Periodic, ...]] = (write_no_ops, fence_silent_brokers, elect_leaders)
