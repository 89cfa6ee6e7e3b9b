"""Members that use the classic protocol in a consumer group: they send JoinGroup, SyncGroup and
LeaveGroup, and the coordinator assigns.

Such a member receives its member epoch as generation, its own first protocol, and another member as
leader. It reports its owned partitions in its subscription. When it has to revoke partitions, or
may take revoked ones, its heartbeats return REBALANCE_IN_PROGRESS.
Source: KIP-848 (online migration);
GroupMetadataManager.classicGroup{Join,Sync,Heartbeat,Leave}ToConsumerGroup.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kraftsim.groups.rules_classic_group import CONSUMER_PROTOCOL
from kraftsim.groups.rules_consumer_group import (
    ClassicTerms,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    TopicsView,
)
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_consumer_groups import ConsumerGroups, assignment_of, shares_of
from kraftsim.groups.rules_offsets import Outbox
from kraftsim.groups.rules_rebalance import JoinInput, SyncInput
from kraftsim.groups.rules_timing import (
    GroupMoment,
    GroupSettings,
    JoinAnswer,
    SyncAnswer,
    TimerKey,
    TimerKind,
    Timers,
)
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.version_prefixed import ConsumerProtocolSubscription, parse_subscription

Downgrade = Callable[[ConsumerGroup, GroupMoment], list[Change]]


class ClassicMembers:
    """`to_classic` converts a group without consumer-protocol members to a classic group, without a
    rebalance.
    """

    def __init__(
        self,
        settings: GroupSettings,
        outbox: Outbox,
        timers: Timers,
        topics: TopicsView,
        consumers: ConsumerGroups,
        to_classic: Downgrade,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._topics = topics
        self._consumers = consumers
        self._to_classic = to_classic

    # Join
    # ----------------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, waiter: int, asked: JoinInput, now: GroupMoment) -> None:
        """Add a member or reconcile an existing one; reply once that is replicated."""
        member_id = asked.member_id or asked.fresh_id
        error = self._refuse_join(group, asked, member_id)
        if error is not None:
            returned_id = member_id if error is ErrorCode.MEMBER_ID_REQUIRED else asked.member_id
            self._outbox.reply(waiter, JoinAnswer(error=error, member_id=returned_id))
            return
        former = (
            None
            if asked.group_instance_id is None
            else group.static_member(asked.group_instance_id)
        )
        if former is not None and asked.member_id and asked.member_id != former.member_id:
            self._outbox.reply(
                waiter, JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=asked.member_id)
            )
            return
        if former is None and asked.group_instance_id is not None and asked.member_id:
            self._outbox.reply(
                waiter, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=asked.member_id)
            )
            return
        try:
            subscription = parse_subscription(asked.protocols[0][1])
        except MalformedMessage:
            self._outbox.reply(
                waiter, JoinAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR, member_id=asked.member_id)
            )
            return
        changes: list[Change] = []
        member = self._member(group, former, asked, member_id, changes)
        wanted = self._wanted(member, asked, subscription)
        reached = self._consumers.step(
            group,
            member,
            wanted,
            shares_of(subscription.owned_partitions, self._topics),
            changes,
            now,
        )
        if (
            former is not None
            and former.classic is None
            and self._consumers.is_to_be_classic(list(group.members.values()))
        ):
            changes += self._to_classic(group, now)
        else:
            self._await_sync(group.group_id, reached, now)
        self._answer(waiter, reached, changes)

    def _refuse_join(
        self, group: ConsumerGroup, asked: JoinInput, member_id: str
    ) -> ErrorCode | None:
        if (
            len(group.members) >= self._settings.consumer_max_size
            and member_id not in group.members
        ):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.takes_classic(asked.protocol_type, asked.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not asked.member_id and asked.takes_id_first and asked.group_instance_id is None:
            return ErrorCode.MEMBER_ID_REQUIRED
        return None

    def _member(
        self,
        group: ConsumerGroup,
        former: ConsumerMember | None,
        asked: JoinInput,
        member_id: str,
        changes: list[Change],
    ) -> ConsumerMember:
        """Return the state of the member before this join; a new incarnation of a static member
        replaces the former one here.
        """
        if former is not None:
            return (
                former
                if asked.member_id
                else self._consumers.replace_static(group, former, member_id, changes)
            )
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)

    def _wanted(
        self, member: ConsumerMember, asked: JoinInput, subscription: ConsumerProtocolSubscription
    ) -> ConsumerMember:
        return replace(
            member,
            instance_id=member.instance_id
            if asked.group_instance_id is None
            else asked.group_instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms
            if asked.rebalance_timeout_ms < 0
            else asked.rebalance_timeout_ms,
            subscribed_names=tuple(sorted(dict.fromkeys(subscription.topics))),
            subscribed_regex=None,  # of a former static member; kept up to 4.0.0 and 4.1.0
            client_id=asked.client_id,
            client_host=asked.client_host,
            classic=ClassicTerms(
                session_timeout_ms=asked.session_timeout_ms, protocols=asked.protocols
            ),
        )

    def _await_sync(self, group_id: str, member: ConsumerMember, now: GroupMoment) -> None:
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_JOIN, group_id, member.member_id))
        self._consumers.renew(group_id, member, now)
        self._timers.set(
            TimerKey(TimerKind.CONSUMER_SYNC, group_id, member.member_id),
            now.monotonic_ms + member.rebalance_timeout_ms,
        )

    def _answer(self, waiter: int, member: ConsumerMember, changes: list[Change]) -> None:
        assert member.classic is not None, "a member that sends JoinGroup uses the classic protocol"
        answer = JoinAnswer(
            member_id=member.member_id,
            generation_id=member.member_epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=member.classic.protocol_name,
        )

        def on_end(error: ErrorCode) -> None:
            self._outbox.reply(
                waiter,
                answer
                if error is ErrorCode.NONE
                else JoinAnswer(error=error, member_id=member.member_id),
            )

        self._consumers.write(changes, on_end)

    # Sync, heartbeat
    # ----------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, waiter: int, asked: SyncInput, now: GroupMoment) -> None:
        """Return a member's assignment; an assignment sent by a leader is ignored."""
        answer = self._share(group, asked, now)
        self._outbox.reply(
            waiter, SyncAnswer(error=answer) if isinstance(answer, ErrorCode) else answer
        )

    def _share(
        self, group: ConsumerGroup, asked: SyncInput, now: GroupMoment
    ) -> SyncAnswer | ErrorCode:
        member = self._validated(
            group, asked.member_id, asked.group_instance_id, asked.generation_id
        )
        if isinstance(member, ErrorCode):
            return member
        assert member.classic is not None, "_find checked it"
        if asked.protocol_type not in (None, CONSUMER_PROTOCOL) or asked.protocol_name not in (
            None,
            member.classic.protocol_name,
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if (
            group.assignment_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._await_join(group.group_id, member, now)
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._timers.cancel(TimerKey(TimerKind.CONSUMER_SYNC, group.group_id, member.member_id))
        self._consumers.renew(group.group_id, member, now)
        assignment = assignment_of(member.classic, member.assigned, self._topics)
        return SyncAnswer(
            protocol_type=asked.protocol_type,
            protocol_name=asked.protocol_name,
            assignment=assignment,
        )

    def heartbeat(
        self,
        group: ConsumerGroup,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now: GroupMoment,
    ) -> ErrorCode:
        """Renew a session.

        REBALANCE_IN_PROGRESS is not a failure: the member has to rejoin within its rebalance
        timeout.
        """
        member = self._validated(group, member_id, group_instance_id, generation_id)
        if isinstance(member, ErrorCode):
            return member
        self._consumers.renew(group.group_id, member, now)
        may_take = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(
            member
        )
        if (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or may_take
        ):
            self._await_join(group.group_id, member, now)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _await_join(self, group_id: str, member: ConsumerMember, now: GroupMoment) -> None:
        self._timers.set_if_absent(
            TimerKey(TimerKind.CONSUMER_JOIN, group_id, member.member_id),
            now.monotonic_ms + member.rebalance_timeout_ms,
        )

    def _validated(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> ConsumerMember | ErrorCode:
        member = self._find(group, member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        if member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return member if member.member_epoch == generation_id else ErrorCode.ILLEGAL_GENERATION

    def _find(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember | ErrorCode:
        """Return a member, or the error if there is none."""
        member = (
            group.members.get(member_id)
            if instance_id is None
            else group.static_member(instance_id)
        )
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance_id is not None and member.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        return member

    # Leave
    # ----------------------------------------------------------------------------------------------

    def leave(
        self, group: ConsumerGroup, members: Sequence[tuple[str, str | None]], now: GroupMoment
    ) -> list[ErrorCode]:
        """Remove members of either protocol in one group epoch; return one error each.

        Without a member id a static member is removed.
        """
        errors: list[ErrorCode] = []
        gone: dict[str, None] = {}
        for member_id, instance_id in members:
            owner = (
                group.static_member(instance_id)
                if instance_id is not None and not member_id
                else None
            )
            found = self._find(group, member_id if owner is None else owner.member_id, instance_id)
            errors.append(found if isinstance(found, ErrorCode) else ErrorCode.NONE)
            if isinstance(found, ConsumerMember):
                gone[found.member_id] = None
        if gone:
            changes: list[Change] = []
            self._consumers.remove_members(group, gone, changes, now)
            self._consumers.write(changes, lambda error: None)
        return errors
