"""Fetch, ListOffsets and Metadata: the responses to clients, in every version, and when they are
sent.
"""

import asyncio
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.records.batches import split_batches
from protocol.records.record import Compression
from tests.node.brokers import NOW, Client, batch, running_cluster
from tests.node.controllers import CLUSTER_ID


def offsets(partition: PartitionData) -> list[int]:
    """Return the base offsets of the returned batches."""
    return [each.base_offset for each in split_batches(bytes(partition.records or b""))]


# Fetch
# --------------------------------------------------------------------------------------------------


def test_whole_batches_are_fetched_in_every_version() -> None:
    """By topic name up to v12, by id since; both isolation levels; the batch that contains the
    offset is returned whole.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            topic_id = await client.create_topic("t")
            for _ in range(4):
                await client.produce(batch(2))
            for version in range(4, 18):
                answer = await client.fetch(3, topic_id=topic_id, version=version)
                assert (
                    answer.error_code,
                    offsets(answer),
                    answer.high_watermark,
                    answer.last_stable_offset,
                ) == (0, [2, 4, 6], 8, 8)
                assert answer.log_start_offset == (0 if version >= 5 else -1)
                assert answer.aborted_transactions is None

        cluster.run(work)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"offset": 2}, ErrorCode.NONE),
        ({"offset": 3}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": 0, "topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 0, "partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 0, "topic_id": b"0123456789abcdef", "version": 13}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"offset": 0, "current_leader_epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": 0, "last_fetched_epoch": 9}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_failing_fetch_returns_its_error_immediately(
    asked: dict[str, Any], error: ErrorCode
) -> None:
    """Errors do not wait; offsets are -1 and the records are empty, not null."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            await client.produce(batch(2))
            loop = asyncio.get_running_loop()
            started = loop.time()
            answer = await client.fetch(**asked, max_wait_ms=400)
            assert ErrorCode(answer.error_code) == error
            if error:
                assert loop.time() - started < 0.1
                assert (
                    answer.high_watermark,
                    answer.last_stable_offset,
                    answer.log_start_offset,
                ) == (-1, -1, -1)
            assert answer.records == b""

        cluster.run(work)


def test_fetch_waits_for_min_bytes_or_max_wait() -> None:
    """KIP-74, DelayedFetch: min_bytes, max_wait_ms; an append completes it early."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            other = await cluster.connect()
            loop = asyncio.get_running_loop()
            size_bytes = len(batch(2))

            started = loop.time()
            assert offsets(await client.fetch(0, max_wait_ms=500)) == []
            assert 0.5 <= loop.time() - started < 0.6

            started = loop.time()
            waiting = loop.create_task(client.fetch(0, max_wait_ms=5000, min_bytes=size_bytes + 1))
            await asyncio.sleep(0.2)
            await other.produce(batch(2))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await other.produce(batch(2))
            assert offsets(await waiting) == [0, 2]
            assert loop.time() - started < 0.6

            started = loop.time()
            assert offsets(await client.fetch(2, max_wait_ms=500, min_bytes=1 << 20)) == [2]
            assert loop.time() - started >= 0.5
            other.connection.close()

        cluster.run(work)
        assert cluster.brokers["broker-1"].fetches.watched_keys == ()


def test_size_limits_apply_except_to_the_first_batch() -> None:
    """KIP-74: otherwise a consumer would be stuck at a large batch."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", partitions=2)
            for partition in (0, 1):
                for _ in range(4):
                    await client.produce(batch(), partition=partition)
            size_bytes = len(batch())
            assert offsets(await client.fetch(0, max_bytes=1)) == [0]
            assert offsets(await client.fetch(0, max_bytes=3 * size_bytes - 1)) == [0, 1]
            partitions = [
                FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
                for number in (0, 1)
            ]

            async def both(max_bytes: int) -> list[list[int]]:
                request = FetchRequest(
                    max_wait_ms=0,
                    max_bytes=max_bytes,
                    topics=[FetchTopic(topic="t", partitions=partitions)],
                )
                answer = await client.ask(request, 12)
                return [offsets(each) for each in answer.responses[0].partitions]

            assert await both(1) == [[0], []]
            assert await both(5 * size_bytes) == [[0, 1, 2, 3], [0]]
            assert await both(1 << 20) == [[0, 1, 2, 3], [0, 1, 2, 3]]

        cluster.run(work)


def test_broker_may_disable_down_conversion_and_set_a_codec() -> None:
    """log.message.downconversion.enable and compression.type apply unless the topic overrides them
    (KIP-283).
    """
    with running_cluster(
        log_message_downconversion_enable="false", compression_type="gzip"
    ) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            await client.create_topic(
                "own", message_downconversion_enable="true", compression_type="producer"
            )
            for topic, error, codec in (
                ("t", ErrorCode.UNSUPPORTED_VERSION, Compression.GZIP),
                ("own", ErrorCode.NONE, Compression.NONE),
            ):
                await client.produce(batch(2), topic)
                assert [
                    (await client.fetch(0, topic, version=version)).error_code
                    for version in range(4)
                ] == [error] * 4
                (kept,) = split_batches(bytes((await client.fetch(0, topic)).records or b""))
                assert kept.compression is codec

        cluster.run(work)


def test_unconvertible_batch_fails_alone() -> None:
    """Format 1 cannot represent timestamps before 1970; consumers of batches are not affected, and
    the broker continues.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            await client.create_topic("other")
            await client.produce(batch(1, timestamp=-5))
            await client.produce(batch(1), "other")
            refused = await client.fetch(0, version=3)
            assert (refused.error_code, bytes(refused.records or b"")) == (
                ErrorCode.UNKNOWN_SERVER_ERROR,
                b"",
            )
            assert (await client.fetch(0, "other", version=3)).records and offsets(
                await client.fetch(0)
            ) == [0]

        cluster.run(work)


def test_without_cache_slots_there_are_no_fetch_sessions() -> None:
    """KIP-227: a new session is answered as by a full cache; an incremental fetch finds no
    session.
    """
    with running_cluster(max_incremental_fetch_session_cache_slots="0") as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            topics = [
                FetchTopic(
                    topic="t", partitions=[FetchPartition(fetch_offset=0, partition_max_bytes=1)]
                )
            ]
            for session_id, session_epoch, error in (
                (0, -1, 0),
                (0, 0, 0),
                (5, -1, 0),
                (5, 0, 0),
                (0, 1, 70),
                (5, 3, 70),
            ):
                answer = await client.ask(
                    FetchRequest(session_id=session_id, session_epoch=session_epoch, topics=topics),
                    12,
                )
                assert (answer.error_code, answer.session_id, len(answer.responses)) == (
                    error,
                    0,
                    0 if error else 1,
                )

        cluster.run(work)


# ListOffsets
# --------------------------------------------------------------------------------------------------


async def offset_at(client: Client, timestamp: int, version: int, **changes: Any) -> Any:
    """Request one offset of t-0."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **changes)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )
    return (await client.ask(request, version)).topics[0].partitions[0]


def test_offsets_are_listed_in_every_version() -> None:
    """KIP-79: both ends, and the first record at or after the timestamp; finding none is no
    error.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            for number in range(3):
                await client.produce(batch(2, timestamp=NOW + 10 * number))
            wanted = {
                -1: (6, -1),
                -2: (0, -1),
                0: (0, NOW),
                NOW + 1: (1, NOW + 1),
                NOW + 2: (2, NOW + 10),
                NOW + 21: (5, NOW + 21),
                NOW + 22: (-1, -1),
            }
            for version in range(1, 10):
                for timestamp, (offset, found) in wanted.items():
                    answer = await offset_at(client, timestamp, version)
                    assert answer.error_code == 0
                    assert (answer.offset, answer.timestamp) == (offset, found), (
                        version,
                        timestamp,
                    )

        cluster.run(work)


def test_version_0_lists_segment_starts_by_last_modification() -> None:
    """UnifiedLog.legacyFetchOffsetsBefore; after a restart the segments' newest timestamps are used
    instead. Conformance check list-offsets/2 covers the rest.
    """
    with running_cluster(log_segment_bytes="100") as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            wall_ms = cluster.brokers["broker-1"].world.clock.wall_ms
            times = []
            for _ in range(3):
                times.append(wall_ms())
                await client.produce(batch(2))
                await asyncio.sleep(10)
            for timestamp, count, offsets in (
                (-1, 9, [6, 4, 2, 0]),
                (-1, 2, [6, 4]),
                (-2, 9, [0]),
                (times[0] - 1, 9, []),
                (times[1] - 1, 9, [0]),
                (times[1] + 5000, 9, [2, 0]),
                (wall_ms() + 5000, 3, [6, 4, 2]),
            ):
                answer = await offset_at(client, timestamp, 0, max_num_offsets=count)
                assert (answer.error_code, answer.old_style_offsets) == (0, offsets), (
                    timestamp,
                    count,
                )

        async def again(client: Client) -> None:
            for timestamp, offsets in ((NOW - 1, []), (NOW + 1, [4, 2, 0]), (-1, [6, 4, 2, 0])):
                assert (
                    await offset_at(client, timestamp, 0, max_num_offsets=9)
                ).old_style_offsets == offsets, timestamp

        cluster.run(work)
        cluster.stop("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        cluster.run(again)


@pytest.mark.parametrize(
    ("timestamp", "version", "error", "offset", "found"),
    [
        (-3, 6, ErrorCode.UNSUPPORTED_VERSION, -1, -1),
        (-3, 7, ErrorCode.NONE, 3, NOW + 3),
        (-4, 7, ErrorCode.UNSUPPORTED_VERSION, -1, -1),
        (-4, 8, ErrorCode.NONE, 0, -1),
        (-5, 8, ErrorCode.UNSUPPORTED_VERSION, -1, -1),
        (-5, 9, ErrorCode.NONE, -1, -1),
        (-6, 9, ErrorCode.UNSUPPORTED_VERSION, -1, -1),
    ],
)
def test_special_timestamps_need_their_versions(
    timestamp: int, version: int, error: ErrorCode, offset: int, found: int
) -> None:
    """KIP-734, KIP-405, KIP-1005."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            await client.produce(batch(4))
            answer = await offset_at(client, timestamp, version)
            assert (ErrorCode(answer.error_code), answer.offset, answer.timestamp) == (
                error,
                offset,
                found,
            )

        cluster.run(work)


def test_failing_list_offsets_returns_the_reason() -> None:
    """Unknown partitions, wrong leader epochs, a partition named twice."""
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t")
            assert (
                await offset_at(client, -1, 9, current_leader_epoch=4)
            ).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
            for topic, partitions, error in (
                ("nowhere", [partition], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (
                    "t",
                    [ListOffsetsPartition(partition_index=7, timestamp=-1)],
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ),
                ("t", [partition, partition], ErrorCode.INVALID_REQUEST),
            ):
                answer = await client.ask(
                    ListOffsetsRequest(
                        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)]
                    )
                )
                assert [each.error_code for each in answer.topics[0].partitions] == [error] * len(
                    partitions
                )

        cluster.run(work)


# Metadata
# --------------------------------------------------------------------------------------------------


def names(*asked: str) -> list[MetadataRequestTopic]:
    """Request topics by name."""
    return [MetadataRequestTopic(name=name) for name in asked]


def test_metadata_lists_brokers_and_topics_in_every_version() -> None:
    """The controller is any broker (KRaft); all topics: null, or an empty list in v0."""
    with running_cluster(2) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("b", partitions=2)
            await client.create_topic("a")
            for version in range(13):
                answer = await client.ask(
                    MetadataRequest(topics=[] if version == 0 else None), version
                )
                assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
                    (1, "broker-1", 9092),
                    (2, "broker-2", 9092),
                ]
                assert answer.controller_id in ((1, 2) if version >= 1 else (-1,))
                assert answer.cluster_id == (CLUSTER_ID if version >= 2 else None)
                assert [topic.name for topic in answer.topics] == ["a", "b"]
                partitions = answer.topics[1].partitions
                assert [
                    (each.error_code, each.partition_index, each.replica_nodes, each.isr_nodes)
                    for each in partitions
                ] == [
                    (0, number, [each.leader_id], [each.leader_id])
                    for number, each in enumerate(partitions)
                ]
                assert sorted(each.leader_id for each in partitions) == [1, 2]
                if version >= 1:
                    assert (await client.ask(MetadataRequest(topics=[]), version)).topics == []

        cluster.run(work)


def test_topics_are_described_by_name_or_id() -> None:
    """Unknown: 3 by name, 100 by id, 17 for an invalid name; ids came with v12."""
    with running_cluster(auto_create_topics_enable="false") as cluster:

        async def work(client: Client) -> None:
            topic_id = await client.create_topic("a")
            answer = await client.ask(
                MetadataRequest(topics=names("a", "nowhere", "no good", "__transaction_state")), 12
            )
            assert [
                (topic.name, topic.error_code, topic.is_internal) for topic in answer.topics
            ] == [
                ("a", 0, False),
                ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
                ("no good", ErrorCode.INVALID_TOPIC_EXCEPTION, False),
                ("__transaction_state", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
            ]
            by_id = [
                MetadataRequestTopic(topic_id=topic_id, name=None),
                MetadataRequestTopic(topic_id=b"0123456789abcdef", name=None),
            ]
            answer = await client.ask(MetadataRequest(topics=by_id), 12)
            assert [(topic.name, topic.error_code) for topic in answer.topics] == [
                ("a", 0),
                (None, ErrorCode.UNKNOWN_TOPIC_ID),
            ]
            answer = await client.ask(
                MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name="a")]), 11
            )
            assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]

        cluster.run(work)


@pytest.mark.parametrize(
    ("allowed", "enabled", "is_created"),
    [(True, "true", True), (False, "true", False), (True, "false", False)],
)
def test_missing_topic_is_created_if_broker_and_client_allow_it(
    allowed: bool, enabled: str, is_created: bool
) -> None:
    """In KRaft mode the first response is UNKNOWN_TOPIC_OR_PARTITION; the client retries."""
    with running_cluster(auto_create_topics_enable=enabled, num_partitions="3") as cluster:

        async def work(client: Client) -> MetadataResponse:
            request = MetadataRequest(topics=names("fresh"), allow_auto_topic_creation=allowed)
            first = await client.ask(request)
            assert [topic.error_code for topic in first.topics] == [
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ]
            await client.ask(request)
            await asyncio.sleep(1)
            answer: MetadataResponse = await client.ask(request)
            return answer

        (topic,) = cluster.run(work).topics
        assert (topic.error_code, len(topic.partitions)) == (
            (0, 3) if is_created else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        )


def test_authorized_operations_are_returned_on_request() -> None:
    """KIP-430: without an authorizer everything is allowed (the numbers are those of Apache Kafka
    3.9).
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("a")
            request = MetadataRequest(
                topics=None,
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=True,
            )
            answer = await client.ask(request, 10)
            assert (
                answer.cluster_authorized_operations,
                answer.topics[0].topic_authorized_operations,
            ) == (8096, 3576)
            answer = await client.ask(MetadataRequest(topics=None), 10)
            assert (
                answer.cluster_authorized_operations,
                answer.topics[0].topic_authorized_operations,
            ) == (-(2**31), -(2**31))

        cluster.run(work)


def test_fenced_broker_is_not_listed_and_leads_nothing() -> None:
    """Clients receive LEADER_NOT_AVAILABLE and the offline replicas; the address of a fenced broker
    is omitted.
    """
    with running_cluster(2) as cluster:

        async def create(client: Client) -> None:
            await client.create_topic("t", partitions=2)

        cluster.run(create)
        cluster.kill("broker-2")
        cluster.simulation.run_for(15)

        async def look(client: Client) -> None:
            answer = await client.ask(MetadataRequest(topics=None))
            assert [each.node_id for each in answer.brokers] == [1]
            gone = [each for each in answer.topics[0].partitions if each.replica_nodes == [2]]
            assert [
                (each.error_code, each.leader_id, each.isr_nodes, each.offline_replicas)
                for each in gone
            ] == [(ErrorCode.LEADER_NOT_AVAILABLE, -1, [2], [2])]

        cluster.run(look)
