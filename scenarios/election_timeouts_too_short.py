"""Starts a new cluster with election and fetch timeouts too short for its machines; checks that no
controller acts in a past epoch.

Elections take milliseconds, and controllers are paused for longer than that, just when the first
record of an epoch is replicated: when the leader resumes, it finds that the record is committed and
that the others are an epoch further. Disks are slow to store it. Until a leader stays for long
enough, no leader has written the bootstrap records of a new cluster, and the next leader has to
write them. No controller may act in a past epoch; once the machines are as fast as they should be,
the same timeouts suffice, and the cluster returns producer ids.

Over sockets links are slow at times, and in separate processes controllers are paused.
Source: KIP-595; org.apache.kafka.controller.QuorumController
(QuorumMetaLogListener.handleLeaderChange, CompleteActivationEvent).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import LEADER_TARGET, AtTime, Fault, OnEvent, Trigger
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import QUICK_SESSIONS, SMALL_BLOCKS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_MS = 3000
WORKLOAD = {"requesters": 2, "ids_per_requester": 60, "ids_after": 40, "work_ms": WORK_MS}
FETCH_MS = 150
"""The fetch timeout of a follower.

A leader writes something every 20 ms, so on fast machines followers receive it in time.
"""


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids from the start, heal, and request more."""
    ids: list[int] = []
    clients = (
        _ask(stage, f"asker-{number}", stage.workload("ids_per_requester"), ids)
        for number in range(1, stage.workload("requesters") + 1)
    )
    await under_faults(stage, *clients, seconds=stage.workload("work_ms") / 1000)
    await _ask(stage, "asker-last", stage.workload("ids_after"), ids)
    if len(set(ids)) != len(ids):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


async def _ask(stage: ScenarioEnvironment, client_id: str, count: int, ids: list[int]) -> None:
    client = stage.producer_id_client(client_id)
    ids += await client.ask(count)
    await client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw what is too slow for the timeouts: machines whenever a leader is elected, disks, and
    links; over sockets links and machines.
    """
    links = tuple(_slow_links(random) for _ in range(random.randint(1, 3)))
    if mode is Mode.EMBEDDED:
        return links
    machines = [_paused(random, AtTime(at_ms=at_ms + random.randint(0, 400))) for at_ms in TIMES_MS]
    if mode is Mode.PROCESSES:
        return (*links, *machines)
    first_records = (
        OnEvent(kind="MetadataReplicated", fields={"leader_epoch": epoch})
        for epoch in range(1, EPOCHS + 1)
    )
    machines += [_paused(random, first_record) for first_record in first_records]
    return (*machines, _slow_disks(random), *(links if random.random() < LINKS_SHARE else ()))


EPOCHS = 40
"""The number of epochs that may start during the faults; most of them elect no leader."""
LINKS_SHARE = 0.3
TIMES_MS = (600, 1200, 1800, 2400)


def _paused(random: "Random", trigger: Trigger) -> Fault:
    """The leader is paused for longer than a timeout, or much longer."""
    return Fault(
        kind="pause",
        target=LEADER_TARGET,
        trigger=trigger,
        params={"duration_ms": random.randint(FETCH_MS + 50, 3 * FETCH_MS)},
    )


def _slow_disks(random: "Random") -> Fault:
    params: dict[str, int | str | bool | None] = {
        "factor": random.choice((5, 20, 100)),
        "duration_ms": WORK_MS,
    }
    return Fault(kind="slow-disk", target="controller-*", trigger=AtTime(at_ms=1), params=params)


def _slow_links(random: "Random") -> Fault:
    """The latency between controllers is about one timeout."""
    params: dict[str, int | str | bool | None] = {
        "latency_ms": FETCH_MS // 3,
        "jitter_ms": FETCH_MS // 2,
        "duration_ms": random.randint(200, 800),
    }
    at_ms = random.randint(1, WORK_MS)
    return Fault(
        kind="slow-link",
        target="controller-*<>controller-*",
        trigger=AtTime(at_ms=at_ms),
        params=params,
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the release (from 4.0 on voters use pre-vote), the election timeout, and the election
    backoff.

    The backoff after a lost election may not be too short: it is drawn in steps of 100 ms, and if
    all values are capped to the same maximum, candidates that collide once collide again and again,
    however fast the network is.
    """
    return {
        "kraftsim.release": random.choice(("3.3", "3.6", "3.9", "3.9", "4.0", "4.4")),
        "controller.quorum.election.timeout.ms": random.choice(("30", "60", "120")),
        "controller.quorum.election.backoff.max.ms": random.choice(("400", "1000")),
    }


SCENARIO = Scenario(
    name="election_timeouts_too_short",
    summary="A new cluster's timeouts are too short for its machines: leaders change constantly, "
    "and no controller acts in a past epoch.",
    must_exercise=(
        "one-leader-per-epoch",
        "one-vote-per-epoch",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "leader-elected-by-majority",
        "vote-stored-before-sent",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "recovers-after-heal",
    ),
    run=run,
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
    draw_parameters=draw_parameters,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=1,
        clients=("asker-1", "asker-2"),
        apis=PRODUCER_ID_APIS,
        fault_seconds=WORK_MS / 1000,
        draws_settings=False,  # the scenario is about them
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
