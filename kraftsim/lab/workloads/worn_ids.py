"""Transactional ids whose producer epochs are nearly used up, as the start state of a workload.

An administrator writes the epochs into `__transaction_state`: more than 32,000 bumps would take too
long. Producers then get new producer ids within a few transactions.
Source: KIP-360, KIP-890; TransactionMetadata (isProducerEpochExhausted).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraftsim.clients.cluster_connections import ClientIdentity, ClusterConnections
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.cluster.scenario import ClientHost, ScenarioEnvironment
from kraftsim.groups.rules_timing import partition_of
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

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)

TRANSACTION_LOG: Final = "__transaction_state"
PARTITIONS_SETTING: Final = "transaction.state.log.num.partitions"
ADMIN_CLIENT_ID: Final = "__admin_client"
"""A client with this client id may write to internal topics."""
PRODUCE_VERSION, PLAIN_VALUE, EMPTY = 9, 0, 0
MINUTE_MS: Final = 60_000
WORN_SHARE: Final = 0.3
FIRST_WORN, LAST_WORN = 32_755, 32_766
"""Epochs from which the last one, 32767, is reached within a few transactions."""


async def wear_some_out(stage: ScenarioEnvironment, transactional_ids: Sequence[str]) -> None:
    """In some runs, by seed, give transactional ids that were never used epochs near the last one,
    and let their coordinators load them; before the faults.
    """
    random: Random = stage.random("worn ids")
    if not transactional_ids or random.random() >= WORN_SHARE:
        return
    host = stage.client_host("epoch-writer")
    first = host.transactional_producer("first", TransactionalSettings(transactional_id="first"))

    async def begin() -> None:
        await first.init()
        await first.close()

    await host.run(begin())  # now there is a `__transaction_state`
    requester = stage.producer_id_client("id-requester")
    producer_ids = await requester.ask(len(transactional_ids))
    await requester.close()
    partition_count = int(stage.spec.settings[PARTITIONS_SETTING])
    for transactional_id, producer_id in zip(transactional_ids, producer_ids, strict=True):
        epoch = random.randint(FIRST_WORN, LAST_WORN)
        await host.run(
            write_epoch(host, transactional_id, producer_id, epoch, partition_count=partition_count)
        )
    for name in stage.spec.broker_names:
        await stage.restart(name)
        await stage.wait_for_brokers()


async def write_epoch(
    host: ClientHost,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    *,
    partition_count: int = 1,
) -> None:
    """Write the record of a transactional id at an epoch, as an administrator: more than 32,000
    bumps would take too long.

    The coordinator knows it when it loads its partition the next time. `__transaction_state`
    exists, and has `partition_count` partitions.
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
    partition = partition_of(transactional_id, partition_count)
    data = TopicProduceData(
        name=TRANSACTION_LOG, partition_data=[PartitionProduceData(index=partition, records=batch)]
    )
    connections = ClusterConnections(
        host.world, ClientIdentity(client_id=ADMIN_CLIENT_ID, bootstrap=tuple(host.bootstrap))
    )
    rows = (await connections.metadata([TRANSACTION_LOG])).topics[0].partitions
    leader_id = next(each.leader_id for each in rows if each.partition_index == partition)
    connection = await connections.to_broker(leader_id)
    answer = await connection.request(
        ProduceRequest(acks=-1, timeout_ms=MINUTE_MS, topic_data=[data]),
        api_version=PRODUCE_VERSION,
    )
    connections.close()
    assert isinstance(answer, ProduceResponse), "Produce was asked"
    error_code = answer.responses[0].partition_responses[0].error_code
    assert error_code == ErrorCode.NONE, f"the record was refused: {ErrorCode(error_code).name}"
