"""Kills the active controller at each step of a producer-id block allocation; checks that no block
is allocated twice.

Producer-id clients use up block after block, so that a block is always being requested, appended,
replicated or returned. In simulation the active controller is killed when a block is appended but
not committed, when it is committed but not returned, when the response is in flight, and during the
following election. Over sockets it is killed at random times. Idempotent producers write
throughout.

Source: KIP-730, KIP-595, org.apache.kafka.controller.ProducerIdControlManager.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    AtTime,
    Fault,
    FileClass,
    OnDisk,
    OnEvent,
    OnFrame,
    Trigger,
)
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, WRITER_APIS, cluster_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_ELECTIONS, QUICK_SESSIONS
from kraftsim.lab.workloads.replication_workload import KEEPS_ANY_DATE
from kraftsim.lab.workloads.under_load import write_lines

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
TOPIC = "ledger"
PARTITIONS = 3
PAUSE_SECONDS = 0.1
WORK_SECONDS = 7.0
"""How long faults are injected; the clients take about as long without faults."""
WORKLOAD = {
    "records": 60,
    "requesters": 3,
    "ids_per_requester": 2500,
    "work_ms": int(WORK_SECONDS * 1000),
}
ALLOCATE_PRODUCER_IDS = 67
VOTE = 52


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids and produce under faults, heal, and check that the cluster recovers; invariants
    are checked from the events.
    """
    await stage.create_topic(TOPIC, PARTITIONS)
    ids: list[int] = []
    records, clients, ids_each = (
        stage.workload(parameter) for parameter in ("records", "requesters", "ids_per_requester")
    )
    asked = (_ask(stage, number, ids_each, ids) for number in range(1, clients + 1))
    await under_faults(
        stage,
        write_lines(stage, TOPIC, PARTITIONS, records, pause_seconds=PAUSE_SECONDS),
        *asked,
        seconds=stage.workload("work_ms") / 1000,
    )
    if len(set(ids)) != clients * ids_each:
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )
    reader = stage.reader("reader-1")
    read = await reader.read_all(TOPIC, range(PARTITIONS))
    await reader.close()
    if len({record.key for record in read}) < records:
        raise ScenarioFailed(
            f"{records} records were sent, but the consumer read "
            f"{len({record.key for record in read})} of them"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to four controller failures: over sockets at times; in simulation at steps of an
    allocation and of the following election.
    """
    if mode is not Mode.SIM:
        first = random.choice(CONTROLLERS)
        second = random.choice([name for name in CONTROLLERS if name != first])
        return tuple(
            _end(random, name, AtTime(at_ms=at_ms))
            for name, at_ms in ((first, 1500), (second, 4500))
        )
    schedule = [
        _end(random, AT_THE_TRIGGER, _allocation(random)) for _ in range(random.randint(1, 3))
    ]
    return (*schedule, _end(random, AT_THE_TRIGGER, _election(random)))


def _allocation(random: "Random") -> Trigger:
    """Draw a step of an allocation: appended, durable on the leader, replicated, committed, about
    to be returned.
    """
    nth = random.randint(1, 5)
    return random.choice(
        (
            OnEvent(kind="MetadataAppended", fields={"record_kinds": "ProducerIdsRecord"}, nth=nth),
            OnDisk(
                operation="flush",
                file_class=FileClass.METADATA_LOG,
                nth=random.randint(1, 60),
                moment=random.choice(("before", "after")),
            ),
            OnEvent(
                kind="HighWatermarkMoved", fields={"is_leader": True}, nth=random.randint(1, 40)
            ),
            OnEvent(kind="ProducerIdBlockAllocated", nth=nth),
            OnFrame(
                api_key=ALLOCATE_PRODUCER_IDS,
                is_response=True,
                nth=nth,
                moment=random.choice(("before", "after")),
            ),
        )
    )


def _election(random: "Random") -> Trigger:
    """Draw a step of an election: a Vote request, a vote, the result, the leader's first record."""
    return random.choice(
        (
            OnFrame(
                api_key=VOTE, nth=random.randint(1, 4), moment=random.choice(("before", "after"))
            ),
            OnEvent(
                kind="VoteAnswered",
                fields={"is_granted": True, "is_pre_vote": False},
                nth=random.randint(1, 2),
            ),
            OnEvent(kind="VoteSent", nth=random.randint(1, 3)),
            OnEvent(kind="ControllerElected"),
            OnEvent(kind="MetadataAppended", fields={"record_kinds": "LeaderChange"}),
        )
    )


def _end(random: "Random", target: str, trigger: Trigger) -> Fault:
    is_in_time = isinstance(trigger, AtTime)
    params: dict[str, int | str | bool | None] = {
        "power_loss": not is_in_time and random.random() < 0.6,
        "after_ms": random.randint(200, 2500),
    }
    return Fault(kind="restart", target=target, trigger=trigger, params=params)


async def _ask(stage: ScenarioEnvironment, number: int, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(f"asker-{number}")
    ids += await client.ask(count)
    await client.close()


SCENARIO = Scenario(
    name="controller_failover_during_allocation",
    summary="The active controller is killed at each step of a producer-id block allocation; no "
    "block is allocated twice.",
    must_exercise=(
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "producer-id-inside-owned-block",
        "next-producer-id-monotonic",
        "one-leader-per-epoch",
        "one-vote-per-epoch",
        "metadata-log-matching",
        "high-watermark-flushed",
        "acknowledged-records-in-final-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    settings={**QUICK_SESSIONS, **QUICK_ELECTIONS, **KEEPS_ANY_DATE},
    fault_space=cluster_fault_space(
        controllers=3,
        brokers=3,
        clients=("writer-1", "asker-1", "asker-2", "asker-3"),
        apis=(*PRODUCER_ID_APIS, *WRITER_APIS),
        brokers_keep_records=True,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=1,
)
