"""Followers rebuild producer state by reading remote segments within producer.id.expiration.ms;
checks that a retried record stays a duplicate.

The same setup as with an empty snapshot: segments 1 and 2 have none, but here they are copied
without one, and the follower reads both of them.
Source: KAFKA-15195 (the ideal solution of the proposal).
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


async def run(stage: ScenarioEnvironment) -> None:
    """Reach the segment boundary, and find every record once."""
    client, seen = await run_to_boundary(stage)
    count = await count_of(client, REPEATED)
    await client.close()
    if seen.error.name != ACKNOWLEDGED or seen.offset != 1 or count != 1 or 1 not in seen.known:
        raise ScenarioFailed(
            f"producer 1 received {seen.error.name}, offset {seen.offset}, and the record is "
            f"there {count} times"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """The leader is killed at the end of the setup."""
    return (Fault(kind="kill", target=f"broker-{LEADER}", trigger=AtTime(at_ms=1)),)


SCENARIO = Scenario(
    name="missing_remote_producer_snapshot",
    summary="A follower that reads remote segments without snapshots has its leader's producer "
    "state: a retried record is in the log once.",
    must_exercise=("local-segments-deleted-after-upload",),
    run=run,
    faults=faults,
    brokers=2,
    settings={**SETTINGS, "kraftsim.tiering.remedy": "replay-younger"},
    fault_space=SPACE,
    limit_seconds=300.0,
    fewest_controllers=1,
    fewest_brokers=2,
    since=FIRST_TIERED,
    until=LAST_WITH_SMALL_SEGMENTS,
)
