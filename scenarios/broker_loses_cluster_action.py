"""Revokes CLUSTER_ACTION from a broker under load: per KIP-730's text it shuts down, as shipped it
retries. Checks that no producer id is reused.

CLUSTER_ACTION is denied to one broker by an ACL for the address that it connects from, and granted
again; in some runs before any client has requested an id from that broker. Blocks are small, so
that the broker soon needs one. A broker that follows the KIP shuts down, and clients use other
brokers. A shipped broker keeps running and rejects requests for ids (up to 3.5 with the error that
it received itself); it is fenced, because its heartbeats are rejected as well. Either way no id is
returned twice, and no record is lost.
Source: KIP-730 (possible errors), KIP-140; kafka.coordinator.transaction.RPCProducerIdManager.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed, within
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import (
    ENDS_A_NODE,
    PRODUCER_ID_APIS,
    WRITER_APIS,
    Mix,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK
from kraftsim.lab.workloads.under_load import write_lines

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC = "ledger"
PARTITIONS = 3
OUTCAST, ITS_ADDRESS = "broker-3", "127.77.0.3"
ENDING = "ending"
UNASKED_SHARE = 0.6
"""The share of runs in which clients start after the right is revoked: the broker may never have
had a block.
"""
WRITER_SECONDS = 0.5
"""A producer has its id after this time."""
PAUSE_SECONDS = 0.1
LOOK_SECONDS = 0.1
AFTERWARDS = 30
END_SECONDS = 30.0
WORK_SECONDS = 7.0
WORKLOAD = {
    "records": 60,
    "requesters": 2,
    "without_rights_ms": 6000,
    "work_ms": int(WORK_SECONDS * 1000),
}


async def run(stage: ScenarioEnvironment) -> None:
    """Revoke the right under load, check the broker's reaction, and grant it again."""
    await stage.create_topic(TOPIC, PARTITIONS, len(stage.spec.broker_names))
    is_over: list[bool] = []
    has_begun = asyncio.Event()
    if stage.random("askers").random() >= UNASKED_SHARE:
        has_begun.set()
    clients = [
        _ask_from_then(stage, f"asker-{number}", has_begun, is_over)
        for number in range(1, stage.workload("requesters") + 1)
    ]
    writing = write_lines(
        stage, TOPIC, PARTITIONS, stage.workload("records"), pause_seconds=PAUSE_SECONDS
    )
    await under_faults(
        stage,
        writing,
        _revoke(stage, has_begun, is_over),
        *clients,
        seconds=stage.workload("work_ms") / 1000,
    )
    await within(
        stage, "ids afterwards", _ask(stage, "asker-afterwards", [True], AFTERWARDS), END_SECONDS
    )


async def _revoke(
    stage: ScenarioEnvironment, has_begun: asyncio.Event, is_over: list[bool]
) -> None:
    admin = stage.exact_client("admin", TOPIC)
    await stage.sleep(WRITER_SECONDS)
    stage.emit(PhaseBegan(phase="without-rights"))
    await admin.shut_out(_addresses(stage))
    has_begun.set()
    if stage.spec.settings.get("kraftsim.producer.ids") == ENDING:
        await within(stage, f"{OUTCAST} shuts down", _gone(stage), END_SECONDS)
    else:
        await stage.sleep(stage.workload("without_rights_ms") / 1000)
        if stage.is_down(OUTCAST):
            raise ScenarioFailed(f"{OUTCAST} has shut down, but shipped brokers keep running")
    stage.emit(PhaseBegan(phase="with-rights"))
    await admin.remove_denials(_addresses(stage))
    if stage.is_down(OUTCAST):
        await stage.restart(OUTCAST)
    await stage.wait_for_brokers()
    is_over.append(True)


def _addresses(stage: ScenarioEnvironment) -> tuple[str, str]:
    """Return the addresses that the broker may connect from; in simulation hosts are numbered: the
    harness, the controllers, the brokers.
    """
    return ITS_ADDRESS, f"10.0.0.{2 + stage.spec.node_names.index(OUTCAST)}"


async def _gone(stage: ScenarioEnvironment) -> None:
    while not stage.is_down(OUTCAST):
        await stage.sleep(LOOK_SECONDS)


async def _ask_from_then(
    stage: ScenarioEnvironment, name: str, has_begun: asyncio.Event, is_over: list[bool]
) -> None:
    await has_begun.wait()
    await _ask(stage, name, is_over)


async def _ask(
    stage: ScenarioEnvironment, name: str, is_over: list[bool], at_least: int = 0
) -> None:
    client = stage.producer_id_client(name)
    await client.ask(at_least)
    while not is_over:
        with suppress(OSError):  # from 3.0 to 3.5 the error is returned to the waiting client
            await client.ask(5)
        await stage.sleep(PAUSE_SECONDS)
    await client.close()


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: the revoked right is the only fault."""
    return ()


def draw_rule(random: "Random") -> Mapping[str, str]:
    """Draw how such a broker reacts, and the release."""
    return {
        "kraftsim.producer.ids": random.choice(("as-released", ENDING)),
        "kraftsim.release": random.choice(("3.5", "3.9", "4.4")),
    }


SCENARIO = Scenario(
    name="broker_loses_cluster_action",
    provoked_errors=(31,),  # CLUSTER_AUTHORIZATION_FAILED: brokers pass it on
    summary="A broker loses the right to request producer ids: per KIP-730's text it shuts down, "
    "as shipped it keeps running and rejects clients.",
    must_exercise=(
        "producer-id-unique",
        "producer-id-blocks-disjoint",
        "acknowledged-records-in-final-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=no_faults,
    draw_parameters=draw_rule,
    settings={
        **UNDER_ANY_CLOCK,
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "kraftsim.producer.id.control": "resizable",
        "kraftsim.producer.id.block.size": "10",
    },
    node_settings={OUTCAST: {"kraftsim.outgoing.host": ITS_ADDRESS}},
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=(
            "writer-1",
            "asker-1",
            "asker-2",
        ),
        apis=(*WRITER_APIS, *PRODUCER_ID_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
        mix=Mix.ON_TOP,
        omits=ENDS_A_NODE,  # whether a broker ends by itself is what the scenario observes
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_brokers=3,
)
