"""Verification of transactional batches before they are appended, and the errors that producers
receive.

Source: KIP-890.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kraftsim.partitions.events import ProduceRefused
from kraftsim.partitions.events_transactions import TransactionVerified
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.producer_state.rules_manager import EndMarker
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from protocol.messages.k20_delete_topics import DeleteTopicsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.k26_end_txn import EndTxnRequest
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.node.brokers import NOW, Client, Cluster, batch, running_cluster
from tests.node.test_markers import client_of_same, read, seen

ONE_COPY = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "4",
}
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


@dataclass(slots=True)
class Producer:
    """A transactional producer of one broker, which is also its coordinator."""

    client: Client
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    async def begin(self) -> "Producer":
        """Request the producer id until there is one."""
        await self._patiently(
            lambda: self.client.ask(
                FindCoordinatorRequest(key_type=1, key=self.transactional_id), 3
            )
        )
        answer = await self._patiently(
            lambda: self.client.ask(
                InitProducerIdRequest(
                    transactional_id=self.transactional_id, transaction_timeout_ms=60_000
                ),
                4,
            )
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return self

    @staticmethod
    async def _patiently(ask: Any) -> Any:
        while ErrorCode((answer := await ask()).error_code) in RETRIABLE:
            await asyncio.sleep(0.05)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        return answer

    async def add(self, *partitions: int) -> None:
        """Add partitions of t."""
        while True:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name="t", partitions=list(partitions))
                ],
            )
            answer = await self.client.ask(request, 3)
            errors = {
                ErrorCode(each.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            if errors == {ErrorCode.NONE}:
                return
            assert errors <= set(RETRIABLE), errors
            await asyncio.sleep(0.05)

    async def produce(
        self, sequence: int, partition: int = 0, *, version: int = 11, **changes: Any
    ) -> PartitionProduceResponse:
        """Produce one record of a transaction."""
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch, **changes}
        records = batch(1, base_sequence=sequence, transactional=True, **fields)
        return await self.client.produce(
            records, partition=partition, version=version, transactional_id=self.transactional_id
        )

    async def end(self, *, commits: bool = True, version: int = 4) -> None:
        """End the transaction; version 5 returns the producer id and epoch of the next one."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        answer = await self._patiently(lambda: self.client.ask(request, version))
        if version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


def on_one_broker(work: Any, *, release_name: str = "3.9", **settings: str) -> Cluster:
    """Run a transactional producer with a topic t of two partitions."""
    with running_cluster(release_name=release_name, settings={**ONE_COPY, **settings}) as cluster:

        async def prepared(client: Client) -> None:
            await client.create_topic("t", partitions=2)
            await work(await Producer(client, "T").begin())

        cluster.run(prepared)
        return cluster


def test_transaction_is_verified_once_before_its_first_records() -> None:
    """Then the leader knows the open transaction; the next one is verified again."""

    async def work(producer: Producer) -> None:
        for turn in range(2):
            await producer.add(0)
            assert [(await producer.produce(3 * turn + each)).error_code for each in range(3)] == [
                0,
                0,
                0,
            ]
            await producer.end(commits=turn == 0)
        await asyncio.sleep(0.5)
        assert seen(await read(producer.client, 0)) == (
            [0, 1, 2, 3, 4, 5, 6, 7],
            8,
            8,
            [(producer.producer_id, 4)],
        )

    cluster = on_one_broker(work)
    assert [
        (each.partitions, each.adds, each.error_code)
        for each in cluster.emitted(TransactionVerified)
    ] == [("t-0", False, 0)] * 2


def test_each_batch_of_a_partition_named_twice_is_appended() -> None:
    """A request may name a partition twice: both rows are verified together, and each is appended
    with its own batch.
    """

    async def work(producer: Producer) -> None:
        await producer.add(0)
        rows = [
            PartitionProduceData(
                index=0,
                records=batch(
                    count,
                    base_sequence=sequence,
                    transactional=True,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                ),
            )
            for sequence, count in ((0, 2), (2, 3))
        ]
        request = ProduceRequest(
            transactional_id=producer.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=rows)],
        )
        answer = await producer.client.ask(request, 11)
        assert [
            (each.error_code, each.base_offset) for each in answer.responses[0].partition_responses
        ] == [(0, 0), (0, 2)]

    on_one_broker(work)


@pytest.mark.parametrize("version", [9, 10, 11])
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.TRANSACTION_ABORTABLE),
        ({"producer_id": 4711}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": 9}, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_unverified_records_are_not_written(
    version: int, changes: dict[str, int], error: ErrorCode
) -> None:
    """The partition was not added, the producer id differs, the epoch is too high; before Produce
    11 there is no TRANSACTION_ABORTABLE.
    """
    expected = (
        ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.TRANSACTION_ABORTABLE and version < 11
        else error
    )

    async def work(producer: Producer) -> None:
        await producer.add(1)
        answer = await producer.produce(0, version=version, **changes)
        assert (ErrorCode(answer.error_code), answer.base_offset, answer.log_start_offset) == (
            expected,
            -1,
            -1,
        )
        assert (await producer.produce(0, 1, version=version)).error_code == 0

    on_one_broker(work)


def test_transaction_begins_while_the_previous_one_completes() -> None:
    """EndTxn is answered before the marker is written; the next Produce is verified repeatedly,
    each time with a verification guard of its own.
    """

    async def work(producer: Producer) -> None:
        writer = replace(producer, client=await client_of_same(producer.client))
        assert (await writer.produce(0, version=12)).error_code == 0

        async def first_of_the_next() -> PartitionProduceResponse:
            while (
                ErrorCode((answer := await writer.produce(0, version=12)).error_code)
                is ErrorCode.INVALID_PRODUCER_EPOCH
            ):
                pass  # the previous transaction has not begun to end
            return answer

        for writer.epoch in range(1, 8):
            _, answer = await asyncio.gather(producer.end(version=5), first_of_the_next())
            assert (producer.epoch, ErrorCode(answer.error_code)) == (writer.epoch, ErrorCode.NONE)
        await producer.end(version=5)

    cluster = on_one_broker(work, release_name="4.0")
    asked = [
        (each.adds, ErrorCode(each.error_code)) for each in cluster.emitted(TransactionVerified)
    ]
    assert asked.count((True, ErrorCode.NONE)) == 8
    assert asked.count((True, ErrorCode.CONCURRENT_TRANSACTIONS)) > 0, (
        "the run does not reach the tested situation"
    )
    assert not [
        each
        for each in cluster.emitted(ProduceRefused)
        if each.error_code == ErrorCode.INVALID_TXN_STATE
    ]


def test_retriable_verification_error_becomes_not_enough_replicas() -> None:
    """The transactional id's partition has no leader: a client retries that error without a
    metadata refresh.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            records = batch(1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
            answer = await client.produce(records, transactional_id="T")
            assert ErrorCode(answer.error_code) is ErrorCode.NOT_ENOUGH_REPLICAS
            assert answer.error_message == (
                "Unable to verify the partition has been added to the transaction. "
                "Underlying error: COORDINATOR_NOT_AVAILABLE"
            )

        cluster.run(work)


@pytest.mark.parametrize(
    "settings", [{"transaction_partition_verification_enable": "false"}, {"release_name": "3.5"}]
)
def test_disabled_or_unsupported_verification_is_skipped(settings: dict[str, str]) -> None:
    """Records then begin transactions unknown to the coordinator (KAFKA-14402)."""

    async def work(producer: Producer) -> None:
        assert (await producer.produce(0, version=9)).error_code == 0

    cluster = on_one_broker(work, **settings)
    assert cluster.emitted(TransactionVerified) == []


def test_marker_between_verification_and_append_rejects_the_records() -> None:
    """KAFKA-14884: the verified transaction is over; the verification guard is gone, and the retry
    verifies again.
    """

    found: list[HostedPartition] = []

    async def work(producer: Producer) -> None:
        (hosted,) = found
        await producer.add(0)
        writing = asyncio.get_running_loop().create_task(producer.produce(0))
        while hosted.replica.producer_state._verifications.of(producer.producer_id) is None:
            await asyncio.sleep(0.0001)
        marker = EndMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=9,
            is_commit=False,
        )
        hosted.append_marker(marker, NOW)
        answer = await writing
        assert (ErrorCode(answer.error_code), answer.log_start_offset) == (
            ErrorCode.INVALID_TXN_STATE,
            0,
        )
        assert (await producer.produce(0)).error_code == 0

    with running_cluster(settings=ONE_COPY) as cluster:

        async def prepared(client: Client) -> None:
            await client.create_topic("t")
            hosted = cluster.brokers["broker-1"].partitions.find("t", 0)
            assert hosted is not None
            found.append(hosted)
            await work(await Producer(client, "T").begin())

        cluster.run(prepared)
        assert [each.error_code for each in cluster.emitted(TransactionVerified)] == [0, 0]
        assert [each.error_code for each in cluster.emitted(ProduceRefused)] == [48]


@pytest.mark.parametrize(
    ("release_name", "error"),
    [("4.0", ErrorCode.INVALID_TXN_STATE), ("4.1", ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_batch_verified_for_a_deleted_topic_is_not_in_the_next_of_its_name(
    release_name: str, error: ErrorCode
) -> None:
    """ReplicaManager.getPartitionOrException of 4.1 compares topic ids, and producers retry
    UNKNOWN_TOPIC_ID; before, the new log has no verification guard, which fails the transaction.
    """
    held: list[Callable[[], None]] = []

    async def work(client: Client) -> None:
        await client.create_topic("t")
        producer = await Producer(client, "T").begin()
        verifier = cluster.brokers["broker-1"].verifier
        ask = verifier.ask
        verifier.ask = lambda *words, **options: held.append(  # type: ignore[method-assign]  # held back
            lambda: ask(*words, **options)
        )
        administrator = await client_of_same(client)
        writing = asyncio.get_running_loop().create_task(producer.produce(0, version=12))
        while not held:
            await asyncio.sleep(0.001)
        verifier.ask = ask  # type: ignore[method-assign]  # released
        deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        assert (await administrator.ask(deletion, 5)).responses[0].error_code == 0
        await administrator.create_topic("t")
        held[0]()
        assert ErrorCode((await writing).error_code) is error
        assert (await producer.produce(0, version=12)).base_offset == 0

    with running_cluster(release_name=release_name, settings=ONE_COPY) as cluster:
        cluster.run(work)


def test_since_produce_12_the_leader_adds_the_partition() -> None:
    """transaction.version 2: the producer sends no AddPartitionsToTxn, and each transaction has its
    own epoch.
    """

    async def work(producer: Producer) -> None:
        epochs = []
        for turn in range(3):
            epochs.append(producer.epoch)
            assert [
                ErrorCode((await producer.produce(each, each % 2, version=12)).error_code)
                for each in (0,)
            ] == [ErrorCode.NONE]
            assert ErrorCode((await producer.produce(1, version=12)).error_code) is ErrorCode.NONE
            await producer.end(commits=turn != 1, version=5)
        assert [epoch - epochs[0] for epoch in epochs] == [0, 1, 2]
        await asyncio.sleep(0.5)
        assert seen(await read(producer.client, 0)) == (
            list(range(9)),
            9,
            9,
            [(producer.producer_id, 3)],
        )
        late = await producer.produce(0, version=12, producer_epoch=epochs[0])
        assert ErrorCode(late.error_code) is ErrorCode.INVALID_PRODUCER_EPOCH, (
            "a lost batch begins no transaction"
        )

    cluster = on_one_broker(work, release_name="4.1")
    emitted = cluster.emitted(TransactionVerified)
    assert emitted and all(each.adds for each in emitted)
    assert {each.error_code for each in emitted} <= {
        ErrorCode.NONE,
        ErrorCode.CONCURRENT_TRANSACTIONS,  # the markers of the transaction before are on their way
    }


def test_transactional_batches_need_a_transactional_id_and_one_producer() -> None:
    """The whole request is rejected, including unaffected partitions."""

    async def work(producer: Producer) -> None:
        async def codes(transactional_id: str | None, *batches: bytes) -> list[ErrorCode]:
            data = [
                PartitionProduceData(index=index, records=records)
                for index, records in enumerate(batches)
            ]
            request = ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=5000,
                topic_data=[TopicProduceData(name="t", partition_data=data)],
            )
            answer = await producer.client.ask(request, 9)
            return [ErrorCode(row.error_code) for row in answer.responses[0].partition_responses]

        def of(producer_id: int) -> bytes:
            return batch(
                1, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
            )

        assert (
            await codes(None, of(7), batch())
            == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        )
        assert await codes("T", of(7), of(8)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        await producer.add(0)
        mine = batch(
            1,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        assert await codes("T", mine, mine) == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]

    on_one_broker(work)


def test_verification_can_be_disabled_and_enabled_at_runtime() -> None:
    """transaction.partition.verification.enable may be changed for the whole cluster; it also
    applies to partitions created later.
    """

    async def work(producer: Producer) -> None:
        async def turn(word: str) -> None:
            alteration = AlterableConfig(
                name="transaction.partition.verification.enable", config_operation=0, value=word
            )
            resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[alteration])
            answer = await producer.client.ask(
                IncrementalAlterConfigsRequest(resources=[resource]), 1
            )
            assert [each.error_code for each in answer.responses] == [0]
            await asyncio.sleep(1)

        assert ErrorCode((await producer.produce(0)).error_code) is ErrorCode.TRANSACTION_ABORTABLE
        await turn("false")
        assert ErrorCode((await producer.produce(0)).error_code) is ErrorCode.NONE
        await producer.client.create_topic("later")
        records = batch(1, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        assert (
            await producer.client.produce(records, "later", transactional_id="U")
        ).error_code == 0
        await turn("true")
        assert (
            ErrorCode((await producer.produce(0, 1)).error_code) is ErrorCode.TRANSACTION_ABORTABLE
        )

    on_one_broker(work)
