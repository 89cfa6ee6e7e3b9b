"""Producers, transactional applications, groups and records reach the ages at which Kafka forgets
them, under faults; checks that it forgets them then, and not before.

Expiry takes days with Kafka's defaults, and runs last seconds: nothing that happens after a day or
a week meets a fault. Here a day is DAY_SECONDS long: transactional ids, producer ids and records
expire after one, and so do the segments and snapshots of all nodes; offsets expire after a minute,
the shortest that there is. Each client comes back before its time is over, several times, while
nodes fail: it finds its id, the sequence of its last batch, its offset, its record. After the
faults it stays away for too long, and finds nothing: a transactional producer that goes on gets
INVALID_PRODUCER_ID_MAPPING, and a new one another producer id; the next sequence of an idempotent
producer is accepted without the ones before it.

No clock is wrong here: a broker whose clock jumps by an hour is right to expire what is younger.
Source: KIP-98, KIP-211, KIP-360, KIP-664, KAFKA-4669;
kafka.coordinator.transaction.TransactionStateManager.removeExpiredTransactionalIds,
org.apache.kafka.storage.internals.log.ProducerStateManager.removeExpiredProducers,
UnifiedLog.deleteRetentionMsBreachedSegments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kraftsim.clients.rules_member_steps import MemberSettings
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed, within
from kraftsim.lab.faults.fault import AtTime, Fault, Value
from kraftsim.lab.faults.fault_space import (
    OFFSET_MOMENTS,
    TRANSACTION_APIS,
    WRITER_APIS,
    cluster_fault_space,
)
from kraftsim.lab.workloads.orders import (
    TOPIC,
    AbortNeeded,
    OrderApp,
    OrdersWorkload,
    ProducerFailed,
    TransactionalClient,
)
from kraftsim.lab.workloads.phases import (
    CALLS_SECONDS,
    elect_now_and_then,
    transactions_settle,
    under_faults,
)
from kraftsim.lab.workloads.transform_app import OFFSETS_TOPIC, SETTINGS

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

DAY_SECONDS: Final = 40.0
CHECK_SECONDS: Final = 4.0
OFFSETS_SECONDS: Final = 60.0
MARGIN_SECONDS: Final = 1.0
"""Between the moment at which a client has its answer, and that of the record behind it."""
RETRIED_UNTIL: Final = 0.75
"""The part of a day after which a batch is not retried: a request may be late by the rest."""
LATE_SECONDS: Final = 4 * CHECK_SECONDS
"""By how much something may outlive its time in a cluster without faults: two checks, and the
replication of what they decide.
"""
RETRY_SECONDS = 0.2
EARLIEST: Final = -2
NO_ERROR: Final = "NONE"
SERIES, JOURNAL, AUDITED = "series", "journal", "audited"
CLOCKS = ("clock-offset", "clock-jump-forward", "clock-jump-back", "clock-frozen", "clock-drift")


async def run(stage: ScenarioEnvironment) -> None:
    """Let each client come back before its time, under faults, and after it, without."""
    seconds = stage.workload("work_ms") / 1000
    orders = OrdersWorkload(partitions=2)
    await orders.open(stage)
    for topic in (SERIES, JOURNAL, AUDITED):
        await stage.create_topic(topic, 1, 3)
    journal = stage.exact_client("journal-1", JOURNAL)
    await journal.set_configs(
        {"retention.ms": _ms(DAY_SECONDS), "segment.ms": _ms(DAY_SECONDS / 4)}
    )
    over_at = stage.now_seconds() + seconds
    work: list[Awaitable[None]] = [
        _transactional(stage, orders, number, over_at)
        for number in range(1, stage.workload("order_apps") + 1)
    ]
    work += [
        _idempotent(stage, number, over_at) for number in range(1, stage.workload("writers") + 1)
    ]
    work += [
        _committing(stage, number, over_at) for number in range(1, stage.workload("groups") + 1)
    ]
    work.append(_journal(stage, journal, over_at))
    # Restarted brokers lead again, with what they have loaded.
    work.append(elect_now_and_then(stage, seconds=seconds, every_seconds=DAY_SECONDS / 6))
    await under_faults(stage, *work, seconds=seconds)
    await transactions_settle(stage, (TOPIC, OFFSETS_TOPIC))
    await orders.audit(stage)


async def _away(stage: ScenarioEnvironment, name: str, age_seconds: float) -> None:
    """Stay away for a while that ends before an age is reached."""
    await stage.sleep(age_seconds * stage.random(name).choice((0.2, 0.5, 0.8, 0.9)))


# --------------------------------------------------------------------------------------------------
# A transactional id


async def _transactional(
    stage: ScenarioEnvironment, orders: OrdersWorkload, number: int, over_at: float
) -> None:
    app = orders.order_app(stage, f"dealer-{number}", f"deals-{number}")
    await app.client_host.run(_keep_an_id(stage, app, over_at))


async def _keep_an_id(stage: ScenarioEnvironment, app: OrderApp, over_at: float) -> None:
    """Come back with a new producer, which must have the id of the former one before its time."""
    client, since = await _deal(stage, app, None)
    known = client.next_identity.producer_id
    while stage.now_seconds() < over_at:
        await _away(stage, app.transactional_id, DAY_SECONDS)
        await client.close()
        client, until = await _deal(stage, app, None)
        found = client.next_identity.producer_id
        if found != known and until - since < DAY_SECONDS - MARGIN_SECONDS:
            raise ScenarioFailed(
                f"{app.transactional_id} was used {until - since:.1f} s ago by producer {known}, "
                f"and is {found} now"
            )
        known, since = found, until
    client, _ = await _deal(stage, app, client)
    known = client.next_identity.producer_id
    await stage.sleep(DAY_SECONDS + LATE_SECONDS)
    error = await _try_to_deal(client)
    await client.close()
    if error != "INVALID_PRODUCER_ID_MAPPING":
        raise ScenarioFailed(f"{app.transactional_id} has expired, and its producer gets {error}")
    client, _ = await _deal(stage, app, None)
    if client.next_identity.producer_id == known:
        raise ScenarioFailed(f"{app.transactional_id} has expired, and is producer {known} again")
    await client.close()


async def _deal(
    stage: ScenarioEnvironment, app: OrderApp, client: TransactionalClient | None
) -> tuple[TransactionalClient, float]:
    """Commit a transaction, with new producers if necessary; return the last one, and when the
    first attempt began that may have renewed the id.
    """
    began = stage.now_seconds()
    while True:
        try:
            if client is None:
                client = await app.restart_producer()
                began = stage.now_seconds()
            await _transaction(client)
        except (AbortNeeded, ProducerFailed):
            assert app.client is not None, "it was tried"
            await app.client.close()
            client = None
            await stage.sleep(RETRY_SECONDS)
        else:
            return client, began


async def _transaction(client: TransactionalClient) -> None:
    await client.begin()
    for partition in range(2):
        await client.send(TOPIC, partition, f"{client.transaction}.{partition}", b"deal")
    await client.commit()


async def _try_to_deal(client: TransactionalClient) -> str:
    try:
        await _transaction(client)
    except (AbortNeeded, ProducerFailed) as failure:
        return failure.error_code.name
    return "no error"


# --------------------------------------------------------------------------------------------------
# A producer id in a partition


async def _idempotent(stage: ScenarioEnvironment, number: int, over_at: float) -> None:
    """Send the last batch once more: before its time it is a duplicate of the same offset."""
    client = stage.exact_client(f"series-{number}", SERIES)
    producer_id = await _fresh_id(stage, f"{number}")
    sequence = given_up = 0
    while True:
        written = stage.now_seconds()
        offset = await _write_in_time(client, producer_id, sequence)
        if offset is None:
            given_up += 1
            producer_id, sequence = await _fresh_id(stage, f"{number}.{given_up}"), 0
            continue
        if stage.now_seconds() >= over_at:
            break
        await stage.sleep(stage.random(f"series-{number}").choice((0.2, 0.4, 0.6)) * DAY_SECONDS)
        # Later the batch may be appended once more, and its sequence would be there twice.
        left = written + RETRIED_UNTIL * DAY_SECONDS - stage.now_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0)):
                again = await _write(client, producer_id, sequence)
                if again != offset:
                    raise ScenarioFailed(
                        f"batch {sequence} of producer {producer_id} was written at {offset}, "
                        f"and again at {again}"
                    )
        sequence += 1
    await stage.sleep(DAY_SECONDS + LATE_SECONDS)
    await within(
        stage,
        f"the expiry of producer {producer_id}",
        _until(stage, lambda: _is_forgotten(client, producer_id)),
        CALLS_SECONDS / 4,
    )
    await _write(client, producer_id, sequence + 1)
    await client.close()


async def _is_forgotten(client: ExactClient, producer_id: int) -> bool:
    return producer_id not in await client.known_producers()


async def _fresh_id(stage: ScenarioEnvironment, name: str) -> int:
    ids = stage.producer_id_client(f"asker-{name}")
    (producer_id,) = await ids.ask(1)
    await ids.close()
    return producer_id


async def _write_in_time(client: ExactClient, producer_id: int, sequence: int) -> int | None:
    """Write a batch, and return its offset; None if there is no answer in time, after which it may
    be written with another producer id only: `delivery.timeout.ms` of a client must be shorter than
    `producer.id.expiration.ms`.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(RETRIED_UNTIL * DAY_SECONDS):
            return await _write(client, producer_id, sequence)
    return None


def _value(producer_id: int, sequence: int) -> bytes:
    return b"%d.%d" % (producer_id, sequence)


async def _write(client: ExactClient, producer_id: int, sequence: int) -> int:
    error, offset = await client.produce(producer_id, sequence, _value(producer_id, sequence))
    if error.name != NO_ERROR:
        raise ScenarioFailed(f"batch {sequence} of producer {producer_id} got {error.name}")
    return offset


# --------------------------------------------------------------------------------------------------
# Committed offsets of a group without members


async def _committing(stage: ScenarioEnvironment, number: int, over_at: float) -> None:
    """Commit an offset, and find it before its time is over."""
    group_id = f"auditors-{number}"
    host = stage.client_host(f"auditor-{number}")
    consumer = host.group_consumer(
        f"auditor-{number}.1", MemberSettings(group_id=group_id, topics=(AUDITED,))
    )
    questions = stage.questions(f"asker-of-offsets-{number}")

    async def commit(offset: int) -> bool:
        try:
            error = await consumer.commit({TopicPartition(AUDITED, 0): offset})
        except OSError:
            return False
        return error.name == NO_ERROR

    async def asked() -> int:
        while not (found := await questions.committed(group_id, AUDITED, 1)):
            await stage.sleep(RETRY_SECONDS)
        return found[0]

    async def work() -> None:
        offset = 0
        while True:
            offset += 1
            began = stage.now_seconds()
            await _until(stage, lambda: commit(offset))  # noqa: B023  (awaited at once)
            if stage.now_seconds() >= over_at:
                break
            await _away(stage, group_id, OFFSETS_SECONDS)
            found = await asked()
            age = stage.now_seconds() - began
            if found != offset and age < OFFSETS_SECONDS - MARGIN_SECONDS:
                raise ScenarioFailed(
                    f"{group_id} committed {offset} {age:.1f} s ago, and has {found}"
                )
        await stage.sleep(OFFSETS_SECONDS + LATE_SECONDS)
        found = await asked()
        if found != -1:
            raise ScenarioFailed(f"offset {found} of {group_id} has expired, and is still there")
        await consumer.close(leaves=False)

    await host.run(work())
    questions.close()


# --------------------------------------------------------------------------------------------------
# Records of a topic with a retention time


async def _journal(stage: ScenarioEnvironment, client: ExactClient, over_at: float) -> None:
    """Write records, and read those that are younger than the retention time; in the end none is
    left.
    """
    producer_id, sequence, given_up, last = await _fresh_id(stage, "0"), 0, 0, 0
    written: list[tuple[float, bytes]] = []
    while True:
        at = stage.now_seconds()
        offset = await _write_in_time(client, producer_id, sequence)
        if offset is None:
            given_up += 1
            producer_id, sequence = await _fresh_id(stage, f"0.{given_up}"), 0
            continue
        written.append((at, _value(producer_id, sequence)))
        sequence, last = sequence + 1, offset
        if stage.now_seconds() >= over_at:
            break
        await stage.sleep(DAY_SECONDS / 5)
        found = await client.read_values()
        now = stage.now_seconds()
        missing = [
            (now - at, each)
            for at, each in written
            if now - at < DAY_SECONDS - MARGIN_SECONDS and each not in found
        ]
        if missing:
            raise ScenarioFailed(
                f"record {missing[0][1]!r} is {missing[0][0]:.1f} s old, and is gone"
            )
    await stage.sleep(DAY_SECONDS + LATE_SECONDS)

    async def is_empty() -> bool:
        return await client.offset_of(EARLIEST) > last

    await within(stage, "the deletion of all records", _until(stage, is_empty), CALLS_SECONDS / 4)


async def _until(stage: ScenarioEnvironment, is_so: Callable[[], Awaitable[bool]]) -> None:
    while not await is_so():
        await stage.sleep(RETRY_SECONDS)


# --------------------------------------------------------------------------------------------------


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Brokers end, also in order, and start again around the moments of expiry."""
    return tuple(_restart(random) for _ in range(random.randint(1, 4)))


def _restart(random: "Random") -> Fault:
    day = random.choice((0.2, 0.5, 0.9, 1.0, 1.1, 1.5, 1.9, 2.0, 2.1))
    at_seconds = max(1.0, day * DAY_SECONDS + random.uniform(-CHECK_SECONDS, CHECK_SECONDS))
    trigger = AtTime(at_ms=int(at_seconds * 1000))
    target = f"broker-{random.randint(1, 3)}"
    after_ms = random.randint(20, 9000)
    if random.random() < 0.5:
        return Fault(kind="stop", target=target, trigger=trigger, params={"after_ms": after_ms})
    params: dict[str, Value] = {"power_loss": False, "after_ms": after_ms}
    return Fault(kind="restart", target=target, trigger=trigger, params=params)


def _ms(seconds: float) -> str:
    return str(int(seconds * 1000))


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the release, and how often what has expired is looked for."""
    check = _ms(random.choice((CHECK_SECONDS / 4, CHECK_SECONDS)))
    return {
        "kraftsim.release": random.choice(("3.6", "3.9", "4.0", "4.1", "4.4")),
        "transaction.remove.expired.transaction.cleanup.interval.ms": check,
        "producer.id.expiration.check.interval.ms": check,
        "offsets.retention.check.interval.ms": check,
        "log.retention.check.interval.ms": check,
        "log.segment.delete.delay.ms": random.choice(("0", "1000", "60000")),
        "metadata.log.max.snapshot.interval.ms": _ms(DAY_SECONDS / random.choice((1, 4, 10))),
    }


SCENARIO = Scenario(
    name="days_pass_under_light_load",
    provoked_errors=(49,),  # INVALID_PRODUCER_ID_MAPPING: transactional ids expire
    summary="Transactional ids, producer ids, offsets and records expire while nodes fail: not "
    "before their time, and then they do.",
    must_exercise=(
        "read-committed-isolation",
        "transaction-transitions-valid",
        "coordinator-transactions-equal-log",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.4",
        "transactional.id.expiration.ms": _ms(DAY_SECONDS),
        "producer.id.expiration.ms": _ms(DAY_SECONDS),
        "offsets.retention.minutes": str(int(OFFSETS_SECONDS / 60)),
        "log.roll.ms": _ms(DAY_SECONDS / 2),
        # the controller may be away for longer than the default of a minute, after which a broker
        # that has not registered yet ends
        "initial.broker.registration.timeout.ms": _ms(10 * DAY_SECONDS),
    },
    draw_parameters=draw_parameters,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("dealer-1", "dealer-2", "series-1", "series-2", "auditor-1"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        moments=OFFSET_MOMENTS,
        omits=CLOCKS,
        fault_seconds=2.5 * DAY_SECONDS,
    ),
    limit_seconds=1200.0,
    workload={
        "order_apps": 2,
        "writers": 2,
        "groups": 2,
        "work_ms": int(2.5 * DAY_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.0",
)
