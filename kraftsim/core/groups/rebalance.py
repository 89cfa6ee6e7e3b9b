"""Rebalances of classic groups: the join phase and its deadline, and the removal of members that do
not rejoin.

Source: kafka.coordinator.group.GroupCoordinator.{prepareRebalance, onCompleteJoin,
onExpirePendingSync}, DelayedJoin, InitialDelayedJoin, KIP-134.
"""

from kraftsim.core.groups.answers import JoinAnswer, SyncAnswer
from kraftsim.core.groups.classic_group import ClassicGroup, GroupState
from kraftsim.core.groups.group_records import group_record
from kraftsim.core.groups.group_settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from kraftsim.core.groups.member import Member
from kraftsim.core.groups.moment import Moment
from kraftsim.core.groups.outbox import Outbox
from kraftsim.core.groups.timers import TimerKey, TimerKind, Timers
from protocol.errors import ErrorCode


class Rebalance:
    """The rebalances of one coordinator partition; the state of a group is its rebalance phase."""

    def __init__(self, settings: GroupSettings, outbox: Outbox, timers: Timers) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers

    # Sessions
    # ----------------------------------------------------------------------------------------------

    def renew_session(self, member: Member, now: Moment) -> None:
        """Restart the session timeout of a member."""
        self._timers.set(member.timer, now.monotonic_ms + member.session_timeout_ms)

    def begin_first_wait(self, member: Member, now: Moment) -> None:
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

    def prepare(self, group: ClassicGroup, now: Moment) -> None:
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

    def complete_if_all_joined(self, group: ClassicGroup, now: Moment) -> None:
        """Complete the join phase early if all members have joined; the initial rebalance delay is
        always waited for.
        """
        if (
            group.is_in(GroupState.PREPARING_REBALANCE)
            and group.initial_remaining_ms is None
            and group.has_all_joined
        ):
            self._complete(group, now)

    def on_deadline(self, group: ClassicGroup, now: Moment) -> None:
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

    def _wait(self, group: ClassicGroup, delay_ms: int, now: Moment) -> None:
        self._timers.set(TimerKey(TimerKind.REBALANCE, group.group_id), now.monotonic_ms + delay_ms)

    def _complete(self, group: ClassicGroup, now: Moment) -> None:
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

    def refuse_shares(self, group: ClassicGroup, error: ErrorCode, now: Moment) -> None:
        """Fail all pending SyncGroup requests."""
        for member in group.members.values():
            member.assignment = b""
            if self.answer_sync(member, SyncAnswer(error=error)):
                self.renew_session(member, now)

    def give_shares(self, group: ClassicGroup, assignments: dict[str, bytes], now: Moment) -> None:
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

    def on_sync_deadline(self, group: ClassicGroup, now: Moment) -> None:
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

    def remove(self, group: ClassicGroup, member: Member, now: Moment) -> None:
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

    def remove_pending(self, group: ClassicGroup, member_id: str, now: Moment) -> None:
        """Remove a pending member id."""
        self._timers.cancel(TimerKey(TimerKind.PENDING_MEMBER, group.group_id, member_id))
        group.remove(member_id)
        self.complete_if_all_joined(group, now)

    def on_session_end(self, group: ClassicGroup, member_id: str, now: Moment) -> None:
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
