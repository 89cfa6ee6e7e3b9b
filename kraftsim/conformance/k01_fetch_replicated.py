"""What is readable, and what is acknowledged, of a partition with a slow follower: the high
watermark decides.

The follower is an emulated broker: it is unfenced by the controller, and fetches from the leader
when a check wants it to.
Source: KIP-98, KIP-207, KIP-966; Partition.{readRecords, maybeIncrementLeaderHW,
checkEnoughReplicasReachOffset}.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraftsim.conformance.batches import ALL, LEADER, batch, produce, produce_request
from kraftsim.conformance.emulated_broker import CAUGHT_UP, ThrowAwayBroker, throw_away_broker
from kraftsim.conformance.expect import Unmet, error_name, expect_equal, expect_error, settled
from kraftsim.conformance.k01_fetch import (
    FORMAT_2_SINCE,
    LAST_EPOCHS_SINCE,
    fetch_one,
    fetch_request,
)
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceResponse, ProduceResponse
from protocol.messages.k01_fetch import FetchPartition, FetchResponse, ReplicaState
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.records.batches import split_batches

REQUIREMENTS = Requirements("fetch", 4, "Partitions with a slow follower")
ENOUGH = "Partition.checkEnoughReplicasReachOffset"
IDS_IN_CREATE_TOPICS, NAMES_OF_DELETE_TOPICS, PRODUCE_VERSION = 7, 5, 9
STATE_SINCE = 15
TIMEOUT_MS, SHORT_MS = 15_000, 1500
NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A topic with one partition: a node of the cluster leads, an emulated broker follows and is in
    sync.
    """

    target: Target
    topic: TargetTopic
    follower: ThrowAwayBroker

    def produce(self, acks: int = LEADER) -> PartitionProduceResponse:
        """Append one record, as soon as the leader has become leader."""
        with self.target.peer(self.topic.leader) as peer:
            return settled(
                lambda: produce(peer, self.topic.name, batch(), PRODUCE_VERSION, acks=acks),
                lambda row: row.error_code not in NOT_YET,
                "a leader",
            )

    def replicate_to(self, offset: int) -> None:
        """Let the follower fetch from an offset: it acknowledges everything before that."""
        version = self.target.newest(ApiKey.FETCH, address=self.topic.leader)

        def in_first_epoch(row: FetchPartition) -> None:
            row.current_leader_epoch = 0
            row.log_start_offset = 0
            row.last_fetched_epoch = 0 if version >= LAST_EPOCHS_SINCE and offset else -1

        asked = fetch_request(self.topic, version, offset, change=in_first_epoch)
        if version >= STATE_SINCE:
            asked.replica_state = ReplicaState(
                replica_id=self.follower.broker_id, replica_epoch=self.follower.epoch
            )
        else:
            asked.replica_id = self.follower.broker_id
        with self.target.peer(self.topic.leader) as peer:
            answer = peer.ask(asked, version, FetchResponse)
        expect_error(
            answer.responses[0].partitions[0].error_code,
            ErrorCode.NONE,
            f"a Fetch of the follower from offset {offset}",
        )

    def readable(self, version: int) -> tuple[list[int], int]:
        """Return the base offsets of the batches that a consumer gets from the start, and the high
        watermark.
        """
        row = fetch_one(self.target, self.topic, fetch_request(self.topic, version), version)
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}: a consumer's Fetch")
        return [each.base_offset for each in split_batches(row.records or b"")], row.high_watermark


@contextmanager
def followed_topic(target: Target, min_in_sync: int = 1) -> Iterator[Followed]:
    """Yield such a topic. Topic and broker are removed at the end."""
    leader = target.topic()
    with throw_away_broker(target) as follower:
        follower.registered()
        follower.heartbeat(offset=CAUGHT_UP, want_fence=False)
        name = target.fresh_name()
        row = CreatableReplicaAssignment(
            partition_index=0, broker_ids=[leader.leader_id, follower.broker_id]
        )
        config = CreatableTopicConfig(name="min.insync.replicas", value=str(min_in_sync))
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[row], configs=[config]
        )
        with target.controller_peer() as peer:
            answer = peer.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS),
                IDS_IN_CREATE_TOPICS,
                CreateTopicsResponse,
            )
            made = answer.topics[0]
            if made.error_code != ErrorCode.NONE:
                raise Unmet(
                    f"a topic could not be made on the controller: {error_name(made.error_code)} "
                    f"{made.error_message}"
                )
            try:
                known = TargetTopic(
                    name=name,
                    topic_id=bytes(made.topic_id),
                    leader=leader.leader,
                    leader_id=leader.leader_id,
                )
                yield Followed(target=target, topic=known, follower=follower)
            finally:
                peer.ask(
                    DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS),
                    NAMES_OF_DELETE_TOPICS,
                    DeleteTopicsResponse,
                )


@REQUIREMENTS.that(
    1, "a consumer reads up to the high watermark only", source="Partition.readRecords"
)
def below_high_watermark(target: Target) -> None:
    with followed_topic(target) as followed:
        expect_error(
            followed.produce().error_code,
            ErrorCode.NONE,
            "acks=1, which does not wait for the follower",
        )
        followed.produce()
        for replicated in range(3):
            followed.replicate_to(replicated)
            for version in target.versions(ApiKey.FETCH, since=FORMAT_2_SINCE):
                expected = (list(range(replicated)), replicated)
                expect_equal(
                    followed.readable(version),
                    expected,
                    f"version {version}, the follower has {replicated} of 2 records",
                )


def _while_in_sync_replicas_go(target: Target) -> PartitionProduceResponse:
    """Append with acks=all, let the follower leave the ISR meanwhile, and return the response."""
    with followed_topic(target, min_in_sync=2) as followed:
        followed.produce()
        asked = produce_request(followed.topic.name, batch(), acks=ALL)
        asked.timeout_ms = SHORT_MS
        with target.peer(followed.topic.leader) as peer:
            correlation_id = peer.send(asked, PRODUCE_VERSION)
            followed.follower.heartbeat(offset=CAUGHT_UP, want_fence=False, want_shut_down=True)
            answer = peer.receive(asked, PRODUCE_VERSION, correlation_id, ProduceResponse)
    return answer.responses[0].partition_responses[0]


@REQUIREMENTS.that(
    2,
    "an append whose ISR shrinks below min.insync.replicas while it waits returns "
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    source=ENOUGH,
    until="3.6",
)
def too_few_after_append(target: Target) -> None:
    row = _while_in_sync_replicas_go(target)
    expect_error(
        row.error_code,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        "acks=all, one replica in sync is left, two are demanded",
    )


@REQUIREMENTS.that(
    3,
    "an append whose ISR shrinks below min.insync.replicas while it waits returns "
    "REQUEST_TIMED_OUT",
    source="KIP-966",
    since="3.7",
)
def not_acknowledged(target: Target) -> None:
    row = _while_in_sync_replicas_go(target)
    expect_error(
        row.error_code,
        ErrorCode.REQUEST_TIMED_OUT,
        "acks=all, one replica in sync is left, two are demanded",
    )
