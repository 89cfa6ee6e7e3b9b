"""Clients of before KIP-447 and newer ones commit offsets side by side, in transactions and without: each finds where its group goes on.

One group copies a topic, with a producer for each partition; some of its members name neither generation nor member when they commit
(TxnOffsetCommit 2) and ask for offsets as they stand, which is safe where whoever takes a partition over takes its transactional id, too. Another
group has no members: offsets are committed for it in a transaction, and outside of it before the transaction ends. Its coordinator fails in
between, and the next one must tell the same. Source: KIP-98, KIP-447, KAFKA-5247.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.copying import INPUT, MUST_EXERCISE, SETTINGS, WORKLOAD, Copying, Variant
from kraftsim.cluster.keeper import Keeper
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.trigger import OnEvent

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

WORK_SECONDS = 6.0
ROUNDS = 6


async def play(stage: Stage) -> None:
    """Copy with old and new members, and commit in two ways at once."""
    copying = Copying(variant=Variant.PER_TASK, old_members=(1, 3), session_timeout_ms=6000)
    keeper = Keeper(group_id="keepers", topic=INPUT)
    await copying.open(stage)
    await under_faults(stage, copying.run(stage), keeper.keep(stage, ROUNDS), seconds=stage.workload("work_ms") / 1000)
    await copying.audit(stage)
    told = await keeper.ask(stage)
    if told != keeper.expected:
        raise StoryFailed(f"the group without members goes on at {told}, and was to go on at {keeper.expected}")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw up to two restarts of the coordinator of a group."""
    if mode is not Mode.SIM:
        return ()
    moments = ("PendingOffsetAdded", "OffsetMaterialised", "OffsetCommitted", "PendingOffsetDropped")
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
    name="old_and_new_clients_commit_offsets",
    story="Old and new clients commit offsets in transactions and without, and whoever coordinates their group tells what the log says.",
    must_exercise=(*MUST_EXERCISE, "offsets-told-are-stable", "group-offsets-equal-log"),
    play=play,
    faults=faults,
    settings=SETTINGS,
    limit_seconds=600.0,
    workload={**WORKLOAD, "records_per_writer": 60, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
