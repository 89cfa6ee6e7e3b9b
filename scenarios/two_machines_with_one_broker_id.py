"""A machine is copied, and two of them say that they are the same broker, while controllers come and go: the cluster listens to one at a time.

While the broker lives, its copy is refused. The broker dies; when its session is over, and no sooner, the copy is registered, and let in when it has
read of that. It dies and comes back as another process under a new epoch, and what its former life had sent before reaches the controllers late: that
keeps no session alive, and gets no block of producer ids. At last the copy falls silent, the broker is started again, and serves. Whoever leads by
then must know all this from the log alone, and give whoever is in service a full session.

The copy is played by hand: it speaks to the controllers as a broker does.
Source: KIP-631 (DUPLICATE_BROKER_REGISTRATION, STALE_BROKER_EPOCH, fencing), KIP-730; org.apache.kafka.controller.ClusterControlManager.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.other_machine import OtherMachine
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import QUICKER_ELECTIONS, SMALL_BLOCKS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed, within
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

COPIED = "broker-2"
NOTHING_READ = -1
PAUSE_SECONDS = 0.4
REGISTERED_SECONDS = 40.0
"""A session, and another one for each controller that takes over meanwhile."""
LET_IN_SECONDS = 10.0
ALIVE_SECONDS = 60.0
TERM_SECONDS = (1.5, 4.0)
"""For how long a controller is left alone."""
AWAY_SECONDS = 1.0
WORKLOAD = {"attempts": 10, "late_words": 8, "ids_after": 30, "work_ms": 100}
REFUSED, STALE, NONE = "DUPLICATE_BROKER_REGISTRATION", "STALE_BROKER_EPOCH", "NONE"


async def play(stage: Stage) -> None:
    """Let two machines be one broker in turn while controllers come and go; afterwards the first of them must serve as before."""
    await stage.wait_for_brokers()
    machine = OtherMachine(stage.workplace("copy"), stage.spec, COPIED, host_is_name=stage.mode is Mode.SIM)
    is_over: list[bool] = []
    await stage.gather(_two_machines(stage, machine, is_over), _controllers_come_and_go(stage, is_over))
    machine.close()
    await under_faults(stage, _ask(stage), seconds=stage.workload("work_ms") / 1000)


async def _two_machines(stage: Stage, machine: OtherMachine, is_over: list[bool]) -> None:
    first, second = machine.new_life(), machine.new_life()
    for _ in range(stage.workload("attempts")):
        await _refused(machine, first, "while the broker lives")
        await stage.sleep(PAUSE_SECONDS)
    await stage.kill(COPIED)
    first_epoch = await _registered(stage, machine, first)
    await _let_in(stage, machine, first_epoch)
    _require((await machine.ask_for_block(first_epoch)).name, NONE, "a block for the copy")
    await _refused(machine, second, "within the session of the life before")
    second_epoch = await _registered(stage, machine, second)
    if second_epoch <= first_epoch:
        raise StoryFailed(f"the second life of the copy has epoch {second_epoch}, where the first one had {first_epoch}")
    await _late_words(machine, first_epoch, second_epoch)
    await _let_in(stage, machine, second_epoch)
    await stage.gather(_start_again(stage), _late_words_now_and_then(stage, machine, first_epoch, second_epoch))
    is_over.append(True)


async def _refused(machine: OtherMachine, life: bytes, when: str) -> None:
    _require((await machine.register(life))[0].name, REFUSED, f"a copy that registers {when}")


async def _registered(stage: Stage, machine: OtherMachine, life: bytes) -> int:
    """Ask until there is an epoch, as a broker does that comes up."""

    async def ask() -> None:
        while not epochs:
            error, broker_epoch = await machine.register(life)
            if error.name == NONE:
                epochs.append(broker_epoch)
            else:
                _require(error.name, REFUSED, "a copy that registers")
                await stage.sleep(PAUSE_SECONDS)

    epochs: list[int] = []
    await within(stage, "the copy is registered", ask(), REGISTERED_SECONDS)
    return epochs[0]


async def _let_in(stage: Stage, machine: OtherMachine, broker_epoch: int) -> None:
    """See that the copy must wait until it says that it has read of its own registration, which stands where its epoch says, or behind."""
    for read_offset in (NOTHING_READ, broker_epoch - 1):
        beat = await machine.beat(broker_epoch, read_offset)
        if beat.error.name != NONE or beat.is_caught_up or not beat.is_fenced:
            raise StoryFailed(f"a broker of epoch {broker_epoch} that has read up to {read_offset} is answered {beat}")

    async def ask() -> None:
        read_offset = broker_epoch
        while (beat := await machine.beat(broker_epoch, read_offset)).is_fenced:
            _require(beat.error.name, NONE, "the heartbeat of a broker that has read of itself")
            read_offset += 1
            await stage.sleep(PAUSE_SECONDS)

    await within(stage, "the copy is let in", ask(), LET_IN_SECONDS)


async def _late_words(machine: OtherMachine, former_epoch: int, broker_epoch: int) -> None:
    """Say what a process said that is no more."""
    beat = await machine.beat(former_epoch, broker_epoch)
    _require(beat.error.name, STALE, "a heartbeat of the former life")
    _require((await machine.ask_for_block(former_epoch)).name, STALE, "a block for the former life")


async def _late_words_now_and_then(stage: Stage, machine: OtherMachine, former_epoch: int, broker_epoch: int) -> None:
    for _ in range(stage.workload("late_words")):
        await _late_words(machine, former_epoch, broker_epoch)
        await stage.sleep(PAUSE_SECONDS)


async def _start_again(stage: Stage) -> None:
    await stage.restart(COPIED)
    await within(stage, f"{COPIED} serves again", stage.wait_for_brokers(), ALIVE_SECONDS)


async def _controllers_come_and_go(stage: Stage, is_over: list[bool]) -> None:
    """Kill one controller after the other, each for a short while."""
    chance = stage.random("controllers")
    while not is_over:
        await stage.sleep(chance.uniform(*TERM_SECONDS))
        name = chance.choice(stage.spec.controller_names)
        await stage.kill(name)
        await stage.sleep(chance.uniform(0, AWAY_SECONDS))
        await stage.restart(name)


async def _ask(stage: Stage) -> None:
    asker = stage.id_asker("asker", broker=COPIED)
    await asker.ask(stage.workload("ids_after"))
    await asker.close()


def _require(found: str, wanted: str, what: str) -> None:
    if found != wanted:
        raise StoryFailed(f"{what}: {found}, not {wanted}")


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Controllers that come and go are enough."""
    return ()


SCENARIO = Scenario(
    name="two_machines_with_one_broker_id",
    story="A machine is copied, and two of them say that they are one broker, while controllers come and go; the cluster listens to one at a time.",
    must_exercise=(
        "incarnations-begin-anew",
        "new-controllers-hear-brokers-out",
        "producer-id-block-to-present-incarnation",
        "metadata-log-matching",
        "producer-id-unique",
        "settles-after-heal",
    ),
    play=play,
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
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=2,
)
