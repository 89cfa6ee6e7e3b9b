"""Keeps a minority of controllers down for long; checks that the majority elects a leader in time,
keeps it, and serves requests within a bound.

Of three, four or five controllers at most a minority is down at a time: killed, or isolated from
all nodes, the leader among them or not. No controller returns before the bound of the scenario is
over, so the others must do without: detect that the leader is gone, elect another one although all
detected it at once and split their votes, commit without the missing voters, and not depose a
leader that a majority follows. Releases with and without pre-vote (KIP-996) are drawn; some
responses between controllers have past epochs.

Over sockets there are three controllers, and the only requirement is that the cluster recovers in
the end.
Source: KIP-595, KIP-996, KAFKA-15489; canMakeProgressIfMajorityIsReachable of
org.apache.kafka.raft.RaftEventSimulationTest.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    Mode,
    ProducerIdClient,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.lab.faults.fault import LEADER_TARGET, AtTime, Fault, OnEvent
from kraftsim.lab.faults.fault_space import PRODUCER_ID_APIS, Mix
from kraftsim.lab.faults.quorum_spaces import quorum_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import PROVEN, SETTINGS, served_in_time

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

SPARED = (
    "controller-10[15]",
    "controller-10[25]",
    "controller-10[35]",
    LEADER_TARGET,
    LEADER_TARGET,
)
"""The controllers that may be down: two of five, one of three or four."""
AWAY_MS = 9000
BACK_MS = 3500
"""How long all are up again before the next ones fail."""
PARTS = 2
WORKLOAD = {"ids": 20, "ids_after": 100, "work_ms": PARTS * (AWAY_MS + BACK_MS)}
"""`ids` are requested at a time: each time at least one block must be committed."""
SERVED_SECONDS = 7.0
"""How long a client may wait.

An election takes up to two timeouts and is repeated on split votes, each time with lower
probability.
"""
PAUSE_SECONDS = 0.4


async def run(stage: ScenarioEnvironment) -> None:
    """Request ids all the time, each time within the bound."""
    ids: list[int] = []
    await stage.wait_for_leader()
    seconds = stage.workload("work_ms") / 1000
    await under_faults(stage, _ask_all_the_time(stage, seconds, ids), seconds=seconds)
    last = stage.producer_id_client("asker-last")
    await _ask(last, stage.workload("ids_after"), ids)
    await last.close()
    if len(set(ids)) != len(ids):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw which controllers fail and how, one after the other; in simulation some responses have
    past epochs, too.
    """
    schedule = []
    targets = (
        random.sample((LEADER_TARGET, random.choice(SPARED)), PARTS)
        if mode is Mode.SIM
        else [LEADER_TARGET] * PARTS
    )
    for number, target in enumerate(targets):
        trigger = AtTime(at_ms=500 + number * (AWAY_MS + BACK_MS) + random.randint(0, 700))
        if random.random() < DEAD_SHARE:
            schedule.append(
                Fault(
                    kind="restart",
                    target=target,
                    trigger=trigger,
                    params={"power_loss": False, "after_ms": AWAY_MS},
                )
            )
        else:
            schedule.append(
                Fault(
                    kind="partition",
                    target=target,
                    trigger=trigger,
                    params={"duration_ms": AWAY_MS},
                )
            )
    if mode is Mode.SIM and random.random() < OLD_ANSWERS_SHARE:
        schedule += [_old_answers(random) for _ in range(3)]
    return tuple(schedule)


DEAD_SHARE = 0.6
OLD_ANSWERS_SHARE = 0.5


def _old_answers(random: "Random") -> Fault:
    """A candidate receives responses from an earlier election."""
    trigger = OnEvent(
        kind="RaftRoleChanged", fields={"role": "Candidate"}, nth=random.randint(2, 8)
    )
    return Fault(
        kind="old-epoch-answer",
        trigger=trigger,
        params={"times": random.randint(1, 4), "duration_ms": 3000},
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the release: from 4.0 on voters use pre-vote."""
    return {"kraftsim.release": random.choice(("3.3", "3.9", "4.0", "4.4"))}


async def _ask_all_the_time(stage: ScenarioEnvironment, seconds: float, ids: list[int]) -> None:
    ends_at = stage.now_seconds() + seconds
    client = stage.producer_id_client("asker-1")
    while stage.now_seconds() < ends_at:
        await served_in_time(
            stage,
            f"producer ids with a majority of {stage.spec.controllers} controllers up",
            _ask(client, stage.workload("ids"), ids),
            SERVED_SECONDS,
            faults,
        )
        await stage.sleep(PAUSE_SECONDS)
    await client.close()


async def _ask(client: ProducerIdClient, count: int, ids: list[int]) -> None:
    ids += await client.ask(count)


SCENARIO = Scenario(
    name="quorum_liveness_with_majority",
    summary="A minority of controllers is down for long; the others elect a leader in time, keep "
    "it, and serve requests within a bound.",
    must_exercise=PROVEN,
    run=run,
    faults=faults,
    controllers=3,
    controllers_drawn=(3, 3, 4, 5),
    brokers=1,
    settings=SETTINGS,
    draw_parameters=draw_parameters,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=1,
        clients=("asker-1",),
        apis=PRODUCER_ID_APIS,
        fault_seconds=PARTS * (AWAY_MS + BACK_MS) / 1000,
        mix=Mix.ON_TOP,  # its bounds hold with its own faults alone
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
