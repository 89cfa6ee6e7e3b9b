"""A classic consumer group for the checks: its coordinator is known, members join and sync, each on
its own connection.

A JoinGroup is answered when the other members have joined, too; so members that join together send
first and receive later.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kraftsim.conformance.expect import Unmet, error_name, expect_equal, expect_error
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import PAUSE_SECONDS, SETTLE_SECONDS, Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    NO_GENERATION_ID,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from protocol.version_prefixed import ConsumerProtocolSubscription, build_subscription

Answer = TypeVar("Answer")
SESSION_MS: Final = 30_000
JOIN_VERSION: Final = 7
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 4
COMMIT_VERSION: Final = 8
FETCH_VERSION: Final = 7
PROTOCOL_TYPE: Final = "consumer"
PROTOCOL: Final = "range"
MAY_PASS: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Transient errors while the internal topic is created and its coordinator is loading."""


class GroupClient:
    """A group with a new name, and the address of its coordinator, which is available."""

    def __init__(self, target: Target, topics: Sequence[str] = ()) -> None:
        self.target = target
        self.group_id = target.fresh_name("group")
        self.subscription = build_subscription(ConsumerProtocolSubscription(topics=list(topics)), 1)
        self.address = find_coordinator(target, self.group_id)
        with self.peer() as peer:
            with_retries(
                lambda: peer.ask(
                    self.heartbeat_request("nobody", 1), HEARTBEAT_VERSION, HeartbeatResponse
                ),
                lambda answer: answer.error_code,
            )

    def peer(self) -> Peer:
        """Return a new connection to the coordinator."""
        return self.target.peer(self.address)

    # Requests
    # ----------------------------------------------------------------------------------------------

    def join_request(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Sequence[str] = (PROTOCOL,),
        session_ms: int = SESSION_MS,
    ) -> JoinGroupRequest:
        """Return a valid JoinGroup request."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self.subscription)
                for name in protocols
            ],
        )

    def sync_request(
        self,
        member_id: str,
        generation_id: int,
        shares: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
    ) -> SyncGroupRequest:
        """Return a SyncGroup request; the leader's contains all assignments."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=share)
                for each, share in (shares or {}).items()
            ],
        )

    def heartbeat_request(
        self, member_id: str, generation_id: int, instance_id: str | None = None
    ) -> HeartbeatRequest:
        """Return a heartbeat."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )

    # Talks
    # ----------------------------------------------------------------------------------------------

    def fresh_id(self, peer: Peer) -> str:
        """Return a member id to join with."""
        answer = peer.ask(self.join_request(), JOIN_VERSION, JoinGroupResponse)
        expect_error(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED, "a member without an id")
        return answer.member_id

    def heartbeat(
        self, peer: Peer, member_id: str, generation_id: int, instance_id: str | None = None
    ) -> int:
        """Send a heartbeat and return its error."""
        return peer.ask(
            self.heartbeat_request(member_id, generation_id, instance_id),
            HEARTBEAT_VERSION,
            HeartbeatResponse,
        ).error_code

    def joined_alone(self, peer: Peer, instance_id: str | None = None) -> JoinGroupResponse:
        """Be the only member, with an assignment; return the JoinGroup response."""
        member_id = self.fresh_id(peer) if instance_id is None else ""
        joined = peer.ask(
            self.join_request(member_id, instance_id=instance_id), JOIN_VERSION, JoinGroupResponse
        )
        expect_error(joined.error_code, ErrorCode.NONE, "the join of the only member")
        share = self.sync_request(
            joined.member_id,
            joined.generation_id,
            {joined.member_id: b"share"},
            instance_id=instance_id,
        )
        synced = peer.ask(share, SYNC_VERSION, SyncGroupResponse)
        expect_error(synced.error_code, ErrorCode.NONE, "the sync of the only member")
        expect_equal(bytes(synced.assignment), b"share", "the assignment of the only member")
        return joined

    def leave(
        self, peer: Peer, member_id: str, instance_id: str | None = None
    ) -> LeaveGroupResponse:
        """Send LeaveGroup."""
        asked = LeaveGroupRequest(
            group_id=self.group_id,
            members=[MemberIdentity(member_id=member_id, group_instance_id=instance_id)],
        )
        return peer.ask(asked, LEAVE_VERSION, LeaveGroupResponse)

    def commit(
        self,
        peer: Peer,
        partitions: Sequence[tuple[str, int]],
        *,
        member_id: str = "",
        generation_id: int = NO_GENERATION_ID,
        offset: int = 5,
        metadata: str = "m",
        version: int = COMMIT_VERSION,
    ) -> list[int]:
        """Commit the same offset for some partitions, each a topic of its own in the request, and
        return their errors.
        """
        asked = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for topic, number in partitions
            ],
        )
        answer = peer.ask(asked, version, OffsetCommitResponse)
        found = {
            (topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }
        return [found[partition] for partition in partitions]

    def fetch(self, peer: Peer, topic: str, numbers: Sequence[int]) -> dict[int, tuple[int, str]]:
        """Return offset and metadata of partitions of a topic."""
        asked = OffsetFetchRequest(
            group_id=self.group_id,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=list(numbers))],
        )
        answer = peer.ask(asked, FETCH_VERSION, OffsetFetchResponse)
        expect_error(answer.error_code, ErrorCode.NONE, "the group's offsets")
        return {
            row.partition_index: (row.committed_offset, row.metadata or "")
            for found in answer.topics
            for row in found.partitions
        }


def find_coordinator(target: Target, group_id: str) -> str:
    """Return the address of a group's coordinator, with retries while the internal topic is
    created.

    Raises Unmet.
    """
    version = target.newest(ApiKey.FIND_COORDINATOR, until=3)
    with target.peer() as peer:
        answer = with_retries(
            lambda: peer.ask(
                FindCoordinatorRequest(key=group_id), version, FindCoordinatorResponse
            ),
            lambda found: found.error_code,
        )
    return f"{answer.host}:{answer.port}"


def with_retries(
    ask: Callable[[], Answer],
    error_of: Callable[[Answer], int],
    may_pass: Sequence[ErrorCode] = MAY_PASS,
) -> Answer:
    """Retry while the error is transient. Raises Unmet if it stays."""
    give_up_at = time.monotonic() + SETTLE_SECONDS
    while True:
        answer = ask()
        if error_of(answer) not in may_pass:
            return answer
        if time.monotonic() > give_up_at:
            raise Unmet(f"no coordinator: {error_name(error_of(answer))}")
        time.sleep(PAUSE_SECONDS)
