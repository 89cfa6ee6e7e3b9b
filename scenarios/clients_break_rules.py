"""A client breaks each rule of the protocol once, while others copy a topic in transactions and
nodes fail: it gets Kafka's errors, and no other client notices.

It ends transactions that it has not begun, or that are another's, writes in past and future epochs,
out of sequence, and into transactions that do not exist, and commits offsets as a stranger: see
`RuleBreaker`. Every rule is broken under faults and, in another order, once more when they are
healed. The others must copy each record exactly once.
Source: KIP-98, KIP-227, KIP-320, KIP-447, KIP-890; the requirements of `kraftsim/conformance`.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import AtTime, Fault
from kraftsim.lab.faults.fault_space import (
    OFFSET_MOMENTS,
    TRANSACTION_APIS,
    WRITER_APIS,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults
from kraftsim.lab.workloads.rule_breaker import Offence, RuleBreaker
from kraftsim.lab.workloads.transform_app import MUST_EXERCISE, SETTINGS, WORKLOAD, TransformApp

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 8.0
VICTIM = "victim"
"""A topic beside those of the others: what the impolite client may write there is not copied."""


async def run(stage: ScenarioEnvironment) -> None:
    """Run the application and the impolite client under faults, then once more without."""
    app = TransformApp()
    await app.open(stage)
    await stage.create_topic(VICTIM, 1, app.replicas)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    is_over = False
    app.is_awaited = lambda: not is_over

    async def break_rules() -> None:
        nonlocal is_over
        host = stage.client_host("impolite")
        breaker = RuleBreaker(
            host, topic=VICTIM, group_id=app.group_id, foreign_id=f"{app.name}-thread-copier-1"
        )
        await host.run(_break_all(stage, breaker, over_at))
        is_over = True

    await under_faults(
        stage,
        app.run(stage, until=lambda: stage.now_seconds() >= over_at),
        break_rules(),
        seconds=seconds,
    )
    await app.audit(stage)


async def _break_all(stage: ScenarioEnvironment, breaker: RuleBreaker, over_at: float) -> None:
    random = stage.random("offences")
    await stage.sleep(1.0)  # the others have their ids, and their group
    await breaker.prepare()
    for offence in _shuffled(random, breaker):
        await breaker.offend(offence)
        await stage.sleep(random.uniform(0, 0.3))
    await stage.sleep(max(0.0, over_at - stage.now_seconds()))
    for offence in _shuffled(random, breaker):
        await within(stage, offence.name, breaker.offend(offence), CALLS_SECONDS)
    breaker.close()


def _shuffled(random: "Random", breaker: RuleBreaker) -> list[Offence]:
    offences = list(breaker.offences())
    random.shuffle(offences)
    return offences


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """All faults are random ones, but over sockets: there brokers end and start again."""
    if mode is Mode.SIM:
        return ()
    return tuple(
        Fault(
            kind="restart",
            target=f"broker-{random.randint(1, 3)}",
            trigger=AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000))),
            params={"power_loss": False, "after_ms": random.randint(20, 4000)},
        )
        for _ in range(random.randint(1, 3))
    )


SCENARIO = Scenario(
    name="clients_break_rules",
    provoked_errors=(42, 50),  # INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT: the rule breaker
    summary="A client breaks each rule of the protocol once while nodes fail: it gets Kafka's "
    "errors, and the others copy each record once.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    has_own_faults=False,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("impolite", "writer-1", "writer-2", "copier-1", "copier-2", "copier-3"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        moments=OFFSET_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "crashes": 4, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.6",
)
