"""A group member is removed while its fetch waits for a failed broker; checks that it does not
process or commit what it fetched before.

The member fetches from all leaders at once. One of them has lost power and does not respond, so the
member waits for the request timeout with the records of the other leaders buffered. Meanwhile it
cannot reach the group coordinator for longer than its session timeout: its partitions are
reassigned to another member, which copies them. When the coordinator is reachable again, the member
receives UNKNOWN_MEMBER_ID and rejoins. It must not process the records that it fetched before, nor
commit them in the new generation, where the commit would not be rejected.
Source: KIP-447; org.apache.kafka.clients.consumer.internals.ConsumerCoordinator (a member rejoins
within poll, and resumes from the group's committed offsets).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.faults.fault_space import GROUP_MOMENTS, TRANSACTION_APIS, WRITER_APIS
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transform_app import MUST_EXERCISE, SETTINGS, WORKLOAD, TransformApp
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

BROKERS = ("broker-1", "broker-2", "broker-3")
MEMBER = "copier-1"
WORK_SECONDS = 16.0
AWAY_MS = (6500, 9500)
"""Longer than the session timeout of 6 s."""
GIVEN_UP_SECONDS = 36.0
"""After this time coordinators no longer wait for the failed broker's WriteTxnMarkers response: the
request timeout is 30 s.
"""


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app while the member is removed, and check its output."""
    app = TransformApp(
        assignor=stage.random("assignor").choice(("range", "range", "cooperative-sticky"))
    )
    await app.open(stage)
    await under_faults(stage, app.run(stage), seconds=stage.workload("work_ms") / 1000)
    if stage.mode is Mode.SIM:
        await stage.sleep(max(0.0, GIVEN_UP_SECONDS - stage.now_seconds()))
    await app.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw which broker fails, and which one the member cannot reach: in one run of three it is its
    group coordinator.
    """
    gone, unreached = random.sample(BROKERS, 2)
    at_ms = random.randint(800, 3000)
    if mode is not Mode.SIM:
        return (
            Fault(
                kind="restart",
                target=gone,
                trigger=AtTime(at_ms=at_ms),
                params={"power_loss": False, "after_ms": 3000},
            ),
        )
    return (
        Fault(
            kind="restart",
            target=gone,
            trigger=AtTime(at_ms=at_ms),
            params={"power_loss": True, "after_ms": random.randint(3000, 12_000)},
        ),
        Fault(
            kind="partition",
            target=f"{MEMBER}<>{unreached}",
            trigger=AtTime(at_ms=at_ms + random.randint(0, 400)),
            params={"duration_ms": random.randint(*AWAY_MS)},
        ),
    )


SCENARIO = Scenario(
    name="member_expelled_during_fetch",
    summary="A member waits for a failed broker and is removed from its group; the records it had "
    "fetched are copied once, by another member.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=transaction_fault_space(
        clients=("writer-1", "writer-2", "copier-1", "copier-2"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        moments=GROUP_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "copiers": 2, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
