"""What a share coordinator does by itself is what that of Apache Kafka does: snapshots of
share-partitions that are not written, deletion of redundant records, and of states whose topic is
deleted. Their order in a batch is that of Kafka's hash tables, which the topic ids decide.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from kraftsim.conformance.peer import Peer
from kraftsim.groups.rules_assignors import java_order, timeline_order
from kraftsim.share_groups.rules_share_coordinator import key_hash
from kraftsim.share_groups.rules_share_states import SharePartitionKey
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.share_states import ShareSnapshotValue
from protocol.errors import ErrorCode
from protocol.messages import k83_initialize_share_group_state as k83
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.records.batches import split_batches
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.test_share_coordinator import (
    FETCH_VERSION,
    SETTINGS,
    SIZE,
    STATES,
    WAIT_SECONDS,
    Node,
    found,
    opened,
    until_loaded,
)
from tests.conftest import ClusterFactory

pytestmark = pytest.mark.interop
OFTEN = {
    **SETTINGS,
    "share.coordinator.cold.partition.snapshot.interval.ms": "1500",
    "share.coordinator.state.topic.prune.interval.ms": "400",
}
GROUPS = ("g", "a-group", "another", "h:i", "share", "x")
EARLIEST = -2
Record = tuple[SharePartitionKey, int | None]
"""A share-partition, and the snapshot epoch of its record; None for a tombstone."""


def records(peer: Peer, offset: int) -> dict[int, Record]:
    """Return the records from an offset on."""
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=SIZE)
    request = FetchRequest(topics=[FetchTopic(topic=STATES, partitions=[row])])
    answer = peer.ask(request, FETCH_VERSION, FetchResponse).responses[0].partitions[0]
    read: dict[int, Record] = {}
    for batch in split_batches(answer.records or b""):
        for record in batch.records():
            parsed = parse_record(
                CoordinatorTopic.SHARE_GROUP_STATE, record.key or b"", record.value
            )
            assert parsed is not None
            key, value = parsed
            assert value is None or isinstance(value, ShareSnapshotValue)
            place = SharePartitionKey(key.group_id, key.topic_id, key.partition)
            read[record.offset] = (place, None if value is None else value.snapshot_epoch)
    return read


def log_start(peer: Peer) -> int:
    row = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=STATES, partitions=[row])])
    return peer.ask(request, 5, ListOffsetsResponse).topics[0].partitions[0].offset


def until(reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def upkeep(node: Node) -> None:
    """Check each step on one node."""
    peer = node.peer
    keys = [
        SharePartitionKey(group_id, node.ids[topic], partition)
        for group_id in GROUPS
        for topic, partition in (("a", 0), ("b", 0), ("a", 1))
    ]
    for key in keys:
        row = k83.PartitionData(partition=key.partition, state_epoch=0, start_offset=0)
        topic = k83.InitializeStateData(topic_id=key.topic_id, partitions=[row])
        answer = peer.ask(
            k83.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
            0,
            k83.InitializeShareGroupStateResponse,
        )
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
    count = len(keys)
    until(lambda: len(records(peer, log_start(peer))) >= count, "the states are written")
    until(lambda: max(records(peer, log_start(peer))) >= 2 * count - 1, "all are cold")
    written = records(peer, log_start(peer))
    cold = [written[offset] for offset in range(count, 2 * count)]
    assert cold == [(key, 1) for key in timeline_order(keys, key_hash)]
    until(lambda: log_start(peer) == count, "redundant records are deleted")
    peer.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=5000), 5, DeleteTopicsResponse)
    gone = [key for key in timeline_order(keys, key_hash) if key.topic_id == node.ids["a"]]
    until(
        lambda: max(records(peer, count), default=0) >= 2 * count + len(gone) - 1,
        "states of a deleted topic are deleted",
    )
    left = records(peer, count)
    tombstones = [left[2 * count + number] for number in range(len(gone))]
    assert tombstones == [(key, None) for key in java_order(gone, key_hash)]


def test_upkeep_is_that_of_apache_kafka(embedded_cluster_factory: ClusterFactory) -> None:
    """The same checks on both."""
    with ExitStack() as stack:
        real = stack.enter_context(ApacheKafka(NEWEST_RELEASE, settings=dict(OFTEN)))
        own = embedded_cluster_factory(release="4.4", settings=OFTEN)
        for address in (real.bootstrap, own.bootstrap):
            node = opened(stack, address)
            found(node)
            until_loaded(node)
            upkeep(node)
