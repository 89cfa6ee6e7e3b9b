"""Fails brokers, coordinators, links and members of a consume-transform-produce app; checks that
each input record is in the output exactly once.

Two producers fill four partitions. Three members of one group consume them, each with one producer
per thread, and commit records and offsets in one transaction. Brokers are killed and paused, also
right after they wrote a transaction state, a marker or a pending offset; links are partitioned;
responses are lost, requests are late; clocks jump; members crash at any point, or are paused until
their partitions are reassigned, and resume. In the end every line is in the committed output once.
Brokers lose power only in runs in which they flush every batch before they acknowledge it.
Source: KIP-98, KIP-447, KIP-890; Jepsen's reports on Kafka and Bufstream.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, OnFrame, Value
from kraftsim.lab.faults.fault_space import (
    GROUP_MOMENTS,
    TRANSACTION_APIS,
    TRANSACTION_FILES,
    TRANSACTION_MOMENTS,
    TRANSACTION_STATES,
    WRITER_APIS,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    TransformApp,
    Variant,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

BROKERS = ("broker-1", "broker-2", "broker-3")
COPIERS = ("copier-1", "copier-2", "copier-3")
(
    PRODUCE,
    FIND_COORDINATOR,
    ADD_PARTITIONS,
    ADD_OFFSETS,
    END_TXN,
    WRITE_MARKERS,
    TXN_OFFSET_COMMIT,
    OFFSET_FETCH,
) = 0, 10, 24, 25, 26, 27, 28, 9
TRANSACTIONAL = (
    PRODUCE,
    ADD_PARTITIONS,
    ADD_OFFSETS,
    END_TXN,
    END_TXN,
    WRITE_MARKERS,
    WRITE_MARKERS,
    TXN_OFFSET_COMMIT,
    OFFSET_FETCH,
)
WORK_SECONDS = 8.0
MOMENTS: tuple[tuple[str, int], ...] = (
    ("TransactionStateChanged", 150),
    ("TransactionStateChanged", 150),
    ("MarkerAppended", 80),
    ("LastStableOffsetMoved", 100),
    ("PendingOffsetAdded", 40),
    ("OffsetMaterialised", 40),
    ("BatchAppended", 300),
    ("LeaderElected", 30),
    ("GroupsLoaded", 6),
    ("IsrChangeAsked", 6),
)
"""Events after which a broker failure is most revealing, and their approximate number per run."""


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app under faults, heal, and check its output."""
    # Transactional ids are per partition or per thread, drawn: both must work.
    variant = stage.random("variant").choice(
        (Variant.PER_THREAD, Variant.PER_THREAD, Variant.PER_TASK)
    )
    app = TransformApp(
        variant=variant, assignor=stage.random("assignor").choice(("range", "cooperative-sticky"))
    )
    await app.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    await under_faults(
        stage, app.run(stage, until=lambda: stage.now_seconds() >= over_at), seconds=seconds
    )
    await app.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight faults; over sockets, without event triggers and clock faults, only timed
    ones.
    """
    if mode is not Mode.SIM:
        return tuple(_timed(random) for _ in range(random.randint(1, 3)))
    draws = (_kill, _kill, _kill, _timed, _on_the_wire, _on_the_wire, _clock)
    return tuple(random.choice(draws)(random) for _ in range(random.randint(3, 8)))


def _kill(random: "Random") -> Fault:
    """A broker is killed, paused or isolated right after an event."""
    kind, times_max = random.choice(MOMENTS)
    return _fault(random, AT_THE_TRIGGER, OnEvent(kind=kind, nth=random.randint(1, times_max)))


def _timed(random: "Random") -> Fault:
    return _fault(
        random, random.choice(BROKERS), AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))
    )


def _fault(random: "Random", target: str, trigger: AtTime | OnEvent) -> Fault:
    kind = random.choice(("restart", "restart", "stop", "pause", "partition"))
    if kind == "restart":
        return Fault(
            kind=kind,
            target=target,
            trigger=trigger,
            params={"power_loss": False, "after_ms": random.randint(20, 4000)},
        )
    if kind == "stop":
        return Fault(
            kind=kind, target=target, trigger=trigger, params={"after_ms": random.randint(20, 2000)}
        )
    if kind == "partition" and target != AT_THE_TRIGGER:
        other = random.choice([each for each in (*BROKERS, "controller-101") if each != target])
        target = f"{target}{random.choice(('>', '<>'))}{other}"
    return Fault(
        kind=kind, target=target, trigger=trigger, params={"duration_ms": random.randint(300, 6000)}
    )


def _on_the_wire(random: "Random") -> Fault:
    """A request or response of a transaction is lost."""
    api_key, is_response = random.choice(TRANSACTIONAL), random.random() < 0.7
    trigger = OnFrame(
        api_key=api_key, is_response=is_response, nth=random.randint(1, 60), moment="before"
    )
    return Fault(
        kind="lost-reply" if is_response and random.random() < 0.7 else "cut-connection",
        target=AT_THE_TRIGGER,
        trigger=trigger,
    )


def _clock(random: "Random") -> Fault:
    params: dict[str, Value] = {
        "by_ms": random.choice((50, 3000, 3_600_000)),
        "duration_ms": random.randint(200, 5000),
    }
    kind = random.choice(("clock-jump-forward", "clock-jump-back"))
    return Fault(
        kind=kind,
        target=random.choice(BROKERS),
        trigger=AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000))),
        params=params,
    )


SCENARIO = Scenario(
    name="exactly_once_under_faults",
    summary="Members, brokers, coordinators and links fail while an app copies a topic in "
    "transactions; every line is in the output exactly once.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings=SETTINGS,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("writer-1", "writer-2", *COPIERS),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        brokers_keep_records=True,
        brokers_may_flush=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
        may_answer_fatal=COPIERS,
        files=TRANSACTION_FILES,
        moments=(*TRANSACTION_MOMENTS, *GROUP_MOMENTS),
        lasting_states=TRANSACTION_STATES,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "crashes": 8, "pauses": 6, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
