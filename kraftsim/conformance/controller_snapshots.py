"""FetchSnapshot (59) on the controller listener: how a request for a non-existent snapshot is
rejected.

Source: KIP-630, KafkaRaftClient.handleFetchSnapshotRequest.
"""

from kraftsim.conformance.controller_metadata_log import MetadataReader
from kraftsim.conformance.emulated_broker import cluster_id_of
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k59_fetch_snapshot import (
    FetchPartitionSnapshot,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchTopicSnapshot,
    SnapshotId,
)

REQUIREMENTS = Requirements("controller", 8, "Snapshots of the metadata")
HANDLE = "KafkaRaftClient.handleFetchSnapshotRequest"
METADATA = "__cluster_metadata"
UNKNOWN_ID = -1
FAR_OFFSET = 1 << 40
PIECE_BYTES = 64


class ControllerSnapshotReader:
    """The id of a replica that only fetches snapshots."""

    def __init__(self, target: Target, peer: Peer, version: int) -> None:
        self._peer = peer
        self._version = version
        self.log = MetadataReader(target, peer)

    def request(
        self, end_offset: int = FAR_OFFSET, epoch: int = 1, position: int = 0, topic: str = METADATA
    ) -> FetchSnapshotRequest:
        """Return a FetchSnapshot request, by default for a non-existent snapshot."""
        row = FetchPartitionSnapshot(
            partition=0,
            current_leader_epoch=self.log.leader_epoch,
            snapshot_id=SnapshotId(end_offset=end_offset, epoch=epoch),
            position=position,
        )
        return FetchSnapshotRequest(
            replica_id=UNKNOWN_ID,
            max_bytes=PIECE_BYTES,
            topics=[FetchTopicSnapshot(name=topic, partitions=[row])],
        )

    def ask(self, asked: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """Send it."""
        return self._peer.ask(asked, self._version, FetchSnapshotResponse)


@REQUIREMENTS.that(
    1,
    "a non-existent snapshot fails as a whole with UNKNOWN_SERVER_ERROR: Kafka cannot send the "
    "intended error",
    source=HANDLE,
)
def not_there(target: Target) -> None:
    for version in target.versions(ApiKey.FETCH_SNAPSHOT, address=target.controller_address()):
        with target.controller_peer() as peer:
            reader = ControllerSnapshotReader(target, peer, version)
            rows = {
                "no such snapshot": reader.request(),
                "a negative end": reader.request(-1),
                "another topic": reader.request(topic="another"),
                "another partition": reader.request(),
                "an epoch behind": reader.request(),
                "an epoch ahead": reader.request(),
            }
            rows["another partition"].topics[0].partitions[0].partition = 1
            rows["an epoch behind"].topics[0].partitions[0].current_leader_epoch -= 1
            rows["an epoch ahead"].topics[0].partitions[0].current_leader_epoch += 1
            for what, asked in rows.items():
                answer = reader.ask(asked)
                expect_error(
                    answer.error_code, ErrorCode.UNKNOWN_SERVER_ERROR, f"version {version}, {what}"
                )
                expect_equal(answer.topics, [], f"version {version}, {what}: topics")


@REQUIREMENTS.that(
    2,
    "another cluster id is rejected with INCONSISTENT_CLUSTER_ID",
    source="KafkaRaftClient.hasValidClusterId",
)
def another_cluster(target: Target) -> None:
    for version in target.versions(ApiKey.FETCH_SNAPSHOT, address=target.controller_address()):
        with target.controller_peer() as peer:
            reader = ControllerSnapshotReader(target, peer, version)
            asked = reader.request()
            asked.cluster_id = "another-cluster-of-ours"
            expect_error(
                reader.ask(asked).error_code,
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"version {version}, another cluster",
            )
            asked.cluster_id = cluster_id_of(target)
            expect_error(
                reader.ask(asked).error_code,
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"version {version}, no such snapshot of this one",
            )
