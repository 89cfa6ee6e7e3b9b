"""The classic protocol: rebalances, and the requests that join, keep and leave a group.

A rebalance has two phases: members join until all have, or the deadline expires; then the leader's
SyncGroup has the assignment, which is stored before any member receives it.
Source: kafka.coordinator.group.GroupCoordinator, DelayedJoin, InitialDelayedJoin; KIP-134, KIP-345,
KIP-394, KIP-559, KIP-814.
"""

from collections.abc import Mapping

from msgspec import Struct

from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group_records import group_record
from kraftsim.groups.rules_offsets import Outbox, Stored
from kraftsim.groups.rules_timing import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    GroupMoment,
    GroupSettings,
    JoinAnswer,
    Member,
    Protocols,
    SyncAnswer,
    TimerKey,
    TimerKind,
    Timers,
)
from protocol.errors import ErrorCode

# --------------------------------------------------------------------------------------------------
# The join phase and its deadline, and the removal of members that do not rejoin
#
# Source: GroupCoordinator.{prepareRebalance, onCompleteJoin, onExpirePendingSync}.


class Rebalance:
    """The rebalances of one coordinator partition; the state of a group is its rebalance phase."""

    def __init__(self, settings: GroupSettings, outbox: Outbox, timers: Timers) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers

    # Sessions
    # ----------------------------------------------------------------------------------------------

    def renew_session(self, member: Member, now: GroupMoment) -> None:
        """Restart the session timeout of a member."""
        self._timers.set(member.timer, now.monotonic_ms + member.session_timeout_ms)

    def begin_first_wait(self, member: Member, now: GroupMoment) -> None:
        """Start the timeout of a new member's first join: a client that is gone delays the
        rebalance no longer than this.
        """
        member.is_new = True
        self._timers.set(member.timer, now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def end_session(self, member: Member) -> None:
        """Cancel the session timeout of a removed member."""
        self._timers.cancel(member.timer)

    # A rebalance
    # ----------------------------------------------------------------------------------------------

    def prepare(self, group: ClassicGroup, now: GroupMoment) -> None:
        """Start a rebalance, unless its join phase is running; members with a pending SyncGroup
        have to rejoin.
        """
        if group.is_in(GroupState.PREPARING_REBALANCE, GroupState.DEAD):
            return
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.refuse_shares(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        is_first = group.is_in(GroupState.EMPTY)
        group.enter(GroupState.PREPARING_REBALANCE, now.wall_ms)
        if is_first:
            delay_ms = self._settings.initial_rebalance_delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait(group, delay_ms, now)
            return
        self._wait(group, group.rebalance_timeout_ms, now)
        self.complete_if_all_joined(group, now)

    def complete_if_all_joined(self, group: ClassicGroup, now: GroupMoment) -> None:
        """Complete the join phase early if all members have joined; the initial rebalance delay is
        always waited for.
        """
        if (
            group.is_in(GroupState.PREPARING_REBALANCE)
            and group.initial_remaining_ms is None
            and group.has_all_joined
        ):
            self._complete(group, now)

    def on_deadline(self, group: ClassicGroup, now: GroupMoment) -> None:
        """The join phase has timed out."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return
        remaining_ms = group.initial_remaining_ms
        if remaining_ms is not None and group.has_new_member and remaining_ms:
            group.has_new_member = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            group.initial_remaining_ms = remaining_ms - delay_ms
            self._wait(group, delay_ms, now)
            return
        self._complete(group, now)

    def _wait(self, group: ClassicGroup, delay_ms: int, now: GroupMoment) -> None:
        self._timers.set(TimerKey(TimerKind.REBALANCE, group.group_id), now.monotonic_ms + delay_ms)

    def _complete(self, group: ClassicGroup, now: GroupMoment) -> None:
        """Start the next generation with the members that have joined; static members stay until
        their sessions expire.
        """
        group.initial_remaining_ms = None
        group.has_new_member = False
        for member in [
            each
            for each in group.members.values()
            if each.join_waiter is None and not each.is_static
        ]:
            self.end_session(member)
            group.remove(member.member_id)
        if not group.elect_joined_leader() and group.members:
            self._wait(
                group, group.rebalance_timeout_ms, now
            )  # only static members, and none rejoined: their session timeouts decide
            return
        self._timers.cancel(TimerKey(TimerKind.REBALANCE, group.group_id))
        group.begin_generation(now.wall_ms)
        if group.is_in(GroupState.EMPTY):
            self._outbox.store_group(group_record(group, {}), lambda stored: None)
            return
        for member in list(group.members.values()):
            self.answer_join(member, group.join_answer(member.member_id))
            self.renew_session(member, now)
            member.is_new = False
            group.unsynced_members[member.member_id] = None
        self._timers.set(
            TimerKey(TimerKind.SYNC, group.group_id), now.monotonic_ms + group.rebalance_timeout_ms
        )

    def forget(self, group: ClassicGroup) -> None:
        """The group is converted to the other protocol: fail pending requests so that members
        rejoin, and cancel all timers.
        """
        for member in group.members.values():
            self.answer_join(
                member,
                JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id),
            )
            self.answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
            self.end_session(member)
        for member_id in group.pending_members:
            self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id))
        for kind in (TimerKind.REBALANCE, TimerKind.SYNC):
            self._timers.cancel(TimerKey(kind, group.group_id))

    # Assignments
    # ----------------------------------------------------------------------------------------------

    def refuse_shares(self, group: ClassicGroup, error: ErrorCode, now: GroupMoment) -> None:
        """Fail all pending SyncGroup requests."""
        for member in group.members.values():
            member.assignment = b""
            if self.answer_sync(member, SyncAnswer(error=error)):
                self.renew_session(member, now)

    def give_shares(
        self, group: ClassicGroup, assignments: dict[str, bytes], now: GroupMoment
    ) -> None:
        """Answer all pending SyncGroup requests with their assignments."""
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
            answer = SyncAnswer(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
            if self.answer_sync(member, answer):
                self.renew_session(member, now)

    def on_sync_deadline(self, group: ClassicGroup, now: GroupMoment) -> None:
        """The sync phase has timed out: remove members that have not sent SyncGroup, and start
        another rebalance (KAFKA-12453).
        """
        if (
            not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            or not group.unsynced_members
        ):
            return
        for member_id in list(group.unsynced_members):
            member = group.members[member_id]
            self.end_session(member)
            group.remove(member_id)
        self.prepare(group, now)

    # Removal
    # ----------------------------------------------------------------------------------------------

    def remove(self, group: ClassicGroup, member: Member, now: GroupMoment) -> None:
        """Remove a member from its group.

        Its pending JoinGroup is answered, so that a live client retries.
        """
        self.end_session(member)
        self.answer_join(member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        self.answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, now)
        else:
            self.complete_if_all_joined(group, now)

    def remove_pending(self, group: ClassicGroup, member_id: str, now: GroupMoment) -> None:
        """Remove a pending member id."""
        self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id))
        group.remove(member_id)
        self.complete_if_all_joined(group, now)

    def on_session_end(self, group: ClassicGroup, member_id: str, now: GroupMoment) -> None:
        """A session has timed out; a member with a pending request is alive, unless it is new."""
        member = group.members.get(member_id)
        if member is None or group.is_in(GroupState.DEAD):
            return
        waits = member.join_waiter is not None or member.sync_waiter is not None
        if member.is_new or not waits:
            self.remove(group, member, now)

    # Replies
    # ----------------------------------------------------------------------------------------------

    def answer_join(self, member: Member, answer: JoinAnswer) -> bool:
        """Answer the pending JoinGroup, if any, and return whether there was one."""
        if member.join_waiter is None:
            return False
        self._outbox.reply(member.join_waiter, answer)
        member.join_waiter = None
        return True

    def answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        """Answer the pending SyncGroup, if any, and return whether there was one."""
        if member.sync_waiter is None:
            return False
        self._outbox.reply(member.sync_waiter, answer)
        member.sync_waiter = None
        return True


# --------------------------------------------------------------------------------------------------
# JoinGroup: new members, rejoining members, and new incarnations of static members


class JoinInput(Struct, frozen=True, kw_only=True):
    """A JoinGroup request.

    `fresh_id` is the random suffix of the member id if the coordinator generates one.

    `takes_id_first`: the version supports MEMBER_ID_REQUIRED for a member without an id (KIP-394).
    `skips_assignment`: it lets a returning static leader skip the assignment (KIP-814).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    fresh_id: str
    takes_id_first: bool
    skips_assignment: bool


class Joining:
    """JoinGroup handling for the groups of one coordinator partition."""

    def __init__(
        self, settings: GroupSettings, outbox: Outbox, timers: Timers, rebalance: Rebalance
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._rebalance = rebalance

    def join(self, group: ClassicGroup, waiter: int, asked: JoinInput, now: GroupMoment) -> None:
        """Add a member, or reply with an error; the response usually waits for the end of the
        rebalance.
        """
        if not self._has_room(group, asked.member_id):
            group.remove(asked.member_id)
            self._refuse(waiter, "", ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif group.is_in(GroupState.DEAD):
            self._refuse(waiter, asked.member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not group.supports(asked.protocol_type, asked.protocols):
            self._refuse(waiter, asked.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not asked.member_id:
            self._join_without_id(group, waiter, asked, now)
        elif asked.member_id in group.pending_members:
            self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, asked.member_id))
            self._add(group, waiter, asked, asked.member_id, now)
        else:
            self._join_with_id(group, waiter, asked, now)
        self._rebalance.complete_if_all_joined(group, now)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether the group has room for one more, or already counts this member
        (KIP-389).
        """
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                member = group.members.get(member_id)
                return (
                    member is not None and member.join_waiter is not None
                ) or group.joined_count < self._settings.max_size
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member_id in group.members or len(group.members) < self._settings.max_size

    def _join_without_id(
        self, group: ClassicGroup, waiter: int, asked: JoinInput, now: GroupMoment
    ) -> None:
        """A join without a member id: a new member, or the next incarnation of a static one."""
        member_id = f"{asked.group_instance_id or asked.client_id}-{asked.fresh_id}"
        former = (
            None
            if asked.group_instance_id is None
            else group.static_member_ids.get(asked.group_instance_id)
        )
        if former is not None:
            self._replace_static(group, waiter, asked, group.members[former], member_id, now)
        elif asked.takes_id_first and asked.group_instance_id is None:
            group.pending_members[member_id] = None
            self._timers.set(
                TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id),
                now.monotonic_ms + asked.session_timeout_ms,
            )
            self._refuse(waiter, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(group, waiter, asked, member_id, now)

    def _join_with_id(
        self, group: ClassicGroup, waiter: int, asked: JoinInput, now: GroupMoment
    ) -> None:
        """A join with a member id: a rejoin, or a retry whose response was lost."""
        error = group.validate_member(asked.member_id, asked.group_instance_id)
        if error is not None:
            self._refuse(waiter, asked.member_id, error)
            return
        member = group.members[asked.member_id]
        is_same = member.protocols == asked.protocols
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                self._update(group, waiter, asked, member, now)
            case GroupState.COMPLETING_REBALANCE if is_same:
                self._outbox.reply(waiter, group.join_answer(member.member_id))
            case GroupState.STABLE if is_same and not group.is_leader(member.member_id):
                self._outbox.reply(waiter, group.join_answer(member.member_id))
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                self._update(group, waiter, asked, member, now)
            case _:
                self._refuse(waiter, asked.member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    def _add(
        self, group: ClassicGroup, waiter: int, asked: JoinInput, member_id: str, now: GroupMoment
    ) -> None:
        member = Member(
            group_id=group.group_id,
            member_id=member_id,
            group_instance_id=asked.group_instance_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            rebalance_timeout_ms=asked.rebalance_timeout_ms,
            session_timeout_ms=asked.session_timeout_ms,
            protocol_type=asked.protocol_type,
            protocols=asked.protocols,
            join_waiter=waiter,
        )
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.generation_id == 0:
            group.has_new_member = True
        group.add(member)
        self._rebalance.begin_first_wait(member, now)
        self._rebalance.prepare(group, now)

    def _update(
        self, group: ClassicGroup, waiter: int, asked: JoinInput, member: Member, now: GroupMoment
    ) -> None:
        """Update a member, and let it wait for the next generation."""
        self._take_over(member, waiter, asked)
        self._rebalance.prepare(group, now)

    def _take_over(self, member: Member, waiter: int, asked: JoinInput) -> None:
        self._rebalance.answer_join(
            member, JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        )  # the member's earlier request
        member.protocols = asked.protocols
        member.rebalance_timeout_ms = asked.rebalance_timeout_ms
        member.session_timeout_ms = asked.session_timeout_ms
        member.join_waiter = waiter

    def _replace_static(
        self,
        group: ClassicGroup,
        waiter: int,
        asked: JoinInput,
        member: Member,
        member_id: str,
        now: GroupMoment,
    ) -> None:
        """Replace a static member by its next incarnation, and fence the former one."""
        former = member.member_id
        former_leader = group.leader_id or ""
        undo = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._rebalance.answer_join(
            member, JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=former)
        )
        self._rebalance.answer_sync(member, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID))
        self._rebalance.end_session(member)
        group.replace_static(member, member_id)
        self._take_over(member, waiter, asked)
        self._rebalance.renew_session(member, now)
        if former in group.unsynced_members:
            del group.unsynced_members[former]
            group.unsynced_members[member_id] = None
        if not group.is_in(GroupState.STABLE) or group.protocol_name != group.select_protocol():
            self._rebalance.prepare(group, now)
            return

        def on_stored(stored: Stored) -> None:
            if group.members.get(member_id) is not member:
                return
            if stored.error is ErrorCode.NONE:
                self._rebalance.answer_join(
                    member,
                    self._answer_to_static(
                        group, member, former_leader, skips=asked.skips_assignment
                    ),
                )
                return
            member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = undo
            self._rebalance.answer_join(
                member,
                JoinAnswer(
                    error=stored.error, leader_id=former_leader, generation_id=group.generation_id
                ),
            )
            self._rebalance.end_session(member)
            group.replace_static(member, former)
            self._rebalance.renew_session(member, stored.now)

        self._outbox.store_group(
            group_record(
                group, {each.member_id: each.assignment for each in group.members.values()}
            ),
            on_stored,
        )

    def _answer_to_static(
        self, group: ClassicGroup, member: Member, former_leader: str, *, skips: bool
    ) -> JoinAnswer:
        """Reply with the unchanged generation.

        A leader too old to skip the assignment gets its former id as leader, so that it does not
        assign.
        """
        answer = group.join_answer(member.member_id, with_members=skips)
        return JoinAnswer(
            member_id=answer.member_id,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            leader_id=answer.leader_id if skips else former_leader,
            skip_assignment=skips and group.is_leader(member.member_id),
            members=answer.members,
        )

    def _refuse(self, waiter: int, member_id: str, error: ErrorCode) -> None:
        self._outbox.reply(waiter, JoinAnswer(error=error, member_id=member_id))


# --------------------------------------------------------------------------------------------------
# Requests of current members: SyncGroup, Heartbeat, LeaveGroup


class SyncInput(Struct, frozen=True, kw_only=True):
    """A SyncGroup request; the leader's has the assignment of every member."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class Membership:
    """SyncGroup, Heartbeat and LeaveGroup handling for the groups of one coordinator partition."""

    def __init__(self, outbox: Outbox, timers: Timers, rebalance: Rebalance) -> None:
        self._outbox = outbox
        self._timers = timers
        self._rebalance = rebalance

    # Sync
    # ----------------------------------------------------------------------------------------------

    def sync(self, group: ClassicGroup, waiter: int, asked: SyncInput, now: GroupMoment) -> None:
        """Reply with the assignment now, or once the leader's assignment is replicated; or with an
        error.
        """
        error = self._refuse_sync(group, asked)
        if error is not None:
            self._outbox.reply(waiter, SyncAnswer(error=error))
            return
        member = group.members[asked.member_id]
        self._has_synced(group, asked.member_id)
        if group.is_in(GroupState.STABLE):
            answer = SyncAnswer(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
            self._outbox.reply(waiter, answer)
            self._rebalance.renew_session(member, now)
            return
        self._rebalance.answer_sync(
            member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
        )  # the member's earlier request
        member.sync_waiter = waiter
        if group.is_leader(asked.member_id):
            self._store_shares(group, asked)

    def _refuse_sync(self, group: ClassicGroup, asked: SyncInput) -> ErrorCode | None:
        if group.is_in(GroupState.DEAD):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.validate_member(asked.member_id, asked.group_instance_id)
        if error is not None:
            return error
        if asked.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if asked.protocol_type is not None and asked.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if asked.protocol_name is not None and asked.protocol_name != group.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.UNKNOWN_MEMBER_ID if group.is_in(GroupState.EMPTY) else None

    def _has_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.unsynced_members.pop(member_id, None)
        if not group.unsynced_members:
            self._timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    def _store_shares(self, group: ClassicGroup, asked: SyncInput) -> None:
        """Write the leader's assignment; a member without an entry gets an empty one.

        Only once replicated is the group stable, and are members answered.
        """
        assignments = {
            member_id: asked.assignments.get(member_id, b"") for member_id in group.members
        }

        def on_stored(stored: Stored) -> None:
            if (
                not group.is_in(GroupState.COMPLETING_REBALANCE)
                or group.generation_id != asked.generation_id
            ):
                return  # a new rebalance started meanwhile
            if stored.error is ErrorCode.NONE:
                self._rebalance.give_shares(group, assignments, stored.now)
                group.enter(GroupState.STABLE, stored.now.wall_ms)
                return
            self._rebalance.refuse_shares(group, stored.error, stored.now)
            self._rebalance.prepare(group, stored.now)

        self._outbox.store_group(group_record(group, assignments), on_stored)

    # Heartbeat
    # ----------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        group: ClassicGroup,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now: GroupMoment,
    ) -> ErrorCode:
        """Renew a member's session.

        REBALANCE_IN_PROGRESS is not a failure: the session is renewed, and the member has to
        rejoin.
        """
        if group.is_in(GroupState.DEAD):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.validate_member(member_id, group_instance_id)
        if error is not None:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.is_in(GroupState.EMPTY):
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._rebalance.renew_session(group.members[member_id], now)
        return (
            ErrorCode.REBALANCE_IN_PROGRESS
            if group.is_in(GroupState.PREPARING_REBALANCE)
            else ErrorCode.NONE
        )

    # Leave
    # ----------------------------------------------------------------------------------------------

    def leave(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, now: GroupMoment
    ) -> ErrorCode:
        """Remove a member. Without a member id a static one is removed by an administrator."""
        if not member_id:
            found = (
                None
                if group_instance_id is None
                else group.static_member_ids.get(group_instance_id)
            )
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id in group.pending_members:
            self._rebalance.remove_pending(group, member_id, now)
            return ErrorCode.NONE
        error = group.validate_member(member_id, group_instance_id)
        if error is not None:
            return error
        self._rebalance.remove(group, group.members[member_id], now)
        return ErrorCode.NONE
