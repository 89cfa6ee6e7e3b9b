# ruff: noqa: E402  (the launcher comes before what it pins)
"""A separate program: aiokafka applications under faults in virtual time, observed by their frames.
Prints, as JSON, what the invariants say; no client in it emits events of its own but the auditor.

    python tests/simulate/aiokafka_applications.py ledger|payments FIRST_SEED SEEDS [BUG]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kraftsim.world.simulated.launcher import relaunch_pinned

PINNING = relaunch_pinned(sys.orig_argv[1:])  # before aiokafka is imported

import asyncio
import json
import logging
from collections.abc import Coroutine
from dataclasses import replace

import aiokafka
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from kraftsim.clients.events_transactions import CopyRead
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, scenario
from kraftsim.cluster.simulation import SimulatedEnvironment
from kraftsim.lab.application.observer import observe_clients
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.workloads.phases import replicas_settle, transactions_settle, under_faults

PARTITIONS = 3
PATIENT = {"request_timeout_ms": 3000, "retry_backoff_ms": 50, "metadata_max_age_ms": 1000}
GIVE_UP_SECONDS = 30.0


def clock() -> float:
    """Return the virtual time of the running application, in seconds."""
    return asyncio.get_running_loop().time()


async def write_ledger(bootstrap: str, name: str, until: float) -> None:
    """Send numbered records with an idempotent producer, some at a time, until a time."""
    count = 0
    while clock() < until:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=name, enable_idempotence=True, **PATIENT
        )
        try:
            await producer.start()
            while clock() < until:
                sent = []
                for _ in range(6):
                    key = f"{name}.{count}".encode()
                    sent.append(
                        await producer.send("ledger", b"", key=key, partition=count % PARTITIONS)
                    )
                    count += 1
                await asyncio.wait_for(asyncio.gather(*sent), GIVE_UP_SECONDS)
                await asyncio.sleep(0.02)
        except (KafkaError, TimeoutError):
            await asyncio.sleep(0.1)
        finally:
            await stop(producer)


async def write_payments(bootstrap: str, name: str, until: float) -> None:
    """Send records without keys in transactions, and abort each third one."""
    count = 0
    while clock() < until:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            transaction_timeout_ms=4000,
            **PATIENT,
        )
        try:
            await asyncio.wait_for(producer.start(), GIVE_UP_SECONDS)
            while clock() < until:
                await producer.begin_transaction()
                count += 1
                sent = [
                    await producer.send(
                        "payments", f"{name}.{count}.{index}".encode(), partition=index % PARTITIONS
                    )
                    for index in range(4)
                ]
                await asyncio.wait_for(asyncio.gather(*sent), GIVE_UP_SECONDS)
                ending = producer.commit_transaction if count % 3 else producer.abort_transaction
                await asyncio.wait_for(ending(), GIVE_UP_SECONDS)
        except (KafkaError, TimeoutError):
            await asyncio.sleep(0.1)
        finally:
            await stop(producer)


async def read_along(bootstrap: str, until: float) -> None:
    """Read committed payments while they are written."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=300,
        **PATIENT,
    )
    await consumer.start()
    consumer.assign([TopicPartition("payments", number) for number in range(PARTITIONS)])
    while clock() < until:
        try:
            await consumer.getmany(timeout_ms=200)
        except KafkaError:
            await asyncio.sleep(0.1)
    await stop(consumer)


async def stop(client: "aiokafka.AIOKafkaProducer | aiokafka.AIOKafkaConsumer") -> None:
    """Stop a client that may hang in a request."""
    try:
        await asyncio.wait_for(client.stop(), GIVE_UP_SECONDS)
    except (KafkaError, TimeoutError):
        return


def application(topic: str) -> "Scenario":
    """Return a scenario that runs an application while brokers and links fail."""
    is_ledger = topic == "ledger"

    async def run(stage: ScenarioEnvironment) -> None:
        assert isinstance(stage, SimulatedEnvironment), "the application runs in virtual time"
        simulation = stage.cluster.simulation
        bootstrap = ",".join(f"{host}:{port}" for host, port in stage.cluster.addresses)
        await stage.create_topic(topic, PARTITIONS, 3)
        seconds = stage.workload("work_ms") / 1000
        until = asyncio.get_running_loop().time() + seconds
        works: list[tuple[str, Coroutine[object, object, None]]] = [
            (
                f"app-{number}",
                (write_ledger if is_ledger else write_payments)(
                    bootstrap, f"{topic}-{number}", until
                ),
            )
            for number in (1, 2)
        ]
        if not is_ledger:
            works.append(("app-3", read_along(bootstrap, until)))
        tasks = []
        for name, work in works:
            host = simulation.add_host(name, tolerant=True)
            observe_clients(simulation, host)
            tasks.append(simulation.spawn(host, work))
        await under_faults(stage, *tasks, seconds=seconds)
        await replicas_settle(stage, topic, PARTITIONS)
        if not is_ledger:
            await transactions_settle(stage, [topic])
        auditor = stage.reader("auditor", read_committed=True)
        await auditor.read_all(topic, range(PARTITIONS))
        stage.emit(CopyRead(client_id="auditor", topic=topic))

    base = scenario(
        "partition_leader_failover_idempotent" if is_ledger else "exactly_once_under_faults"
    )
    return replace(base, run=run, fault_space=None, must_exercise=(), workload={"work_ms": 6000})


def main(topic: str, seeds: range, bugs: tuple[str, ...]) -> None:
    """Print, by seed, the outcome, and the verdicts of the invariants."""
    logging.disable()
    found = {}
    for seed in seeds:
        result = run_request(
            RunRequest(scenario=application(topic), mode=Mode.SIM, seed=seed, bugs=bugs)
        )
        found[seed] = {
            "outcome": result.outcome,
            "trouble": result.trouble,
            "verdicts": result.verdicts,
            "violations": result.violations,
        }
    print(json.dumps(found))


main(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])), tuple(sys.argv[4:]))
