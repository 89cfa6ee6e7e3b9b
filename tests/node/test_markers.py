"""Transactions at the partitions of a broker: markers, the last stable offset, and read_committed
fetches.

Source: KIP-98.
"""

import asyncio
from typing import Any

import pytest

from kraftsim.partitions.events_transactions import (
    LastStableOffsetMoved,
    MarkerAppended,
    MarkerRefused,
)
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k02_list_offsets import (
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.control_records import EndTxnMarker, control_type, parse_control_record
from tests.node.brokers import NOW, Client, Cluster, batch, running_cluster

UNVERIFIED = {"transaction_partition_verification_enable": "false"}


def marker(
    producer_id: int = 7,
    epoch: int = 0,
    *,
    commits: bool = True,
    coordinator_epoch: int = 0,
    topics: dict[str, list[int]] | None = None,
) -> WritableTxnMarker:
    named = {"t": [0]} if topics is None else topics
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commits,
        coordinator_epoch=coordinator_epoch,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=partitions)
            for name, partitions in named.items()
        ],
    )


async def end(
    client: Client, *markers: WritableTxnMarker, version: int = 1
) -> list[tuple[int, str, int, ErrorCode]]:
    """Write markers, and return (producer id, topic, partition, code) of each partition in the
    response.
    """
    answer = await client.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
    return [
        (each.producer_id, topic.name, row.partition_index, ErrorCode(row.error_code))
        for each in answer.markers
        for topic in each.topics
        for row in topic.partitions
    ]


async def ended(client: Client, **options: Any) -> ErrorCode:
    """Write one marker and return its code."""
    ((_, _, _, error),) = await end(client, marker(**options))
    return error


async def write(
    client: Client,
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    transactional: bool = True,
) -> ErrorCode:
    """Produce records of a transaction, or without one."""
    records = batch(
        count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    answer = await client.produce(
        records, transactional_id=f"T{producer_id}" if transactional else None
    )
    return ErrorCode(answer.error_code)


async def read(
    client: Client,
    offset: int,
    *,
    isolation: int = READ_COMMITTED,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> PartitionData:
    """Fetch from partition 0 of t."""
    topic = FetchTopic(
        topic="t",
        partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, isolation_level=isolation, topics=[topic]
    )
    answer: FetchResponse = await client.ask(request, 12)
    return answer.responses[0].partitions[0]


def seen(data: PartitionData) -> tuple[list[int], int, int, list[tuple[int, int]] | None]:
    """Return (base offsets, last stable offset, high watermark, aborted transactions) of a
    response.
    """
    aborted = data.aborted_transactions
    listed = (
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]
    )
    return (
        [each.base_offset for each in split_batches(bytes(data.records or b""))],
        data.last_stable_offset,
        data.high_watermark,
        listed,
    )


def on_one_broker(work: Any, **settings: str) -> Cluster:
    """Run a client with a topic t of two partitions at a broker without transaction
    verification.
    """
    with running_cluster(settings={**UNVERIFIED, **settings}) as cluster:

        async def prepared(client: Client) -> None:
            await client.create_topic("t", partitions=2)
            await work(client)

        cluster.run(prepared)
        return cluster


def test_marker_is_byte_identical_to_kafkas_control_batch() -> None:
    """Transactional, without sequence, one record: type and coordinator epoch; it takes one offset
    and has the time of the broker's clock.
    """

    async def work(client: Client) -> None:
        await write(client, 0, 3)
        assert await ended(client, commits=False, epoch=2, coordinator_epoch=5) is ErrorCode.NONE
        data = await read(client, 3)
        written = RecordBatch(bytes(data.records or b""))
        assert (
            written.base_offset,
            written.last_offset,
            written.base_sequence,
            written.partition_leader_epoch,
        ) == (3, 3, -1, 0)
        assert (written.producer_id, written.producer_epoch, written.attributes) == (
            7,
            2,
            0b110000,
        ) and written.crc_is_valid()
        (record,) = written.records()
        assert (bytes(record.key or b""), bytes(record.value or b"")) == (
            bytes.fromhex("00000000"),
            bytes.fromhex("000000000005"),
        )
        kind = control_type(record.key)
        assert (
            kind is not None
            and kind.name == "ABORT"
            and parse_control_record(record.key, record.value) == EndTxnMarker(coordinator_epoch=5)
        )
        assert record.timestamp == written.max_timestamp > NOW - 10**12

    cluster = on_one_broker(work)
    (emitted,) = cluster.emitted(MarkerAppended)
    assert (
        emitted.offset,
        emitted.producer_id,
        emitted.producer_epoch,
        emitted.coordinator_epoch,
        emitted.is_commit,
        emitted.on_leader,
    ) == (
        3,
        7,
        2,
        5,
        False,
        True,
    )


def test_read_committed_stops_before_the_oldest_open_transaction() -> None:
    """Its response lists the aborted transactions in its range; read_uncommitted returns
    everything.

    ListOffsets agrees.
    """

    async def work(client: Client) -> None:
        async def latest(isolation: int, timestamp: int = LATEST_TIMESTAMP) -> int:
            asked = ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            )
            answer: ListOffsetsResponse = await client.ask(
                ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked]), 7
            )
            return answer.topics[0].partitions[0].offset

        assert [
            await write(client, 0, producer_id=8),
            await write(client, 0, 2),
            await write(client, 0, 2, producer_id=9),
        ] == [ErrorCode.NONE] * 3
        assert await ended(client, commits=False) is ErrorCode.NONE
        assert seen(await read(client, 0)) == ([], 0, 6, [])
        assert seen(await read(client, 0, isolation=0)) == ([0, 1, 3, 5], 0, 6, None)
        assert (
            await latest(1),
            await latest(0),
            await latest(1, MAX_TIMESTAMP),
            await latest(0, MAX_TIMESTAMP),
        ) == (0, 6, -1, 5)
        assert await ended(client, producer_id=8) is ErrorCode.NONE
        assert seen(await read(client, 0)) == ([0, 1], 3, 7, [(7, 1)])
        assert seen(await read(client, 3)) == ([], 3, 7, []), (
            "a fetch beyond the last stable offset returns no records and no error"
        )
        assert (await latest(1), await latest(0)) == (3, 7)
        assert await ended(client, producer_id=9, commits=False) is ErrorCode.NONE
        assert seen(await read(client, 0)) == ([0, 1, 3, 5, 6, 7], 8, 8, [(7, 1), (9, 3)])
        assert seen(await read(client, 6)) == ([6, 7], 8, 8, [(9, 3)]), (
            "its marker lies behind the returned range"
        )

    cluster = on_one_broker(work)
    assert [
        (each.offset, each.high_watermark) for each in cluster.emitted(LastStableOffsetMoved)
    ] == [(0, 1), (3, 7), (8, 8)]


def test_transactions_aborted_while_a_fetch_waits_are_listed() -> None:
    """KAFKA-5376: the response of a delayed fetch listed none."""

    async def work(client: Client) -> None:
        other = await client_of_same(client)
        assert await write(client, 0, 2) is ErrorCode.NONE
        waiting = asyncio.get_running_loop().create_task(read(other, 0, max_wait_ms=5000))
        await asyncio.sleep(0.2)
        assert not waiting.done(), "nothing is committed yet"
        assert await ended(client, commits=False) is ErrorCode.NONE
        assert seen(await waiting) == ([0, 2], 3, 3, [(7, 0)])
        other.connection.close()

    on_one_broker(work)


async def client_of_same(client: Client) -> Client:
    """Open another connection to the same broker."""
    connection = type(client.connection)("broker-1", 9092, client_id="other")
    await connection.connect()
    return Client(connection)


def test_only_committed_records_count_for_min_bytes() -> None:
    """Records that a read_committed consumer may not see do not wake it."""

    async def work(client: Client) -> None:
        other = await client_of_same(client)
        assert await write(client, 0) is ErrorCode.NONE
        waiting = asyncio.get_running_loop().create_task(
            read(other, 0, max_wait_ms=60_000, min_bytes=2 * len(batch()))
        )
        await asyncio.sleep(0.1)
        await write(client, 1)
        await write(client, 2)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert await ended(client) is ErrorCode.NONE
        assert seen(await waiting)[0] == [0, 1, 2, 3]
        other.connection.close()

    on_one_broker(work)


def test_partitions_of_a_marker_succeed_or_fail_independently() -> None:
    """Error codes as in Apache Kafka; two markers of one producer share their result."""

    async def work(client: Client) -> None:
        assert [
            await write(client, 0, epoch=3),
            await ended(client, epoch=3, coordinator_epoch=4),
        ] == [ErrorCode.NONE] * 2
        named = {"t": [0, 1, 9], "nowhere": [0]}
        assert await end(
            client,
            marker(epoch=2, coordinator_epoch=4, topics=named),
            marker(8, topics={"t": [1]}),
            version=0,
        ) == [
            (7, "t", 0, ErrorCode.INVALID_PRODUCER_EPOCH),
            (7, "t", 1, ErrorCode.NONE),
            (7, "t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (7, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (8, "t", 1, ErrorCode.NONE),
        ]
        assert (
            await ended(client, epoch=3, coordinator_epoch=3)
            is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        )
        assert (
            await ended(client, epoch=2, coordinator_epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
        ), "the epoch is checked first"
        assert await end(client, marker(epoch=2), marker(epoch=3, coordinator_epoch=4)) == [
            (7, "t", 0, ErrorCode.NONE)
        ], "the later one decides"
        assert await end(client) == [] and await end(client, marker(topics={})) == []

    cluster = on_one_broker(work)
    assert [each.error_code for each in cluster.emitted(MarkerRefused)] == [47, 52, 47, 47]


def test_marker_may_be_repeated() -> None:
    """Each is written, only the first ends the transaction, and sequences continue after them; a
    later epoch starts at 0.
    """

    async def work(client: Client) -> None:
        assert await write(client, 0, 2) is ErrorCode.NONE
        for _ in range(3):
            assert await ended(client, commits=False) is ErrorCode.NONE
        assert seen(await read(client, 0)) == ([0, 2, 3, 4], 5, 5, [(7, 0)])
        assert [
            await write(client, 2),
            await ended(client),
            await write(client, 3, epoch=1),
            await write(client, 0, epoch=1),
        ] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.NONE,
        ]
        assert await write(client, 3) is ErrorCode.INVALID_PRODUCER_EPOCH

    on_one_broker(work)


@pytest.mark.parametrize("times", [4, 40_000])
def test_partition_named_repeatedly_gets_one_marker(times: int) -> None:
    """Verified with Apache Kafka 3.9.1: naming a partition three times writes one marker and
    returns no response, which no client can use.
    """

    async def work(client: Client) -> None:
        await client.create_topic("t")
        assert await write(client, 0) is ErrorCode.NONE
        assert await end(client, marker(topics={"t": [0] * times})) == [(7, "t", 0, ErrorCode.NONE)]
        assert (await read(client, 0)).high_watermark == 2

    with running_cluster(settings=UNVERIFIED) as cluster:
        cluster.run(work)


def test_open_transaction_rejects_other_records_of_its_producer() -> None:
    """INVALID_TXN_STATE, until it ends."""

    async def work(client: Client) -> None:
        assert await write(client, 0) is ErrorCode.NONE
        assert await write(client, 1, transactional=False) is ErrorCode.INVALID_TXN_STATE
        assert await ended(client) is ErrorCode.NONE
        assert await write(client, 1, transactional=False) is ErrorCode.NONE

    on_one_broker(work)


def test_leader_without_enough_replicas_writes_no_marker() -> None:
    """NOT_ENOUGH_REPLICAS: the coordinator retries."""
    with running_cluster(release_name="3.5") as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", min_insync_replicas="2")
            assert await ended(client) is ErrorCode.NOT_ENOUGH_REPLICAS

        cluster.run(work)


@pytest.mark.parametrize("power_loss", [False, True])
def test_restarted_broker_knows_open_and_aborted_transactions(power_loss: bool) -> None:
    """From its snapshot and its log; the coordinator's next marker ends the open ones."""
    with running_cluster(settings=UNVERIFIED, log_flush_interval_messages="1") as cluster:

        async def before(client: Client) -> None:
            await client.create_topic("t")
            await write(client, 0, 2)
            await ended(client, commits=False, coordinator_epoch=3)
            await write(client, 0, producer_id=8)
            await write(client, 2)

        async def after(client: Client) -> None:
            assert seen(await read(client, 0)) == ([0, 2], 3, 5, [(7, 0)])
            described = await client.ask(
                DescribeProducersRequest(
                    topics=[DescribeProducersTopic(name="t", partition_indexes=[0])]
                ),
                0,
            )
            known = {
                each.producer_id: each
                for each in described.topics[0].partitions[0].active_producers
            }
            assert [
                (
                    known[each].current_txn_start_offset,
                    known[each].coordinator_epoch,
                    known[each].last_sequence,
                )
                for each in (7, 8)
            ] == [
                (4, 3, 2),
                (3, -1, 0),
            ]
            assert (
                await ended(client, commits=False, coordinator_epoch=2)
                is ErrorCode.TRANSACTION_COORDINATOR_FENCED
            )
            assert [
                await ended(client, producer_id=8),
                await ended(client, coordinator_epoch=4, commits=False),
            ] == [ErrorCode.NONE] * 2
            assert seen(await read(client, 0)) == ([0, 2, 3, 4, 5, 6], 7, 7, [(7, 0), (7, 4)])

        cluster.run(before)
        if power_loss:
            cluster.kill("broker-1", power_loss=True)
        else:
            cluster.stop("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.run(after)


@pytest.mark.parametrize(
    ("release_name", "waits"),
    [("3.5", (True, True)), ("3.9", (False, False)), ("4.1", (True, False))],
)
def test_fetch_behind_an_open_transaction_waits_depending_on_the_release(
    release_name: str, waits: tuple[bool, bool]
) -> None:
    """3.8 and 3.9 return an empty response at once, 4.x does so at the end of the log; a fetch at
    the last stable offset waits in all of them.
    """
    with running_cluster(release_name=release_name, settings=UNVERIFIED) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            records = batch(3, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
            assert (await client.produce(records, version=9, transactional_id="T")).error_code == 0
            loop = asyncio.get_running_loop()
            for offset, is_waiting in ((0, True), (1, waits[0]), (3, waits[1])):
                started = loop.time()
                assert seen(await read(client, offset, max_wait_ms=500))[0] == []
                assert (loop.time() - started >= 0.5) is is_waiting, offset

        cluster.run(work)


def test_fetch_in_an_older_segment_does_not_wait() -> None:
    """However few bytes it returns; the rest of the last segment does wait."""

    async def work(client: Client) -> None:
        await client.create_topic("t2", segment_bytes="300")
        loop = asyncio.get_running_loop()
        for _ in range(4):
            await client.produce(batch(1, value=bytes(150)), "t2")
        for offset, waits in ((0, False), (3, True)):
            started = loop.time()
            answer = await client.fetch(offset, "t2", max_wait_ms=500, min_bytes=1 << 20)
            assert len(list(split_batches(bytes(answer.records or b"")))) == 1
            assert (loop.time() - started >= 0.5) is waits, offset

    on_one_broker(work)
