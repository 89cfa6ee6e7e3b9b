"""A separate program: what aiokafka's producer, consumer and transactions do, in virtual time or
against sockets. Prints JSON.

    python tests/simulate/aiokafka_behaviour.py simulated|sockets
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kraftsim.world.simulated.launcher import relaunch_pinned

if sys.argv[1] == "simulated":
    relaunch_pinned(sys.orig_argv[1:])  # before aiokafka is imported

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

import kraftsim
from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.world.simulated import Simulation

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "message.max.bytes": "20000",
}
BROKERS = 2
TOPICS = ("records", "shared", "input", "output")
QUICK: dict[str, Any] = {"metadata_max_age_ms": 1000, "retry_backoff_ms": 20}
READER: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20, **QUICK}
MEMBER: dict[str, Any] = {
    "group_id": "members",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 50,
    "session_timeout_ms": 6000,
    **READER,
}
EPOCH_MS = 1_600_000_000_000
"""Before every clock: records with other timestamps were stamped when they were sent."""
Part = Callable[[str], Awaitable[dict[str, Any]]]


async def error_of(work: Awaitable[object]) -> list[Any]:
    """Return the type and the error code of the exception that something raises."""
    try:
        return ["none", repr(await work)]
    except KafkaError as error:
        return [type(error).__name__, getattr(error, "errno", None)]
    except Exception as error:
        return [type(error).__name__, str(error)]


async def call(function: Callable[..., object], *arguments: object) -> object:
    """Call a function that is no coroutine function."""
    return function(*arguments)


async def produced(bootstrap: str) -> dict[str, Any]:
    """An idempotent producer: positions, and what it refuses."""
    found: dict[str, Any] = {}
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, max_request_size=100_000, **QUICK
    )
    await producer.start()
    acknowledged = []
    for number in range(12):
        future = await producer.send(
            "records",
            b"value %d" % number,
            key=b"key %d" % number,
            partition=number % 2,
            timestamp_ms=EPOCH_MS + number,
            headers=[("number", b"%d" % number)],
        )
        acknowledged.append(future)
    found["acknowledged"] = [list(await future) for future in acknowledged]
    batch = producer.create_batch()
    batch.append(key=None, value=b"in a batch", timestamp=EPOCH_MS + 12)
    batch.close()
    found["batch"] = list(await (await producer.send_batch(batch, "records", partition=0)))
    found["partitions"] = sorted(await producer.partitions_for("records"))
    found["above message.max.bytes"] = await error_of(
        producer.send_and_wait("records", bytes(30_000), partition=0)
    )
    found["above max_request_size"] = await error_of(producer.send("records", bytes(200_000)))
    found["no such partition"] = await error_of(producer.send("records", b"", partition=7))
    found["begin without an id"] = await error_of(producer.begin_transaction())
    after = await producer.send_and_wait("records", b"after", partition=1)
    found["after an error"] = [after.offset, after.timestamp > EPOCH_MS + 100]
    await producer.stop()
    found["after stop"] = await error_of(producer.send("records", b"late"))
    return found


async def consumed(bootstrap: str) -> dict[str, Any]:
    """A consumer by assignment: records, positions, pauses, commits."""
    found: dict[str, Any] = {}
    places = [TopicPartition("records", 0), TopicPartition("records", 1)]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id="alone", enable_auto_commit=False, **READER
    )
    await consumer.start()
    consumer.assign(places)
    records = [await consumer.getone() for _ in range(14)]
    found["records"] = sorted(
        [
            record.partition,
            record.offset,
            record.key and record.key.decode(),
            record.value.decode(),
            record.timestamp if record.timestamp < EPOCH_MS + 100 else "now",
            record.timestamp_type,
            [[name, value.decode()] for name, value in record.headers],
        ]
        for record in records
    )
    found["positions"] = [await consumer.position(place) for place in places]
    found["beginnings"] = sorted((await consumer.beginning_offsets(places)).values())
    found["ends"] = sorted((await consumer.end_offsets(places)).values())
    by_time = await consumer.offsets_for_times(dict.fromkeys(places, EPOCH_MS + 5))
    found["by time"] = [list(by_time[place]) for place in places]
    consumer.seek(places[0], 3)
    consumer.pause(places[1])
    found["after seek"] = [(await consumer.getone()).offset for _ in range(2)]
    found["paused"] = [list(place) for place in consumer.paused()]
    consumer.resume(places[1])
    await consumer.seek_to_beginning(places[1])
    found["from the beginning"] = (await consumer.getone(places[1])).offset
    found["committed before"] = await consumer.committed(places[0])
    await consumer.commit({places[0]: (2, "some metadata"), places[1]: 4})
    found["committed"] = [await consumer.committed(place) for place in places]
    found["seek to committed"] = sorted((await consumer.seek_to_committed()).values())
    found["not assigned"] = await error_of(call(consumer.seek, TopicPartition("other", 0), 0))
    await consumer.stop()
    strict = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, **{**READER, "auto_offset_reset": "none"}
    )
    await strict.start()
    strict.assign(places)
    for place in places:
        strict.seek(place, 1000)
    found["out of range"] = await error_of(strict.getone())
    await strict.stop()
    found["closed"] = await error_of(strict.getone())
    return found


async def shared(bootstrap: str) -> dict[str, Any]:
    """A group: generations and assignments when a second member joins and leaves."""
    found: dict[str, Any] = {}
    first = AIOKafkaConsumer("shared", bootstrap_servers=bootstrap, **MEMBER)
    await first.start()
    found["alone"] = await assignment_of(first, 2)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **QUICK)
    await producer.start()
    for number in range(6):
        await producer.send_and_wait("shared", b"%d" % number, partition=number % 2)
    taken = [await first.getone() for _ in range(6)]
    found["read"] = sorted(record.value.decode() for record in taken)
    await first.commit({TopicPartition("shared", 0): 2, TopicPartition("shared", 1): 1})
    second = AIOKafkaConsumer("shared", bootstrap_servers=bootstrap, **MEMBER)
    starting = asyncio.ensure_future(second.start())
    found["first of two"] = await assignment_of(first, 1)
    await starting
    found["second of two"] = await assignment_of(second, 1)
    read = [record.value.decode() for record in await some(first)]
    read += [record.value.decode() for record in await some(second)]
    found["read from committed"] = sorted(read)
    await second.stop()
    found["alone again"] = await assignment_of(first, 2)
    found["subscribed and assigned"] = await error_of(
        call(first.assign, [TopicPartition("shared", 0)])
    )
    (place, *_) = sorted(first.assignment())
    coordinator = first._coordinator
    member, generation = coordinator.member_id, coordinator.generation
    coordinator.generation = generation - 1
    found["stale generation"] = await error_of(first.commit({place: 1}))
    coordinator.member_id, coordinator.generation = "no-member", generation
    found["unknown member"] = await error_of(first.commit({place: 1}))
    coordinator.member_id, coordinator.generation = member, generation
    await first.stop()
    await producer.stop()
    return found


async def assignment_of(consumer: AIOKafkaConsumer, partitions: int) -> list[Any]:
    """Return the generation and the number of partitions, once it is as expected."""
    async with asyncio.timeout(10):
        while len(consumer.assignment()) != partitions:
            await asyncio.sleep(0.02)
    return [consumer._coordinator.generation, partitions]


async def some(consumer: AIOKafkaConsumer) -> list[Any]:
    """Return what arrives, until nothing more does."""
    found: list[Any] = []
    for _ in range(20):
        batches = await consumer.getmany(timeout_ms=200)
        if found and not batches:
            break
        found += [record for records in batches.values() for record in records]
    return found


async def transacted(bootstrap: str) -> dict[str, Any]:
    """Transactions: commit, abort, offsets, fencing, a time-out."""
    found: dict[str, Any] = {}
    place = TopicPartition("input", 0)

    def producer_of(name: str, timeout_ms: int = 10_000) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            **QUICK,
        )

    producer = producer_of("writer")
    await producer.start()
    found["outside"] = await error_of(producer.send("output", b"outside", partition=0))
    async with producer.transaction():
        await producer.send("output", b"committed", partition=0)
        await producer.send_offsets_to_transaction({place: 5}, "copiers")
    found["begun twice"] = await error_of(begin_twice(producer))
    await producer.abort_transaction()
    await producer.begin_transaction()
    await producer.send("output", b"aborted", partition=0)
    await producer.send_offsets_to_transaction({place: 9}, "copiers")
    await producer.abort_transaction()
    async with producer.transaction():
        found["position"] = (
            await (await producer.send("output", b"committed, too", partition=0))
        ).offset
    await producer.begin_transaction()
    await producer.send_and_wait("output", b"of a zombie", partition=0)
    successor = producer_of("writer")
    await successor.start()
    found["fenced in commit"] = await error_of(producer.commit_transaction())
    found["fenced afterwards"] = await error_of(producer.begin_transaction())
    async with successor.transaction():
        await successor.send("output", b"of the successor", partition=0)
    await successor.stop()
    slow = producer_of("slow", 300)
    await slow.start()
    await slow.begin_transaction()
    await slow.send_and_wait("output", b"too slow", partition=0)
    await asyncio.sleep(1.5)
    found["timed out"] = await error_of(slow.commit_transaction())
    for closing in (producer, slow):
        await error_of(closing.stop())
    for level in ("read_committed", "read_uncommitted"):
        reader = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id="copiers",
            enable_auto_commit=False,
            isolation_level=level,
            **READER,
        )
        await reader.start()
        reader.assign([TopicPartition("output", 0)])
        found[level] = [[record.offset, record.value.decode()] for record in await some(reader)]
        found["offset of the group"] = await reader.committed(place)
        await reader.stop()
    return found


async def begin_twice(producer: AIOKafkaProducer) -> None:
    """Begin a transaction inside another one."""
    await producer.begin_transaction()
    await producer.begin_transaction()


PARTS: dict[str, Part] = {
    "produced": produced,
    "consumed": consumed,
    "shared": shared,
    "transacted": transacted,
}


async def behaviour(bootstrap: str) -> dict[str, Any]:
    """Return everything that was observed."""
    return {name: await part(bootstrap) for name, part in PARTS.items()}


def simulated() -> dict[str, Any]:
    """Run in virtual time."""
    with Simulation(1) as simulation:
        cluster = SimulatedCluster(
            ClusterSpec(brokers=BROKERS, seed=1, settings=SETTINGS), simulation
        )
        cluster.start()

        async def play() -> dict[str, Any]:
            await cluster.wait_until_ready()
            for topic in TOPICS:
                await create_topic(cluster.addresses, topic, 2)
            host = simulation.add_host("app", tolerant=True)
            bootstrap = ",".join(f"{name}:{port}" for name, port in cluster.addresses)
            return await simulation.spawn(host, behaviour(bootstrap))

        return simulation.run_until(play(), limit_s=300)


def over_sockets() -> dict[str, Any]:
    """Run against an embedded cluster that listens."""
    with kraftsim.Cluster(brokers=BROKERS, settings=SETTINGS) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, partitions=2, replicas=1)
        return asyncio.run(behaviour(cluster.bootstrap))


logging.disable(logging.CRITICAL)
print(json.dumps({"simulated": simulated, "sockets": over_sockets}[sys.argv[1]](), indent=1))
