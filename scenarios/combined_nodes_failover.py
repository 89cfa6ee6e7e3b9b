"""Kills, powers off and stops combined nodes (process.roles=broker,controller) under idempotent
load, the active controller among them; checks that no record is lost or duplicated and that the
metadata quorum keeps its promises.

A combined node takes both roles with it: the partitions that it leads need new leaders at the same
moment as the quorum does, and no controller can elect them before the quorum has elected one. Its
broker applies the metadata log from the replica with which its controller votes.
Source: KIP-595, KIP-631 (process.roles), kafka.server.{KafkaRaftServer, SharedServer}.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    ReplicationWorkload,
)
from kraftsim.lab.workloads.workload_spaces import replication_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=4)
NODES = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 10.0
FLUSH_KEY = "log.flush.interval.messages"
"""Every node may lose power in turn: only flushed records survive that (KIP-966)."""
APART_MS = 3300
"""The time between two faults: with two of three nodes down there is no quorum."""


async def run(stage: ScenarioEnvironment) -> None:
    """Produce while the nodes fail one after the other, and read everything back."""
    await LEDGER.run(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw the order in which the nodes fail, how, and how long each is down.

    Over sockets a node that loses power is killed instead.
    """
    order = random.sample(NODES, len(NODES))
    return tuple(
        _failure(random, node, number, mode is Mode.SIM) for number, node in enumerate(order)
    )


def _failure(random: "Random", node: str, number: int, may_lose_power: bool) -> Fault:
    trigger = AtTime(at_ms=random.randint(200, 1000) + number * APART_MS)
    params: dict[str, int | bool] = {"after_ms": random.randint(20, 2500)}
    kind = random.choice(("restart", "restart", "stop"))
    if kind == "restart":
        params["power_loss"] = may_lose_power and random.choice((False, True))
    return Fault(kind=kind, target=node, trigger=trigger, params=params)


SCENARIO = Scenario(
    name="combined_nodes_failover",
    summary="Three nodes that are brokers and controllers at once are killed, powered off and "
    "stopped one after the other under idempotent load; no record is lost or duplicated.",
    must_exercise=(
        *MUST_EXERCISE,
        "one-vote-per-epoch",
        "leader-elected-by-majority",
        "high-watermark-flushed",
        "metadata-log-matching",
    ),
    run=run,
    faults=faults,
    controllers=3,
    brokers=3,
    combined=3,
    settings={**SETTINGS, FLUSH_KEY: "1"},
    fault_space=replication_fault_space(controllers=3, combined=3, fault_seconds=WORK_SECONDS),
    limit_seconds=600.0,
    workload={**WORKLOAD, "pause_ms": 70, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=3,
    fewest_brokers=3,
)
