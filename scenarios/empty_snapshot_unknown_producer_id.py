"""An empty producer snapshot, as proposed in KAFKA-15195, leads to UNKNOWN_PRODUCER_ID and a
duplicate record with the rules of 2.4 and earlier.

The follower that was rebuilt from an empty snapshot does not know producer 1 and returns
UNKNOWN_PRODUCER_ID. The producer requests another id and sends its record again. The record is then
in the log twice, although every response was correct. Its first copy is in remote storage only.
Source: KAFKA-15195; ProducerAppendInfo of 2.4.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.workloads.snapshot_boundary import (
    ACKNOWLEDGED,
    FIRST_TIERED,
    FOLLOWER,
    LAST_WITH_SMALL_SEGMENTS,
    LEADER,
    NEW_ID,
    REPEATED,
    SETTINGS,
    SPACE,
    UNKNOWN,
    count_of,
    run_to_boundary,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)


async def run(stage: ScenarioEnvironment) -> None:
    """Reach the segment boundary, receive UNKNOWN_PRODUCER_ID, and react as producers did: request
    another id, and send again.
    """
    client, seen = await run_to_boundary(stage)
    if seen.error.name != UNKNOWN or 1 in seen.known:
        raise ScenarioFailed(f"broker {FOLLOWER} knows {seen.known} and returned {seen.error.name}")
    error, _ = await client.produce(NEW_ID, 0, REPEATED)
    count = await count_of(client, REPEATED)
    await client.close()
    if error.name != ACKNOWLEDGED or count != 2:
        raise ScenarioFailed(
            f"the new id received {error.name}, and the record is there {count} times"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """The leader is killed at the end of the setup."""
    return (Fault(kind="kill", target=f"broker-{LEADER}", trigger=AtTime(at_ms=1)),)


SCENARIO = Scenario(
    name="empty_snapshot_unknown_producer_id",
    summary="A follower rebuilt from an empty snapshot returns UNKNOWN_PRODUCER_ID; with a new id "
    "the producer writes the same record again.",
    must_exercise=("local-segments-deleted-after-upload",),
    run=run,
    faults=faults,
    brokers=2,
    settings={
        **SETTINGS,
        "kraftsim.tiering.remedy": "empty-at-archive",
        "kraftsim.unknown.producer": "unknown-producer-id",
    },
    fault_space=SPACE,
    limit_seconds=300.0,
    fewest_controllers=1,
    fewest_brokers=2,
    since=FIRST_TIERED,
    until=LAST_WITH_SMALL_SEGMENTS,
)
