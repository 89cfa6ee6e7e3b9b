"""A cluster goes from 3.0 upwards, and at every broker nobody gives producer ids for a while: what clients are told goes by its release.

From inter.broker.protocol.version 3.0 on brokers ask the controller, which takes blocks out of ZooKeeper. After each restart ZooKeeper is away,
and a producer asks the new broker, which has no id yet. Up to 3.3.1 it says REQUEST_TIMED_OUT after request.timeout.ms, and a producer of that time
ends on it; up to 3.5 it says COORDINATOR_LOAD_IN_PROGRESS, as late; from 3.6 on it says so at once. A producer of today asks again in each case, and
so does one of that time where it is told the latter: both have their ids as soon as ZooKeeper is back.
Source: KIP-730, KAFKA-14417 (brokers and clients), KAFKA-14694; asked of Apache Kafka 3.0.2, 3.3.2 and 3.6.2 without ZooKeeper.
"""

import asyncio
from typing import TYPE_CHECKING

from kraftsim.cluster.awaited_ids import ASKED_AGAIN, answer_without_ids, ask_as_before, waits_for_ids
from kraftsim.cluster.ledger import SETTINGS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed, within
from kraftsim.cluster.under_load import PROVEN
from kraftsim.cluster.upgrading import VERSION_KEY, Traffic, Upgrade, zookeeper_lines
from kraftsim.events.runs import PhaseBegan
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

TOPIC = "ledger"
PARTITIONS = 3
SERVER = "zookeeper-1"
FIRST = "3.0"
WAIT_SECONDS = 2.0
"""request.timeout.ms, as brokers are told it here."""
PATIENCE_SECONDS = 60.0


async def play(stage: Stage) -> None:
    """Upgrade step by step, let ZooKeeper be away at every broker, and read what was written meanwhile."""
    traffic = Traffic(topic=TOPIC, partitions=PARTITIONS)
    await traffic.open(stage)
    writers = [traffic.write(stage, f"writer-{number}") for number in range(1, stage.workload("writers") + 1)]
    await stage.gather(_climb(stage, traffic), *writers)
    await traffic.audit(stage)


async def _climb(stage: Stage, traffic: Traffic) -> None:
    upgrade = Upgrade(stage=stage, topics={TOPIC: PARTITIONS})
    for line in path(stage):
        stage.note(PhaseBegan(phase=f"brokers-to-{line}"))
        for name in stage.spec.broker_names:
            await upgrade.roll([name], to=line)
            await _ask_in_vain(stage, name, line)
            await upgrade.settled()
    traffic.is_over = True


def path(stage: Stage) -> list[str]:
    """Return where brokers go: the first release, and one of each way to answer, drawn."""
    chance, later = stage.random("path"), zookeeper_lines()[zookeeper_lines().index(FIRST) + 1 :]
    ways = dict.fromkeys((waits_for_ids(line), answer_without_ids(line)) for line in later)
    return [FIRST, *(chance.choice([line for line in later if (waits_for_ids(line), answer_without_ids(line)) == way]) for way in ways)]


async def _ask_in_vain(stage: Stage, name: str, line: str) -> None:
    """Let ZooKeeper be away while a broker is asked that has no id yet. Raises StoryFailed unless it answers as its release does."""
    await stage.kill(SERVER)
    older, newer = (stage.id_asker(f"{which}-producer-at-{line}-of-{name}", broker=name) for which in ("older", "newer"))
    began = stage.now_seconds()
    error = await asyncio.wait_for(older.ask_once(), PATIENCE_SECONDS)
    waited = stage.now_seconds() - began
    if error is not answer_without_ids(line) or not _is_in_time(stage, line, waited):
        raise StoryFailed(f"{name} of {line} answered {error.name} after {waited:.1f} s, when nobody gave producer ids")
    work = [newer.ask(1), stage.restart(SERVER)]
    if error in ASKED_AGAIN:
        work.append(ask_as_before(stage, older, stage.workload("pause_ms") / 1000))
    await within(stage, "producer ids", stage.gather(*work), PATIENCE_SECONDS)
    await older.close()
    await newer.close()


def _is_in_time(stage: Stage, line: str, waited: float) -> bool:
    """Tell whether a broker let a client wait as its release does; how soon an answer comes over sockets hangs on the machine."""
    if waits_for_ids(line):
        return waited >= WAIT_SECONDS
    return waited < WAIT_SECONDS or stage.mode is not Mode.SIM


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """That nobody gives producer ids is enough."""
    return ()


SCENARIO = Scenario(
    name="upgrade_without_producer_ids",
    story="On the way from 3.0 upwards nobody gives producer ids for a while, at every broker: each release answers as it is known to.",
    must_exercise=PROVEN,
    play=play,
    faults=no_faults,
    controllers=0,
    zookeeper_mode=True,
    settings={**SETTINGS, "kraftsim.release": FIRST, VERSION_KEY: FIRST, "request.timeout.ms": str(int(WAIT_SECONDS * 1000))},
    limit_seconds=1200.0,
    workload={"writers": 1, "pause_ms": 100},
    fewest_brokers=3,
    since=FIRST,
)
