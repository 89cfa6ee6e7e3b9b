"""JoinGroup: new members, rejoining members, and new incarnations of static members.

Source: kafka.coordinator.group.GroupCoordinator.handleJoinGroup, KIP-345, KIP-394, KIP-814.
"""

from msgspec import Struct

from kraftsim.core.groups.answers import JoinAnswer, SyncAnswer
from kraftsim.core.groups.classic_group import ClassicGroup, GroupState
from kraftsim.core.groups.group_records import group_record
from kraftsim.core.groups.group_settings import GroupSettings
from kraftsim.core.groups.member import Member, Protocols
from kraftsim.core.groups.moment import Moment
from kraftsim.core.groups.outbox import Outbox, Stored
from kraftsim.core.groups.rebalance import Rebalance
from kraftsim.core.groups.timers import TimerKey, TimerKind, Timers
from protocol.errors import ErrorCode


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

    def join(self, group: ClassicGroup, waiter: int, asked: JoinInput, now: Moment) -> None:
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
        self, group: ClassicGroup, waiter: int, asked: JoinInput, now: Moment
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
        self, group: ClassicGroup, waiter: int, asked: JoinInput, now: Moment
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
        self, group: ClassicGroup, waiter: int, asked: JoinInput, member_id: str, now: Moment
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
        self, group: ClassicGroup, waiter: int, asked: JoinInput, member: Member, now: Moment
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
        now: Moment,
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
