"""An empty producer snapshot leads to a silent duplicate record with the rules shipped since 2.5.

The follower that was rebuilt from an empty snapshot does not know producer 1, and appends its batch
at any sequence. The producer receives no error; its record is in the log twice, once in remote
storage and once locally, with the same producer id and sequence.
Source: KAFKA-15195, KIP-360.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.workloads.snapshot_boundary import (
    ACKNOWLEDGED,
    FIRST_TIERED,
    LAST_WITH_SMALL_SEGMENTS,
    LEADER,
    REPEATED,
    SETTINGS,
    SPACE,
    count_of,
    run_to_boundary,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

FIRST_OF_SEGMENT_5 = 9


async def run(stage: ScenarioEnvironment) -> None:
    """Reach the segment boundary, and find a record twice that was sent once and retried once."""
    client, seen = await run_to_boundary(stage)
    count = await count_of(client, REPEATED)
    await client.close()
    if seen.error.name != ACKNOWLEDGED or seen.offset != FIRST_OF_SEGMENT_5 or count != 2:
        raise ScenarioFailed(
            f"producer 1 received {seen.error.name}, offset {seen.offset}, and the record is "
            f"there {count} times"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """The leader is killed at the end of the setup."""
    return (Fault(kind="kill", target=f"broker-{LEADER}", trigger=AtTime(at_ms=1)),)


SCENARIO = Scenario(
    name="empty_snapshot_silent_duplicate",
    summary="A follower rebuilt from an empty snapshot appends a retried record as a new one, "
    "without any error.",
    must_exercise=("local-segments-deleted-after-upload",),
    run=run,
    faults=faults,
    brokers=2,
    settings={**SETTINGS, "kraftsim.tiering.remedy": "empty-at-archive"},
    fault_space=SPACE,
    limit_seconds=300.0,
    fewest_controllers=1,
    fewest_brokers=2,
    since=FIRST_TIERED,
    until=LAST_WITH_SMALL_SEGMENTS,
)
