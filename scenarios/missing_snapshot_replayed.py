"""Where followers read the remote segments that producer.id.expiration.ms has not made irrelevant, a repeated record stays what it is.

The same story as with an empty snapshot: segments 1 and 2 have none, but here they are copied without, and the follower reads both of them.
Source: KAFKA-15195 (the ideal solution of the proposal).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.boundary_story import (
    ACKNOWLEDGED,
    FIRST_TIERED,
    LAST_WITH_SMALL_SEGMENTS,
    LEADER,
    REPEATED,
    SETTINGS,
    come_to_the_boundary,
    copies_of,
)
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import Fault
from kraftsim.faults.trigger import AtTime

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)


async def play(stage: Stage) -> None:
    """Come to the boundary, and find every record once."""
    client, seen = await come_to_the_boundary(stage)
    copies = await copies_of(client, REPEATED)
    await client.close()
    if seen.error.name != ACKNOWLEDGED or seen.offset != 1 or copies != 1 or 1 not in seen.known:
        raise StoryFailed(f"producer 1 was answered {seen.error.name}, offset {seen.offset}, and the record is there {copies} times")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """The leader dies, when the story has come so far."""
    return (Fault(kind="kill", target=f"broker-{LEADER}", trigger=AtTime(at_ms=1)),)


SCENARIO = Scenario(
    name="missing_snapshot_replayed",
    story="A follower that reads the remote segments without snapshots knows whom its leader knew: a repeated record is in the log once.",
    must_exercise=("local-segments-go-after-copies",),
    play=play,
    faults=faults,
    brokers=2,
    settings={**SETTINGS, "kraftsim.tiering.remedy": "replay-younger"},
    limit_seconds=300.0,
    fewest_controllers=1,
    fewest_brokers=2,
    since=FIRST_TIERED,
    until=LAST_WITH_SMALL_SEGMENTS,
)
