"""One combined node and one partition: the smallest cluster in which a request of a transaction can
arrive late.

Every leader and every coordinator is the same node, so the same frames pass in each run, and a run
on Apache Kafka needs a single process.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kraftsim.clients.cluster_connections import ClientIdentity, ClusterConnections
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.cluster.scenario import ClientHost
from kraftsim.lab.workloads.replication_workload import UNDER_ANY_CLOCK
from protocol.coordinator.registry import build_record
from protocol.coordinator.transactions import TransactionLogKey, TransactionLogValue
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

PRODUCE, ADD_PARTITIONS_TO_TXN, END_TXN, WRITE_TXN_MARKERS = 0, 24, 26, 27
"""API keys."""
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    **UNDER_ANY_CLOCK,
    "transactional.id.expiration.ms": str(2**31 - 1),
    "offsets.retention.minutes": str(2**30),
}
"""Coordinators have one partition, and timed-out transactions are looked for often; a clock that
jumps by days expires nothing.
"""
TRANSACTION_LOG: Final = "__transaction_state"
ADMIN_CLIENT_ID: Final = "__admin_client"
"""A client with this client id may write to internal topics."""
PRODUCE_VERSION, PLAIN_VALUE, EMPTY = 9, 0, 0
MINUTE_MS: Final = 60_000


async def carry_on(
    client: TransactionalClient,
    work: Callable[[TransactionalClient], Awaitable[None]],
    restart: Callable[[], Awaitable[TransactionalClient]],
) -> TransactionalClient:
    """Do the work of one transaction as an application does: abort it if necessary, and replace a
    producer that has failed.

    Return the producer for the next transaction. Raises ProducerFailed if the new one fails, too.
    """
    try:
        try:
            await work(client)
        except AbortNeeded:
            await client.abort()
    except (AbortNeeded, ProducerFailed):
        await client.close()
        return await restart()
    return client


async def write_epoch(
    host: ClientHost, transactional_id: str, producer_id: int, producer_epoch: int
) -> None:
    """Write the record of a transactional id at an epoch, as an administrator: more than 32,000
    bumps would take too long.

    The coordinator knows it after a restart. `__transaction_state` exists, and has one partition.
    """
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_timeout_ms=MINUTE_MS,
        transaction_status=EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=host.world.clock.wall_ms(),
        transaction_start_timestamp_ms=-1,
    )
    key, content = build_record(
        TransactionLogKey(transactional_id=transactional_id), value, PLAIN_VALUE
    )
    batch = build_batch([Record(timestamp=host.world.clock.wall_ms(), key=key, value=content)])
    data = TopicProduceData(
        name=TRANSACTION_LOG, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    connections = ClusterConnections(
        host.world, ClientIdentity(client_id=ADMIN_CLIENT_ID, bootstrap=tuple(host.bootstrap))
    )
    leader_id = (await connections.metadata([TRANSACTION_LOG])).topics[0].partitions[0].leader_id
    connection = await connections.to_broker(leader_id)
    answer = await connection.request(
        ProduceRequest(acks=-1, timeout_ms=MINUTE_MS, topic_data=[data]),
        api_version=PRODUCE_VERSION,
    )
    connections.close()
    assert isinstance(answer, ProduceResponse), "Produce was asked"
    error_code = answer.responses[0].partition_responses[0].error_code
    assert error_code == ErrorCode.NONE, f"the record was refused: {ErrorCode(error_code).name}"
