"""Injects fsync errors and bit rot on controller disks; checks that the affected controller stays
down and no acknowledged record is lost.

After a failed fsync the state of the disk is unknown, so the controller halts at once. A power loss
follows there, which would remove records that a controller that kept running had acknowledged. A
voter whose log is corrupt below its recovery point lacks records that it acknowledged, so it does
not start. At that time another voter returns that never received those records, and the third
voter, which has them, is isolated: the first two could elect each other and lose the records. There
is no leader until the disk is healed. Over sockets controllers are killed at random times.
Source: KIP-595; Rebello et al., Can Applications Recover from fsync Failures? (2020); Alagappan et
al., Protocol-Aware Recovery (2018).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import LEADER_TARGET, AtTime, Fault, FileClass
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, Mix
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, QUICKER_ELECTIONS, SMALL_BLOCKS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
WORK_SECONDS = 5.0
WORK_MS = int(WORK_SECONDS * 1000)
WORKLOAD = {"requesters": 2, "ids_per_requester": 200, "ids_after": 60, "work_ms": WORK_MS}


async def run(stage: ScenarioEnvironment) -> None:
    """Request producer ids while disks fail, heal, restart all controllers, one after the other, so
    that each run has a second leader, and request more; invariants are checked from the events.
    """
    ids: list[int] = []
    await stage.wait_for_leader()
    clients = (
        _ask(stage, f"asker-{number}", stage.workload("ids_per_requester"), ids)
        for number in range(1, stage.workload("requesters") + 1)
    )
    await under_faults(stage, *clients, seconds=stage.workload("work_ms") / 1000)
    for name in stage.spec.controller_names:
        await stage.restart(name)
        await stage.wait_for_controllers()
    await _ask(stage, "asker-last", stage.workload("ids_after"), ids)
    if len(set(ids)) != len(ids):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


async def _ask(stage: ScenarioEnvironment, client_id: str, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(client_id)
    ids += await client.ask(count)
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw a schedule: over sockets kills; in simulation a disk that fails a flush, or bit rot.

    The leader is restarted once in any case.
    """
    takes_over = _restart(
        LEADER_TARGET, WORK_MS - random.randint(200, 600), random.randint(700, 1000)
    )
    if mode is not Mode.SIM:
        return (
            _restart(
                random.choice(CONTROLLERS),
                random.randint(300, WORK_MS // 2),
                random.randint(200, 600),
            ),
            takes_over,
        )
    return (*random.choice((_failed_flush, _bit_rot))(random), takes_over)


def _failed_flush(random: "Random") -> list[Fault]:
    """A flush of the metadata log fails; the same controller loses power a while later, and
    again.
    """
    name, at_ms = random.choice(CONTROLLERS), random.randint(300, 1500)
    params: dict[str, int | str | bool | None] = {
        "times": 1,
        "file_class": FileClass.METADATA_LOG.value,
    }
    refused = Fault(kind="flush-error", target=name, trigger=AtTime(at_ms=at_ms), params=params)
    return [
        refused,
        *(
            _restart(name, at_ms + after_ms, 100, power_loss=True)
            for after_ms in (random.randint(100, 600), random.randint(800, 1500))
        ),
    ]


def _bit_rot(random: "Random") -> list[Fault]:
    """One voter misses records, one loses them to bit rot, and the third, which has them, is
    isolated until the disk is healed.
    """
    missing, rotten, whole = random.sample(CONTROLLERS, 3)
    at_ms, away_ms = random.randint(200, 600), random.randint(1000, 1400)
    params: dict[str, int | str | bool | None] = {
        "file_class": FileClass.METADATA_LOG.value,
        "is_checked": True,
        "duration_ms": ROTTEN_MS,
    }
    return [
        Fault(
            kind="partition",
            target=missing,
            trigger=AtTime(at_ms=at_ms),
            params={"duration_ms": away_ms + random.randint(20, 300)},
        ),
        Fault(kind="bit-rot", target=rotten, trigger=AtTime(at_ms=at_ms + away_ms), params=params),
        Fault(
            kind="partition",
            target=whole,
            trigger=AtTime(at_ms=at_ms + away_ms),
            params={"duration_ms": ROTTEN_MS},
        ),
    ]


ROTTEN_MS = 1500


def _restart(target: str, at_ms: int, after_ms: int, *, power_loss: bool = False) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=AtTime(at_ms=at_ms),
        params={"power_loss": power_loss, "after_ms": after_ms},
    )


SCENARIO = Scenario(
    name="controller_disk_corruption",
    summary="A controller's disk fails a flush or returns corrupt data: the controller stays down, "
    "and no acknowledged record is lost.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "high-watermark-flushed",
        "leader-completeness",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    brokers=1,
    settings={
        **QUICK_SESSIONS,
        **QUICKER_ELECTIONS,
        "metadata.max.idle.interval.ms": "50",
        **SMALL_BLOCKS,
    },
    node_settings={name: {"log.flush.offset.checkpoint.interval.ms": "0"} for name in CONTROLLERS},
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=1,
        clients=("asker-1", "asker-2"),
        apis=PRODUCER_ID_APIS,
        fault_seconds=WORK_SECONDS,
        mix=Mix.APART,  # its own faults take all that a quorum can lose
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
