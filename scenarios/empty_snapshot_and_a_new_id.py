"""An empty producer snapshot, as the proposal has it, ends in UNKNOWN_PRODUCER_ID and a duplicate under the rule of 2.4 and before.

The follower that was rebuilt from an empty snapshot does not know producer 1 and says so. The producer takes another id and writes its record again:
now it is in the log twice, though nobody was told a lie. Its first copy lies in the remote store only.
Source: KAFKA-15195; ProducerAppendInfo of 2.4.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.boundary_story import (
    ACKNOWLEDGED,
    FIRST_TIERED,
    FOLLOWER,
    LAST_WITH_SMALL_SEGMENTS,
    LEADER,
    NEW_ID,
    REPEATED,
    SETTINGS,
    UNKNOWN,
    come_to_the_boundary,
    copies_of,
)
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import Fault
from kraftsim.faults.trigger import AtTime

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)


async def play(stage: Stage) -> None:
    """Come to the boundary, hear that the producer is not known, and do as producers did: ask for another id, and write again."""
    client, seen = await come_to_the_boundary(stage)
    if seen.error.name != UNKNOWN or 1 in seen.known:
        raise StoryFailed(f"broker {FOLLOWER} knows {seen.known} and answered {seen.error.name}")
    error, _ = await client.produce(NEW_ID, 0, REPEATED)
    copies = await copies_of(client, REPEATED)
    await client.close()
    if error.name != ACKNOWLEDGED or copies != 2:
        raise StoryFailed(f"the new id was answered {error.name}, and the record is there {copies} times")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """The leader dies, when the story has come so far."""
    return (Fault(kind="kill", target=f"broker-{LEADER}", trigger=AtTime(at_ms=1)),)


SCENARIO = Scenario(
    name="empty_snapshot_and_a_new_id",
    story="A follower rebuilt from an empty snapshot tells a producer that it is not known; with another id it writes the same record again.",
    must_exercise=("local-segments-go-after-copies",),
    play=play,
    faults=faults,
    brokers=2,
    settings={**SETTINGS, "kraftsim.tiering.remedy": "empty-at-archive", "kraftsim.unknown.producer": "unknown-producer-id"},
    limit_seconds=300.0,
    fewest_controllers=1,
    fewest_brokers=2,
    since=FIRST_TIERED,
    until=LAST_WITH_SMALL_SEGMENTS,
)
