"""Consumers as their frames show them: the records that reached them, their groups, and the offsets
that they learned and committed.

A Fetch response has whole batches. A consumer skips the records before its fetch offset, control
batches and, with read_committed, the batches of aborted transactions; what is left reached it.
Whether the application polled it stays unknown: a consumer drops what it has prefetched when it
seeks or loses the partition. In a fetch session a request names only the partitions that changed,
so the fetch offsets of the session are kept.

Source: KIP-98, KIP-227, KIP-447, KIP-516, KIP-848;
org.apache.kafka.clients.consumer.internals.{CompletedFetch, ConsumerCoordinator}.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kraftsim.clients.events import RecordRead
from kraftsim.clients.events_transactions import (
    MembershipLost,
    MemberStable,
    OffsetCommitSent,
    OffsetLearned,
    OffsetsAsked,
)
from kraftsim.clients.rules_consumer import Aborted, committed_batches
from kraftsim.clients.rules_observed_producers import Emit, NameOf
from kraftsim.core.record_keys import record_key
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import (
    FIRST_SESSION_EPOCH,
    NO_SESSION_ID,
    READ_COMMITTED,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.k08_offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.records.batches import RecordBatch, split_batches
from protocol.uuids import ZERO_UUID
from protocol.version_prefixed import parse_assignment

CONSUMER_PROTOCOL = "consumer"
EXPELLED = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
)
"""Errors by which a member learns that it must join again."""
TopicKey = str | bytes
"""The name of a topic, or its id where the request has only that."""
Positions = dict[tuple[TopicKey, int], int]
"""Topic and partition -> fetch offset."""
Member = tuple[str, str]
"""Group and member id."""


@dataclass(slots=True, eq=False)
class SentFetch:
    """A Fetch request that awaits its response."""

    client_id: str
    peer: str
    session_id: int
    session_epoch: int
    is_read_committed: bool
    positions: Positions


class ObservedFetches:
    """The Fetch requests of a process, with the sessions at each broker."""

    def __init__(self, emit: Emit, name_of: NameOf) -> None:
        self._emit = emit
        self._name_of = name_of
        self._sessions: dict[tuple[str, int], Positions] = {}

    def forget(self) -> None:
        """The process has ended."""
        self._sessions.clear()

    def asked(self, request: FetchRequest, client_id: str, peer: str) -> SentFetch:
        """Process a request; return what its response refers to."""
        positions: Positions = {}
        session = (peer, request.session_id)
        if request.session_id != NO_SESSION_ID and request.session_epoch > FIRST_SESSION_EPOCH:
            positions = self._sessions.setdefault(session, positions)
        elif request.session_id != NO_SESSION_ID:
            self._sessions.pop(session, None)
        for topic in request.topics:
            for partition in topic.partitions:
                where = (_key(topic.topic, topic.topic_id), partition.partition)
                positions[where] = partition.fetch_offset
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                positions.pop((_key(forgotten.topic, forgotten.topic_id), index), None)
        return SentFetch(
            client_id,
            peer,
            request.session_id,
            request.session_epoch,
            request.isolation_level == READ_COMMITTED,
            positions,
        )

    def answered(self, sent: SentFetch, response: FetchResponse) -> None:
        """Emit the records that reached the consumer."""
        if response.error_code != ErrorCode.NONE:
            return
        if response.session_id != NO_SESSION_ID and sent.session_epoch == FIRST_SESSION_EPOCH:
            self._sessions[sent.peer, response.session_id] = sent.positions
        for topic in response.responses:
            name = self._name_of(topic.topic, topic.topic_id)
            key = _key(topic.topic, topic.topic_id)
            for partition in topic.partitions if name is not None else ():
                offset = sent.positions.get((key, partition.partition_index))
                if offset is not None and partition.error_code == ErrorCode.NONE:
                    self._take(sent, name or "", partition, offset)

    def _take(self, sent: SentFetch, topic: str, data: PartitionData, fetch_offset: int) -> None:
        batches: list[RecordBatch] = []
        try:
            for batch in split_batches(data.records or b""):
                if not batch.crc_is_valid():
                    break  # the consumer raises an error here
                batches.append(batch)
        except MalformedMessage:
            pass  # garbage, or an old message format; what comes before it is read
        aborted = [
            Aborted(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ]
        wanted: Iterable[RecordBatch] = (
            committed_batches(batches, aborted)
            if sent.is_read_committed
            else (batch for batch in batches if not batch.is_control)
        )
        try:
            for batch in wanted:
                for record in batch.records() if batch.last_offset >= fetch_offset else ():
                    if record.offset >= fetch_offset:
                        self._emit(
                            RecordRead(
                                client_id=sent.client_id,
                                topic=topic,
                                partition=data.partition_index,
                                record_key=record_key(record.key, record.value),
                                offset=record.offset,
                                is_read_committed=sent.is_read_committed,
                            )
                        )
        except MalformedMessage:
            pass  # the consumer cannot read it either


def _key(topic: str, topic_id: bytes) -> TopicKey:
    return topic if topic_id == ZERO_UUID else topic_id


# --------------------------------------------------------------------------------------------------
# Groups: who is stable with which assignment, who was expelled; committed offsets
#
# `generation_id` is the member epoch in groups of the consumer protocol.


@dataclass(slots=True, eq=False)
class ObservedMember:
    """A member of a group, as it knows itself."""

    generation_id: int
    assignment: str
    is_stable: bool = True


class ObservedGroups:
    """The group members of a process, and the offsets of their groups."""

    def __init__(self, emit: Emit, name_of: NameOf) -> None:
        self._emit = emit
        self._name_of = name_of
        self._members: dict[Member, ObservedMember] = {}
        self._protocol_types: dict[Member, str] = {}
        self._questions: dict[str, int] = {}

    def forget(self) -> None:
        """The process has ended."""
        self._members.clear()
        self._protocol_types.clear()

    # Members
    # ----------------------------------------------------------------------------------------------

    def joined(
        self, request: JoinGroupRequest, response: JoinGroupResponse, client_id: str
    ) -> None:
        """A classic member has joined, or may not."""
        self._lose((request.group_id, request.member_id), response.error_code, client_id)
        if response.error_code == ErrorCode.NONE:
            member = (request.group_id, response.member_id)
            self._protocol_types[member] = request.protocol_type

    def synced(
        self, request: SyncGroupRequest, response: SyncGroupResponse, client_id: str
    ) -> None:
        """A classic member has its assignment."""
        member = (request.group_id, request.member_id)
        self._lose(member, response.error_code, client_id)
        is_consumer = self._protocol_types.get(member, CONSUMER_PROTOCOL) == CONSUMER_PROTOCOL
        if response.error_code != ErrorCode.NONE or not is_consumer:
            return
        try:
            assigned = parse_assignment(response.assignment) if response.assignment else None
        except MalformedMessage:
            return
        self._stable(
            member,
            request.generation_id,
            ()
            if assigned is None
            else (
                f"{topic.topic}-{index}"
                for topic in assigned.assigned_partitions
                for index in topic.partitions
            ),
            client_id,
        )

    def beat(self, request: HeartbeatRequest, response: HeartbeatResponse, client_id: str) -> None:
        """A heartbeat of a classic member was answered."""
        self._lose((request.group_id, request.member_id), response.error_code, client_id)

    def group_beat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
        client_id: str,
    ) -> None:
        """A heartbeat of a member of a consumer group was answered: it has the assignment, too."""
        member = (request.group_id, response.member_id or request.member_id)
        self._lose(member, response.error_code, client_id)
        if response.error_code != ErrorCode.NONE or response.member_epoch < 0:
            return
        known = self._members.get(member)
        if response.assignment is not None:
            assigned: Iterable[str] = [
                f"{self._name_of('', topic.topic_id) or topic.topic_id.hex()}-{index}"
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            ]
        elif known is not None and known.generation_id != response.member_epoch:
            assigned = known.assignment.split(",") if known.assignment else ()
        else:
            return
        self._stable(member, response.member_epoch, assigned, client_id)

    def _stable(
        self, member: Member, generation_id: int, assigned: Iterable[str], client_id: str
    ) -> None:
        found = ObservedMember(generation_id, ",".join(assigned))
        self._members[member] = found
        self._emit(
            MemberStable(
                client_id=client_id,
                group_id=member[0],
                member_id=member[1],
                generation_id=generation_id,
                assignment=found.assignment,
            )
        )

    def _lose(self, member: Member, error_code: int, client_id: str) -> None:
        found = self._members.get(member)
        if error_code not in EXPELLED or found is None or not found.is_stable:
            return
        found.is_stable = False
        self._emit(
            MembershipLost(
                client_id=client_id,
                group_id=member[0],
                generation_id=found.generation_id,
                error_code=error_code,
            )
        )

    # Offsets
    # ----------------------------------------------------------------------------------------------

    def commit_sent(self, request: OffsetCommitRequest, client_id: str) -> None:
        """A consumer commits offsets, without a transaction."""
        for topic in request.topics:
            name = self._name_of(topic.name, topic.topic_id)
            for partition in topic.partitions if name is not None else ():
                self._emit(
                    OffsetCommitSent(
                        client_id=client_id,
                        group_id=request.group_id,
                        topic=name or "",
                        partition=partition.partition_index,
                        offset=partition.committed_offset,
                    )
                )

    def commit_answered(
        self, request: OffsetCommitRequest, response: OffsetCommitResponse, client_id: str
    ) -> None:
        """The answer may say that the member was expelled."""
        member = (request.group_id, request.member_id)
        for topic in response.topics:
            for partition in topic.partitions:
                self._lose(member, partition.error_code, client_id)

    def offsets_asked(self, request: OffsetFetchRequest, client_id: str) -> int:
        """A consumer asks for the offsets of one or several groups; return the number of the
        question.
        """
        question = self._questions[client_id] = self._questions.get(client_id, 0) + 1
        for group_id in [each.group_id for each in request.groups] or [request.group_id]:
            self._emit(
                OffsetsAsked(
                    client_id=client_id,
                    group_id=group_id,
                    question=question,
                    is_stable=request.require_stable,
                )
            )
        return question

    def offsets_answered(
        self,
        request: OffsetFetchRequest,
        response: OffsetFetchResponse,
        client_id: str,
        question: int,
    ) -> None:
        """Emit each offset that the consumer learned."""
        found = [
            (request.group_id, response.error_code, topic.name, each)
            for topic in response.topics
            for each in topic.partitions
        ] + [
            (group.group_id, group.error_code, self._name_of(topic.name, topic.topic_id), each)
            for group in response.groups
            for topic in group.topics
            for each in topic.partitions
        ]
        for group_id, error_code, topic_name, partition in found:
            if topic_name is not None:
                self._emit(
                    OffsetLearned(
                        client_id=client_id,
                        group_id=group_id,
                        question=question,
                        topic=topic_name,
                        partition=partition.partition_index,
                        offset=partition.committed_offset,
                        error_code=error_code or partition.error_code,
                        is_stable=request.require_stable,
                    )
                )
