"""A coordinator of share groups without a node: members by name, manually created topics, and a
share coordinator that answers on command.
"""

from collections.abc import Callable

from kraftsim.groups.rules_assignors import Shares
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_share_group import ShareGroup
from kraftsim.groups.rules_share_group_states import (
    AlteringAnswer,
    DeletingAnswer,
    GroupDeletionAnswer,
    InitialState,
    PartitionToAlter,
    WrittenAnswer,
)
from kraftsim.groups.rules_share_groups import (
    ShareGroups,
    ShareHeartbeatAnswer,
    ShareHeartbeatInput,
)
from kraftsim.groups.rules_timing import GroupAnswer
from kraftsim.share_groups.rules_share_states import SharePartitionKey
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.errors import ErrorCode
from protocol.schema import Message
from tests.core.consumers_harness import MadeTopics
from tests.core.groups_harness import GROUP, GroupsHarness


class ShareGroupsHarness(GroupsHarness):
    """As 4.4 by default. `asked` are the states that are to be initialized."""

    def __init__(self, topics: MadeTopics | None = None, **settings: object) -> None:
        as_newest: dict[str, object] = {
            "consumer_first_epoch": 1,
            "consumer_drops_unsubscribed": True,
            "delays_assignments": True,
            "has_coordinator_runtime": True,
            "share_alters_unknown": True,
            "share_groups_first": True,
            "share_reads_added_whole": True,
            "share_settles_empty": True,
        }
        super().__init__(GroupShard, **{**as_newest, **settings})
        self.topics = topics or MadeTopics()
        self.shard = GroupShard(self.settings, 7, self.events.append, self.topics)
        self.asked: list[InitialState] = []

    @property
    def share_group(self) -> ShareGroup:
        """The group."""
        group = self.shard.other_groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def records_since(self, offset: int) -> list[tuple[Message, Message | None]]:
        """Key and value of each record from an offset of the log on."""
        found = [
            parse_record(CoordinatorTopic.CONSUMER_OFFSETS, record.key, record.value)
            for record in self.records[offset:]
        ]
        return [each for each in found if each is not None]

    # Inputs
    # ----------------------------------------------------------------------------------------------

    def beat(
        self,
        member_id: str,
        epoch: int,
        *names: str,
        group_id: str = GROUP,
        rack: str | None = None,
    ) -> ShareHeartbeatAnswer:
        """Send a heartbeat, with topics if names are given, and return the response."""
        asked = ShareHeartbeatInput(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_names=names or None,
            client_id="c",
            client_host="/h",
        )
        answer = self._of_type(lambda shares, waiter: shares.heartbeat(waiter, asked, self.now))
        assert isinstance(answer, ShareHeartbeatAnswer)
        self.asked += answer.initial
        return answer

    def initialize(self, *, succeeds: bool = True) -> ErrorCode:
        """The share coordinator has initialized all states that it was asked for, or none."""
        keys = [key for key, _, _ in self.asked]
        self.asked.clear()
        answer = self._of_type(
            lambda shares, waiter: (shares.initialized if succeeds else shares.not_initialized)(
                waiter, GROUP, keys, self.now
            )
        )
        assert isinstance(answer, WrittenAnswer)
        return answer.error

    def assigned(self, member_id: str, *names: str) -> Shares | None:
        """Let a member join, initialize what it reads, and return what its next heartbeat gets."""
        epoch = self.beat(member_id, 0, *names or ("t",)).member_epoch
        self.initialize()
        return self.beat(member_id, epoch).assigned

    def alter(self, *rows: tuple[str, int, int]) -> AlteringAnswer:
        """Set start offsets."""
        wanted = [PartitionToAlter(*row) for row in rows]
        answer = self._of_type(lambda shares, waiter: shares.alter(waiter, GROUP, wanted, self.now))
        assert isinstance(answer, AlteringAnswer)
        return answer

    def begin_deletion(self, *group_ids: str) -> GroupDeletionAnswer:
        """Begin to delete groups."""
        answer = self._of_type(
            lambda shares, waiter: shares.begin_deletion(waiter, group_ids or (GROUP,), self.now)
        )
        assert isinstance(answer, GroupDeletionAnswer)
        return answer

    def delete_offsets(self, *topics: str) -> DeletingAnswer:
        """Begin to delete the states of topics."""
        answer = self._of_type(
            lambda shares, waiter: shares.delete_offsets(waiter, GROUP, topics, self.now)
        )
        assert isinstance(answer, DeletingAnswer)
        return answer

    def deleted_states(self, *topic_ids: bytes) -> ErrorCode:
        """The states of topics are deleted."""
        answer = self._of_type(
            lambda shares, waiter: shares.deleted(waiter, GROUP, topic_ids, self.now)
        )
        assert isinstance(answer, WrittenAnswer)
        return answer.error

    def _of_type(self, ask: Callable[[ShareGroups, int], None]) -> GroupAnswer:
        self._waiters += 1
        waiter = self._waiters
        self.settle(self.shard.ask_type(ShareGroups, lambda shares: ask(shares, waiter)))
        return self.answers[waiter]

    def loaded_again(self) -> "ShareGroupsHarness":
        """Another coordinator that has replayed the same log."""
        other = ShareGroupsHarness(self.topics)
        other.now_ms = self.now_ms
        other.shard = GroupShard(other.settings, 7, other.events.append, other.topics)
        for batch in self.log:
            other.shard.replay(batch)
        other.records, other.log = list(self.records), list(self.log)
        other.settle(other.shard.begin(other.now))
        return other


def keys_of(topic_id: bytes, *numbers: int) -> tuple[SharePartitionKey, ...]:
    """Share-partitions of the group."""
    return tuple(SharePartitionKey(GROUP, topic_id, number) for number in numbers)
