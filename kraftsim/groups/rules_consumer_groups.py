"""The consumer groups of one coordinator partition: heartbeats, expiry of members, and the online
migration of groups between the two protocols.

A change takes effect in memory at once, is written in one batch, and is returned to the client once
replicated.
Source: KIP-848, KIP-1082,
org.apache.kafka.coordinator.group.GroupMetadataManager.consumerGroupHeartbeat;
ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_assignors import (
    NO_SHARES,
    AssignedMember,
    Shares,
    assign,
    hash_set_order,
)
from kraftsim.groups.rules_classic_group import CONSUMER_PROTOCOL, ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import (
    LEFT_FOR_A_WHILE,
    ClassicTerms,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    TopicsView,
    fitting,
    reconciled,
)
from kraftsim.groups.rules_consumer_group_records import (
    GROUP_VERSION,
    Change,
    MemberEvents,
    current_change,
    epoch_change,
    group_tombstones,
    member_change,
    member_tombstones,
    regex_change,
    regex_tombstone,
    target_change,
    target_epoch_change,
)
from kraftsim.groups.rules_offsets import Outbox, Stored, coordinator_record
from kraftsim.groups.rules_timing import (
    GroupMoment,
    GroupSettings,
    HeartbeatAnswer,
    Member,
    TimerKey,
    TimerKind,
    Timers,
    java_hash,
)
from kraftsim.groups.rules_topic_hashes import hash_of_topics
from protocol.coordinator.consumer_groups import GroupMetadataKey, GroupMetadataValue
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.version_prefixed import (
    NEWEST_VERSION,
    AssignedPartitions,
    ConsumerProtocolAssignment,
    OwnedPartitions,
    build_assignment,
    parse_assignment,
    parse_subscription,
)

NEVER_ASSIGNED_MS = 0


# --------------------------------------------------------------------------------------------------
# Online migration between the protocols: every member keeps its partitions
#
# Source: KIP-848, group.consumer.migration.policy.


def members_of_classic(group: ClassicGroup, topics: TopicsView) -> list[ConsumerMember] | None:
    """Return the members of a classic group as consumer-group members; None if a subscription
    cannot be parsed or would lose data.
    """
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    found = [_of_classic(group, member, topics) for member in group.members.values()]
    known = [member for member in found if member is not None]
    return known if len(known) == len(found) else None


def _of_classic(group: ClassicGroup, member: Member, topics: TopicsView) -> ConsumerMember | None:
    if group.protocol_name is None:
        return None
    try:
        subscription = parse_subscription(member.metadata_for(group.protocol_name))
        assignment = (
            parse_assignment(member.assignment)
            if member.assignment
            else ConsumerProtocolAssignment()
        )
    except MalformedMessage:
        return None
    if assignment.user_data:
        return None
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_names=tuple(sorted(dict.fromkeys(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        member_epoch=group.generation_id,
        previous_member_epoch=group.generation_id,
        assigned=shares_of(assignment.assigned_partitions, topics),
        classic=ClassicTerms(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
    )


def consumer_changes(
    group: ClassicGroup, members: Iterable[ConsumerMember], topics: TopicsView, *, with_epochs: bool
) -> list[Change]:
    """Return the records of a consumer group with these members; the target of each is its current
    assignment.

    A new target is due at once.
    """
    known = list(members)
    names = dict.fromkeys(name for member in known for name in member.subscribed_names)
    changes: list[Change] = [(GroupMetadataKey(group=group.group_id), None)]
    changes += [member_change(group.group_id, member) for member in known]
    changes.append(epoch_change(group.group_id, group.generation_id, hash_of_topics(names, topics)))
    changes += [
        target_change(group.group_id, member.member_id, member.assigned) for member in known
    ]
    changes.append(target_epoch_change(group.group_id, group.generation_id, NEVER_ASSIGNED_MS))
    changes += [current_change(group.group_id, member, with_epochs=with_epochs) for member in known]
    return changes


def tombstones_of(group: ConsumerGroup) -> list[Change]:
    """Return the tombstones of a consumer group and all its members."""
    changes = [
        change
        for member_id in group.members
        for change in member_tombstones(group.group_id, member_id)
    ]
    changes += [regex_tombstone(group.group_id, expression) for expression in group.resolved]
    return changes + group_tombstones(group.group_id)


def classic_of(group: ConsumerGroup, topics: TopicsView, wall_ms: int) -> ClassicGroup:
    """Return the classic group of members that all use the classic protocol; each one is assigned
    its target.
    """
    classic = ClassicGroup(group.group_id, wall_ms)
    classic.generation_id = group.group_epoch
    classic.state = GroupState.STABLE
    for member in group.members.values():
        assert member.classic is not None, f"{member.member_id} uses the consumer protocol"
        classic.add(
            Member(
                group_id=group.group_id,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL,
                protocols=member.classic.protocols,
                assignment=assignment_of(
                    member.classic, group.targets.get(member.member_id, NO_SHARES), topics
                ),
            )
        )
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.read_subscriptions()
    classic.offsets = group.offsets
    return classic


def assignment_of(terms: ClassicTerms, shares: Shares, topics: TopicsView) -> bytes:
    """Return a member's assignment as serialized ConsumerProtocolAssignment, in the version of its
    own subscription.
    """
    named = [(topics.name_of(topic_id), numbers) for topic_id, numbers in shares.items()]
    rows = [
        AssignedPartitions(topic=name, partitions=list(numbers))
        for name, numbers in named
        if name is not None
    ]
    version = int.from_bytes(terms.protocols[0][1][:2], signed=True)
    return build_assignment(
        ConsumerProtocolAssignment(assigned_partitions=rows), min(max(version, 0), NEWEST_VERSION)
    )


def shares_of(rows: Iterable[AssignedPartitions | OwnedPartitions], topics: TopicsView) -> Shares:
    """Return partitions by topic id; topics that do not exist any more are left out."""
    shares: dict[bytes, tuple[int, ...]] = {}
    for row in rows:
        found = topics.find(row.topic)
        if found is not None and row.partitions:
            shares[found[0]] = tuple(sorted({*shares.get(found[0], ()), *row.partitions}))
    return shares


# --------------------------------------------------------------------------------------------------
# Heartbeats and expiry

JOINS, LEAVES = 0, -1
NO_TIMEOUT = -1


class HeartbeatInput(Struct, frozen=True, kw_only=True):
    """One heartbeat.

    A field that is None, or a timeout of -1, is unchanged; `fresh_id` is the id for a member
    without one.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_names: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    owned: Shares | None
    client_id: str
    client_host: str
    fresh_id: str


class ConsumerGroups:
    """`groups` by name, in order of creation.

    `apply` replays a change of any group; `admit` creates a group, or returns why not.

    `to_classic` converts a consumer group whose members all use the classic protocol, and returns
    its records.
    """

    def __init__(
        self,
        settings: GroupSettings,
        outbox: Outbox,
        timers: Timers,
        topics: TopicsView,
        events: MemberEvents,
        *,
        groups: dict[str, ConsumerGroup],
        apply: Callable[[Change], None],
        admit: Callable[[str, GroupMoment], list[Change] | Refusal],
        to_classic: Callable[[ConsumerGroup, GroupMoment], list[Change]],
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._topics, self._events = topics, events
        self._groups = groups
        self._apply = apply
        self._admit = admit
        self._to_classic = to_classic
        self._revoking: dict[tuple[str, str], int] = {}
        """By member: the member epoch in which its revocation timeout started."""

    # Heartbeats
    # ----------------------------------------------------------------------------------------------

    def heartbeat(self, waiter: int, asked: HeartbeatInput, now: GroupMoment) -> None:
        """Reply with a HeartbeatAnswer: at once if nothing changes, else once the change is
        replicated.
        """
        changes: list[Change] = []
        leaves = asked.member_epoch in (LEAVES, LEFT_FOR_A_WHILE)
        outcome = (
            self._leave(asked, changes, now)
            if leaves
            else self._join_or_heartbeat(asked, changes, now)
        )
        if isinstance(outcome, Refusal):
            assert not changes, "a refused heartbeat changes nothing"
            self._outbox.reply(waiter, HeartbeatAnswer(error=outcome.error, why=outcome.why))
            return
        answer = outcome
        self.write(
            changes,
            lambda error: self._outbox.reply(
                waiter, answer if error is ErrorCode.NONE else HeartbeatAnswer(error=error)
            ),
        )

    def _join_or_heartbeat(
        self, asked: HeartbeatInput, changes: list[Change], now: GroupMoment
    ) -> HeartbeatAnswer | Refusal:
        """Join a member, or process its heartbeat."""
        group = self._groups.get(asked.group_id)
        if group is None:
            if asked.member_epoch != JOINS:
                return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {asked.group_id} not found.")
            admission = self._admit(asked.group_id, now)
            if isinstance(admission, Refusal):
                return admission
            changes += admission
            group = self._groups[asked.group_id]
        member = self._member_of(group, asked, changes)
        if isinstance(member, Refusal):
            return member
        reached = self.step(group, member, self._wanted(member, asked), asked.owned, changes, now)
        self.renew(group.group_id, reached, now)
        is_full = (
            asked.rebalance_timeout_ms != NO_TIMEOUT
            and asked.subscribed_names is not None
            and asked.owned is not None
        )
        is_returned = asked.member_epoch == JOINS or is_full or reached.assigned != member.assigned
        return HeartbeatAnswer(
            member_id=reached.member_id,
            member_epoch=reached.member_epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms_of(group.group_id),
            assigned=reached.assigned if is_returned else None,
        )

    def step(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        wanted: ConsumerMember,
        owned: Shares | None,
        changes: list[Change],
        now: GroupMoment,
    ) -> ConsumerMember:
        """Update the subscription of a new or existing member and reconcile it; return its new
        state.
        """
        is_new = member.member_id not in group.members
        reads_others = (wanted.subscribed_names, wanted.subscribed_regex) != (
            member.subscribed_names,
            member.subscribed_regex,
        )
        if is_new or wanted != member:
            self.do(changes, member_change(group.group_id, wanted))
        self._follow_topics(group, changes, now, reads_others=reads_others)
        self._assign_if_due(group, changes, now, newcomer=member.member_id if is_new else None)
        return self._reconcile(
            group, group.members[member.member_id], owned, changes, now, reads_others=reads_others
        )

    def _member_of(
        self, group: ConsumerGroup, asked: HeartbeatInput, changes: list[Change]
    ) -> ConsumerMember | Refusal:
        """Return the member of the request before any change; a new one is not in the group yet."""
        member_id = asked.member_id or asked.fresh_id
        if (
            len(group.members) >= self._settings.consumer_max_size
            and member_id not in group.members
        ):
            return Refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{self._settings.consumer_max_size} members.",
            )
        if asked.instance_id is not None:
            return self._static_member_of(group, asked, member_id, asked.instance_id, changes)
        member = group.members.get(member_id)
        if member is None:
            if asked.member_epoch != JOINS:
                return Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Member {member_id} is not a member of group {group.group_id}.",
                )
            return ConsumerMember(member_id=member_id)
        return self._validate_epoch(member, asked) or member

    def _static_member_of(
        self,
        group: ConsumerGroup,
        asked: HeartbeatInput,
        member_id: str,
        instance_id: str,
        changes: list[Change],
    ) -> ConsumerMember | Refusal:
        member = group.static_member(instance_id)
        if asked.member_epoch != JOINS:
            if member is None:
                return Refusal(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
                )
            return (
                self._validate_instance(member, member_id, instance_id)
                or self._validate_epoch(member, asked)
                or member
            )
        if member is None:
            return ConsumerMember(member_id=member_id)
        if not member.has_left_for_a_while and member.classic is None:
            return Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {member.member_id} member.",
            )
        return self.replace_static(group, member, member_id, changes)

    def replace_static(
        self, group: ConsumerGroup, member: ConsumerMember, member_id: str, changes: list[Change]
    ) -> ConsumerMember:
        """Replace a static member by its new incarnation."""
        heir = replace(member, member_id=member_id, member_epoch=JOINS, previous_member_epoch=JOINS)
        target = group.targets.get(member.member_id, NO_SHARES)
        self.do(changes, *member_tombstones(group.group_id, member.member_id))
        self.do(
            changes,
            member_change(group.group_id, heir),
            target_change(group.group_id, member_id, target),
        )
        self.do(changes, self._current_change(group, heir))
        self.forget_timers(group.group_id, member.member_id)
        return heir

    def _validate_instance(
        self, member: ConsumerMember, member_id: str, instance_id: str
    ) -> Refusal | None:
        if member.member_id != member_id:
            return Refusal(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return None

    def _validate_epoch(self, member: ConsumerMember, asked: HeartbeatInput) -> Refusal | None:
        """Accept the previous epoch if the last response was lost and the member owns nothing
        unassigned.

        A rejoining member owns nothing.
        """
        epoch = asked.member_epoch
        if epoch == member.member_epoch or (epoch == JOINS and self._settings.consumer_may_rejoin):
            return None
        comparison = "greater" if epoch > member.member_epoch else "smaller"
        if (
            epoch < member.member_epoch
            and epoch == member.previous_member_epoch
            and _is_part(asked.owned, member.assigned)
        ):
            return None
        return Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {comparison} member epoch ({epoch}) than the one "
            f"known by the group coordinator ({member.member_epoch}). The member must abandon "
            "all its partitions and rejoin.",
        )

    def _wanted(self, member: ConsumerMember, asked: HeartbeatInput) -> ConsumerMember:
        """Return the member with its requested subscription and settings."""
        names, regex = asked.subscribed_names, asked.subscribed_regex
        return replace(
            member,
            instance_id=member.instance_id if asked.instance_id is None else asked.instance_id,
            rack_id=member.rack_id if asked.rack_id is None else asked.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms
            if asked.rebalance_timeout_ms == NO_TIMEOUT
            else asked.rebalance_timeout_ms,
            server_assignor=member.server_assignor
            if asked.server_assignor is None
            else asked.server_assignor,
            subscribed_names=member.subscribed_names
            if names is None
            else tuple(sorted(dict.fromkeys(names))),
            subscribed_regex=member.subscribed_regex if regex is None else regex or None,
            client_id=asked.client_id,
            client_host=asked.client_host,
            classic=None,
        )

    # Topics and target assignment
    # ----------------------------------------------------------------------------------------------

    def _follow_topics(
        self, group: ConsumerGroup, changes: list[Change], now: GroupMoment, *, reads_others: bool
    ) -> None:
        """Bump the group epoch if subscriptions or topics have changed."""
        if not reads_others and group.seen_topics == self._topics.version:
            return
        is_news = self._resolve(group, changes, now) or reads_others
        group.seen_topics = self._topics.version
        hashed = self._hash(group)
        if is_news or hashed != group.metadata_hash:
            self.do(changes, epoch_change(group.group_id, group.group_epoch + 1, hashed))

    def _hash(self, group: ConsumerGroup) -> int:
        return hash_of_topics(
            dict.fromkeys(
                name for member in group.members.values() for name in group.topics_of(member)
            ),
            self._topics,
        )

    def _resolve(self, group: ConsumerGroup, changes: list[Change], now: GroupMoment) -> bool:
        """Resolve the regular expressions of a group, and return whether any matches other topics
        than before.

        While the topics are unchanged only new expressions are resolved: otherwise a group in which
        each member has its own expression would cost the square of its members.
        """
        are_same_topics = group.seen_topics == self._topics.version
        used = dict.fromkeys(
            member.subscribed_regex for member in group.members.values() if member.subscribed_regex
        )
        is_news = False
        for expression in sorted(used):
            if are_same_topics and expression in group.resolved:
                continue
            found = fitting(expression, self._topics)
            if group.resolved.get(expression) != found:
                self.do(
                    changes,
                    regex_change(
                        group.group_id, expression, found, self._topics.version, now.wall_ms
                    ),
                )
                is_news = True
        for expression in [each for each in group.resolved if each not in used]:
            self.do(changes, regex_tombstone(group.group_id, expression))
        return is_news

    def _assign_if_due(
        self, group: ConsumerGroup, changes: list[Change], now: GroupMoment, newcomer: str | None
    ) -> None:
        """Compute the target assignment of the group epoch, at most once per
        group.consumer.assignment.interval.ms (KIP-1263).
        """
        is_due = not group.assignment_epoch or self._settings.may_assign(
            group.group_id, group.assigned_ms, now.wall_ms
        )
        if group.group_epoch <= group.assignment_epoch or not is_due:
            return
        topics = {
            name: self._topics.find(name)
            for member in group.members.values()
            for name in group.topics_of(member)
        }
        there = {name: found for name, found in topics.items() if found is not None}
        rows = [
            AssignedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                topic_ids=tuple(
                    there[name][0]
                    for name in hash_set_order(group.topics_of(member), java_hash)
                    if name in there
                ),
                target=group.targets.get(member.member_id, NO_SHARES),
            )
            for member in group.members.values()
        ]
        targets = assign(
            group.preferred_assignor(self._settings.consumer_assignors[0]),
            rows,
            dict(there.values()),
            newcomer=newcomer,
        )
        for member_id in group.members:
            target = targets.get(member_id, NO_SHARES)
            if group.targets.get(member_id) != target:
                self.do(changes, target_change(group.group_id, member_id, target))
        self.do(changes, target_epoch_change(group.group_id, group.group_epoch, now.wall_ms))

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Shares | None,
        changes: list[Change],
        now: GroupMoment,
        *,
        reads_others: bool,
    ) -> ConsumerMember:
        """Reconcile a member. While it revokes partitions its rebalance timeout runs."""
        drops = self._settings.consumer_drops_unsubscribed
        if member.is_reconciled_to(group.assignment_epoch) and not (drops and reads_others):
            return member
        target = group.targets.get(member.member_id, NO_SHARES)
        given_up = member.pending_revocation if self._settings.consumer_takes_back else NO_SHARES
        own = {topic_id: frozenset(numbers) for topic_id, numbers in given_up.items()}

        def is_taken(topic_id: bytes, number: int) -> bool:
            return group.is_taken(topic_id, number) and number not in own.get(topic_id, ())

        reached = reconciled(
            member,
            target_epoch=group.assignment_epoch,
            target=target,
            owned=owned,
            is_taken=is_taken,
            subscribed=group.subscribed_ids(member, self._topics) if drops else None,
            reads_others=reads_others,
        )
        if reached == member:
            return member
        self.do(changes, self._current_change(group, reached))
        self._watch_revocation(group.group_id, reached, now)
        return reached

    def _current_change(self, group: ConsumerGroup, member: ConsumerMember) -> Change:
        return current_change(
            group.group_id, member, with_epochs=self._settings.consumer_keeps_assignment_epochs
        )

    # Leaving
    # ----------------------------------------------------------------------------------------------

    def _leave(
        self, asked: HeartbeatInput, changes: list[Change], now: GroupMoment
    ) -> HeartbeatAnswer | Refusal:
        group = self._groups.get(asked.group_id)
        if group is None:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {asked.group_id} not found.")
        member = (
            group.members.get(asked.member_id)
            if asked.instance_id is None
            else group.static_member(asked.instance_id)
        )
        if member is None:
            why = f"Member {asked.member_id} is not a member of group {group.group_id}."
            return Refusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                why
                if asked.instance_id is None
                else f"Instance id {asked.instance_id} is unknown.",
            )
        fenced = (
            None
            if asked.instance_id is None
            else self._validate_instance(member, asked.member_id, asked.instance_id)
        )
        if fenced is not None:
            return fenced
        if asked.member_epoch == LEFT_FOR_A_WHILE:
            gone = member.gone_for_a_while()
            self.do(changes, self._current_change(group, gone))
        else:
            self.remove_members(group, [member.member_id], changes, now)
        return HeartbeatAnswer(member_id=member.member_id, member_epoch=asked.member_epoch)

    def remove(self, group_id: str, member_id: str, now: GroupMoment) -> None:
        """Remove a member whose session or rebalance timeout has expired."""
        group = self._groups.get(group_id)
        if group is not None and member_id in group.members:
            changes: list[Change] = []
            self.remove_members(group, [member_id], changes, now)
            self.write(changes, lambda error: None)

    def remove_members(
        self,
        group: ConsumerGroup,
        member_ids: Collection[str],
        changes: list[Change],
        now: GroupMoment,
    ) -> None:
        """Remove members.

        Without a consumer-protocol member left the group becomes a classic one, else its epoch is
        bumped.
        """
        spoke_it = any(group.members[member_id].classic is None for member_id in member_ids)
        for member_id in member_ids:
            self.do(changes, *member_tombstones(group.group_id, member_id))
            self.forget_timers(group.group_id, member_id)
        if spoke_it and self.is_to_be_classic(list(group.members.values())):
            changes += self._to_classic(group, now)
            return
        used = {member.subscribed_regex for member in group.members.values()}
        self.do(
            changes,
            *(
                regex_tombstone(group.group_id, each)
                for each in list(group.resolved)
                if each not in used
            ),
        )
        self.do(changes, epoch_change(group.group_id, group.group_epoch + 1, self._hash(group)))
        if not group.members and self._settings.consumer_settles_empty:
            self.do(
                changes, target_epoch_change(group.group_id, group.group_epoch, group.assigned_ms)
            )

    def is_to_be_classic(self, members: Sequence[ConsumerMember]) -> bool:
        """Return whether a group with these members becomes a classic one: none uses the consumer
        protocol, and they fit in group.max.size.
        """
        are_few = 0 < len(members) <= self._settings.max_size
        return (
            self._settings.downgrades_groups
            and are_few
            and all(each.classic is not None for each in members)
        )

    # Timers
    # ----------------------------------------------------------------------------------------------

    def begin(self, now: GroupMoment) -> None:
        """The log is replayed: start a full session for every member."""
        for group in self._groups.values():
            for member in group.members.values():
                self.renew(group.group_id, member, now)
                self._watch_revocation(group.group_id, member, now)

    def on_revocation_end(self, group_id: str, member_id: str, now: GroupMoment) -> None:
        """The rebalance timeout of a member that has to revoke partitions has expired."""
        epoch = self._revoking.pop((group_id, member_id), None)
        group = self._groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is not None and member.member_epoch == epoch:
            self.remove(group_id, member_id, now)

    def renew(self, group_id: str, member: ConsumerMember, now: GroupMoment) -> None:
        """Restart the session timeout of a member after a heartbeat."""
        session_ms = (
            self._settings.session_timeout_ms_of(group_id)
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self._timers.set(
            TimerKey(TimerKind.CONSUMER_SESSION, group_id, member.member_id),
            now.monotonic_ms + session_ms,
        )

    def _watch_revocation(self, group_id: str, member: ConsumerMember, now: GroupMoment) -> None:
        key = TimerKey(TimerKind.CONSUMER_REVOCATION, group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._revoking[group_id, member.member_id] = member.member_epoch
            self._timers.set(key, now.monotonic_ms + member.rebalance_timeout_ms)
        else:
            self._revoking.pop((group_id, member.member_id), None)
            self._timers.cancel(key)

    def forget_timers(self, group_id: str, member_id: str) -> None:
        """Cancel all timers of a member."""
        self._revoking.pop((group_id, member_id), None)
        for kind in (
            TimerKind.CONSUMER_SESSION,
            TimerKind.CONSUMER_REVOCATION,
            TimerKind.CONSUMER_JOIN,
            TimerKind.CONSUMER_SYNC,
        ):
            self._timers.cancel(TimerKey(kind, group_id, member_id))

    # Writing
    # ----------------------------------------------------------------------------------------------

    def do(self, changes: list[Change], *more: Change) -> None:
        """Apply changes, and collect them for the batch of this heartbeat."""
        for change in more:
            self._apply(change)
            changes.append(change)

    def write(self, changes: Iterable[Change], on_end: Callable[[ErrorCode], None]) -> None:
        """Write changes in one batch, and call `on_end` once they are replicated or have failed."""
        kept = tuple(changes)
        records = [
            coordinator_record(
                key, value, GROUP_VERSION if isinstance(value, GroupMetadataValue) else 0
            )
            for key, value in kept
        ]
        if not records:
            on_end(ErrorCode.NONE)
            return

        def on_stored(stored: Stored) -> None:
            if stored.is_replicated:
                self._events.replicated(kept, stored.base_offset)
            if not stored.is_late:
                on_end(stored.error)

        self._outbox.store_changes(records, on_stored)


def _is_part(owned: Shares | None, assigned: Shares) -> bool:
    """Return whether a member owns nothing outside its assignment; False if it reports nothing."""
    return owned is not None and all(
        number in assigned.get(topic_id, ())
        for topic_id, numbers in owned.items()
        for number in numbers
    )
