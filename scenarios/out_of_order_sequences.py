"""Producers send batches with arbitrary sequences while leaders fail; checks each response against
Apache Kafka's rules, and the log.

Client implementations depend on these rules: the next batch is appended; one of the last five is a
duplicate and returns its offset; a gap, an overlap and anything older is out of order; an old epoch
is rejected, a new one starts at 0; sequences wrap. Random sequences are sent to a few partitions,
first in transactions of both protocol versions without faults, then without transactions while
brokers are killed and stopped and connections break. Responses are compared with rules that were
derived for this scenario from the documents.

Half of the transactions are those of clients that support transaction.version 2, which exists since
4.0. No broker loses power or is paused: a batch that is minutes late would be another scenario.
Source: KIP-98, KIP-360, KIP-890, KAFKA-5494, KAFKA-7692, KAFKA-14920.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, AtTime, Fault, OnEvent, OnFrame
from kraftsim.lab.faults.fault_space import (
    LATE_REQUESTS,
    WRITER_APIS,
    Mix,
    cluster_fault_space,
)
from kraftsim.lab.workloads.phases import replicas_settle, under_faults
from kraftsim.lab.workloads.random_sequences import RandomSequence
from kraftsim.lab.workloads.replication_workload import SETTINGS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

BROKERS = (1, 2, 3)
PRODUCE = 0
WORK_SECONDS = 5.0
STEP_SECONDS = 60.0
CALM_STEPS = 20
WORKLOAD = {
    "walks": 2,
    "producers": 3,
    "steps": 60,
    "pause_ms": 40,
    "transactional_ids": 4,
    "transactions": 3,
    "work_ms": int(WORK_SECONDS * 1000),
}


async def run(stage: ScenarioEnvironment) -> None:
    """Send sequences in transactions without faults, then without transactions while leaders fail;
    check the logs.
    """
    producer_ids = await _producer_ids(stage)
    walks = [
        await _walk(stage, f"walked-{number}") for number in range(1, stage.workload("walks") + 1)
    ]
    await _transact(stage)
    pause_seconds = stage.workload("pause_ms") / 1000
    for each in walks:
        await each.run_steps(producer_ids, min(CALM_STEPS, stage.workload("steps")), 0.0)
        each.rules.may_forget = True
    work = (each.run_steps(producer_ids, stage.workload("steps"), pause_seconds) for each in walks)
    await under_faults(stage, *work, seconds=stage.workload("work_ms") / 1000)
    for each in walks:
        await replicas_settle(stage, each.topic, 1)
        await each.audit()
        await each.client.close()


async def _producer_ids(stage: ScenarioEnvironment) -> list[int]:
    requester = stage.producer_id_client("asker")
    found = await requester.ask(stage.workload("producers"))
    await requester.close()
    return found


async def _walk(stage: ScenarioEnvironment, topic: str) -> RandomSequence:
    random = stage.random(topic)
    client = stage.exact_client(f"walker-of-{topic}", topic)
    await within(
        stage,
        f"{topic} was not created",
        client.create_topic(random.sample(BROKERS, len(BROKERS)), {}),
        STEP_SECONDS,
    )
    return RandomSequence(stage=stage, client=client, random=random, topic=topic)


async def _transact(stage: ScenarioEnvironment) -> None:
    """Use one new transactional id after the other on a partition."""
    run_steps = await _walk(stage, "walked-in-transactions")
    for number in range(1, stage.workload("transactional_ids") + 1):
        transactional_id = run_steps.client.transactional_id(f"walker-{number}")
        await within(
            stage,
            f"walker-{number} is stuck",
            run_steps.transact(transactional_id, stage.workload("transactions"), batches=6),
            STEP_SECONDS,
        )
    await run_steps.audit()
    await run_steps.client.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw one to four kills of brokers and some broken connections; over sockets kills at random
    times only.
    """
    if mode is not Mode.SIM:
        return tuple(
            _kill(random, f"broker-{random.choice(BROKERS)}", _time(random))
            for _ in range(random.randint(1, 2))
        )
    deaths = (_kill(random, AT_THE_TRIGGER, _moment(random)) for _ in range(random.randint(1, 4)))
    return (*deaths, *(_broken(random) for _ in range(random.randint(0, 6))))


def _moment(random: "Random") -> AtTime | OnEvent:
    """A leader has just appended, or was just elected."""
    kind = random.choice(
        (
            "BatchAppended",
            "BatchAppended",
            "BatchReplicated",
            "LeaderElected",
            "DuplicateAnswered",
            "ProduceRefused",
        )
    )
    return OnEvent(kind=kind, nth=random.randint(1, 60 if kind != "LeaderElected" else 8))


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))


def _kill(random: "Random", target: str, trigger: AtTime | OnEvent) -> Fault:
    after_ms = random.choice((20, 500, 3000))
    if random.random() < 0.4:
        return Fault(kind="stop", target=target, trigger=trigger, params={"after_ms": after_ms})
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": False, "after_ms": after_ms},
    )


def _broken(random: "Random") -> Fault:
    trigger = OnFrame(
        api_key=PRODUCE,
        is_response=random.random() < 0.7,
        nth=random.randint(1, 120),
        moment="before",
    )
    return Fault(
        kind="cut-connection",
        target=AT_THE_TRIGGER,
        trigger=trigger,
        params={"after_bytes": random.choice((0, 5, 30))},
    )


SCENARIO = Scenario(
    name="out_of_order_sequences",
    summary="Producers send arbitrary sequences while leaders fail; each response is Apache "
    "Kafka's, and the log has what was acknowledged.",
    must_exercise=(
        "one-append-per-sequence",
        "replicas-equal",
        "partition-log-matching",
        "one-partition-leader-per-epoch",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.num.partitions": "3",
    },
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("harness",),
        apis=WRITER_APIS,
        brokers_keep_records=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
        mix=Mix.ON_TOP,
        omits=LATE_REQUESTS,  # the expected answers are those to requests in order
    ),
    limit_seconds=600.0,
    workload=WORKLOAD,
    fewest_controllers=1,
    fewest_brokers=3,
    since="4.0",
)
