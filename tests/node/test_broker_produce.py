"""Produce: which batches are appended, are duplicates, or are rejected, and with which code."""

import struct
from typing import Any

import pytest

from kraftsim.partitions.events import BatchAppended, DuplicateAnswered, ProduceRefused
from kraftsim.server.events_connections import ConnectionClosed, RequestRefused
from kraftsim.server.outbound import Disconnected, RequestTimedOut
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batches import build_batch
from protocol.records.record import Compression, Record
from tests.node.brokers import NOW, Client, batch, running_cluster


@pytest.mark.parametrize("acks", [1, -1])
def test_batches_are_appended_in_every_version(acks: int) -> None:
    """Each response has the offset of its batch; the append time is -1 on a topic with
    CreateTime.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            for round_number, version in enumerate(range(3, 12)):
                answer = await client.produce(batch(3), acks=acks, version=version)
                assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (
                    0,
                    3 * round_number,
                    -1,
                )
                assert answer.log_start_offset == (0 if version >= 5 else -1)

        cluster.run(work)
        assert [event.first_offset for event in cluster.emitted(BatchAppended)] == list(
            range(0, 27, 3)
        )


def test_duplicate_batch_is_answered_with_its_first_offset() -> None:
    """KIP-98: within the last five batches; nothing is written, and the append time is the batch's
    greatest timestamp.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
            for number in range(6):
                answer = await client.produce(batch(2, base_sequence=2 * number, **options))
                assert (answer.error_code, answer.base_offset) == (0, 2 * number)
            for number in range(1, 6):
                again = await client.produce(batch(2, base_sequence=2 * number, **options))
                assert (again.error_code, again.base_offset, again.log_append_time_ms) == (
                    0,
                    2 * number,
                    NOW + 1,
                )
            forgotten = await client.produce(batch(2, base_sequence=0, **options))
            assert (forgotten.error_code, forgotten.base_offset) == (
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                -1,
            )

        cluster.run(work)
        assert len(cluster.emitted(BatchAppended)) == 6
        assert [event.first_offset for event in cluster.emitted(DuplicateAnswered)] == [
            2,
            4,
            6,
            8,
            10,
        ]


def flipped(data: bytes) -> bytes:
    """Return the batch with one bit of its last byte changed."""
    return data[:-1] + bytes([data[-1] ^ 1])


IDEMPOTENT: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1}


@pytest.mark.parametrize(
    ("records", "asked", "error", "log_start"),
    [
        (batch(), {"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (batch(), {"partition": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (batch(), {"topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (batch(), {"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS, -1),
        (b"", {}, ErrorCode.INVALID_RECORD, -1),
        (batch()[:40], {}, ErrorCode.INVALID_RECORD, -1),
        (batch()[:-1], {}, ErrorCode.INVALID_RECORD, -1),
        (batch() + batch(), {}, ErrorCode.INVALID_RECORD, -1),
        (b"\0" * 16 + b"\1" + b"\0" * 60, {}, ErrorCode.INVALID_RECORD, -1),
        (b"\0" * 16 + b"\7" + b"\0" * 60, {}, ErrorCode.CORRUPT_MESSAGE, -1),
        (flipped(batch()), {}, ErrorCode.CORRUPT_MESSAGE, -1),
        (batch(base_offset=1), {}, ErrorCode.INVALID_RECORD, None),
        (batch(value=b"x" * 2000), {}, ErrorCode.MESSAGE_TOO_LARGE, -1),
        (batch(control=True), {}, ErrorCode.INVALID_RECORD, None),
        (batch(producer_id=7, producer_epoch=0), {}, ErrorCode.INVALID_RECORD, None),
        (
            batch(compression=Compression.ZSTD),
            {"version": 6},
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            -1,
        ),
        (
            batch(transactional=True, base_sequence=1, **IDEMPOTENT),
            {},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            -1,
        ),
        (
            batch(transactional=True, base_sequence=1, **IDEMPOTENT),
            {"transactional_id": "x"},
            ErrorCode.NOT_ENOUGH_REPLICAS,
            -1,
        ),  # of coordinators
        (batch(base_sequence=9, **IDEMPOTENT), {}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0),
        (
            batch(base_sequence=1, producer_id=7, producer_epoch=0),
            {},
            ErrorCode.INVALID_PRODUCER_EPOCH,
            0,
        ),
    ],
)
def test_invalid_batch_is_rejected_with_kafkas_error_code(
    records: bytes, asked: dict[str, Any], error: ErrorCode, log_start: int | None
) -> None:
    """Codes verified with Apache Kafka 3.9.1; nothing is appended, an event reports the rejection,
    and the connection remains usable.
    """
    with running_cluster(auto_create_topics_enable="false") as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", max_message_bytes="1500")
            known = await client.produce(batch(base_sequence=0, **IDEMPOTENT))
            assert known.error_code == 0
            answer = await client.produce(records, **asked)
            assert (
                ErrorCode(answer.error_code),
                answer.base_offset,
                answer.log_append_time_ms,
            ) == (error, -1, -1)
            assert log_start is None or answer.log_start_offset == log_start
            assert (await client.produce(batch())).base_offset == 1

        cluster.run(work)
        assert len(cluster.emitted(BatchAppended)) == 2
        (refused,) = cluster.emitted(ProduceRefused)
        assert refused.error_code in (error, ErrorCode.INVALID_TXN_STATE) and refused.reason


def test_acks_0_has_no_response_and_an_error_closes_the_connection() -> None:
    """The next request is served normally; an error is signalled by closing."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            silent = ProduceRequest(
                acks=0,
                timeout_ms=1,
                topic_data=[
                    TopicProduceData(
                        name="t", partition_data=[PartitionProduceData(records=batch(2))]
                    )
                ],
            )
            client.connection.send(silent, lambda answer: None)
            client.connection._in_flight.clear()
            assert (await client.produce(batch())).base_offset == 2
            silent.topic_data[0].name = "nowhere"
            with pytest.raises(Disconnected):
                await client.ask(silent)

        cluster.run(work)
        assert any(
            "acks=0 and error UNKNOWN_TOPIC_OR_PARTITION" in event.reason
            for event in cluster.emitted(ConnectionClosed)
        )


def test_null_records_are_never_answered_and_block_the_connection() -> None:
    """Verified with Apache Kafka 3.9.1: no response, the connection stays open, and later requests
    on it wait for ever.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            assert (
                await client.produce(None)
            ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "where they are not checked"
            await client.create_topic("t")
            with pytest.raises(RequestTimedOut):
                await client.produce(None)

        cluster.run(work)
        assert not list(cluster.emitted(RequestRefused))


def test_non_leader_returns_the_current_leader() -> None:
    """NOT_LEADER_OR_FOLLOWER; since v10 with the leader and its address (KIP-951)."""
    with running_cluster(2) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", partitions=2)
            other = await cluster.connect("broker-2")
            led_here = [
                number
                for number in range(2)
                if (await client.produce(batch(), partition=number)).error_code == 0
            ]
            assert len(led_here) == 1
            elsewhere = 1 - led_here[0]
            for version in (9, 10, 11):
                data = PartitionProduceData(index=elsewhere, records=batch())
                request = ProduceRequest(
                    acks=-1,
                    timeout_ms=1,
                    topic_data=[TopicProduceData(name="t", partition_data=[data])],
                )
                answer = await client.ask(request, version)
                partition = answer.responses[0].partition_responses[0]
                assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                if version >= 10:
                    assert (
                        partition.current_leader.leader_id,
                        partition.current_leader.leader_epoch,
                    ) == (2, 0)
                    assert [
                        (each.node_id, each.host, each.port) for each in answer.node_endpoints
                    ] == [(2, "broker-2", 9092)]
            assert (await other.produce(batch(), partition=elsewhere)).error_code == 0
            other.connection.close()

        cluster.run(work)


def test_partitions_of_a_request_succeed_or_fail_independently() -> None:
    """A rejected batch does not affect the other partitions."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", partitions=3)
            data = [
                PartitionProduceData(
                    index=number, records=flipped(batch()) if number == 1 else batch(number + 1)
                )
                for number in range(3)
            ]
            answer = await client.ask(
                ProduceRequest(
                    acks=-1,
                    timeout_ms=1,
                    topic_data=[TopicProduceData(name="t", partition_data=data)],
                )
            )
            rows = [
                (each.index, each.error_code, each.base_offset)
                for each in answer.responses[0].partition_responses
            ]
            assert rows == [(0, 0, 0), (1, ErrorCode.CORRUPT_MESSAGE, -1), (2, 0, 0)]

        cluster.run(work)


def test_topic_may_use_log_append_time() -> None:
    """message.timestamp.type=LogAppendTime: the response and every record contain it."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", message_timestamp_type="LogAppendTime")
            answer = await client.produce(batch(2))
            stored = await client.fetch(0)
            assert stored.records is not None
            (attributes,) = struct.unpack_from(">h", stored.records, 21)
            (max_timestamp,) = struct.unpack_from(">q", stored.records, 35)
            assert attributes & 8 and answer.log_append_time_ms == max_timestamp > NOW

        cluster.run(work)


def test_compressed_batches_are_stored_unchanged() -> None:
    """A broker reads records only to validate them."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            for codec in Compression:
                sent = build_batch([Record(timestamp=NOW, value=b"x" * 500)] * 3, compression=codec)
                answer = await client.produce(sent)
                stored = await client.fetch(answer.base_offset)
                assert stored.records is not None
                assert bytes(stored.records)[16:] == sent[16:]

        cluster.run(work)
