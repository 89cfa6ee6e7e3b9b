"""Steps for a group coordinator: members, transactional and other offset commits, and their
descriptions.
"""

from dataclasses import dataclass

from kraftsim.conformance.group_client import JOIN_VERSION, SYNC_VERSION
from kraftsim.conformance.probes.conversation import (
    ProbeConversation,
    ProbeMember,
    give_up_at,
    named,
    pause_until,
)
from kraftsim.conformance.probes.transaction_steps import Identified, shown
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.k14_sync_group import SyncGroupResponse
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

MEMBERS_SINCE = 3
"""The first version of TxnOffsetCommit with a member id."""
GROUPS_SINCE = 8
"""The first version of OffsetFetch for several groups."""
STABLE_SINCE = 7
"""The first version of OffsetFetch with require_stable."""
SESSION_MS = 30_000
MEMBER_COMMIT_VERSION = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStep:
    """JoinGroup of a single member, and SyncGroup unless `syncs` is false.

    A known member rejoins, which starts a new generation.
    """

    client_name: str = "m"
    instance_id: str | None = None
    syncs: bool = True
    as_new: bool = False

    def words(self) -> str:
        """Return the request as text."""
        again = " without its member id" if self.as_new else ""
        return (
            f"JoinGroup{again}{' and SyncGroup' if self.syncs else ''} by "
            f"{self.client_name}{shown(instance=self.instance_id)}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the requests, and store the membership."""
        known = conversation.members.get(self.client_name)
        member_id = "" if known is None or self.as_new else known.member_id
        answer = self._join(conversation, member_id)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self._join(conversation, answer.member_id)
        if answer.error_code:
            return named(answer.error_code)
        conversation.members[self.client_name] = ProbeMember(
            answer.member_id, answer.generation_id, self.instance_id
        )
        if self.syncs:
            share = conversation.group.sync_request(
                answer.member_id,
                answer.generation_id,
                {answer.member_id: b"share"},
                instance_id=self.instance_id,
            )
            synced = conversation.peer.ask(share, SYNC_VERSION, SyncGroupResponse)
            if synced.error_code:
                return f"joined, then {named(synced.error_code)}"
        return f"ok, generation {answer.generation_id}"

    def _join(self, conversation: ProbeConversation, member_id: str) -> JoinGroupResponse:
        asked = JoinGroupRequest(
            group_id=conversation.group.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=conversation.group.subscription)
            ],
        )
        return conversation.peer.ask(asked, JOIN_VERSION, JoinGroupResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsets(Identified):
    """TxnOffsetCommit.

    `member` is a short name; `generation` is added to the member's own, `no_generation` leaves it
    at -1.
    """

    version: int = 3
    offset: int = 5
    partition: int = 0
    partitions: tuple[int, ...] = ()
    topic: str = ""
    group: str | None = None
    member: str = ""
    generation: int = 0
    no_generation: bool = False
    some_generation: int = -1
    instance_id: str | None = None
    metadata: str = "m"

    def words(self) -> str:
        """Return the request as text."""
        member = f", member {self.member}" if self.member else ""
        generation = f", generation {self.generation:+d}" if self.generation else ""
        if self.no_generation or self.some_generation >= 0:
            generation = f", generation {self.some_generation}"
        long = f", {len(self.metadata)} characters of metadata" if len(self.metadata) > 1 else ""
        rest = shown(
            partition=self.partition or list(self.partitions) or "",
            topic=self.topic,
            instance=self.instance_id,
        )
        group = "" if self.group is None else f", group {self.group!r}"
        return (
            f"TxnOffsetCommit {self.version} of "
            f"{self.offset}{self.client_text()}{member}{generation}{rest}{group}{long}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.TXN_OFFSET_COMMIT, self.version)
        producer_id, epoch = self.identity(conversation)
        numbers = self.partitions or (self.partition,)
        rows = [
            TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=self.offset,
                committed_metadata=self.metadata,
            )
            for number in numbers
        ]
        asked = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id(conversation),
            group_id=conversation.group.group_id if self.group is None else self.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=conversation.topic_named(self.topic), partitions=rows
                )
            ],
        )
        if version >= MEMBERS_SINCE:
            member = conversation.member(self.member)
            asked.member_id, asked.group_instance_id = member.member_id, self.instance_id
            asked.generation_id_or_member_epoch = (
                self.some_generation
                if self._says_generation()
                else member.generation_id + self.generation
            )
        answer = conversation.peer.ask(asked, version, TxnOffsetCommitResponse)
        returned = sorted(
            (topic.name, row.partition_index, row.error_code)
            for topic in answer.topics
            for row in topic.partitions
        )
        return ", ".join(named(code) for _, _, code in returned)

    def _says_generation(self) -> bool:
        return self.no_generation or self.some_generation >= 0 or not self.member


def offsets(offset: int = 5, **rest: object) -> TxnOffsets:
    """Return a TxnOffsetCommit."""
    # arg-type: keyword arguments of several types
    return TxnOffsets(offset=offset, **rest)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Offsets:
    """OffsetCommit, without a transaction; with a member if one is named."""

    offset: int = 5
    version: int = MEMBER_COMMIT_VERSION
    member: str = ""
    generation: int = 0

    def words(self) -> str:
        """Return the request as text."""
        generation = f", generation {self.generation:+d}" if self.generation else ""
        return (
            f"OffsetCommit {self.version} of {self.offset}{shown(member=self.member)}{generation}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.OFFSET_COMMIT, self.version)
        member = conversation.member(self.member)
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_metadata="plain"
        )
        asked = OffsetCommitRequest(
            group_id=conversation.group.group_id,
            generation_id_or_member_epoch=member.generation_id + self.generation
            if self.member
            else -1,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name=conversation.topic, partitions=[row])],
        )
        return ", ".join(
            named(row.error_code)
            for topic in conversation.peer.ask(asked, version, OffsetCommitResponse).topics
            for row in topic.partitions
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """OffsetFetch; `stable` sets require_stable, `until_stable` retries until offsets are
    stable.
    """

    version: int = 7
    stable: bool = True
    partitions: tuple[int, ...] = (0,)
    every: bool = False
    until_stable: bool = False

    def words(self) -> str:
        """Return the request as text."""
        which = (
            " of all"
            if self.every
            else ""
            if self.partitions == (0,)
            else f" of {list(self.partitions)}"
        )
        return (
            "OffsetFetch "
            f"{self.version}{which}{', stable' if self.stable else ''}"
            f"{', until it is not 88' if self.until_stable else ''}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.OFFSET_FETCH, self.version)
        deadline = give_up_at()
        while True:
            error_code, rows = self._ask(conversation, version)
            if error_code:
                return named(error_code)
            if not self.until_stable or ErrorCode.UNSTABLE_OFFSET_COMMIT not in (
                code for _, code in rows
            ):
                return (
                    ", ".join(
                        str(offset) if not code else f"{offset} {named(code)}"
                        for offset, code in rows
                    )
                    or "nothing"
                )
            pause_until(deadline, self.words())

    def _ask(
        self, conversation: ProbeConversation, version: int
    ) -> tuple[int, list[tuple[int, int]]]:
        numbers = list(self.partitions)
        if version < GROUPS_SINCE:
            topics = (
                None
                if self.every
                else [OffsetFetchRequestTopic(name=conversation.topic, partition_indexes=numbers)]
            )
            asked = OffsetFetchRequest(group_id=conversation.group.group_id, topics=topics)
            if version >= STABLE_SINCE:
                asked.require_stable = self.stable
            answer = conversation.peer.ask(asked, version, OffsetFetchResponse)
            return answer.error_code, [
                (row.committed_offset, row.error_code)
                for topic in answer.topics
                for row in topic.partitions
            ]
        many = (
            None
            if self.every
            else [OffsetFetchRequestTopics(name=conversation.topic, partition_indexes=numbers)]
        )
        groups = [OffsetFetchRequestGroup(group_id=conversation.group.group_id, topics=many)]
        found = conversation.peer.ask(
            OffsetFetchRequest(groups=groups, require_stable=self.stable),
            version,
            OffsetFetchResponse,
        ).groups[0]
        return found.error_code, [
            (row.committed_offset, row.error_code)
            for topic in found.topics
            for row in topic.partitions
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """DeleteGroups of the probe's group."""

    def words(self) -> str:
        """Return the request as text."""
        return "DeleteGroups"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        asked = DeleteGroupsRequest(groups_names=[conversation.group.group_id])
        return named(
            conversation.peer.ask(
                asked, conversation.offered(ApiKey.DELETE_GROUPS, 2), DeleteGroupsResponse
            )
            .results[0]
            .error_code
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffset:
    """OffsetDelete of partition 0."""

    def words(self) -> str:
        """Return the request as text."""
        return "OffsetDelete"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        topics = [
            OffsetDeleteRequestTopic(
                name=conversation.topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=0)],
            )
        ]
        asked = OffsetDeleteRequest(group_id=conversation.group.group_id, topics=topics)
        answer = conversation.peer.ask(
            asked, conversation.offered(ApiKey.OFFSET_DELETE, 0), OffsetDeleteResponse
        )
        return ", ".join(
            [
                named(answer.error_code),
                *(named(row.error_code) for topic in answer.topics for row in topic.partitions),
            ]
        )
