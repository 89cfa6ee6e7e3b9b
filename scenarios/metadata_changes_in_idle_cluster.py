"""Delays single metadata commits in an idle cluster; checks that every broker receives each change
soon, although no other record follows.

An administrator makes each change while voters are slow to replicate it: the links between the
leader and the voters are blocked or slow, or disk flushes do not return. Brokers reach the leader
all the time. They have fetched the change before it is committed, send the next Fetch, and receive
an empty response with the old high watermark; the commit itself must then complete their next
Fetch. If a no-op record of the controller follows within half a second, as by default (KIP-835), it
carries the new high watermark and hides a commit that was not published; most runs disable it.

Over sockets the links are blocked or slow, and brokers are given more time.
Source: KIP-595, KIP-835, KIP-1166; org.apache.kafka.raft.KafkaRaftClient
(updateFollowerHighWatermark).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import LEADER_TARGET, AtTime, Fault, FileClass
from kraftsim.lab.faults.fault_space import Mix
from kraftsim.lab.faults.quorum_spaces import ADMINISTRATOR_APIS, quorum_fault_space
from kraftsim.lab.workloads.administrator import Administrator
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.quorum_scenarios import has_only

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

ROUNDS, ROUND_MS = 4, 4000
LEAST_MS, MOST_MS = 600, 2000
"""How long a commit is delayed.

A broker's Fetch waits for half a second, so it is answered at least once meanwhile.
"""
LATE_MS = 300
"""The latest time within the delay at which the change is made."""
WORKLOAD = {"rounds": ROUNDS, "work_ms": ROUNDS * ROUND_MS}
KNOWN_SECONDS: Mapping[Mode, float] = {Mode.SIM: 1.5, Mode.PROCESSES: 20.0, Mode.EMBEDDED: 20.0}
LOOK_SECONDS = 0.05
TOPIC, AGE, FIRST_AGE = "quiet", "retention.ms", 1_000_000


async def run(stage: ScenarioEnvironment) -> None:
    """Change one configuration again and again, and check each time that every broker has it before
    the next change.
    """
    administrator = Administrator(stage.client_host("administrator"))
    await administrator.create_topic(TOPIC)
    await under_faults(
        stage, _administer(stage, administrator), seconds=stage.workload("work_ms") / 1000
    )
    administrator.close()


async def _administer(stage: ScenarioEnvironment, administrator: Administrator) -> None:
    looker = Administrator(stage.client_host("looker"))
    random = stage.random("administrator")
    began = stage.now_seconds()
    for number in range(stage.workload("rounds")):
        begins = began + (number * ROUND_MS + random.uniform(0, LATE_MS)) / 1000
        await stage.sleep(max(0.0, begins - stage.now_seconds()))
        age = str(FIRST_AGE + number)
        await administrator.configure(TOPIC, {AGE: age})
        for broker_id in range(1, stage.spec.brokers + 1):
            knows = _knows(stage, looker, broker_id, age)
            if has_only(stage, faults):
                await within(
                    stage,
                    f"broker {broker_id} receives a change",
                    knows,
                    KNOWN_SECONDS[stage.mode],
                )
            else:
                await knows
    looker.close()


async def _knows(
    stage: ScenarioEnvironment, looker: Administrator, broker_id: int, age: str
) -> None:
    while (found := await looker.configured(broker_id, TOPIC, [AGE])) is None or found.get(
        AGE
    ) != age:
        await stage.sleep(LOOK_SECONDS)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw for each change what delays its commit, and for how long."""
    kinds = (_clogged, _clogged, _slow, _stuck) if mode is Mode.SIM else (_clogged, _slow)
    return tuple(
        random.choice(kinds)(random, AtTime(at_ms=max(1, number * ROUND_MS)))
        for number in range(ROUNDS)
    )


def _clogged(random: "Random", trigger: AtTime) -> Fault:
    """Messages between the leader and the other voters are held, and arrive when the link is
    unblocked.
    """
    params: dict[str, int | str | bool | None] = {"duration_ms": random.randint(LEAST_MS, MOST_MS)}
    return Fault(
        kind="clog", target=f"{LEADER_TARGET}<>controller-*", trigger=trigger, params=params
    )


def _slow(random: "Random", trigger: AtTime) -> Fault:
    """Each message between the leader and the other voters is slow, in both directions."""
    latency_ms = random.randint(LEAST_MS // 2, MOST_MS // 3)
    params: dict[str, int | str | bool | None] = {
        "latency_ms": latency_ms,
        "jitter_ms": 20,
        "duration_ms": MOST_MS,
    }
    return Fault(
        kind="slow-link", target=f"{LEADER_TARGET}<>controller-*", trigger=trigger, params=params
    )


def _stuck(random: "Random", trigger: AtTime) -> Fault:
    """Flushes of the metadata log do not return on any controller."""
    params: dict[str, int | str | bool | None] = {
        "file_class": FileClass.METADATA_LOG.value,
        "duration_ms": random.randint(LEAST_MS, MOST_MS),
    }
    return Fault(kind="stuck-flush", target="controller-*", trigger=trigger, params=params)


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the release, and whether controllers write no-op records (KIP-835)."""
    return {
        "kraftsim.release": random.choice(("3.3", "3.9", "4.0", "4.4")),
        "metadata.max.idle.interval.ms": random.choice(("0", "0", "0", "500")),
    }


SCENARIO = Scenario(
    name="metadata_changes_in_idle_cluster",
    summary="Metadata commits are slow and no other record follows them; every broker still "
    "receives each change soon.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "high-watermark-monotonic-across-epochs",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=3,
    controllers_drawn=(3, 3, 5),
    brokers=2,
    settings={
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "500",
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "6000",
    },
    draw_parameters=draw_parameters,
    fault_space=quorum_fault_space(
        controllers=3,
        brokers=2,
        clients=("administrator",),
        apis=ADMINISTRATOR_APIS,
        fault_seconds=ROUNDS * ROUND_MS / 1000,
        mix=Mix.ON_TOP,  # its bounds hold with its own faults alone
    ),
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
