"""Pre-KIP-447 and newer clients commit offsets side by side, with and without transactions; checks
that each resumes at the right offset.

One group copies a topic with a producer per partition. Some of its members commit without
generation and member id (TxnOffsetCommit 2) and fetch offsets without require_stable, which is safe
if the new owner of a partition initializes the same transactional id. Another group has no members:
offsets are committed for it in a transaction, and outside of it before the transaction ends. Its
coordinator fails in between, and the next one must return the same offsets. Source: KIP-98,
KIP-447, KAFKA-5247.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent
from kraftsim.lab.faults.fault_space import (
    GROUP_MOMENTS,
    GROUP_OFFSET_APIS,
    TRANSACTION_APIS,
    WRITER_APIS,
)
from kraftsim.lab.workloads.offset_commits import OffsetCommitWorkload
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transform_app import (
    INPUT,
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    TransformApp,
    Variant,
)
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 6.0
ROUNDS = 6


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app with old and new members, and commit with and without transactions at once."""
    app = TransformApp(variant=Variant.PER_TASK, old_members=(1, 3), session_timeout_ms=6000)
    committer = OffsetCommitWorkload(group_id="keepers", topic=INPUT)
    await app.open(stage)
    await under_faults(
        stage,
        app.run(stage),
        committer.keep(stage, ROUNDS),
        seconds=stage.workload("work_ms") / 1000,
    )
    await app.audit(stage)
    offset = await committer.ask(stage)
    if offset != committer.expected:
        raise ScenarioFailed(
            f"the group without members resumes at {offset}, expected {committer.expected}"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw up to two restarts of the coordinator of a group."""
    if mode is not Mode.SIM:
        return ()
    moments = (
        "PendingOffsetAdded",
        "OffsetMaterialised",
        "OffsetCommitted",
        "PendingOffsetDropped",
    )
    return tuple(
        Fault(
            kind="restart",
            target=AT_THE_TRIGGER,
            trigger=OnEvent(kind=random.choice(moments), nth=random.randint(1, 12)),
            params={"power_loss": False, "after_ms": random.randint(20, 3000)},
        )
        for _ in range(random.randint(0, 2))
    )


SCENARIO = Scenario(
    name="offset_commits_pre_and_post_kip_447",
    summary="Pre-KIP-447 and newer clients commit offsets with and without transactions; every "
    "group coordinator returns the offsets in its log.",
    must_exercise=(*MUST_EXERCISE, "fetched-offsets-stable", "group-offsets-equal-log"),
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=transaction_fault_space(
        clients=("writer-1", "writer-2", "copier-1", "copier-2", "copier-3", "keeper"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS, *GROUP_OFFSET_APIS),
        moments=GROUP_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "records_per_writer": 60, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
