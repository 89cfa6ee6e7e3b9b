"""Reads the logs of a cluster at the end, so that the event log says what became of the records
that were acknowledged to clients.

Only what consumers can read is read: up to the high watermark, from leaders, by Fetch. A partition
is read from the first record on that was acknowledged through the proxy: what is before it is not
the clients'. Compacted topics are left out, as records go missing there by intent. Replicas that
disagree are not seen; log directories are what `kraftsim audit` reads.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec

from kraftsim.clients.events import RecordAcknowledged
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.proxy.upstream.rules_addresses import Address
from kraftsim.partitions.rules_final_log import final_log_events
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.security.login import LinkSecurity
from kraftsim.world.real.event_file import EventFile, next_incarnation
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FINAL_SESSION_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from protocol.records.batches import split_batches

NODE = "final"
CLIENT_ID = "kraftsim-probe"
FETCH_VERSION, LIST_OFFSETS_VERSION, METADATA_VERSION = 11, 5, 9
"""Versions that name topics, and that all brokers since 2.4 have."""
DESCRIBE_CONFIGS_VERSION = 1
CLEANUP_POLICY = "cleanup.policy"
EARLIEST = -2
CONSUMER = -1
PARTITION_BYTES_MAX = 4 << 20
TopicPartition = tuple[str, int]


class LogsNotRead(OSError):
    """The final logs could not be read; one line with the reason."""


async def write_final_logs(
    directory: RunDirectory, upstream: Iterable[Address], security: LinkSecurity | None
) -> int:
    """Add the final logs of the partitions that clients wrote to; return their number. Raises
    LogsNotRead.
    """
    wanted = first_acknowledged(directory)
    if not wanted:
        return 0
    read = 0
    events = EventFile(
        events_dir=directory.events,
        run=directory.root.name,
        node=NODE,
        incarnation=next_incarnation(directory.events, NODE),
        started_ns=0,
    )
    try:
        async for (topic, partition), broker, start, data in _logs(wanted, upstream, security):
            path = f"{broker}/{topic}-{partition}/{start:020}.log"
            read += 1
            for event in final_log_events({path: data}):
                events.emit(event)
    finally:
        events.close()
    return read


def first_acknowledged(directory: RunDirectory) -> dict[TopicPartition, int]:
    """Return the first acknowledged offset of each partition in the event logs of clients."""
    found: dict[TopicPartition, int] = {}
    mark = f'"kind":"{RecordAcknowledged.__name__}"'.encode()
    for path in sorted(directory.events.glob("clients.*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                if mark in line:
                    event = msgspec.json.decode(line)
                    partition, offset = (event["topic"], event["partition"]), event["offset"]
                    if 0 <= offset < found.get(partition, offset + 1):
                        found[partition] = offset
    return dict(sorted(found.items()))


async def _logs(
    wanted: Mapping[TopicPartition, int], upstream: Iterable[Address], security: LinkSecurity | None
) -> AsyncIterator[tuple[TopicPartition, str, int, bytes]]:
    """Yield each partition, the name of its leader, the first offset, and the batches from it."""
    topics = list(dict.fromkeys(topic for topic, _ in wanted))
    described, compacted = await _described(topics, upstream, security)
    wanted = {each: offset for each, offset in wanted.items() if each[0] not in compacted}
    brokers = {each.node_id: (each.host, each.port) for each in described.brokers}
    leaders = {
        (topic.name or "", each.partition_index): each.leader_id
        for topic in described.topics
        for each in topic.partitions
    }
    for node_id in sorted({leaders.get(each, -1) for each in wanted}):
        if node_id not in brokers:
            lost = next(each for each in wanted if leaders.get(each, -1) == node_id)
            raise LogsNotRead(f"{lost[0]}-{lost[1]} has no leader: its log cannot be read")
        connection = _connection(brokers[node_id], security)
        try:
            await connection.connect()
            for each in wanted:
                if leaders[each] == node_id:
                    start, data = await _log(connection, *each, wanted[each])
                    yield each, f"broker-{node_id}", start, data
        except OSError as error:
            raise LogsNotRead(f"a log cannot be read at broker-{node_id}: {error}") from error
        finally:
            connection.close()


def _connection(address: Address, security: LinkSecurity | None) -> PeerConnection:
    return PeerConnection(*address, client_id=CLIENT_ID, security=security)


async def _described(
    topics: Sequence[str], upstream: Iterable[Address], security: LinkSecurity | None
) -> tuple[MetadataResponse, set[str]]:
    """Return Metadata of topics, and those of them that are compacted."""
    trouble = "no address is known"
    for address in upstream:
        connection = _connection(address, security)
        try:
            await connection.connect()
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=each) for each in topics],
                allow_auto_topic_creation=False,
            )
            answer = await connection.request(asked, api_version=METADATA_VERSION)
            assert isinstance(answer, MetadataResponse), "Metadata was asked"
            return answer, await _compacted(connection, topics)
        except OSError as error:
            trouble = str(error)
        finally:
            connection.close()
    raise LogsNotRead(
        f"the final logs cannot be read: {trouble}; does the listener need a login "
        "(--upstream-config)?"
    )


async def _compacted(connection: PeerConnection, topics: Sequence[str]) -> set[str]:
    answer = await connection.request(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name=each,
                    configuration_keys=[CLEANUP_POLICY],
                )
                for each in topics
            ]
        ),
        api_version=DESCRIBE_CONFIGS_VERSION,
    )
    assert isinstance(answer, DescribeConfigsResponse), "DescribeConfigs was asked"
    return {
        result.resource_name
        for result in answer.results
        for config in result.configs
        if "compact" in (config.value or "")
    }


async def _log(
    connection: PeerConnection, topic: str, partition: int, first_offset: int
) -> tuple[int, bytes]:
    """Return the first offset of a partition that is read, and all batches from there to the high
    watermark.
    """
    rows = [ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)]
    answer = await connection.request(
        ListOffsetsRequest(
            replica_id=CONSUMER, topics=[ListOffsetsTopic(name=topic, partitions=rows)]
        ),
        api_version=LIST_OFFSETS_VERSION,
    )
    assert isinstance(answer, ListOffsetsResponse), "ListOffsets was asked"
    first = answer.topics[0].partitions[0]
    _require_none(first.error_code, topic, partition)
    pieces: list[bytes] = []
    start = next_offset = max(first.offset, first_offset)
    while True:
        answer = await connection.request(
            _fetch(topic, partition, next_offset), api_version=FETCH_VERSION
        )
        assert isinstance(answer, FetchResponse), "Fetch was asked"
        found = answer.responses[0].partitions[0]
        _require_none(found.error_code, topic, partition)
        for batch in split_batches(found.records or b""):
            if batch.next_offset > found.high_watermark:
                break
            pieces.append(bytes(batch.view()))
            next_offset = batch.next_offset
        if next_offset >= found.high_watermark:
            return start, b"".join(pieces)


def _fetch(topic: str, partition: int, offset: int) -> FetchRequest:
    row = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES_MAX
    )
    return FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=PARTITION_BYTES_MAX,
        session_epoch=FINAL_SESSION_EPOCH,
        topics=[FetchTopic(topic=topic, partitions=[row])],
    )


def _require_none(error_code: int, topic: str, partition: int) -> None:
    if error_code != ErrorCode.NONE:
        raise LogsNotRead(f"{topic}-{partition}: {ErrorCode(error_code).name}")
