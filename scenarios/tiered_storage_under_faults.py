"""Idempotent writers fill a tiered topic while brokers, links and the remote store fail; checks
that a reader from offset 0 sees every record once, and that rebuilt followers have their leader's
producer state.

Segments are small and few of them are kept locally, so leaders copy segments all the time, and a
follower that was away for a second or two finds that its leader's local log begins behind its own
end: it is rebuilt from the remote log, with the producer state of a snapshot there. Leadership
moves between replicas that have different local logs. Calls to the store are slow, fail before or
after they took effect, or write only some objects of a segment; listings are stale; an object is
missing until it is restored.

The faults may keep `__remote_log_metadata` from being written until they end. Therefore a broker is
down for a while once more afterwards, until its leader has copied and deleted what it lacks.

Source: KIP-405; org.apache.kafka.server.log.remote.storage.RemoteLogManager,
kafka.server.TierStateMachine.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import LivenessLost, Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import AtTime, Fault, Value
from kraftsim.lab.faults.fault_space import WRITER_APIS
from kraftsim.lab.faults.upgrade_spaces import tiered_fault_space
from kraftsim.lab.workloads.administrator import Administrator
from kraftsim.lab.workloads.phases import (
    CALLS_SECONDS,
    elect_now_and_then,
    replicas_settle,
    under_faults,
)
from kraftsim.lab.workloads.replication_workload import SETTINGS, TOPIC, ReplicationWorkload
from kraftsim.lab.workloads.snapshot_boundary import LATEST, until_local_from
from kraftsim.lab.workloads.snapshot_boundary import SETTINGS as TIERED

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=2)
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 10.0
TIERED_SECONDS = 60.0
"""After the faults, a copy to the store and a deletion take one interval of 300 ms each."""
AWAY_MS = (1500, 4000)
"""Long enough for a leader to copy and delete the segments that a follower lacks."""
TOPIC_CONFIGS = {"remote.storage.enable": "true", "local.retention.bytes": "1500"}


async def run(stage: ScenarioEnvironment) -> None:
    """Write to a tiered topic under faults, heal, and read everything from the beginning."""
    await LEDGER.open(stage)
    operator = Administrator(stage.client_host("operator"))
    await operator.configure(TOPIC, TOPIC_CONFIGS)
    operator.close()
    seconds = stage.workload("work_ms") / 1000
    writers = (LEDGER.write(stage, number) for number in LEDGER.writers(stage))
    elections = elect_now_and_then(stage, seconds=seconds, every_seconds=2.5)
    await under_faults(stage, *writers, elections, seconds=seconds)
    await _rebuild(stage)
    await LEDGER.audit(stage)


async def _rebuild(stage: ScenarioEnvironment) -> None:
    """Keep a broker down until the leader of partition 0 has no local segment with the records
    after its log.

    Raises LivenessLost if the leader does not copy or delete its segments.
    """
    count = stage.workload("records_without_follower")
    if not count:
        return
    await replicas_settle(stage, TOPIC, LEDGER.partitions)
    away = stage.random("away").choice(stage.spec.broker_names)
    client, writer = stage.exact_client("observer", TOPIC), stage.producer("late-writer")
    end = await client.offset_of(LATEST)
    await stage.kill(away)
    await writer.start()
    for index in range(count):
        await writer.send(TOPIC, 0, f"late.{index}", b"written while a broker is away")
        if await writer.flush(CALLS_SECONDS):  # each alone: a segment holds ten of them
            raise LivenessLost(f"record {index} is not acknowledged without {away}")
    await writer.close()
    await within(
        stage,
        f"the leader's local log begins after offset {end}",
        until_local_from(client, end + 1),
        TIERED_SECONDS,
    )
    await client.close()
    await stage.restart(away)
    await stage.wait_for_brokers()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw brokers that are away one after the other, and, in simulation, failures of the store."""
    away = tuple(
        _away(random, int((number + random.random()) * WORK_SECONDS * 1000 / 3))
        for number in range(3)
    )
    if mode is not Mode.SIM:
        return away
    return (*away, *(_store(random) for _ in range(random.randint(1, 4))))


def _away(random: "Random", at_ms: int) -> Fault:
    """A broker is killed or isolated for a while."""
    name, lasts_ms = random.choice(BROKERS), random.randint(*AWAY_MS)
    if random.random() < 0.6:
        return Fault(
            kind="restart",
            target=name,
            trigger=AtTime(at_ms=at_ms + 1),
            params={"power_loss": False, "after_ms": lasts_ms},
        )
    return Fault(
        kind="partition",
        target=name,
        trigger=AtTime(at_ms=at_ms + 1),
        params={"duration_ms": lasts_ms},
    )


def _store(random: "Random") -> Fault:
    """The remote store is slow or fails, or an object is missing."""
    ending = random.choice((".log", ".index", ".snapshot", ".leader_epoch_checkpoint"))
    choices: tuple[tuple[str, dict[str, Value]], ...] = (
        ("slow-store", {"delay_ms": random.randint(100, 2000)}),
        ("failing-store", {"permille": random.randint(100, 1000)}),
        ("half-copied-segment", {"ending": ending if ending != ".log" else ".timeindex"}),
        ("lost-object", {"ending": ending}),
    )
    kind, params = random.choice(choices)
    return Fault(
        kind=kind,
        trigger=AtTime(at_ms=random.randint(500, int(WORK_SECONDS * 1000))),
        params={**params, "duration_ms": random.randint(500, 5000)},
    )


def draw_parameters(random: "Random") -> dict[str, str]:
    """Draw the release: from 3.6 on topics can be tiered."""
    return {"kraftsim.release": random.choice(("3.6", "3.9", "4.0", "4.4"))}


SCENARIO = Scenario(
    name="tiered_storage_under_faults",
    summary="A tiered topic is written while brokers and the remote store fail; a reader sees "
    "every record once, and rebuilt followers know its producers.",
    must_exercise=(
        "local-segments-deleted-after-upload",
        "rebuilt-producer-state-equal",
        "acknowledged-records-in-final-log",
        "one-append-per-sequence",
        "one-partition-leader-per-epoch",
        "partition-high-watermark-monotonic",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        **{key: value for key, value in TIERED.items() if not key.startswith("kraftsim.")},
        "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
        "log.segment.bytes": "1000",
        "log.index.interval.bytes": "1",
    },
    draw_parameters=draw_parameters,
    fault_space=tiered_fault_space(
        controllers=1,
        brokers=3,
        clients=("writer-1", "writer-2"),
        apis=WRITER_APIS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={
        "writers": 2,
        "records_per_writer": 200,
        "pause_ms": 45,
        "work_ms": int(WORK_SECONDS * 1000),
        "records_without_follower": 30,
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.6",
)
