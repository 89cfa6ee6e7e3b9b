"""The state of share-partitions: InitializeShareGroupState (83), ReadShareGroupState (84),
WriteShareGroupState (85), DeleteShareGroupState (86), ReadShareGroupStateSummary (87), and their
coordinator.

Group coordinators and partition leaders send these requests; on a cluster without an authorizer any
client may.
Source: KIP-932, KIP-1226; org.apache.kafka.coordinator.share.ShareCoordinatorShard; verified
against Apache Kafka 4.1.2, 4.2.2, 4.3.1 and 4.4.0.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass

from kraftsim.conformance.expect import expect_equal, expect_error, settled
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import SINCE, require_share_groups
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import k83_initialize_share_group_state as initializing
from protocol.messages import k84_read_share_group_state as reading
from protocol.messages import k85_write_share_group_state as writing
from protocol.messages import k86_delete_share_group_state as deleting
from protocol.messages import k87_read_share_group_state_summary as summing
from protocol.messages.k10_find_coordinator import (
    SHARE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

REQUIREMENTS = Requirements("share-groups", 6, "The state of share-partitions")
SHARD = "org.apache.kafka.coordinator.share.ShareCoordinatorShard"
KEYS_SINCE = 6
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
UNHOSTED = "This server does not host this topic-partition."
OLDER_LEADER = "The leader epoch in the request is older than the epoch on the broker."
Batch = tuple[int, int, int, int]
"""First and last offset, both inclusive, delivery state and delivery count."""


def coordinators(target: Target, *keys: str, version: int = KEYS_SINCE) -> list[Coordinator]:
    """Look up share coordinators once."""
    with target.peer() as peer:
        asked = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=list(keys))
        return peer.ask(asked, version, FindCoordinatorResponse).coordinators


def key_of(group_id: str, topic_id: bytes, partition: int = 0) -> str:
    """Return the key of a share-partition."""
    name = urlsafe_b64encode(topic_id).decode().rstrip("=")
    return f"{group_id}:{name}:{partition}"


@dataclass(slots=True)
class StateClient:
    """A share-partition with a new group, and a connection to its coordinator."""

    target: Target
    peer: Peer
    group_id: str
    topic_id: bytes
    partition: int = 0

    @classmethod
    def at(cls, target: Target) -> "StateClient":
        """Find the coordinator, with retries while its internal topic is created."""
        require_share_groups(target, ApiKey.READ_SHARE_GROUP_STATE)
        group_id, topic_id = target.fresh_name("state"), target.topic().topic_id
        found = settled(
            lambda: coordinators(target, key_of(group_id, topic_id))[0],
            lambda row: row.error_code == ErrorCode.NONE,
            "the share coordinator",
        )
        client = cls(target, target.peer(f"{found.host}:{found.port}"), group_id, topic_id)
        settled(
            client.summary,
            lambda row: row.error_code == ErrorCode.NONE,
            "the state of a share coordinator",
        )
        return client

    def __enter__(self) -> "StateClient":
        return self

    def __exit__(self, *failure: object) -> None:
        self.peer.close()

    def initialize(
        self, state_epoch: int, start_offset: int, **other: object
    ) -> tuple[int, str | None]:
        """Initialize, and return error and message; `other` replaces topic id or partition."""
        row = initializing.PartitionData(
            partition=self._number(other), state_epoch=state_epoch, start_offset=start_offset
        )
        answer = self.peer.ask(
            initializing.InitializeShareGroupStateRequest(
                group_id=self.group_id,
                topics=[
                    initializing.InitializeStateData(topic_id=self._topic(other), partitions=[row])
                ],
            ),
            0,
            initializing.InitializeShareGroupStateResponse,
        )
        found = answer.results[0].partitions[0]
        return found.error_code, found.error_message

    def read(self, leader_epoch: int = 0) -> reading.PartitionResult:
        """Read the state."""
        row = reading.PartitionData(partition=self.partition, leader_epoch=leader_epoch)
        return (
            self.peer.ask(
                reading.ReadShareGroupStateRequest(
                    group_id=self.group_id,
                    topics=[reading.ReadStateData(topic_id=self.topic_id, partitions=[row])],
                ),
                0,
                reading.ReadShareGroupStateResponse,
            )
            .results[0]
            .partitions[0]
        )

    def state(self, leader_epoch: int = 0) -> tuple[int, list[Batch]]:
        """Return start offset and batches. Raises Unmet for an error."""
        found = self.read(leader_epoch)
        expect_error(found.error_code, ErrorCode.NONE, "reading the state")
        return found.start_offset, [
            (row.first_offset, row.last_offset, row.delivery_state, row.delivery_count)
            for row in found.state_batches
        ]

    def write(
        self,
        *batches: Batch,
        start_offset: int = -1,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        completed: int = -1,
    ) -> tuple[int, str | None]:
        """Write changes, and return error and message."""
        row = writing.PartitionData(
            partition=self.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=completed,
            state_batches=[
                writing.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in batches
            ],
        )
        found = (
            self.peer.ask(
                writing.WriteShareGroupStateRequest(
                    group_id=self.group_id,
                    topics=[writing.WriteStateData(topic_id=self.topic_id, partitions=[row])],
                ),
                self.target.newest(ApiKey.WRITE_SHARE_GROUP_STATE),
                writing.WriteShareGroupStateResponse,
            )
            .results[0]
            .partitions[0]
        )
        return found.error_code, found.error_message

    def delete(self) -> tuple[int, str | None]:
        """Delete the state, and return error and message."""
        row = deleting.PartitionData(partition=self.partition)
        found = (
            self.peer.ask(
                deleting.DeleteShareGroupStateRequest(
                    group_id=self.group_id,
                    topics=[deleting.DeleteStateData(topic_id=self.topic_id, partitions=[row])],
                ),
                0,
                deleting.DeleteShareGroupStateResponse,
            )
            .results[0]
            .partitions[0]
        )
        return found.error_code, found.error_message

    def summary(self, leader_epoch: int = 0) -> summing.PartitionResult:
        """Read the summary."""
        row = summing.PartitionData(partition=self.partition, leader_epoch=leader_epoch)
        return (
            self.peer.ask(
                summing.ReadShareGroupStateSummaryRequest(
                    group_id=self.group_id,
                    topics=[summing.ReadStateSummaryData(topic_id=self.topic_id, partitions=[row])],
                ),
                self.target.newest(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY),
                summing.ReadShareGroupStateSummaryResponse,
            )
            .results[0]
            .partitions[0]
        )

    def _topic(self, other: dict[str, object]) -> bytes:
        found = other.get("topic_id", self.topic_id)
        assert isinstance(found, bytes), "a topic id"
        return found

    def _number(self, other: dict[str, object]) -> int:
        found = other.get("partition", self.partition)
        assert isinstance(found, int), "a partition"
        return found


def _initialized(target: Target, start_offset: int = 5) -> StateClient:
    client = StateClient.at(target)
    expect_equal(client.initialize(1, start_offset), (0, None), "initializing")
    return client


@REQUIREMENTS.that(
    1,
    "the coordinator of a share-partition is found by group, topic id and partition, with an empty "
    "message",
    source="KIP-932; KafkaApis.getCoordinator",
    since=SINCE,
)
def coordinator(target: Target) -> None:
    with StateClient.at(target) as client:
        key = key_of(client.group_id, client.topic_id)
        row = coordinators(target, key)[0]
        expect_equal((row.key, row.error_code, row.error_message), (key, 0, ""), "the coordinator")


@REQUIREMENTS.that(
    2,
    "FindCoordinator returns INVALID_REQUEST for keys of share-partitions that are malformed, and "
    "before version 6",
    source="SharePartitionKey.validate",
    since=SINCE,
)
def malformed_keys(target: Target) -> None:
    with StateClient.at(target) as client:
        topic = key_of("", client.topic_id).strip(":").partition(":")[0]
        keys = ["x", f"group:{topic}", f":{topic}:0", f"group:{topic}:x", "group:zz:0"]
        found = {row.key: (row.error_code, row.node_id) for row in coordinators(target, "", *keys)}
        expect_equal(
            found,
            {key: (int(ErrorCode.INVALID_REQUEST), -1) for key in ("", *keys)},
            "malformed keys",
        )
        valid = key_of(client.group_id, client.topic_id)
        old = coordinators(target, valid, version=KEYS_SINCE - 1)[0]
        expect_error(old.error_code, ErrorCode.INVALID_REQUEST, "a valid key in version 5")


@REQUIREMENTS.that(
    3,
    "uninitialized state cannot be read or written (INVALID_REQUEST); its summary has start offset "
    "-1, and deleting it succeeds",
    source=SHARD,
    since=SINCE,
)
def uninitialized(target: Target) -> None:
    with StateClient.at(target) as client:
        found = client.read()
        expect_equal(
            (found.error_code, found.error_message),
            (
                int(ErrorCode.INVALID_REQUEST),
                "Read operation on uninitialized share partition not allowed.",
            ),
            "reading",
        )
        expect_equal(
            client.write((0, 1, ACKNOWLEDGED, 1), start_offset=0, state_epoch=0),
            (
                int(ErrorCode.INVALID_REQUEST),
                "Write operation on uninitialized share partition not allowed.",
            ),
            "writing",
        )
        row = client.summary()
        expect_equal(
            (row.error_code, row.state_epoch, row.leader_epoch, row.start_offset),
            (0, 0, 0, -1),
            "the summary",
        )
        expect_equal(client.delete(), (0, None), "deleting")


@REQUIREMENTS.that(
    4,
    "initialized state has the epoch and the start offset, again with the same epoch a new start "
    "offset, and with a higher one no batches",
    source=SHARD,
    since=SINCE,
)
def initialization(target: Target) -> None:
    with _initialized(target) as client:
        found = client.read()
        expect_equal(
            (found.state_epoch, found.start_offset, found.state_batches), (1, 5, []), "the state"
        )
        expect_equal(client.initialize(1, 7), (0, None), "the same epoch")
        expect_equal(client.state(), (7, []), "the state then")
        expect_equal(client.write((7, 9, ACKNOWLEDGED, 1)), (0, None), "writing")
        expect_equal(client.initialize(2, 0), (0, None), "a higher epoch")
        expect_equal((client.read().state_epoch, client.state()), (2, (0, [])), "a new state")
        expect_error(
            client.initialize(1, 0)[0], ErrorCode.FENCED_STATE_EPOCH, "a lower state epoch"
        )


@REQUIREMENTS.that(
    5,
    "state of unknown topics and partitions returns UNKNOWN_TOPIC_OR_PARTITION, of a negative "
    "partition INVALID_REQUEST",
    source=SHARD,
    since=SINCE,
)
def unknown_partitions(target: Target) -> None:
    with StateClient.at(target) as client:
        unknown = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), UNHOSTED)
        expect_equal(client.initialize(1, 0, topic_id=bytes(15) + b"\x07"), unknown, "a topic")
        expect_equal(client.initialize(1, 0, partition=9), unknown, "partition 9 of one")
        expect_equal(
            client.initialize(1, 0, partition=-1),
            (int(ErrorCode.INVALID_REQUEST), "The partition id cannot be a negative number."),
            "partition -1",
        )


@REQUIREMENTS.that(
    6,
    "a lower state epoch cannot write (FENCED_STATE_EPOCH)",
    source=SHARD,
    since=SINCE,
)
def state_epochs(target: Target) -> None:
    with _initialized(target) as client:
        expect_error(
            client.write((5, 6, ACKNOWLEDGED, 1), state_epoch=0)[0],
            ErrorCode.FENCED_STATE_EPOCH,
            "a lower state epoch",
        )
        expect_equal(client.state(), (5, []), "the state")


@REQUIREMENTS.that(
    7,
    "a read with a later leader epoch fences the previous leader's reads and writes "
    "(FENCED_LEADER_EPOCH), not summaries",
    source=SHARD,
    since=SINCE,
)
def leader_epochs(target: Target) -> None:
    with _initialized(target) as client:
        expect_equal(client.state(4), (5, []), "a read with epoch 4")
        fenced = (int(ErrorCode.FENCED_LEADER_EPOCH), OLDER_LEADER)
        found = client.read(3)
        expect_equal((found.error_code, found.error_message), fenced, "a read with epoch 3")
        expect_equal(
            client.write((5, 5, ACKNOWLEDGED, 1), leader_epoch=3), fenced, "a write with epoch 3"
        )
        row = client.summary(3)
        expect_equal((row.error_code, row.leader_epoch), (0, 4), "a summary with epoch 3")
        expect_equal(
            client.write((5, 5, ACKNOWLEDGED, 1), leader_epoch=5), (0, None), "a write with epoch 5"
        )


@REQUIREMENTS.that(
    8,
    "written batches are read back; those below a later start offset are removed or cut",
    source="PersisterStateBatchCombiner",
    since=SINCE,
)
def pruning(target: Target) -> None:
    with _initialized(target) as client:
        batches = [(5, 7, ACKNOWLEDGED, 1), (8, 9, AVAILABLE, 1), (10, 12, ARCHIVED, 5)]
        expect_equal(client.write(*batches), (0, None), "writing")
        expect_equal(client.state(), (5, batches), "the state")
        expect_equal(client.write(start_offset=9), (0, None), "a later start")
        expect_equal(
            client.state(), (9, [(9, 9, AVAILABLE, 1), (10, 12, ARCHIVED, 5)]), "the state then"
        )
        expect_equal(client.write((1, 8, ACKNOWLEDGED, 1)), (0, None), "batches below the start")
        expect_equal(
            client.state(), (9, [(9, 9, AVAILABLE, 1), (10, 12, ARCHIVED, 5)]), "the same state"
        )


@REQUIREMENTS.that(
    9,
    "of overlapping batches the one with the higher delivery count holds, and then the one with "
    "the higher state; equal neighbours are one batch",
    source="PersisterStateBatchCombiner",
    since=SINCE,
)
def merging(target: Target) -> None:
    with _initialized(target, 0) as client:
        client.write((0, 9, ACKNOWLEDGED, 3))
        client.write((3, 4, AVAILABLE, 1))
        expect_equal(client.state(), (0, [(0, 9, ACKNOWLEDGED, 3)]), "a lower count")
        client.write((3, 4, AVAILABLE, 4))
        split = [(0, 2, ACKNOWLEDGED, 3), (3, 4, AVAILABLE, 4), (5, 9, ACKNOWLEDGED, 3)]
        expect_equal(client.state(), (0, split), "a higher count")
        client.write((3, 4, ACKNOWLEDGED, 4))
        expect_equal(
            client.state()[1][1], (3, 4, ACKNOWLEDGED, 4), "a higher state of the same count"
        )
        client.write((3, 4, AVAILABLE, 4))
        expect_equal(
            client.state()[1][1], (3, 4, ACKNOWLEDGED, 4), "a lower state of the same count"
        )


@REQUIREMENTS.that(
    10,
    "a deleted state is uninitialized, and deleting it again succeeds",
    source=SHARD,
    since=SINCE,
)
def deletion(target: Target) -> None:
    with _initialized(target) as client:
        expect_equal(client.delete(), (0, None), "deleting")
        expect_error(client.read().error_code, ErrorCode.INVALID_REQUEST, "reading")
        expect_equal(client.summary().start_offset, -1, "the summary")
        expect_equal(client.delete(), (0, None), "deleting again")
        expect_equal(client.initialize(0, 3), (0, None), "initializing with a lower epoch")
        expect_equal(client.state(), (3, []), "the state")


@REQUIREMENTS.that(
    11,
    "the summary has the count of completed records that was written last",
    source="KIP-1226",
    since="4.2",
)
def completed(target: Target) -> None:
    with _initialized(target) as client:
        client.write((5, 7, ACKNOWLEDGED, 1), start_offset=5, completed=3)
        row = client.summary()
        expect_equal(
            (row.error_code, row.state_epoch, row.start_offset, row.delivery_complete_count),
            (0, 1, 5, 3),
            "the summary",
        )


@REQUIREMENTS.that(
    12,
    "a start offset never goes back: a lower one is ignored",
    source=SHARD,
    since="4.4",
)
def start_never_falls(target: Target) -> None:
    with _initialized(target) as client:
        client.write(start_offset=9)
        expect_equal(client.write(start_offset=2), (0, None), "a lower start offset")
        expect_equal(client.state(), (9, []), "the state")


@REQUIREMENTS.that(
    13,
    "negative epochs return INVALID_REQUEST",
    source="ShareCoordinatorService",
    since="4.4",
)
def negative_epochs(target: Target) -> None:
    with _initialized(target) as client:
        invalid = int(ErrorCode.INVALID_REQUEST)
        expect_equal(
            client.initialize(-1, 0),
            (invalid, "The state epoch cannot be a negative number."),
            "state epoch -1",
        )
        found = client.read(-1)
        expect_equal(
            (found.error_code, found.error_message),
            (invalid, "The leader epoch cannot be a negative number."),
            "leader epoch -1",
        )


@REQUIREMENTS.that(
    14,
    "a write with a higher state epoch than that of the state succeeds, and leaves the epoch",
    source=SHARD,
    since="4.2",
)
def higher_state_epoch(target: Target) -> None:
    with _initialized(target) as client:
        expect_equal(client.write(state_epoch=2), (0, None), "a higher state epoch")
        expect_equal(client.read().state_epoch, 1, "the state epoch")
        expect_equal(client.write((5, 5, ACKNOWLEDGED, 1)), (0, None), "the former one")


@REQUIREMENTS.that(
    15,
    "a request without a group returns no rows",
    source="ShareCoordinatorService",
    since=SINCE,
)
def no_group(target: Target) -> None:
    with _initialized(target) as client:
        row = reading.PartitionData(partition=0, leader_epoch=0)
        answer = client.peer.ask(
            reading.ReadShareGroupStateRequest(
                group_id="",
                topics=[reading.ReadStateData(topic_id=client.topic_id, partitions=[row])],
            ),
            0,
            reading.ReadShareGroupStateResponse,
        )
        expect_equal(answer.results, [], "rows of a read without a group")


@REQUIREMENTS.that(
    16,
    "only reads raise the leader epoch, writes do not",
    source=SHARD,
    since="4.2",
)
def leader_epoch_of_writes(target: Target) -> None:
    with _initialized(target) as client:
        client.read(4)
        expect_equal(client.write(leader_epoch=6), (0, None), "a write with a later leader epoch")
        expect_equal(client.summary().leader_epoch, 4, "the leader epoch")
        expect_equal(client.state(5), (5, []), "a read between both")
