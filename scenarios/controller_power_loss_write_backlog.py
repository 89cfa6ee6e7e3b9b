"""Controllers lose power while their disks lag behind; checks that a log with a gap is never
treated as a complete log.

Flushes of the leader do not return for a while. The other voters commit without it, so it
continues, rolls several segments, and then has to flush them one by one; a power loss removes some
of them and leaves later ones. Or a controller was down for long, and receives a snapshot that
replaces its log; a power loss removes the snapshot and restores the log that it replaced. Or a
leader was isolated and has truncated its log; a power loss must not restore what it wrote in
isolation before the records that it replicated since. A restarted controller must end its log at
the first missing record, or start it after the snapshot, and replicate the rest again.

Over sockets controllers are killed at random times.
Source: KIP-595, KIP-630, kafka.raft.KafkaMetadataLog; Pillai et al., All File Systems Are Not
Created Equal (2014).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import LEADER_TARGET, AtTime, DataLoss, Fault, FileClass, Value
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, Mix
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import SETTINGS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
ROUNDS, ROUND_MS = 3, 3000
WORKLOAD = {"ids": 600, "ids_after": 40, "work_ms": ROUNDS * ROUND_MS}
AWAY_MS = (800, 1500)
FACTORS = (5, 20, 50)
"""The factors by which flushes are slowed down; normally they take a fraction of a millisecond."""
STUCK_FILES = (FileClass.CHECKPOINT, FileClass.CHECKPOINT, FileClass.OTHER)
"""The leader-epoch checkpoint, which is rewritten after a snapshot was fetched; and the snapshot
itself.
"""


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids while one disk after the other lags behind, heal, and request more."""
    ids: list[int] = []
    await stage.wait_for_leader()
    await under_faults(
        stage,
        _ask(stage, "asker-1", stage.workload("ids"), ids),
        seconds=stage.workload("work_ms") / 1000,
    )
    await _ask(stage, "asker-2", stage.workload("ids_after"), ids)
    await stage.create_topic("after", 2)
    if len(set(ids)) != len(ids):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


async def _ask(stage: ScenarioEnvironment, client_id: str, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(client_id)
    ids += await client.ask(count)
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw which disk stalls when, and when its power fails; over sockets kills at random times."""
    if mode is not Mode.SIM:
        return tuple(
            _restart(
                random,
                random.choice(CONTROLLERS),
                AtTime(at_ms=random.randint(500, 5000)),
                power_loss=False,
            )
            for _ in range(random.randint(2, 4))
        )
    slow: dict[str, Value] = {"factor": random.choice(FACTORS), "duration_ms": ROUNDS * ROUND_MS}
    schedule = [
        Fault(kind="slow-disk", target="controller-*", trigger=AtTime(at_ms=1), params=slow)
    ]
    for number in range(ROUNDS):
        schedule += random.choice((_flushes_pile_up, _in_mid_snapshot, _after_truncation))(
            random, 300 + number * ROUND_MS
        )
    return tuple(schedule)


def _flushes_pile_up(random: "Random", at_ms: int) -> list[Fault]:
    """Flushes of the leader stall; it loses power when they return and many more are pending."""
    stuck_ms, later_ms = random.randint(300, 1200), random.randint(1, 200)
    params: dict[str, Value] = {"file_class": FileClass.METADATA_LOG.value, "duration_ms": stuck_ms}
    stuck = Fault(
        kind="stuck-flush", target=LEADER_TARGET, trigger=AtTime(at_ms=at_ms), params=params
    )
    return [stuck, _restart(random, LEADER_TARGET, AtTime(at_ms=at_ms + stuck_ms + later_ms))]


def _in_mid_snapshot(random: "Random", at_ms: int) -> list[Fault]:
    """A controller is down, flushes stall when it is back, and before they continue it loses power
    or is killed.
    """
    name, away_ms, stuck_ms = (
        random.choice(CONTROLLERS),
        random.randint(*AWAY_MS),
        random.randint(500, 1200),
    )
    params: dict[str, Value] = {
        "file_class": random.choice(STUCK_FILES).value,
        "duration_ms": stuck_ms + 50,
    }
    return [
        Fault(
            kind="partition",
            target=name,
            trigger=AtTime(at_ms=at_ms),
            params={"duration_ms": away_ms},
        ),
        Fault(
            kind="stuck-flush", target=name, trigger=AtTime(at_ms=at_ms + away_ms), params=params
        ),
        _restart(
            random,
            name,
            AtTime(at_ms=at_ms + away_ms + stuck_ms),
            power_loss=random.random() < POWER_SHARE,
        ),
    ]


POWER_SHARE = 0.85


def _after_truncation(random: "Random", at_ms: int) -> list[Fault]:
    """A leader is isolated and truncates its log when it is back; all lose power when it has
    written to another segment.
    """
    away_ms, later_ms = random.randint(*AWAY_MS), random.randint(100, 800)
    alone = Fault(
        kind="partition",
        target=LEADER_TARGET,
        trigger=AtTime(at_ms=at_ms),
        params={"duration_ms": away_ms},
    )
    params: dict[str, Value] = {"after_ms": 20, "apart_ms": random.choice((10, 300))}
    return [
        alone,
        Fault(
            kind="blackout",
            target="controller-*",
            trigger=AtTime(at_ms=at_ms + away_ms + later_ms),
            params=params,
        ),
    ]


def _restart(random: "Random", target: str, trigger: AtTime, *, power_loss: bool = True) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": power_loss, "after_ms": random.choice((20, 100, 400))},
    )


def draw_parameters(random: "Random") -> dict[str, str]:
    """Draw the segment size, and whether a controller that was down receives records or a
    snapshot.
    """
    return {
        "metadata.log.segment.bytes": random.choice(("150", "300", "1000")),
        "metadata.log.segment.ms": random.choice(("300", "604800000")),
        **random.choice((RECORDS, SNAPSHOTS)),
        "controller.quorum.fetch.snapshot.max.bytes": random.choice(("300", "8388608")),
    }


RECORDS = {
    "metadata.log.max.record.bytes.between.snapshots": "100000",
    "metadata.max.retention.bytes": "1000000",
}
SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "metadata.max.retention.bytes": "1000",
}

SCENARIO = Scenario(
    name="controller_power_loss_write_backlog",
    summary="Disks lag behind, and power fails: a recovered log ends at the first missing "
    "record, or starts after its snapshot.",
    must_exercise=(
        "one-leader-per-epoch",
        "one-vote-per-epoch",
        "flushed-metadata-retained",
        "quorum-state-restored",
        "metadata-log-matching",
        "metadata-log-contiguous",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    brokers=1,
    settings={**SETTINGS, "metadata.max.idle.interval.ms": "20"},
    draw_parameters=draw_parameters,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=1,
        clients=("asker-1",),
        apis=PRODUCER_ID_APIS,
        fault_seconds=ROUNDS * ROUND_MS / 1000,
        may_lose=(DataLoss.UNFLUSHED,),  # the class of the scenario's own faults
        mix=Mix.ON_TOP,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
