"""A member of a group waits for a broker that is gone, and is expelled meanwhile: what it had read is others' by the time its wait is over.

It reads from all leaders at once. One of them has lost its power and says nothing any more, so that the member waits for as long as a request may
take, with what the others gave in its hands. Meanwhile it cannot reach the group's coordinator for longer than its session lasts: its partitions go
to another member, which copies them. When the coordinator can be reached again the member hears that it was expelled, and joins anew. It must not
hand on what it had read before, nor commit that in the newer generation, which would not be refused.
Source: KIP-447; org.apache.kafka.clients.consumer.internals.ConsumerCoordinator (a member joins within poll, and begins anew where the group is).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.copying import MUST_EXERCISE, SETTINGS, WORKLOAD, Copying
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.faults.fault import Fault
from kraftsim.faults.trigger import AtTime

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

BROKERS = ("broker-1", "broker-2", "broker-3")
MEMBER = "copier-1"
WORK_SECONDS = 16.0
AWAY_MS = (6500, 9500)
"""Longer than a session, which is 6 s."""
GIVEN_UP_SECONDS = 36.0
"""By then coordinators wait no more for what the broker that is gone would say of markers: they do so for 30 s, and complete nothing before."""


async def play(stage: Stage) -> None:
    """Copy while the member is expelled, and read the copy."""
    copying = Copying(assignor=stage.random("assignor").choice(("range", "range", "cooperative-sticky")))
    await copying.open(stage)
    await under_faults(stage, copying.run(stage), seconds=stage.workload("work_ms") / 1000)
    if stage.mode is Mode.SIM:
        await stage.sleep(max(0.0, GIVEN_UP_SECONDS - stage.now_seconds()))
    await copying.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw which broker is gone, and which one the member cannot reach: in one run of three that is the coordinator of its group."""
    gone, unreached = random.sample(BROKERS, 2)
    at_ms = random.randint(800, 3000)
    if mode is not Mode.SIM:
        return (Fault(kind="restart", target=gone, trigger=AtTime(at_ms=at_ms), params={"power_loss": False, "after_ms": 3000}),)
    return (
        Fault(kind="restart", target=gone, trigger=AtTime(at_ms=at_ms), params={"power_loss": True, "after_ms": random.randint(3000, 12_000)}),
        Fault(
            kind="partition",
            target=f"{MEMBER}<>{unreached}",
            trigger=AtTime(at_ms=at_ms + random.randint(0, 400)),
            params={"duration_ms": random.randint(*AWAY_MS)},
        ),
    )


SCENARIO = Scenario(
    name="expelled_while_it_waits",
    story="A member waits for a broker that is gone and is expelled meanwhile; what it had read is others' when its wait is over, and copied once.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings=SETTINGS,
    limit_seconds=600.0,
    workload={**WORKLOAD, "copiers": 2, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
