"""Requests of current members: SyncGroup, Heartbeat, LeaveGroup.

Source: kafka.coordinator.group.GroupCoordinator.{handleSyncGroup, handleHeartbeat,
handleLeaveGroup}, KIP-345, KIP-559.
"""

from collections.abc import Mapping

from msgspec import Struct

from kraftsim.core.groups.answers import SyncAnswer
from kraftsim.core.groups.classic_group import ClassicGroup, GroupState
from kraftsim.core.groups.group_records import group_record
from kraftsim.core.groups.moment import Moment
from kraftsim.core.groups.outbox import Outbox, Stored
from kraftsim.core.groups.rebalance import Rebalance
from kraftsim.core.groups.timers import TimerKey, TimerKind, Timers
from protocol.errors import ErrorCode


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

    def sync(self, group: ClassicGroup, waiter: int, asked: SyncInput, now: Moment) -> None:
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
        now: Moment,
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
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, now: Moment
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
