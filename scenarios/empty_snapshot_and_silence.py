"""An empty producer snapshot ends in a duplicate that nobody is told of under the rule shipped since 2.5.

The follower that was rebuilt from an empty snapshot does not know producer 1, and takes what it writes, whatever its sequence. The producer hears
that all is well; its record is in the log twice, once in the remote store and once here, under one id and one sequence.
Source: KAFKA-15195, KIP-360.
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

FIRST_OF_SEGMENT_5 = 9


async def play(stage: Stage) -> None:
    """Come to the boundary, and find the record twice that was written once and repeated once."""
    client, seen = await come_to_the_boundary(stage)
    copies = await copies_of(client, REPEATED)
    await client.close()
    if seen.error.name != ACKNOWLEDGED or seen.offset != FIRST_OF_SEGMENT_5 or copies != 2:
        raise StoryFailed(f"producer 1 was answered {seen.error.name}, offset {seen.offset}, and the record is there {copies} times")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """The leader dies, when the story has come so far."""
    return (Fault(kind="kill", target=f"broker-{LEADER}", trigger=AtTime(at_ms=1)),)


SCENARIO = Scenario(
    name="empty_snapshot_and_silence",
    story="A follower rebuilt from an empty snapshot takes a repeated record for a new one, and nobody is told.",
    must_exercise=("local-segments-go-after-copies",),
    play=play,
    faults=faults,
    brokers=2,
    settings={**SETTINGS, "kraftsim.tiering.remedy": "empty-at-archive"},
    limit_seconds=300.0,
    fewest_controllers=1,
    fewest_brokers=2,
    since=FIRST_TIERED,
    until=LAST_WITH_SMALL_SEGMENTS,
)
