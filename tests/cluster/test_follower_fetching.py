"""A consumer with client.rack is directed to the follower in its rack, and reads from it
(KIP-392).
"""

import time

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.batches import batch, produce
from kraftsim.conformance.peer import Peer
from kraftsim.partitions.rules_leader import RACK_AWARE_SELECTOR
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

VERSION = 12
PLENTY = 1 << 20
LONG_MS = 5000


def fetch(peer: Peer, offset: int, rack: str, max_wait_ms: int = 0) -> PartitionData:
    """Read t-0 as a consumer of a rack."""
    topics = [
        FetchTopic(
            topic="t", partitions=[FetchPartition(fetch_offset=offset, partition_max_bytes=PLENTY)]
        )
    ]
    asked = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=PLENTY, topics=topics, rack_id=rack
    )
    return peer.ask(asked, VERSION, FetchResponse).responses[0].partitions[0]


def test_a_consumer_reads_from_the_follower_of_its_rack() -> None:
    """The leader redirects it at once and without records; records produced later are read from the
    follower too.
    """
    spec = ClusterSpec(
        brokers=2,
        port=free_port_range(2),
        settings={"replica.selector.class": RACK_AWARE_SELECTOR},
        node_settings={"broker-1": {"broker.rack": "near"}, "broker-2": {"broker.rack": "far"}},
    )
    with EmbeddedCluster(spec) as cluster:
        addresses = cluster.bootstrap.split(",")
        with Peer.at(addresses[0]) as leader, Peer.at(addresses[1]) as follower:
            topic = CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
            )
            assert (
                leader.ask(
                    CreateTopicsRequest(topics=[topic], timeout_ms=LONG_MS), 5, CreateTopicsResponse
                )
                .topics[0]
                .error_code
                == 0
            )
            produced(leader)
            for rack in ("", "near", "elsewhere"):
                row = fetch(leader, 0, rack)
                assert (row.preferred_read_replica, bool(row.records)) == (-1, True), rack
            sent_on = fetch(leader, 0, "far", LONG_MS)
            assert (
                sent_on.error_code,
                sent_on.preferred_read_replica,
                bytes(sent_on.records or b""),
                sent_on.high_watermark,
            ) == (0, 2, b"", 3)
            row = fetch(follower, 0, "far", LONG_MS)
            assert (row.error_code, row.preferred_read_replica, bool(row.records)) == (0, -1, True)


def produced(leader: Peer) -> None:
    """Produce three records, as soon as the partition has a leader."""
    give_up_at = time.monotonic() + 10
    while produce(leader, "t", batch(3)).error_code:
        assert time.monotonic() < give_up_at, "the partition has no leader"
        time.sleep(0.05)
