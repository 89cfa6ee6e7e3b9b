"""Tiered storage: which topics can be tiered, log start offsets of the local and the remote log,
remote reads and deletion.

Applies to a node with remote storage that uploads closed segments within seconds
(remote.log.manager.task.interval.ms).
Source: KIP-405, KIP-950, KIP-956, KIP-1005; verified against Apache Kafka 3.9.1 and 4.1.2 with
LocalTieredStorage.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kraftsim.conformance.emulated_broker import throw_away_broker
from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error, settled
from kraftsim.conformance.k32_describe_configs import described_config
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic, own_broker_id
from kraftsim.conformance.tiered_topics import (
    BATCHES_EACH,
    ENABLE,
    END,
    FIRST_TIMESTAMP,
    TIERED,
    archived_topic,
    created,
    fill,
    has_remote_store,
    listed,
    need_remote_store,
    new_archived_topic,
    wait_for_local_start,
)
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k02_list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
)
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.records.batches import split_batches

REQUIREMENTS = Requirements("tiered-storage", 1, "Tiered storage")
CONFIGS = "LogConfig.validateTopicLogConfigValues"
OFFSETS = "UnifiedLog.fetchOffsetByTimestamp"
READS = "ReplicaManager.processRemoteFetches"
FETCH_BY_NAME = 12
NEWEST_OF_FOLLOWERS = 14
"""The last version of Fetch with the replica id in the request itself, and not in a tagged
field.
"""
TIMEOUT_MS = 10_000
UNLIMITED = str(2**63 - 1)
HELD_SECONDS = 1.5
QUOTA_SECONDS = 25.0
"""The time for which earlier uploads count against the quota: eleven windows of a second, unless
configured otherwise.
"""
REMOTE = 3
"""An offset in the middle of the remote-only part of the log."""


def _refused(
    target: Target, configs: Mapping[str, str], error: ErrorCode = ErrorCode.INVALID_CONFIG
) -> None:
    _, code, why = created(target, configs)
    expect_error(code, error, f"a topic with {dict(configs)} ({why})")


def _set(target: Target, topic: str, configs: Mapping[str, str]) -> tuple[int, str | None]:
    """Change configurations of a topic; return error and message."""
    rows = [
        AlterableConfig(name=name, config_operation=SET, value=value)
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=rows
    )
    with target.peer() as peer:
        answer = peer.ask(
            IncrementalAlterConfigsRequest(resources=[resource]),
            target.newest(ApiKey.INCREMENTAL_ALTER_CONFIGS),
            IncrementalAlterConfigsResponse,
        )
    return answer.responses[0].error_code, answer.responses[0].error_message


def _read(
    target: Target, topic: TargetTopic, offset: int, *, bytes_max: int = 1 << 20, follower: int = -1
) -> PartitionData:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    if follower >= 0:
        asked.log_start_offset = 0
    request = FetchRequest(
        replica_id=follower,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[FetchTopic(topic=topic.name, partitions=[asked])],
    )
    version = target.newest(ApiKey.FETCH, until=FETCH_BY_NAME)
    with target.peer(topic.leader) as peer:
        return peer.ask(request, version, FetchResponse).responses[0].partitions[0]


def _offsets(row: PartitionData) -> list[int]:
    return [
        record.offset
        for each in split_batches(bytes(row.records or b""))
        for record in each.records()
    ]


def _read_from(target: Target, topic: TargetTopic, offset: int) -> list[int]:
    """Fetch until there are records: a remote read that takes too long returns an empty
    response.
    """
    return settled(
        lambda: _offsets(_read(target, topic, offset)), bool, f"records from {offset} on"
    )


def _delete_records(target: Target, topic: TargetTopic, offset: int) -> tuple[int, int]:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[row])], timeout_ms=TIMEOUT_MS
    )
    with target.peer(topic.leader) as peer:
        found = (
            peer.ask(asked, target.newest(ApiKey.DELETE_RECORDS), DeleteRecordsResponse)
            .topics[0]
            .partitions[0]
        )
    return found.error_code, found.low_watermark


@REQUIREMENTS.that(
    1, "without remote storage no topic can be tiered: INVALID_CONFIG", source=CONFIGS, since="3.6"
)
def no_store(target: Target) -> None:
    if has_remote_store(target):
        raise Inapplicable("the node has remote storage")
    _refused(target, {ENABLE: "true"})


@REQUIREMENTS.that(
    2,
    "a topic is not tiered by default, and its local retention is that of the whole log (-2)",
    source="KIP-405",
    since="3.6",
)
def defaults(target: Target) -> None:
    topic = target.topic()
    for key, value in (
        (ENABLE, "false"),
        ("local.retention.ms", "-2"),
        ("local.retention.bytes", "-2"),
    ):
        row = described_config(target, ConfigResourceType.TOPIC, topic.name, key)
        expect_equal((row.value, row.config_source), (value, 5), f"{key} and where it comes from")


@REQUIREMENTS.that(
    3, "a compacted topic cannot be tiered: INVALID_CONFIG", source=CONFIGS, since="3.6"
)
def compacted(target: Target) -> None:
    need_remote_store(target)
    for policy in ("compact", "compact,delete"):
        _refused(target, {ENABLE: "true", "cleanup.policy": policy})
    name, code, _ = created(target, {"cleanup.policy": "compact"})
    expect_error(code, ErrorCode.NONE, "a compacted topic")
    target.led_topic(name, 1)
    expect_error(
        _set(target, name, {ENABLE: "true"})[0], ErrorCode.INVALID_CONFIG, "tiering it later"
    )


@REQUIREMENTS.that(
    4, "a tiered topic cannot become compacted: INVALID_CONFIG", source=CONFIGS, since="3.6"
)
def compacted_later(target: Target) -> None:
    topic = archived_topic(target)
    expect_error(
        _set(target, topic.name, {"cleanup.policy": "compact"})[0],
        ErrorCode.INVALID_CONFIG,
        "cleanup.policy=compact",
    )


@REQUIREMENTS.that(
    5,
    "local retention must not exceed the total retention: else INVALID_CONFIG, in milliseconds "
    "as in bytes",
    source=CONFIGS,
    since="3.6",
)
def local_retention(target: Target) -> None:
    need_remote_store(target)
    for unit in ("ms", "bytes"):
        whole, local = f"retention.{unit}", f"local.retention.{unit}"
        for value in ("1001", "-1"):
            _refused(target, {ENABLE: "true", whole: "1000", local: value})
        _refused(target, {ENABLE: "true", local: "-3"})
        for value in ("1000", "0", "-2"):
            expect_error(
                created(target, {ENABLE: "true", whole: "1000", local: value})[1],
                ErrorCode.NONE,
                f"{local}={value} beside {whole}=1000",
            )
        expect_error(
            created(target, {ENABLE: "true", whole: "-1", local: "-1"})[1],
            ErrorCode.NONE,
            f"{local}=-1 beside {whole}=-1",
        )


@REQUIREMENTS.that(
    6,
    "the local retention of a topic that is not tiered is not validated",
    source=CONFIGS,
    since="3.6",
)
def local_retention_unasked(target: Target) -> None:
    need_remote_store(target)
    expect_error(
        created(target, {"retention.ms": "1000", "local.retention.ms": "2000"})[1],
        ErrorCode.NONE,
        "a topic that is not tiered",
    )


@REQUIREMENTS.that(
    7,
    "tiering cannot be disabled without remote.log.delete.on.disable: INVALID_CONFIG",
    source="KIP-950",
    since="3.9",
)
def turned_off(target: Target) -> None:
    topic = new_archived_topic(target)
    expect_error(
        _set(target, topic.name, {ENABLE: "false"})[0], ErrorCode.INVALID_CONFIG, "turning it off"
    )
    expect_error(
        _set(target, topic.name, {ENABLE: "false", "remote.log.delete.on.disable": "true"})[0],
        ErrorCode.NONE,
        "with remote.log.delete.on.disable",
    )
    settled(
        lambda: listed(target, topic, EARLIEST_TIMESTAMP).offset,
        lambda seen: seen == END,
        "a log that begins where the local one does",
    )
    expect_equal(_read_from(target, topic, END), [END], "the remaining data")


@REQUIREMENTS.that(
    8,
    "with remote.log.copy.disable the local retention must be the total retention: else "
    "INVALID_CONFIG",
    source="KIP-950; LogConfig",
    since="3.9",
)
def copy_disabled_retention(target: Target) -> None:
    need_remote_store(target)
    base = {
        ENABLE: "true",
        "remote.log.copy.disable": "true",
        "retention.ms": "5000",
        "retention.bytes": "5000",
    }
    for local in ({"local.retention.ms": "1000"}, {"local.retention.bytes": "1000"}):
        _refused(target, {**base, **local})
    for local in ({}, {"local.retention.ms": "5000", "local.retention.bytes": "-2"}):
        expect_error(created(target, {**base, **local})[1], ErrorCode.NONE, f"with {local}")


@REQUIREMENTS.that(
    9,
    "with remote.log.copy.disable nothing more is uploaded, and remote data stays readable",
    source="KIP-950",
    since="3.9",
)
def copy_disabled(target: Target) -> None:
    topic = new_archived_topic(target)
    wish = {"remote.log.copy.disable": "true", "local.retention.bytes": "-2"}
    expect_error(_set(target, topic.name, wish)[0], ErrorCode.NONE, "remote.log.copy.disable=true")
    settled(
        lambda: (
            described_config(
                target, ConfigResourceType.TOPIC, topic.name, "remote.log.copy.disable"
            ).value
        ),
        lambda value: value == "true",
        "the change",
    )
    before = listed(target, topic, LATEST_TIERED_TIMESTAMP).offset
    fill(target, topic, END + 1, 2 * BATCHES_EACH)
    expect_error(
        _set(
            target, topic.name, {"remote.log.copy.disable": "false", "local.retention.bytes": "1"}
        )[0],
        ErrorCode.NONE,
        "copying again",
    )
    expect(before >= END - 1, f"{before} was the last offset in remote storage")
    wait_for_local_start(target, topic, END + 2)
    expect_equal(_read_from(target, topic, 0)[:2], [0, 1], "what was uploaded first")


@REQUIREMENTS.that(
    10,
    "the log start offset stays (-2), the local log start offset is later (-4), and the last "
    "tiered offset precedes it (-5)",
    source=OFFSETS,
    since="3.6",
)
def three_beginnings(target: Target) -> None:
    topic = archived_topic(target)
    wanted = (
        (EARLIEST_TIMESTAMP, 0),
        (EARLIEST_LOCAL_TIMESTAMP, END),
        (LATEST_TIERED_TIMESTAMP, END - 1),
        (LATEST_TIMESTAMP, END + 1),
    )
    for timestamp, offset in wanted:
        row = listed(target, topic, timestamp)
        expect_equal(
            (row.offset, row.timestamp, row.leader_epoch),
            (offset, -1, 0),
            f"timestamp {timestamp}: offset, timestamp, epoch",
        )


@REQUIREMENTS.that(
    11,
    "without tiering the local log start offset is the log start offset (-4), and there is no "
    "tiered offset (-5: offset -1)",
    source=OFFSETS,
    since="3.6",
)
def not_tiered(target: Target) -> None:
    need_remote_store(target)
    topic = target.topic(configs={"retention.ms": "-1"})
    fill(target, topic, 0, 3)
    expect_equal(
        [
            listed(target, topic, each).offset
            for each in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
        ],
        [0, 0],
        "both beginnings",
    )
    expect_equal(
        listed(target, topic, LATEST_TIERED_TIMESTAMP).offset,
        -1,
        "the last offset in remote storage",
    )


@REQUIREMENTS.that(
    12,
    "a timestamp is found in remote storage as in the local log",
    source="RemoteLogManager.findOffsetByTimestamp",
    since="3.6",
)
def points_in_time(target: Target) -> None:
    topic = archived_topic(target)
    for offset in (0, 1, REMOTE, END - 1, END):
        row = listed(target, topic, FIRST_TIMESTAMP + offset)
        expect_equal(
            (row.offset, row.timestamp),
            (offset, FIRST_TIMESTAMP + offset),
            f"offset and timestamp of record {offset}",
        )
    expect_equal(
        listed(target, topic, FIRST_TIMESTAMP + END + 1).offset, -1, "a time after the last record"
    )


@REQUIREMENTS.that(
    13,
    "a consumer reads remote data as if it were local, up to the end of its segment",
    source=READS,
    since="3.6",
)
def reads_through(target: Target) -> None:
    topic = archived_topic(target)
    for offset in range(END + 1):
        found = _read_from(target, topic, offset)
        wanted = [
            each
            for each in range(END + 1)
            if each >= offset and each // BATCHES_EACH == offset // BATCHES_EACH
        ]
        expect_equal(found, wanted, f"offsets read from {offset} on")


@REQUIREMENTS.that(
    14,
    "a response from remote storage contains log start offset and high watermark",
    source=READS,
    since="3.6",
)
def bounds(target: Target) -> None:
    topic = archived_topic(target)
    row = settled(
        lambda: _read(target, topic, REMOTE),
        lambda each: bool(each.records),
        "a response from remote storage",
    )
    returned_bounds = (
        row.error_code,
        row.log_start_offset,
        row.high_watermark,
        row.last_stable_offset,
    )
    expect_equal(
        returned_bounds,
        (0, 0, END + 1, END + 1),
        "error, log start, high watermark, last stable offset",
    )


@REQUIREMENTS.that(
    15,
    "a first batch above the limit of bytes is returned from remote storage, too",
    source="KIP-74; RemoteLogManager.read",
    since="3.6",
)
def large_batch(target: Target) -> None:
    topic = archived_topic(target)
    found = settled(
        lambda: _offsets(_read(target, topic, REMOTE, bytes_max=10)),
        bool,
        "a batch of more than ten bytes",
    )
    expect_equal(found[0], REMOTE, "the first record of it")


@REQUIREMENTS.that(
    16,
    "a fetch below the log start offset or above the log end offset returns OFFSET_OUT_OF_RANGE",
    source="UnifiedLog.read",
    since="3.6",
)
def out_of_range(target: Target) -> None:
    topic = archived_topic(target)
    expect_error(
        _read(target, topic, END + 5).error_code,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        "an offset after the end",
    )


@REQUIREMENTS.that(
    17,
    "a follower's fetch of remote-only data returns OFFSET_MOVED_TO_TIERED_STORAGE; it "
    "replicates from the local log",
    source="KIP-405",
    since="3.6",
)
def followers(target: Target) -> None:
    need_remote_store(target)
    with throw_away_broker(target) as broker:
        broker.registered()
        topic = _replicated(target, broker.broker_id)
        fill(target, topic, 0, END + 1)
        wait_for_local_start(target, topic, END)
        row = _read(target, topic, REMOTE, follower=broker.broker_id)
        expect_error(
            row.error_code,
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            f"a follower that asks for {REMOTE}",
        )
        expect_equal(
            (row.log_start_offset, bytes(row.records or b"")),
            (0, b""),
            "log start offset and records of that answer",
        )
        expect_equal(
            _offsets(_read(target, topic, END, follower=broker.broker_id)),
            [END],
            "what is replicated from the local log",
        )


def _replicated(target: Target, follower: int) -> TargetTopic:
    """Create a topic of the checked node and a follower."""
    leader = target.topic()
    name = target.fresh_name("tiered")
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in TIERED.items()]
    assignment = CreatableReplicaAssignment(
        partition_index=0, broker_ids=[leader.leader_id, follower]
    )
    wanted = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=rows
    )
    with target.peer() as peer:
        answer = peer.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=15000),
            target.newest(ApiKey.CREATE_TOPICS),
            CreateTopicsResponse,
        )
    expect_error(
        answer.topics[0].error_code,
        ErrorCode.NONE,
        f"a topic on two brokers ({answer.topics[0].error_message})",
    )
    return target.led_topic(name, 1)


@REQUIREMENTS.that(
    18,
    "records are deleted in remote storage, too: the log start offset advances, and lower "
    "offsets are out of range",
    source="KIP-405",
    since="3.6",
)
def deleted_records(target: Target) -> None:
    topic = new_archived_topic(target)
    expect_equal(_delete_records(target, topic, REMOTE), (0, REMOTE), "error and low watermark")
    expect_equal(
        listed(target, topic, EARLIEST_TIMESTAMP).offset, REMOTE, "where the whole log begins"
    )
    expect_equal(
        listed(target, topic, EARLIEST_LOCAL_TIMESTAMP).offset, END, "where the local log begins"
    )
    expect_error(
        _read(target, topic, REMOTE - 1).error_code,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        "reading what was deleted",
    )
    expect_equal(_read_from(target, topic, REMOTE)[0], REMOTE, "the first record that is left")
    expect_equal(
        _delete_records(target, topic, END),
        (0, END),
        "error and low watermark where remote storage is emptied",
    )
    expect_equal(
        [
            listed(target, topic, each).offset
            for each in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
        ],
        [END, END],
        "both beginnings",
    )


@REQUIREMENTS.that(
    19,
    "leader epochs of remote data are kept: the end offset of an epoch does not change",
    source="KIP-320; RemoteLogManager",
    since="3.6",
)
def epochs(target: Target) -> None:
    topic = archived_topic(target)
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[row])]
    )
    with target.peer(topic.leader) as peer:
        found = (
            peer.ask(
                asked, target.newest(ApiKey.OFFSET_FOR_LEADER_EPOCH), OffsetForLeaderEpochResponse
            )
            .topics[0]
            .partitions[0]
        )
    expect_equal(
        (found.error_code, found.leader_epoch, found.end_offset),
        (0, 0, END + 1),
        "error, epoch and its end",
    )


@REQUIREMENTS.that(
    20, "a tiered topic can be deleted, and its name can be reused", source="KIP-405", since="3.6"
)
def deleted_topic(target: Target) -> None:
    topic = new_archived_topic(target)
    version = target.newest(ApiKey.DELETE_TOPICS)
    asked = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=topic.name)], topic_names=[topic.name], timeout_ms=TIMEOUT_MS
    )
    with target.peer() as peer:
        answer = peer.ask(asked, version, DeleteTopicsResponse)
    expect_error(answer.responses[0].error_code, ErrorCode.NONE, "deleting it")
    again = settled(
        lambda: recreate(target, topic.name),
        lambda code: code != ErrorCode.TOPIC_ALREADY_EXISTS,
        "a free name",
    )
    expect_error(again, ErrorCode.NONE, "a topic of the same name")
    # The new topic is in the metadata before its leader has replaced the log of the old one.
    settled(
        lambda: listed(target, target.led_topic(topic.name, 1), LATEST_TIERED_TIMESTAMP).offset,
        lambda offset: offset == -1,
        "no remote data in the new topic",
    )


def recreate(target: Target, name: str) -> int:
    """Create a tiered topic with a name; return the error."""
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in TIERED.items()]
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=rows)
    with target.peer() as peer:
        answer = peer.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=15000),
            target.newest(ApiKey.CREATE_TOPICS),
            CreateTopicsResponse,
        )
    code: int = answer.topics[0].error_code
    return code


@contextmanager
def _limited(target: Target, key: str) -> Iterator[None]:
    """Limit all brokers to a byte a second for the duration of the block, and remove the limit
    afterwards.
    """
    _set_for_brokers(target, key, "1")
    try:
        yield
    finally:
        _set_for_brokers(target, key, UNLIMITED)


def _set_for_brokers(target: Target, key: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER,
        resource_name="",
        configs=[AlterableConfig(name=key, config_operation=SET, value=value)],
    )
    with target.peer() as peer:
        asked = IncrementalAlterConfigsRequest(resources=[resource])
        answer = peer.ask(
            asked, target.newest(ApiKey.INCREMENTAL_ALTER_CONFIGS), IncrementalAlterConfigsResponse
        )
    expect_error(answer.responses[0].error_code, ErrorCode.NONE, f"{key}={value}")
    broker = str(own_broker_id(target))
    settled(
        lambda: described_config(target, ConfigResourceType.BROKER, broker, key).value,
        lambda seen: seen == value,
        f"{key}={value}",
    )


@REQUIREMENTS.that(
    21,
    "uploads are throttled by a dynamic quota; the first one is always permitted",
    source="KIP-956",
    since="3.9",
)
def uploads_throttled(target: Target) -> None:
    need_remote_store(target)
    with _limited(target, "remote.log.manager.copy.max.bytes.per.second"):
        topic = target.topic(configs=TIERED, name=target.fresh_name("tiered"))
        fill(target, topic, 0, END + 1)
        settled(
            lambda: listed(target, topic, LATEST_TIERED_TIMESTAMP).offset,
            lambda seen: seen >= BATCHES_EACH - 1,
            "the copy of one segment",
            QUOTA_SECONDS,
        )
        time.sleep(HELD_SECONDS)
        seen = listed(target, topic, LATEST_TIERED_TIMESTAMP).offset
        expect(seen < END - 1, f"all closed segments were uploaded at once, up to {seen}")
    wait_for_local_start(target, topic, END)


@REQUIREMENTS.that(
    22,
    "remote reads are throttled by a quota: above it a fetch returns empty, without an error",
    source="KIP-956",
    since="3.9",
)
def reads_held_back(target: Target) -> None:
    topic = archived_topic(target)
    with _limited(target, "remote.log.manager.fetch.max.bytes.per.second"):
        expect_equal(_read_from(target, topic, 0)[0], 0, "the first read")
        row = _read(target, topic, BATCHES_EACH)
        expect_equal(
            (row.error_code, bytes(row.records or b"")),
            (0, b""),
            "error and records of the second one",
        )
        expect_equal(_offsets(_read(target, topic, END)), [END], "what is in the local log")
    expect_equal(
        _read_from(target, topic, BATCHES_EACH)[0], BATCHES_EACH, "the same without a limit"
    )
