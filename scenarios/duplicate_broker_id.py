"""Runs a cloned machine with the same broker id while controllers fail over; checks that the
cluster accepts one incarnation at a time.

While the broker lives, the registration of the clone is rejected. The broker is killed; when its
session has expired, and no sooner, the clone is registered, and unfenced when it has read its
registration. It is restarted as another incarnation with a new epoch, and requests that its
previous incarnation sent reach the controllers late: they keep no session alive, and get no
producer-id block. At last the clone stops, the broker is started again, and serves. The active
controller must know all this from the log alone, and give every unfenced broker a full session.

The clone is simulated: it sends the requests of a broker to the controllers.
Source: KIP-631 (DUPLICATE_BROKER_REGISTRATION, STALE_BROKER_EPOCH, fencing), KIP-730;
org.apache.kafka.controller.ClusterControlManager.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.other_machine import OtherMachine
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed, within
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICKER_ELECTIONS, SMALL_BLOCKS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

CLONED = "broker-2"
NOTHING_READ = -1
PAUSE_SECONDS = 0.4
REGISTERED_SECONDS = 40.0
"""A session timeout, and another one for each new active controller."""
LET_IN_SECONDS = 10.0
ALIVE_SECONDS = 60.0
TERM_SECONDS = (1.5, 4.0)
"""The time between two failures of controllers."""
AWAY_SECONDS = 1.0
WORK_SECONDS = 3.0
"""How long random faults last. They begin when the first machine is back: before, each answer to
the clone is known exactly, and only a controller that fails may delay it.
"""
WORKLOAD = {
    "attempts": 10,
    "late_words": 8,
    "ids_after": 30,
    "work_ms": int(WORK_SECONDS * 1000),
}
REFUSED, STALE, NONE = "DUPLICATE_BROKER_REGISTRATION", "STALE_BROKER_EPOCH", "NONE"


async def run(stage: ScenarioEnvironment) -> None:
    """Run two machines with one broker id in turn while controllers fail over; afterwards the first
    must serve as before.
    """
    await stage.wait_for_brokers()
    machine = OtherMachine(
        stage.client_host("copy"), stage.spec, CLONED, host_is_name=stage.mode is Mode.SIM
    )
    is_over: list[bool] = []
    await stage.gather(
        _two_machines(stage, machine, is_over), _fail_controllers_over(stage, is_over)
    )
    machine.close()
    await under_faults(stage, _ask(stage), seconds=stage.workload("work_ms") / 1000)


async def _two_machines(
    stage: ScenarioEnvironment, machine: OtherMachine, is_over: list[bool]
) -> None:
    first, second = machine.new_incarnation(), machine.new_incarnation()
    for _ in range(stage.workload("attempts")):
        await _refused(machine, first, "while the broker lives")
        await stage.sleep(PAUSE_SECONDS)
    await stage.kill(CLONED)
    first_epoch = await _registered(stage, machine, first)
    await _unfenced(stage, machine, first_epoch)
    _require((await machine.ask_for_block(first_epoch)).name, NONE, "a block for the clone")
    await _refused(machine, second, "within the session of the previous incarnation")
    second_epoch = await _registered(stage, machine, second)
    if second_epoch <= first_epoch:
        raise ScenarioFailed(
            f"the second incarnation of the clone has epoch {second_epoch}, the first one had "
            f"{first_epoch}"
        )
    await _late_requests(machine, first_epoch, second_epoch)
    await _unfenced(stage, machine, second_epoch)
    await stage.gather(
        _start_again(stage), _repeat_late_requests(stage, machine, first_epoch, second_epoch)
    )
    is_over.append(True)


async def _refused(machine: OtherMachine, incarnation_id: bytes, when: str) -> None:
    _require(
        (await machine.register(incarnation_id))[0].name, REFUSED, f"a clone that registers {when}"
    )


async def _registered(
    stage: ScenarioEnvironment, machine: OtherMachine, incarnation_id: bytes
) -> int:
    """Register until there is an epoch, as a starting broker does."""

    async def ask() -> None:
        while not epochs:
            error, broker_epoch = await machine.register(incarnation_id)
            if error.name == NONE:
                epochs.append(broker_epoch)
            else:
                _require(error.name, REFUSED, "a clone that registers")
                await stage.sleep(PAUSE_SECONDS)

    epochs: list[int] = []
    await within(stage, "the clone is registered", ask(), REGISTERED_SECONDS)
    return epochs[0]


async def _unfenced(stage: ScenarioEnvironment, machine: OtherMachine, broker_epoch: int) -> None:
    """Check that the clone stays fenced until it reports that it has read its registration, at the
    offset of its epoch or after.
    """
    for read_offset in (NOTHING_READ, broker_epoch - 1):
        beat = await machine.beat(broker_epoch, read_offset)
        if beat.error.name != NONE or beat.is_caught_up or not beat.is_fenced:
            raise ScenarioFailed(
                f"a broker of epoch {broker_epoch} that has read up to {read_offset} received "
                f"{beat}"
            )

    async def ask() -> None:
        read_offset = broker_epoch
        while (beat := await machine.beat(broker_epoch, read_offset)).is_fenced:
            _require(
                beat.error.name, NONE, "the heartbeat of a broker that has read its registration"
            )
            read_offset += 1
            await stage.sleep(PAUSE_SECONDS)

    await within(stage, "the clone is unfenced", ask(), LET_IN_SECONDS)


async def _late_requests(machine: OtherMachine, former_epoch: int, broker_epoch: int) -> None:
    """Send late requests of the previous incarnation."""
    beat = await machine.beat(former_epoch, broker_epoch)
    _require(beat.error.name, STALE, "a heartbeat of the previous incarnation")
    _require(
        (await machine.ask_for_block(former_epoch)).name,
        STALE,
        "a block for the previous incarnation",
    )


async def _repeat_late_requests(
    stage: ScenarioEnvironment, machine: OtherMachine, former_epoch: int, broker_epoch: int
) -> None:
    for _ in range(stage.workload("late_words")):
        await _late_requests(machine, former_epoch, broker_epoch)
        await stage.sleep(PAUSE_SECONDS)


async def _start_again(stage: ScenarioEnvironment) -> None:
    await stage.restart(CLONED)
    await within(stage, f"{CLONED} serves again", stage.wait_for_brokers(), ALIVE_SECONDS)


async def _fail_controllers_over(stage: ScenarioEnvironment, is_over: list[bool]) -> None:
    """Restart one controller after the other."""
    random = stage.random("controllers")
    while not is_over:
        await stage.sleep(random.uniform(*TERM_SECONDS))
        name = random.choice(stage.spec.controller_names)
        await stage.kill(name)
        await stage.sleep(random.uniform(0, AWAY_SECONDS))
        await stage.restart(name)


async def _ask(stage: ScenarioEnvironment) -> None:
    client = stage.producer_id_client("asker", broker=CLONED)
    await client.ask(stage.workload("ids_after"))
    await client.close()


def _require(found: str, wanted: str, what: str) -> None:
    if found != wanted:
        raise ScenarioFailed(f"{what}: {found}, not {wanted}")


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: the scenario restarts controllers itself."""
    return ()


SCENARIO = Scenario(
    name="duplicate_broker_id",
    summary="A machine is cloned, and two of them use one broker id while controllers fail over; "
    "the cluster accepts one incarnation at a time.",
    must_exercise=(
        "broker-epoch-per-incarnation",
        "new-controller-awaits-heartbeats",
        "producer-id-block-to-current-incarnation",
        "metadata-log-matching",
        "producer-id-unique",
        "recovers-after-heal",
    ),
    run=run,
    faults=no_faults,
    controllers=3,
    brokers=2,
    settings={
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        **QUICKER_ELECTIONS,
        "controller.quorum.fetch.timeout.ms": "800",
        **SMALL_BLOCKS,
    },
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=2,
        clients=("asker",),
        apis=PRODUCER_ID_APIS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=2,
)
