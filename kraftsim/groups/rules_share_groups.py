"""The share groups of one coordinator partition: heartbeats, expiry of members, and the share-
partitions whose state begins and ends with the group.

A change takes effect in memory at once, is written in one batch, and is returned to the client once
replicated. What the share coordinator has to do is in the answers; the shell asks it, and comes
back with the result (`share_partition_states`).
Source: KIP-932, org.apache.kafka.coordinator.group.GroupMetadataManager.{shareGroupHeartbeat,
initializeShareGroupState, alterShareGroupOffsets, sharePartitionsEligibleForOffsetDeletion,
shareGroupBuildPartitionDeleteRequest, maybeCleanupShareGroupState}.
"""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_assignors import NO_SHARES, Shares, java_order, timeline_order, uuid_hash
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_group_configs import SHARE_ASSIGNMENT, SHARE_HEARTBEAT, SHARE_SESSION
from kraftsim.groups.rules_java_maps import JavaMap
from kraftsim.groups.rules_share_group import (
    ShareGroup,
    ShareGroupMember,
    current_change,
    current_tombstone,
    epoch_change,
    member_change,
    member_tombstone,
    names_in_order,
    same_shares,
    target_change,
    target_epoch_change,
    target_tombstone,
)
from kraftsim.groups.rules_share_group_states import InitialState, ShareGroupStates
from kraftsim.groups.rules_simple_assignor import SharingMember, assign_shared
from kraftsim.groups.rules_timing import GroupMoment, OtherAnswer, TimerKey, TimerKind, java_hash
from kraftsim.groups.rules_topic_hashes import hash_of_topics
from protocol.errors import ErrorCode

JOINS, LEAVES = 0, -1
SESSION_MS, HEARTBEAT_MS, INTERVAL_MS = 45_000, 5_000, 0
"""Where nothing is configured, as in releases and tests without group configurations."""


class ShareHeartbeatInput(Struct, frozen=True, kw_only=True):
    """One heartbeat; a field that is None is unchanged."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_names: tuple[str, ...] | None
    client_id: str
    client_host: str


class ShareHeartbeatAnswer(OtherAnswer, frozen=True, kw_only=True):
    """The response, and the states that have to be initialized after it.

    `assigned` (topic id -> partitions) is None where it is unchanged; `why` is the error message.
    """

    error: ErrorCode = ErrorCode.NONE
    why: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Shares | None = None
    initial: tuple[InitialState, ...] = ()


class ShareGroups(ShareGroupStates):
    """The share groups of a shard."""

    # Heartbeats
    # ----------------------------------------------------------------------------------------------

    def heartbeat(self, waiter: int, asked: ShareHeartbeatInput, now: GroupMoment) -> None:
        """Reply with a ShareHeartbeatAnswer: at once if nothing changes, else once the change is
        replicated.
        """
        self._wall_ms = now.wall_ms
        changes: list[Change] = []
        outcome = (
            self._leave(asked, changes)
            if asked.member_epoch == LEAVES
            else self._join_or_heartbeat(asked, changes, now)
        )
        if isinstance(outcome, Refusal):
            assert not changes, "a refused heartbeat changes nothing"
            self._parts.outbox.reply(
                waiter, ShareHeartbeatAnswer(error=outcome.error, why=outcome.why)
            )
            return
        answer = outcome
        self.write(
            changes,
            lambda error: self._parts.outbox.reply(
                waiter, answer if error is ErrorCode.NONE else ShareHeartbeatAnswer(error=error)
            ),
        )

    def _join_or_heartbeat(
        self, asked: ShareHeartbeatInput, changes: list[Change], now: GroupMoment
    ) -> ShareHeartbeatAnswer | Refusal:
        """Join a member, or process its heartbeat."""
        group = self._group_of(asked.group_id, makes=asked.member_epoch == JOINS)
        if isinstance(group, Refusal):
            return group
        member = self._member_of(group, asked)
        if isinstance(member, Refusal):
            return member
        wanted = replace(
            member,
            rack_id=member.rack_id if asked.rack_id is None else asked.rack_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            subscribed_names=member.subscribed_names
            if asked.subscribed_names is None
            else names_in_order(asked.subscribed_names),
        )
        known_topics = self._known_topics(group)
        reads_others = self._follow(group, member, wanted, changes)
        group = self._existing(asked.group_id)
        fresh = self._assign_if_due(group, changes)
        reached = self._reconciled(group, wanted, fresh, reads_others=reads_others)
        if reached != wanted:
            self.do(changes, current_change(group.group_id, reached))
        initial = self._initialize(group, known_topics, changes)
        self._renew(group.group_id, asked.member_id, now)
        is_returned = (
            asked.member_epoch == JOINS
            or asked.subscribed_names is not None
            or not same_shares(member.assigned, reached.assigned)
        )
        return ShareHeartbeatAnswer(
            member_id=reached.member_id,
            member_epoch=reached.member_epoch,
            heartbeat_interval_ms=self._integer(group.group_id, SHARE_HEARTBEAT, HEARTBEAT_MS),
            assigned=reached.assigned if is_returned else None,
            initial=initial,
        )

    def _member_of(
        self, group: ShareGroup, asked: ShareHeartbeatInput
    ) -> ShareGroupMember | Refusal:
        """Return the member of the request before any change; a new one is not in the group yet.

        The previous epoch is accepted: the last response may be lost.
        """
        member_id, epoch = asked.member_id, asked.member_epoch
        member = group.members.get(member_id)
        most = self._parts.settings.share_max_size
        if member is None and len(group.members) >= most:
            return Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {most} members.",
            )
        if epoch == JOINS:
            return member or ShareGroupMember(member_id=member_id)
        if member is None:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {group.group_id}.",
            )
        if epoch in (member.member_epoch, member.previous_member_epoch):
            return member
        why = f"than the one known by the group coordinator ({member.member_epoch})"
        if epoch > member.member_epoch:
            why = f"greater member epoch ({epoch}) {why}."
        else:
            why = (
                f"smaller member epoch ({epoch}) {why}, and it does not match the previous member "
                f"epoch ({member.previous_member_epoch})."
            )
        return Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {why} The member must abandon all its partitions and "
            "rejoin.",
        )

    def _follow(
        self,
        group: ShareGroup,
        member: ShareGroupMember,
        wanted: ShareGroupMember,
        changes: list[Change],
    ) -> bool:
        """Update a member, and bump the group epoch if subscriptions, topics or initialized
        partitions have changed; return whether it is bumped.
        """
        settings, topics = self._parts.settings, self._parts.topics
        is_waiting = settings.delays_assignments and group.assignment_epoch < group.group_epoch
        reads_others = frozenset(wanted.subscribed_names) != frozenset(member.subscribed_names)
        is_bumped = reads_others or (group.has_unassigned and not is_waiting)
        is_news = group.seen_topics != topics.version
        epoch, former_hash = group.group_epoch, group.metadata_hash
        if member.member_id not in group.members or not wanted.has_same_metadata(member):
            self.do(changes, member_change(group.group_id, wanted))
            group = self._existing(group.group_id)
        if not is_bumped and not is_news:
            return False
        hashed = hash_of_topics(group.topic_names, topics)
        group.seen_topics = topics.version
        is_bumped = is_bumped or hashed != former_hash
        if is_bumped:
            self.do(changes, epoch_change(group.group_id, epoch + 1, hashed))
        return is_bumped

    def _assign_if_due(
        self, group: ShareGroup, changes: list[Change]
    ) -> Mapping[str, Shares] | None:
        """Compute the target assignment of the group epoch, at most once per
        group.share.assignment.interval.ms (KIP-1263); return that of each member, or None.
        """
        settings = self._parts.settings
        if group.assignment_epoch >= group.group_epoch:
            return None
        interval_ms = self._integer(group.group_id, SHARE_ASSIGNMENT, INTERVAL_MS)
        is_due = not interval_ms or not group.assigned_ms
        if not is_due and self._wall_ms < group.assigned_ms + interval_ms:
            return None
        found = {name: self._parts.topics.find(name) for name in group.topic_names}
        topics = {name: topic for name, topic in found.items() if topic is not None}
        names = timeline_order(group.members, java_hash)
        rows = [
            SharingMember(
                member_id=member_id,
                topic_ids=tuple(
                    topics[name][0]
                    for name in group.members[member_id].subscribed_names
                    if name in topics
                ),
                subscribes=bool(group.members[member_id].subscribed_names),
                target=group.targets.get(member_id, NO_SHARES),
            )
            for member_id in java_order(names, java_hash)
        ]
        assigned = assign_shared(
            rows,
            dict(topics.values()),
            {topic_id: topic.partitions for topic_id, topic in group.initialized.items()},
            has_same_topics=group.has_same_topics,
        )
        for row in rows:
            target = assigned.get(row.member_id, NO_SHARES)
            former = group.targets.get(row.member_id)
            if former is None or not same_shares(former, target):
                self.do(changes, target_change(group.group_id, row.member_id, target))
        at_ms = self._wall_ms if settings.delays_assignments else 0
        self.do(changes, target_epoch_change(group.group_id, group.group_epoch, at_ms))
        return assigned

    def _reconciled(
        self,
        group: ShareGroup,
        member: ShareGroupMember,
        fresh: Mapping[str, Shares] | None,
        *,
        reads_others: bool,
    ) -> ShareGroupMember:
        """Return a member at the epoch of its target; it gets no partition of topics to which it
        does not subscribe, and gives those up at once (ShareGroupAssignmentBuilder since 4.2).
        """
        filters = self._parts.settings.consumer_drops_unsubscribed
        targets = group.targets if fresh is None else fresh
        target = targets.get(member.member_id, NO_SHARES)
        is_behind = member.member_epoch != group.assignment_epoch
        if not is_behind and not (filters and reads_others):
            return member
        if filters:
            subscribed = frozenset(member.subscribed_names)
            gone = [
                topic_id
                for topic_id in target
                if self._parts.topics.name_of(topic_id) not in subscribed
            ]
            if gone:
                kept = JavaMap.copied(uuid_hash, target.items())
                target = {key: numbers for key, numbers in kept.items() if key not in gone}
        if is_behind:
            return replace(
                member,
                member_epoch=group.assignment_epoch,
                previous_member_epoch=member.member_epoch,
                assigned=target,
            )
        return member if same_shares(member.assigned, target) else replace(member, assigned=target)

    # Leaving
    # ----------------------------------------------------------------------------------------------

    def _leave(
        self, asked: ShareHeartbeatInput, changes: list[Change]
    ) -> ShareHeartbeatAnswer | Refusal:
        group = self._parts.table.find(asked.group_id)
        if not isinstance(group, ShareGroup):
            what = "not found" if group is None else "is not a share group"
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {asked.group_id} {what}.")
        if asked.member_id not in group.members:
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {asked.member_id} is not a member of group {group.group_id}.",
            )
        self._remove(group, asked.member_id, changes)
        return ShareHeartbeatAnswer(member_id=asked.member_id, member_epoch=asked.member_epoch)

    def _remove(self, group: ShareGroup, member_id: str, changes: list[Change]) -> None:
        """Remove a member, and bump the group epoch."""
        group_id, epoch = group.group_id, group.group_epoch + 1
        self.do(
            changes,
            current_tombstone(group_id, member_id),
            target_tombstone(group_id, member_id),
            member_tombstone(group_id, member_id),
        )
        hashed = hash_of_topics(group.topic_names, self._parts.topics)
        self.do(changes, epoch_change(group_id, epoch, hashed))
        if not group.members and self._parts.settings.share_settles_empty:
            self.do(changes, target_epoch_change(group_id, epoch, 0))
        self._parts.timers.cancel(TimerKey(TimerKind.SHARE_SESSION, group_id, member_id))

    # Timers
    # ----------------------------------------------------------------------------------------------

    def begin(self, now: GroupMoment) -> None:
        """The log is replayed: start a full session for every member."""
        self._events.begin()
        for group in self._all():
            group.begin(now.wall_ms)
            for member_id in group.members:
                self._renew(group.group_id, member_id, now)

    def on_timer(self, key: TimerKey, now: GroupMoment) -> None:
        """The session of a member has expired."""
        self._wall_ms = now.wall_ms
        group = self._parts.table.others.get(key.group_id)
        if (
            key.kind is TimerKind.SHARE_SESSION
            and isinstance(group, ShareGroup)
            and key.member_id in group.members
        ):
            changes: list[Change] = []
            self._remove(group, key.member_id, changes)
            self.write(changes, lambda error: None)

    def _renew(self, group_id: str, member_id: str, now: GroupMoment) -> None:
        session_ms = self._integer(group_id, SHARE_SESSION, SESSION_MS)
        key = TimerKey(TimerKind.SHARE_SESSION, group_id, member_id)
        self._parts.timers.set(key, now.monotonic_ms + session_ms)

    def _integer(self, group_id: str, name: str, without: int) -> int:
        return self._parts.settings.configs.integer(group_id, name, without)
