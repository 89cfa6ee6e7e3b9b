"""Five segments, a leader and a follower, and an upgrade from a release without producer snapshots
per segment to one with them.

The cluster writes four segments as brokers before 2.8 did, a new producer in each. It is upgraded,
and tiered storage is enabled for the topic before anything else is written. A follower with an
empty log is rebuilt behind the second segment; then the leader fails, and producer 1 retries a
batch of the first segment whose response it never received.

The steps and the expected state after each of them are those of the example in the proposal of
empty snapshots.
Source: KAFKA-15195, KIP-405; how a leader treats an unknown producer: KIP-360 (2.5), before it
KAFKA-5793.
"""

from dataclasses import dataclass
from typing import Final

from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.scenario import ScenarioEnvironment, ScenarioFailed, within
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault_space import BROKERS, CLIENTS, FETCH, PRODUCE, Api, Mix
from kraftsim.lab.faults.upgrade_spaces import DELAYS, all_but, tiered_fault_space
from kraftsim.lab.workloads.replication_workload import KEEPS_ANY_DATE
from protocol.errors import ErrorCode

TOPIC: Final = "ledger"
LEADER, FOLLOWER = 1, 2
EARLIEST_LOCAL: Final = -4
LATEST: Final = -1
SEGMENTS: Final = 4
RECORDS_PER_SEGMENT: Final = 2
VALUE_BYTES: Final = 400
STEP_SECONDS: Final = 60.0
ACKNOWLEDGED: Final = ErrorCode.NONE.name
UNKNOWN: Final = ErrorCode.UNKNOWN_PRODUCER_ID.name
NEW_ID: Final = 1001
LAST_SEQUENCE: Final = RECORDS_PER_SEGMENT - 1
"""The base sequence of each producer in its segment: a sequence of 0 would be accepted from any
producer under any rule.
"""
SETTINGS: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "300",
    "rsm.config.dir": "remote-store",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "kraftsim.producer.snapshots": "newest-two",
    **KEEPS_ANY_DATE,
}
CONFIGS: Final = {
    "segment.bytes": "1000",
    "index.interval.bytes": "1",
    "local.retention.bytes": "2000",
    "retention.ms": "-1",
}
FIRST_TIERED: Final = "3.6"
LAST_WITH_SMALL_SEGMENTS: Final = "3.9"
"""Later releases reject segment.bytes below 1 MiB for a topic."""
SPACE: Final = tiered_fault_space(
    controllers=1,
    brokers=2,
    clients=("narrator",),
    apis=(Api(PRODUCE, CLIENTS, BROKERS, 3), Api(FETCH, CLIENTS, BROKERS, 12)),
    fault_seconds=3.0,
    mix=Mix.ON_TOP,
    omits=tuple(name for name in all_but(*DELAYS) if name != "snapshot-of-another-segment"),
)
"""Faults begin when the leader fails. Delays only: the leader stays down, so that every other fault
leaves no broker to answer the retried batch, or another one than the rebuilt follower.
"""
UPGRADED: Final = {"kraftsim.producer.snapshots": "every-segment"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What was observed: the producers that the rebuilt follower knew when it became leader, and
    its answer to producer 1.
    """

    known: tuple[int, ...]
    error: ErrorCode
    offset: int


def value_of(producer_id: int, sequence: int) -> bytes:
    """Return the value of the record that a producer writes with a sequence."""
    return f"producer {producer_id}, record {sequence} ".encode().ljust(VALUE_BYTES, b".")


REPEATED: Final = value_of(1, LAST_SEQUENCE)
"""The record of producer 1 that is in the log, without the producer having received the
response.
"""


async def run_to_boundary(stage: ScenarioEnvironment) -> tuple[ExactClient, Boundary]:
    """Run up to the answer that producer 1 gets from the rebuilt follower.

    The old leader is left down.
    """
    client = stage.exact_client("narrator", TOPIC)
    _say(stage, "written before 2.8")
    await within(
        stage, "the topic was not created", client.create_topic([LEADER], CONFIGS), STEP_SECONDS
    )
    for producer_id in range(1, SEGMENTS + 1):
        for sequence in range(RECORDS_PER_SEGMENT):
            await _write(client, producer_id, sequence)
    await _write(client, SEGMENTS, RECORDS_PER_SEGMENT)
    _say(stage, "upgraded")
    for broker_id in (FOLLOWER, LEADER):
        await stage.restart(f"broker-{broker_id}", settings=UPGRADED)
        await stage.wait_for_brokers()
    known = await client.known_producers()
    if known != [1, 2, 3, 4]:
        raise ScenarioFailed(f"the leader knows {known}")
    _say(stage, "tiered storage enabled first")
    await client.set_configs({"remote.storage.enable": "true"})
    await within(
        stage, "no segment was copied to remote storage", until_local_from(client, 4), STEP_SECONDS
    )
    _say(stage, "a follower without local segments")
    await within(
        stage,
        "the follower did not join the ISR",
        client.set_replicas([LEADER, FOLLOWER]),
        STEP_SECONDS,
    )
    _say(stage, "the leader fails")
    stage.inject()
    while not stage.is_down(f"broker-{LEADER}"):
        await stage.sleep(0.1)
    _say(stage, "producer 1 retries a batch of segment 1")
    error, offset = await client.produce(1, LAST_SEQUENCE, REPEATED)
    known_after = tuple(await client.known_producers())
    return client, Boundary(known=known_after, error=error, offset=offset)


async def count_of(client: ExactClient, value: bytes) -> int:
    """Return how often a record is in the log, local or remote."""
    return (await client.read_values()).count(value)


async def _write(client: ExactClient, producer_id: int, sequence: int) -> None:
    error, _ = await client.produce(producer_id, sequence, value_of(producer_id, sequence))
    if error is not ErrorCode.NONE:
        raise ScenarioFailed(
            f"record {sequence} of producer {producer_id} was answered {error.name}"
        )


async def until_local_from(client: ExactClient, offset: int) -> None:
    """Return when the leader has no record before an offset in its local log."""
    while await client.offset_of(EARLIEST_LOCAL) < offset:
        pass


def _say(stage: ScenarioEnvironment, phase: str) -> None:
    stage.emit(PhaseBegan(phase=phase))
