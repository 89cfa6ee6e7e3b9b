"""UpdateMetadata (6): the ZooKeeper-mode controller sends every broker the metadata for its
Metadata responses.

A broker's metadata of partitions that it does not host is only as recent as the last of these.
KRaft brokers read the metadata log instead.
Source: KIP-36 (v2: racks), KIP-103 (v3: listener names), KIP-112 (v4: offline replicas), KIP-380
(v5: broker epochs), KIP-516 (v7: topic ids), KIP-866 (v8), KIP-896; UpdateMetadataRequest.json,
UpdateMetadataResponse.json of 3.9.
"""

from protocol.errors import ErrorCode
from protocol.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uuid,
)

NO_BROKER_EPOCH = -1
LEADER_DURING_DELETE = -2  # as the leader: remove the partition
PLAINTEXT = 0  # of security protocols; the only one that v0 knows
SSL = 1
SASL_PLAINTEXT = 2
SASL_SSL = 3

ERRORS = (
    ErrorCode.STALE_CONTROLLER_EPOCH,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.STALE_BROKER_EPOCH,
)


@structure
class UpdateMetadataPartitionState:
    """Leader, replicas and ISR of a partition; zk_version is what LeaderAndIsr calls the partition
    epoch.
    """

    topic_name: str = string(until=4, ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, since=4, ignorable=True)


@structure
class UpdateMetadataTopicState:
    """Partitions of one topic; up to v4 every partition contains its topic instead."""

    topic_name: str = string(since=5)
    topic_id: bytes = uuid(since=7, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, since=5
    )


@structure
class UpdateMetadataEndpoint:
    """One listener of a broker.

    Without a name (v1, v2) it has the name of its security protocol.
    """

    port: int = int32(since=1)
    host: str = string(since=1)
    listener: str = string(since=3, ignorable=True)
    security_protocol: int = int16(since=1)


@structure
class UpdateMetadataBroker:
    """A live broker with its listeners; v0 has only one, which is PLAINTEXT."""

    id: int = int32()
    v0_host: str = string(until=0, ignorable=True)
    v0_port: int = int32(until=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, since=1, ignorable=True)
    rack: str | None = string(since=2, nullable="0+", ignorable=True)


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest:
    """v1 lists all listeners of a broker, v2 its rack, v5 groups partitions by topic.

    Live brokers are always complete; the partitions are those that changed, or all of them with
    type 2 in v8 (as in LeaderAndIsr).
    """

    controller_id: int = int32()
    is_kraft_controller: bool = boolean(since=8, kafka_name="isKRaftController")
    type: int = int8(tag=0, tagged="8+")
    controller_epoch: int = int32()
    broker_epoch: int = int64(since=5, default=NO_BROKER_EPOCH, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, until=4
    )
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, since=5)
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataResponse:
    """The result; there are none for single partitions."""

    error_code: int = int16()
