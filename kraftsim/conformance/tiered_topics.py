"""Topics in remote storage, for the checks of tiered storage: created, filled, and polled until
closed segments are remote only.
"""

from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

from kraftsim.conformance.batches import produce
from kraftsim.conformance.expect import Inapplicable, expect_error, settled
from kraftsim.conformance.k32_describe_configs import described_config
from kraftsim.conformance.target import Target, TargetTopic, own_broker_id
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    EARLIEST_LOCAL_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record

SYSTEM: Final = "remote.log.storage.system.enable"
ENABLE: Final = "remote.storage.enable"
SEGMENTS, BATCHES_EACH = 4, 2
END: Final = SEGMENTS * BATCHES_EACH
"""The base offset of the active segment, which is never uploaded; it has one record."""
FIRST_TIMESTAMP: Final = 1000
TIERED: Final = {
    ENABLE: "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "index.interval.bytes": "1",
}
PADDING: Final = b"x" * 400_000
"""Two of them fill the smallest possible segment since 4.0 (KIP-1030)."""
_ARCHIVED: "WeakKeyDictionary[Target, TargetTopic]" = WeakKeyDictionary()


def has_remote_store(target: Target) -> bool:
    """Return whether the node has remote storage; a release without tiered storage has none."""
    if ApiKey.DESCRIBE_CONFIGS not in target.ranges():
        return False
    row = described_config(target, ConfigResourceType.BROKER, str(own_broker_id(target)), SYSTEM)
    return row.value == "true"


def need_remote_store(target: Target) -> None:
    """Raise Inapplicable without remote storage."""
    if not has_remote_store(target):
        raise Inapplicable(
            f"the node has no remote storage: set {SYSTEM}=true, and a storage manager"
        )


def created(target: Target, configs: Mapping[str, str]) -> tuple[str, int, str | None]:
    """Create a topic; return its name, error and message."""
    name = target.fresh_name("tiered")
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=rows)
    with target.peer() as peer:
        answer = peer.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=15000),
            target.newest(ApiKey.CREATE_TOPICS),
            CreateTopicsResponse,
        )
    return name, answer.topics[0].error_code, answer.topics[0].error_message


def listed(target: Target, topic: TargetTopic, timestamp: int) -> ListOffsetsPartitionResponse:
    """Ask ListOffsets in the newest version."""
    rows = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    asked = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID, topics=[ListOffsetsTopic(name=topic.name, partitions=rows)]
    )
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, target.newest(ApiKey.LIST_OFFSETS), ListOffsetsResponse)
    row = answer.topics[0].partitions[0]
    expect_error(row.error_code, ErrorCode.NONE, f"timestamp {timestamp}")
    return row


def fill(target: Target, topic: TargetTopic, first: int, count: int) -> None:
    """Write batches of one record; two of them fill a segment.

    Their timestamps are FIRST_TIMESTAMP + offset.
    """
    with target.peer(topic.leader) as peer:
        for index in range(first, first + count):
            written = produce(
                peer,
                topic.name,
                build_batch([Record(timestamp=FIRST_TIMESTAMP + index, value=PADDING)]),
            )
            expect_error(written.error_code, ErrorCode.NONE, "filling a tiered topic")


def wait_for_local_start(target: Target, topic: TargetTopic, offset: int) -> None:
    """Wait until everything before an offset is remote only. Raises Unmet after a time-out."""
    settled(
        lambda: listed(target, topic, EARLIEST_LOCAL_TIMESTAMP).offset,
        lambda seen: seen >= offset,
        f"a local log from {offset} on",
    )


def new_archived_topic(target: Target, configs: Mapping[str, str] | None = None) -> TargetTopic:
    """Create a topic of four closed segments that are remote only, and an active one.

    Raises Inapplicable without remote storage.
    """
    need_remote_store(target)
    topic = target.topic(configs={**TIERED, **(configs or {})}, name=target.fresh_name("tiered"))
    fill(target, topic, 0, END + 1)
    wait_for_local_start(target, topic, END)
    return topic


def archived_topic(target: Target) -> TargetTopic:
    """Return such a topic for read-only checks; it is created once."""
    if target not in _ARCHIVED:
        _ARCHIVED[target] = new_archived_topic(target)
    return _ARCHIVED[target]
