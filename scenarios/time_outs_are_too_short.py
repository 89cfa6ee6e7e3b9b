"""A new cluster is started with time-outs that are too short for its machines: leaders follow one another before they have done a thing.

Elections take milliseconds, and controllers stand still for longer than that, just when the first record of an epoch is copied: when the leader goes
on it finds at once that it is committed, and that the others are an epoch further. Disks are slow to keep that in mind. Until somebody leads for
long enough nobody has written the records that a new cluster begins with, and whoever leads next is to write them. Nobody may act in an epoch that is
over; once machines are as quick as they should be the same time-outs do, and the cluster serves whoever asks for ids.

Over sockets links are slow at times, and in separate processes controllers stand still.
Source: KIP-595; org.apache.kafka.controller.QuorumController (QuorumMetaLogListener.handleLeaderChange, CompleteActivationEvent).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import QUICK_SESSIONS, SMALL_BLOCKS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import Fault
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.trigger import AtTime, OnEvent, Trigger

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

WORK_MS = 3000
WORKLOAD = {"askers": 2, "ids_per_asker": 60, "ids_after": 40, "work_ms": WORK_MS}
FETCH_MS = 150
"""How long a follower waits to hear of its leader. A leader writes something every 20 ms, so on quick machines it is heard in time."""


async def play(stage: Stage) -> None:
    """Ask for ids from the first moment on, heal, and ask again."""
    told: list[int] = []
    askers = (_ask(stage, f"asker-{number}", stage.workload("ids_per_asker"), told) for number in range(1, stage.workload("askers") + 1))
    await under_faults(stage, *askers, seconds=stage.workload("work_ms") / 1000)
    await _ask(stage, "asker-last", stage.workload("ids_after"), told)
    if len(set(told)) != len(told):
        raise StoryFailed(f"{len(told)} producer ids were handed out, of which {len(set(told))} are different")


async def _ask(stage: Stage, client_id: str, count: int, told: list[int]) -> None:
    asker = stage.id_asker(client_id)
    told += await asker.ask(count)
    await asker.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw what is too slow for the time-outs: machines whenever a leader begins, disks, and links; over sockets links and machines, at times."""
    links = tuple(_slow_links(random) for _ in range(random.randint(1, 3)))
    if mode is Mode.EMBEDDED:
        return links
    machines = [_stands_still(random, AtTime(at_ms=at_ms + random.randint(0, 400))) for at_ms in TIMES_MS]
    if mode is Mode.PROCESSES:
        return (*links, *machines)
    first_records = (OnEvent(kind="MetadataReplicated", fields={"leader_epoch": epoch}) for epoch in range(1, EPOCHS + 1))
    machines += [_stands_still(random, first_record) for first_record in first_records]
    return (*machines, _slow_disks(random), *(links if random.random() < LINKS_SHARE else ()))


EPOCHS = 40
"""So many may begin while it lasts; in most of them nobody is elected."""
LINKS_SHARE = 0.3
TIMES_MS = (600, 1200, 1800, 2400)


def _stands_still(random: "Random", trigger: Trigger) -> Fault:
    """Whoever leads stands still for longer than a time-out, or much longer."""
    return Fault(kind="pause", target=LEADER_WORD, trigger=trigger, params={"duration_ms": random.randint(FETCH_MS + 50, 3 * FETCH_MS)})


def _slow_disks(random: "Random") -> Fault:
    params: dict[str, int | str | bool | None] = {"factor": random.choice((5, 20, 100)), "duration_ms": WORK_MS}
    return Fault(kind="slow-disk", target="controller-*", trigger=AtTime(at_ms=1), params=params)


def _slow_links(random: "Random") -> Fault:
    """Controllers hear each other about as late as a time-out is long."""
    params: dict[str, int | str | bool | None] = {"latency_ms": FETCH_MS // 3, "jitter_ms": FETCH_MS // 2, "duration_ms": random.randint(200, 800)}
    at_ms = random.randint(1, WORK_MS)
    return Fault(kind="slow-link", target="controller-*<>controller-*", trigger=AtTime(at_ms=at_ms), params=params)


def swarm(random: "Random") -> Mapping[str, str]:
    """Draw the release (from 4.0 on voters ask before they stand), and how soon whoever would lead stands for election, and again.

    The pause after an election that was lost may not be as short as all that: it is drawn in steps of 100 ms, and where all are cut to the same most,
    candidates who met once meet again and again, however quick the network is.
    """
    return {
        "kraftsim.release": random.choice(("3.3", "3.6", "3.9", "3.9", "4.0", "4.4")),
        "controller.quorum.election.timeout.ms": random.choice(("30", "60", "120")),
        "controller.quorum.election.backoff.max.ms": random.choice(("400", "1000")),
    }


SCENARIO = Scenario(
    name="time_outs_are_too_short",
    story="A new cluster's time-outs are too short for its machines: leaders follow one another, and nobody acts in an epoch that is over.",
    must_exercise=(
        "one-leader-per-epoch",
        "one-vote-per-epoch",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "leaders-have-a-majority",
        "vote-stored-before-told",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "settles-after-heal",
    ),
    play=play,
    faults=faults,
    controllers=3,
    controllers_drawn=(3, 3, 5),
    brokers=1,
    settings={
        **QUICK_SESSIONS,
        "controller.quorum.fetch.timeout.ms": str(FETCH_MS),
        "metadata.max.idle.interval.ms": "20",
        **SMALL_BLOCKS,
    },
    swarm=swarm,
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
