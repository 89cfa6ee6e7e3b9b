"""Groups without members commit, expire, and are deleted while coordinators fail; checks after
every step that exactly the committed offset is there.

Each client keeps one offset: it commits with metadata, with a retention time of three seconds, and
requests of which two of three partitions are refused; in transactions, which commit or abort, also
as the only content of the group; and it deletes the offset, and the group. The log of the
coordinator is compacted, with its tombstones, and coordinators load it again. See `OffsetKeeper`.
Source: KIP-211, KIP-229, KIP-496, KIP-447, KAFKA-19163;
org.apache.kafka.coordinator.group.OffsetMetadataManager.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.faults.fault_space import (
    OFFSET_KEEPER_APIS,
    OFFSET_MOMENTS,
    TRANSACTION_APIS,
    cluster_fault_space,
)
from kraftsim.lab.workloads.offset_keeper import OffsetKeeper
from kraftsim.lab.workloads.phases import elect_now_and_then, transactions_settle, under_faults
from kraftsim.lab.workloads.transform_app import OFFSETS_TOPIC, SETTINGS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 12.0
TOPIC = "kept"
STEPS_AFTER = 8
LATEST_REQUEST_SECONDS: Final = 35.0
"""More than a request time-out: nothing of the fault phase is under way any more."""
CLOCKS = ("clock-offset", "clock-jump-forward", "clock-jump-back", "clock-frozen", "clock-drift")
"""A coordinator whose clock is wrong is right to expire what is younger."""


async def run(stage: ScenarioEnvironment) -> None:
    """Let each client take steps under faults, and some more when they are healed."""
    await stage.create_topic(TOPIC, 2, 3)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds

    async def keep(number: int) -> None:
        host = stage.client_host(f"keeper-{number}")
        keeper = OffsetKeeper(stage, host, group_id=f"kept-{number}", topic=TOPIC)
        await host.run(_keep(stage, keeper, over_at))

    groups = range(1, stage.workload("groups") + 1)
    await under_faults(
        stage,
        *(keep(number) for number in groups),
        elect_now_and_then(stage, seconds=seconds, every_seconds=2.0),
        seconds=seconds,
    )
    await transactions_settle(stage, (OFFSETS_TOPIC,))


async def _keep(stage: ScenarioEnvironment, keeper: OffsetKeeper, over_at: float) -> None:
    while stage.now_seconds() < over_at:
        await keeper.step()
    await stage.sleep(LATEST_REQUEST_SECONDS)
    await keeper.step()
    keeper.forget_late_requests()
    for _ in range(STEPS_AFTER):
        await keeper.step()
    await keeper.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """All faults are random ones, but over sockets: there brokers end and start again."""
    if mode is Mode.SIM:
        return ()
    return tuple(
        Fault(
            kind="restart",
            target=f"broker-{random.randint(1, 3)}",
            trigger=AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000))),
            params={"power_loss": False, "after_ms": random.randint(20, 4000)},
        )
        for _ in range(random.randint(1, 3))
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the release, segments, and how often what has expired is looked for.

    Since 4.0 a segment has a megabyte or more (KIP-1030): little is compacted in a run then.
    """
    release = random.choice(("3.6", "3.9", "4.0", "4.2", "4.4"))
    sizes = ("3000", "10000", "1048576") if release.startswith("3") else ("1048576",)
    return {
        "kraftsim.release": release,
        "offsets.topic.segment.bytes": random.choice(sizes),
        "offsets.retention.check.interval.ms": random.choice(("300", "1000")),
        "log.cleaner.backoff.ms": random.choice(("50", "500")),
        "log.cleaner.delete.retention.ms": random.choice(("0", "86400000")),
    }


SCENARIO = Scenario(
    name="group_expiry_under_faults",
    summary="Groups without members commit, expire and are deleted while coordinators fail: the "
    "committed offset is there, and no other one.",
    must_exercise=(
        "fetched-offsets-stable",
        "transaction-transitions-valid",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    has_own_faults=False,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.4",
        "offsets.retention.check.interval.ms": "500",
        "log.cleaner.min.cleanable.ratio": "0.01",
    },
    draw_parameters=draw_parameters,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("keeper-1", "keeper-2", "keeper-3"),
        apis=(*OFFSET_KEEPER_APIS, *TRANSACTION_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        moments=OFFSET_MOMENTS,
        omits=CLOCKS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={"groups": 3, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.0",
)
