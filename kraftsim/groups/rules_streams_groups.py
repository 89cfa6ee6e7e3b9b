"""The streams groups of one coordinator partition: heartbeats, the topology, target assignments,
and expiry of members.

An input is decided on the state before it, and its records are applied at the end: the first
heartbeat of a group has a group that is forgotten, and the records make the one that stays.
Source: KIP-1071, KIP-1263, org.apache.kafka.coordinator.group.GroupMetadataManager.{
streamsGroupHeartbeat, streamsGroupLeave, maybeUpdateStreamsTargetAssignment,
computeDelayedTargetAssignment} of 4.2, 4.3 and 4.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_assignors import java_order
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_group_configs import (
    STREAMS_ASSIGNMENT,
    STREAMS_DELAY,
    STREAMS_HEARTBEAT,
    STREAMS_LAG,
    STREAMS_OFFSETS,
    STREAMS_SESSION,
    STREAMS_STANDBYS,
    STREAMS_TAGS,
    STREAMS_WARMUPS,
)
from kraftsim.groups.rules_other_groups import OtherGroups, ShardParts
from kraftsim.groups.rules_streams_assignor import (
    Task,
)
from kraftsim.groups.rules_streams_endpoints import endpoint_rows
from kraftsim.groups.rules_streams_events import TaskEvents
from kraftsim.groups.rules_streams_group import (
    LEFT,
    LEFT_FOR_A_WHILE,
    NO_TASK_OFFSETS,
    NO_TASK_SET,
    NO_TOPOLOGY_EPOCH,
    STREAMS,
    EndpointRow,
    StreamsGroup,
    StreamsMember,
    StreamsMemberState,
    TaskOffsets,
    TaskSet,
)
from kraftsim.groups.rules_streams_heartbeats import (
    JOINS,
    StreamsAnswer,
    StreamsHeartbeat,
    not_streams,
    refuse_epoch,
    refuse_instance,
    unknown_instance,
    unknown_member,
)
from kraftsim.groups.rules_streams_reconciliation import reconciled_tasks
from kraftsim.groups.rules_streams_records import (
    current_change,
    epoch_change,
    member_change,
    member_tombstones,
    replay_change,
    target_change,
    target_epoch_change,
    topology_change,
)
from kraftsim.groups.rules_streams_targets import assign_targets
from kraftsim.groups.rules_streams_topology import (
    ConfiguredTopology,
    configure,
    is_same_topology,
    refuse_topology,
    required_topics,
)
from kraftsim.groups.rules_timing import (
    GroupMoment,
    TimerKey,
    TimerKind,
    java_hash,
)
from kraftsim.groups.rules_topic_hashes import hash_of_topics
from protocol.coordinator.consumer_groups import GroupMetadataKey
from protocol.coordinator.streams_groups import StreamsGroupTopologyValue
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import StatusCode
from protocol.schema import Message

NO_TIMEOUT: Final = -1
FIRST_EPOCH: Final = 1
NOT_ASSIGNED_MS: Final = 0
FIRST_VERSION_WITH_TAG_STATUS: Final = 1
INT32_MAX: Final = 2**31 - 1
SESSION_MS, HEARTBEAT_MS, DELAY_MS = 45_000, 5_000, 3_000
WARMUPS: Final = 2
OFFSET_INTERVAL_MS, RECOVERY_LAG = 60_000, 10_000
STANDBYS_KEY, TAGS_KEY = "num.standby.replicas", "rack.aware.assignment.tags"


@dataclass(slots=True)
class _Beat:
    """A heartbeat that is being decided."""

    asked: StreamsHeartbeat
    now: GroupMoment
    group: StreamsGroup
    member: StreamsMember
    """As it was before."""
    wanted: StreamsMember
    """With the metadata of the request."""
    is_joining: bool
    replaced_id: str | None = None
    """The static member that this one replaces."""
    changes: list[Change] = field(default_factory=list)
    statuses: list[tuple[StatusCode, str]] = field(default_factory=list)
    is_bumped: bool = False
    refines_only: bool = False
    """Whether the epoch is bumped only because the member lacks tasks of its target."""
    configs: tuple[tuple[str, str], ...] = ()
    validated_epoch: int = NO_TOPOLOGY_EPOCH
    metadata_hash: int = 0
    group_epoch: int = 0


class StreamsGroups(OtherGroups):
    """The rules of streams groups."""

    name: ClassVar[str] = STREAMS

    def __init__(self, parts: ShardParts) -> None:
        super().__init__(parts)
        self._events = TaskEvents(parts.emit, parts.number, parts.topics, self.find)

    # Heartbeats
    # ----------------------------------------------------------------------------------------------

    def heartbeat(self, waiter: int, asked: StreamsHeartbeat, now: GroupMoment) -> None:
        """Reply with a StreamsAnswer: at once if nothing changes, else once the change is
        replicated.
        """
        leaves = asked.member_epoch in (LEFT, LEFT_FOR_A_WHILE)
        outcome = self._leave(asked, now) if leaves else self._join_or_heartbeat(asked, now)
        outbox = self._parts.outbox
        if isinstance(outcome, Refusal):
            outbox.reply(waiter, StreamsAnswer(error=outcome.error, why=outcome.message))
            return
        answer, changes = outcome
        applied: list[Change] = []
        self.do(applied, *changes)
        self.write(
            applied,
            lambda error: outbox.reply(
                waiter, answer if error is ErrorCode.NONE else StreamsAnswer(error=error)
            ),
        )

    def find(self, group_id: str) -> StreamsGroup | None:
        """Return a streams group."""
        found = self._parts.table.others.get(group_id)
        return found if isinstance(found, StreamsGroup) else None

    def _join_or_heartbeat(
        self, asked: StreamsHeartbeat, now: GroupMoment
    ) -> tuple[StreamsAnswer, list[Change]] | Refusal:
        beat = self._beat_of(asked, now)
        if isinstance(beat, Refusal):
            return beat
        topology = self._topology_of(beat)
        if isinstance(topology, Refusal):
            return topology
        configured = self._configured(beat, topology)
        if isinstance(configured, Refusal):
            return configured
        refusal = self._follow(beat, configured)
        if refusal is not None:
            return refusal
        target_epoch, targets = self._targets_of(beat, configured)
        group, settings = beat.group, self._parts.settings
        if settings.streams_have_roles:
            targets = self._refined(beat, target_epoch, targets)
        target = targets.get(beat.wanted.member_id, NO_TASK_SET)
        reached = reconciled_tasks(
            beat.wanted,
            target_epoch=target_epoch,
            target=target,
            owned=asked.owned,
            owners=group,
            changes_roles=settings.streams_have_roles,
        )
        if isinstance(reached, Refusal):
            return reached
        if reached != beat.wanted:
            beat.changes.append(current_change(group.group_id, reached))
        answer = self._answer(beat, reached, configured)
        if isinstance(answer, Refusal):
            return answer
        if reached != beat.wanted:
            self._watch_revocation(group.group_id, reached, now)
        self._renew(group.group_id, reached.member_id, now)
        return answer, beat.changes

    def _beat_of(self, asked: StreamsHeartbeat, now: GroupMoment) -> _Beat | Refusal:
        """Return the group and the member of a request, both before any change."""
        is_joining = asked.member_epoch == JOINS
        changes: list[Change] = []
        group = self._group_of(asked, changes)
        if isinstance(group, Refusal):
            return group
        former = None if asked.instance_id is None else group.static_member(asked.instance_id)
        is_other = former is not None and former.member_id != asked.member_id
        if former is not None and is_other and former.member_id in group.refined:
            group.refined[asked.member_id] = group.refined.pop(former.member_id)
        member = self._member_of(group, asked, changes)
        if isinstance(member, Refusal):
            return member
        return _Beat(
            asked=asked,
            now=now,
            group=group,
            member=member,
            wanted=self._wanted(member, asked, is_joining=is_joining),
            is_joining=is_joining,
            replaced_id=former.member_id if former is not None and is_other else None,
            changes=changes,
        )

    def _group_of(self, asked: StreamsHeartbeat, changes: list[Change]) -> StreamsGroup | Refusal:
        """Return the group; a new one is not in the shard yet."""
        table, group_id = self._parts.table, asked.group_id
        known = table.find(group_id)
        if asked.member_epoch != JOINS:
            if known is None:
                why = f"Streams group {group_id} not found."
                return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, why)
            return known if isinstance(known, StreamsGroup) else not_streams(group_id)
        ended = None if known is None else table.leave_classic(group_id)
        if known is None or ended is not None:
            changes += ended or ()
            return self._new_group(group_id)
        if not isinstance(known, StreamsGroup):
            return not_streams(group_id)
        return self._refuse_full(known, asked) or known

    def _refuse_full(self, group: StreamsGroup, asked: StreamsHeartbeat) -> Refusal | None:
        """Up to 4.3 a full group refuses members that are in it already, too."""
        size = self._integer(group.group_id, "streams.max.size", INT32_MAX)
        if len(group.members) < size:
            return None
        is_known = self._parts.settings.streams_have_roles and (
            asked.member_id in group.members
            or (asked.instance_id is not None and group.static_member(asked.instance_id))
        )
        if is_known:
            return None
        why = f"The streams group has reached its maximum capacity of {size} members."
        return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, why)

    def _member_of(
        self, group: StreamsGroup, asked: StreamsHeartbeat, changes: list[Change]
    ) -> StreamsMember | Refusal:
        if asked.instance_id is not None:
            return self._static_member_of(group, asked, asked.instance_id, changes)
        member = group.members.get(asked.member_id)
        if member is None:
            if asked.member_epoch != JOINS:
                return unknown_member(group, asked.member_id)
            return StreamsMember(member_id=asked.member_id)
        return refuse_epoch(member, asked) or member

    def _static_member_of(
        self,
        group: StreamsGroup,
        asked: StreamsHeartbeat,
        instance_id: str,
        changes: list[Change],
    ) -> StreamsMember | Refusal:
        member = group.static_member(instance_id)
        if asked.member_epoch != JOINS:
            return (
                refuse_instance(member, asked.member_id, instance_id)
                or (None if member is None else refuse_epoch(member, asked))
                or member
                or unknown_instance(instance_id)
            )
        if member is None:
            return group.members.get(asked.member_id) or StreamsMember(member_id=asked.member_id)
        if member.member_epoch != LEFT_FOR_A_WHILE:
            return Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {asked.member_id} with instance id {instance_id} cannot join the "
                f"group because the instance id is owned by {member.member_id} member.",
            )
        heir = replace(
            member, member_id=asked.member_id, member_epoch=JOINS, previous_member_epoch=JOINS
        )
        target = group.targets.get(member.member_id, NO_TASK_SET)
        changes += member_tombstones(group.group_id, member.member_id)
        changes.append(member_change(group.group_id, heir))
        changes.append(target_change(group.group_id, heir.member_id, target))
        changes.append(current_change(group.group_id, heir))
        return heir

    def _wanted(
        self, member: StreamsMember, asked: StreamsHeartbeat, *, is_joining: bool
    ) -> StreamsMember:
        """Return the member with its requested metadata."""
        topology, timeout_ms = asked.topology, asked.rebalance_timeout_ms
        replaces_endpoint = is_joining and self._parts.settings.streams_have_roles
        endpoint = asked.user_endpoint
        return replace(
            member,
            instance_id=member.instance_id if asked.instance_id is None else asked.instance_id,
            rack_id=member.rack_id if asked.rack_id is None else asked.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms
            if timeout_ms == NO_TIMEOUT
            else timeout_ms,
            topology_epoch=member.topology_epoch if topology is None else topology.epoch,
            client_id=asked.client_id,
            client_host=asked.client_host,
            process_id=member.process_id if asked.process_id is None else asked.process_id,
            client_tags=member.client_tags if asked.client_tags is None else asked.client_tags,
            user_endpoint=endpoint
            if replaces_endpoint or endpoint is not None
            else member.user_endpoint,
        )

    # Topology
    # ----------------------------------------------------------------------------------------------

    def _topology_of(self, beat: _Beat) -> StreamsGroupTopologyValue | Refusal:
        """Return the topology of the group: that of the request if it is the first."""
        group, wanted, asked = beat.group, beat.wanted, beat.asked.topology
        if wanted != beat.member:
            beat.changes.append(member_change(group.group_id, wanted))
            beat.is_bumped = wanted.instance_id is None or _is_relevant(beat.member, wanted)
        if asked is not None:
            refusal = refuse_topology(asked)
            if refusal is not None:
                return refusal
        known = group.topology
        if known is None:
            if asked is None:
                return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
            beat.changes.append(topology_change(group.group_id, asked))
            return asked
        if asked is not None and known.epoch <= asked.epoch and not is_same_topology(known, asked):
            why = "Topology updates are not supported yet."
            return Refusal(ErrorCode.INVALID_REQUEST, why)
        if wanted.topology_epoch < known.epoch:
            detail = (
                f"The member's topology epoch {wanted.topology_epoch} is behind the group's "
                f"topology epoch {known.epoch}."
            )
            beat.statuses.append((StatusCode.STALE_TOPOLOGY, detail))
        return known

    def _configured(
        self, beat: _Beat, topology: StreamsGroupTopologyValue
    ) -> ConfiguredTopology | Refusal:
        """Return the topology with the topics of the cluster, computed again if these changed."""
        group, topics = beat.group, self._parts.topics
        beat.metadata_hash = group.metadata_hash
        is_stale = group.topology is None
        if is_stale or group.configured is None or group.seen_topics != topics.version:
            group.seen_topics = topics.version
            hashed = hash_of_topics(required_topics(topology), topics)
            if hashed != group.metadata_hash:
                beat.is_bumped = is_stale = True
                beat.metadata_hash = hashed
            if is_stale or group.configured is None:
                found = configure(topology, topics)
                if isinstance(found, Refusal):
                    return found
                group.configured = found
                group.endpoint_rows.clear()
        assert group.configured is not None, "it is configured above"
        return group.configured

    def _follow(self, beat: _Beat, configured: ConfiguredTopology) -> Refusal | None:
        """Bump the group epoch if members, topics or configurations changed."""
        group, asked = beat.group, beat.asked
        if configured.is_ready:
            beat.validated_epoch = configured.epoch
            refusal = _refuse_tasks(configured, asked.owned)
            if refusal is not None:
                return refusal
        refusal = self._note_offsets(group, asked)
        if refusal is not None:
            return refusal
        beat.configs = self._assignment_configs(group.group_id)
        is_bumped = (
            beat.is_bumped
            or beat.validated_epoch != group.validated_topology_epoch
            or beat.configs != group.last_configs
        )
        if self._parts.settings.streams_have_roles and not is_bumped:
            beat.refines_only = not group.is_refined(beat.wanted)
        if is_bumped or beat.refines_only:
            beat.group_epoch = group.group_epoch + 1
            beat.changes.append(
                epoch_change(
                    group,
                    beat.group_epoch,
                    beat.metadata_hash,
                    beat.validated_epoch,
                    beat.configs,
                )
            )
        else:
            beat.group_epoch = group.group_epoch
        delay_ms = self._integer(group.group_id, STREAMS_DELAY, DELAY_MS)
        if group.is_empty and delay_ms > 0:
            self._parts.timers.set_if_absent(
                _delay_key(group.group_id), beat.now.monotonic_ms + delay_ms
            )
        return None

    def _note_offsets(self, group: StreamsGroup, asked: StreamsHeartbeat) -> Refusal | None:
        """Remember the changelog offsets that a member reports."""
        if asked.task_offsets is None and asked.task_end_offsets is None:
            return None
        known = group.task_offsets.get(asked.member_id, NO_TASK_OFFSETS)
        found: list[Mapping[Task, int]] = []
        for rows, former in (
            (asked.task_end_offsets, known.ends),
            (asked.task_offsets, known.offsets),
        ):
            if rows is None:
                found.append(former)
                continue
            offsets: dict[Task, int] = {}
            for task, offset in rows:
                if task in offsets:
                    why = (
                        f"Task offsets contain a duplicate entry for subtopology {task[0]} and "
                        f"partition {task[1]}."
                    )
                    return Refusal(ErrorCode.INVALID_REQUEST, why)
                offsets[task] = offset
            found.append(offsets)
        group.task_offsets[asked.member_id] = TaskOffsets(*found)
        return None

    # Target assignment
    # ----------------------------------------------------------------------------------------------

    def _targets_of(
        self, beat: _Beat, configured: ConfiguredTopology
    ) -> tuple[int, Mapping[str, TaskSet]]:
        """Return the assignment epoch and the tasks of all members, newly assigned if due."""
        group = beat.group
        assignment_epoch = max(FIRST_EPOCH, group.assignment_epoch)
        is_waiting = self._parts.timers.is_set(_delay_key(group.group_id))
        has_intervals = self._parts.settings.streams_assigns_at_intervals
        if is_waiting and (has_intervals or beat.group_epoch > group.assignment_epoch):
            detail = "Assignment delayed due to the configured initial rebalance delay."
            beat.statuses.append((StatusCode.ASSIGNMENT_DELAYED, detail))
            return assignment_epoch, {}
        known = group.targets
        if beat.replaced_id is not None and beat.replaced_id in known:
            known = {**known, beat.wanted.member_id: known[beat.replaced_id]}
        if group.assignment_epoch >= beat.group_epoch:
            return group.assignment_epoch, known
        if beat.refines_only and group.assignment_epoch >= group.group_epoch:
            beat.changes.append(
                target_epoch_change(group.group_id, beat.group_epoch, group.assigned_ms)
            )
            return beat.group_epoch, known
        if not self._may_assign(group, beat.now):
            detail = "Assignment delayed due to the configured assignment interval."
            beat.statuses.append((StatusCode.ASSIGNMENT_DELAYED, detail))
            return assignment_epoch, known
        found, changes = assign_targets(
            group,
            configured,
            self._parts.settings,
            epoch=beat.group_epoch,
            standby_replicas=_standby_replicas(beat.configs),
            now=beat.now,
            heir=(beat.wanted, beat.replaced_id),
        )
        beat.changes += changes
        return beat.group_epoch, found

    def _refined(
        self, beat: _Beat, epoch: int, targets: Mapping[str, TaskSet]
    ) -> Mapping[str, TaskSet]:
        """Return the tasks of all members at an assignment epoch: as they were for the first
        heartbeat of that epoch, even if it failed.

        Source: GroupMetadataManager.{refinedAssignmentForEpoch, maybeCacheRefinedAssignment}.
        """
        group = beat.group
        if not self._integer(group.group_id, STREAMS_WARMUPS, WARMUPS):
            return targets
        if beat.refines_only or group.refined_epoch != epoch:
            group.refined_epoch, group.refined = epoch, dict(targets)
        return group.refined

    def _may_assign(self, group: StreamsGroup, now: GroupMoment) -> bool:
        interval_ms = self._integer(group.group_id, STREAMS_ASSIGNMENT, 0)
        if not interval_ms or group.assigned_ms == NOT_ASSIGNED_MS:
            return True
        return now.wall_ms >= group.assigned_ms + interval_ms

    # The answer
    # ----------------------------------------------------------------------------------------------

    def _answer(
        self, beat: _Beat, reached: StreamsMember, configured: ConfiguredTopology
    ) -> StreamsAnswer | Refusal:
        group, asked, settings = beat.group, beat.asked, self._parts.settings
        group_id = group.group_id
        if asked.shuts_down:
            group.shutdown_member_id = group.shutdown_member_id or asked.member_id
        has_changed = reached.assigned != beat.member.assigned
        is_returned = beat.is_joining or has_changed
        has_endpoint = reached.user_endpoint is not None
        if settings.streams_have_roles:
            is_new = beat.member.user_endpoint != reached.user_endpoint
            is_moved = is_new or (has_changed and has_endpoint)
            is_stale = is_returned or is_new or beat.replaced_id is not None
        else:
            is_moved = is_returned and has_endpoint
            is_stale = is_returned
        if is_stale:
            group.endpoint_rows.pop(reached.member_id, None)
        if is_moved:
            group.endpoint_epoch += 1
        endpoints: tuple[EndpointRow, ...] | None = None
        if group.endpoint_epoch != asked.endpoint_epoch:
            hidden = (beat.replaced_id, reached.member_id)
            others = (each for each in group.members.values() if each.member_id not in hidden)
            found = endpoint_rows(
                group.endpoint_rows,
                (*others, reached),
                configured,
                self._parts.topics,
                with_warmups=settings.streams_have_roles,
            )
            if found is None:
                return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
            endpoints = found
        self._add_statuses(beat, reached, configured)
        is_kept = group_id in self._parts.table.others
        has_offsets = settings.streams_have_roles
        return StreamsAnswer(
            member_id=reached.member_id,
            member_epoch=reached.member_epoch,
            heartbeat_interval_ms=self._integer(group_id, STREAMS_HEARTBEAT, HEARTBEAT_MS),
            task_offset_interval_ms=self._integer(group_id, STREAMS_OFFSETS, OFFSET_INTERVAL_MS)
            if has_offsets
            else 0,
            acceptable_recovery_lag=self._integer(group_id, STREAMS_LAG, RECOVERY_LAG)
            if has_offsets
            else -1,
            statuses=tuple(beat.statuses),
            tasks=_in_java_order(reached) if is_returned else None,
            endpoint_epoch=group.endpoint_epoch if is_kept else 0,
            endpoints=endpoints,
            missing=configured.missing,
        )

    def _add_statuses(
        self, beat: _Beat, reached: StreamsMember, configured: ConfiguredTopology
    ) -> None:
        if configured.problem is not None:
            beat.statuses.append((configured.problem.status, configured.problem.detail))
        shutdown_id = beat.group.shutdown_member_id
        if shutdown_id is not None:
            detail = (
                f"Streams group member {shutdown_id} encountered a fatal error and requested a "
                "shutdown for the entire application."
            )
            beat.statuses.append((StatusCode.SHUTDOWN_APPLICATION, detail))
        tags = dict(beat.configs).get(TAGS_KEY, "").strip()
        if not tags or beat.asked.api_version < FIRST_VERSION_WITH_TAG_STATUS:
            return
        lacking = [
            tag for part in tags.split(",") if (tag := part.strip()) not in reached.client_tags
        ]
        if lacking:
            detail = (
                "Missing required client tags for rack-aware standby assignment: "
                f"[{', '.join(lacking)}]. Configure them via 'client.tag.<tagKey>' in your "
                "Streams config."
            )
            beat.statuses.append((StatusCode.MISSING_CLIENT_TAGS, detail))

    # Leaving
    # ----------------------------------------------------------------------------------------------

    def _leave(
        self, asked: StreamsHeartbeat, now: GroupMoment
    ) -> tuple[StreamsAnswer, list[Change]] | Refusal:
        known = self._parts.table.find(asked.group_id)
        if known is None:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {asked.group_id} not found.")
        if not isinstance(known, StreamsGroup):
            return not_streams(asked.group_id)
        group = known
        if asked.shuts_down:
            group.shutdown_member_id = group.shutdown_member_id or asked.member_id
        if asked.instance_id is None:
            member = group.members.get(asked.member_id)
            if member is None:
                return unknown_member(group, asked.member_id)
        else:
            member = group.static_member(asked.instance_id)
            if member is None:
                return unknown_instance(asked.instance_id)
            refusal = refuse_instance(member, asked.member_id, asked.instance_id)
            if refusal is not None:
                return refusal
        answer = StreamsAnswer(member_id=member.member_id, member_epoch=asked.member_epoch)
        if asked.instance_id is not None and asked.member_epoch == LEFT_FOR_A_WHILE:
            return answer, [current_change(group.group_id, member.gone_for_a_while())]
        return answer, self._removal(group, member.member_id)

    def _removal(self, group: StreamsGroup, member_id: str) -> list[Change]:
        """Return the records that remove a member, and cancel its timers."""
        group_id, epoch = group.group_id, group.group_epoch + 1
        changes = member_tombstones(group_id, member_id)
        changes.append(
            epoch_change(
                group,
                epoch,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.last_configs,
            )
        )
        if len(group.members) == 1 and self._parts.settings.streams_have_roles:
            changes.append(target_epoch_change(group_id, epoch, NOT_ASSIGNED_MS))
        for kind in (TimerKind.STREAMS_SESSION, TimerKind.STREAMS_REVOCATION):
            self._parts.timers.cancel(TimerKey(kind, group_id, member_id))
        return changes

    # Timers
    # ----------------------------------------------------------------------------------------------

    def begin(self, now: GroupMoment) -> None:
        """The log is replayed: start a full session for every member."""
        self._events.begin()
        for group in self._parts.table.others.values():
            if isinstance(group, StreamsGroup):
                for member in group.members.values():
                    self._renew(group.group_id, member.member_id, now)
                    self._watch_revocation(group.group_id, member, now)

    def on_timer(self, key: TimerKey, now: GroupMoment) -> None:
        """A session or a rebalance timeout has expired, or the delay of the first assignment."""
        group = self.find(key.group_id)
        if group is None:
            return
        changes: list[Change] = []
        match key.kind:
            case TimerKind.STREAMS_SESSION | TimerKind.STREAMS_REVOCATION:
                if key.member_id in group.members:
                    changes = self._removal(group, key.member_id)
            case TimerKind.STREAMS_DELAY:
                changes = self._assign_after_delay(group, now)
        applied: list[Change] = []
        self.do(applied, *changes)
        self.write(applied, lambda error: None)

    def _assign_after_delay(self, group: StreamsGroup, now: GroupMoment) -> list[Change]:
        is_due = group.group_epoch > group.assignment_epoch and self._may_assign(group, now)
        if group.is_empty or group.configured is None or not is_due:
            return []
        _, changes = assign_targets(
            group,
            group.configured,
            self._parts.settings,
            epoch=group.group_epoch,
            standby_replicas=_standby_replicas(group.last_configs),
            now=now,
        )
        return changes

    def _renew(self, group_id: str, member_id: str, now: GroupMoment) -> None:
        session_ms = self._integer(group_id, STREAMS_SESSION, SESSION_MS)
        key = TimerKey(TimerKind.STREAMS_SESSION, group_id, member_id)
        self._parts.timers.set(key, now.monotonic_ms + session_ms)

    def _watch_revocation(self, group_id: str, member: StreamsMember, now: GroupMoment) -> None:
        """Run the rebalance timeout of a member while it has to revoke tasks."""
        key = TimerKey(TimerKind.STREAMS_REVOCATION, group_id, member.member_id)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            self._parts.timers.set(key, now.monotonic_ms + member.rebalance_timeout_ms)
        else:
            self._parts.timers.cancel(key)

    # Settings
    # ----------------------------------------------------------------------------------------------

    def _integer(self, group_id: str, name: str, without: int) -> int:
        return self._parts.settings.configs.integer(group_id, name, without)

    def _assignment_configs(self, group_id: str) -> tuple[tuple[str, str], ...]:
        """Return the configurations that an assignment depends on, sorted by name."""
        rows = [(STANDBYS_KEY, str(self._integer(group_id, STREAMS_STANDBYS, 0)))]
        tags = self._parts.settings.configs.elements(group_id, STREAMS_TAGS)
        return (*rows, (TAGS_KEY, ",".join(tags))) if tags else tuple(rows)

    # Records
    # ----------------------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one record; the tombstone of a classic group that becomes a streams group has no
        effect of its own.
        """
        if not isinstance(key, GroupMetadataKey):
            replay_change(key, value, find=self.find, make=self._make, drop=self._drop)

    def forget_topics(self, now: GroupMoment) -> None:
        """The next heartbeat compares the topics of its topology with those that there are."""

    def loaded(self, key: Message, value: Message | None, record_offset: int) -> None:
        """A record is loaded from the log, after its replay."""
        self._events.loaded(key, value, record_offset)

    def replicated(self, changes: Sequence[Change], base_offset: int) -> None:
        """Changes are replicated, in consecutive records."""
        self._events.replicated(changes, base_offset)

    def _new_group(self, group_id: str) -> StreamsGroup:
        has_intervals = self._parts.settings.streams_assigns_at_intervals
        first = FIRST_EPOCH if has_intervals else 0
        return StreamsGroup(
            group_id, self._parts.topics, group_epoch=FIRST_EPOCH, assignment_epoch=first
        )

    def _make(self, group_id: str) -> StreamsGroup:
        """Return a streams group; a new one keeps the offsets of a group of another type."""
        group = self.find(group_id)
        if group is None:
            offsets = self._parts.table.take_offsets(group_id)
            group = self._parts.table.others[group_id] = self._new_group(group_id)
            group.offsets = offsets
        return group

    def _drop(self, group: StreamsGroup) -> None:
        del self._parts.table.others[group.group_id]
        self._parts.timers.cancel(_delay_key(group.group_id))
        self._parts.table.give_offsets(group.group_id, group.offsets)


def _standby_replicas(configs: Iterable[tuple[str, str]]) -> int:
    return int(dict(configs).get(STANDBYS_KEY, "0"))


def _delay_key(group_id: str) -> TimerKey:
    return TimerKey(TimerKind.STREAMS_DELAY, group_id)


def _is_relevant(former: StreamsMember, wanted: StreamsMember) -> bool:
    """Return whether the metadata of a static member changed in a way that moves tasks."""
    return (former.topology_epoch, former.rack_id, former.client_tags, former.process_id) != (
        wanted.topology_epoch,
        wanted.rack_id,
        wanted.client_tags,
        wanted.process_id,
    )


def _refuse_tasks(configured: ConfiguredTopology, owned: TaskSet | None) -> Refusal | None:
    """Return INVALID_REQUEST for tasks that the topology does not have."""
    subtopologies = configured.subtopologies or {}
    for tasks in () if owned is None else (owned.active, owned.standby, owned.warmup):
        for name, numbers in tasks.items():
            if name not in subtopologies:
                why = f"Subtopology {name} does not exist in the topology."
                return Refusal(ErrorCode.INVALID_REQUEST, why)
            count = subtopologies[name].tasks
            for number in numbers:
                if not 0 <= number < count:
                    why = (
                        f"Task {number} for subtopology {name} is invalid. Number of tasks for "
                        f"this subtopology: {count}"
                    )
                    return Refusal(ErrorCode.INVALID_REQUEST, why)
    return None


def _in_java_order(member: StreamsMember) -> TaskSet:
    held = member.assigned
    active, standby, warmup = (
        {name: tasks[name] for name in java_order(tasks, java_hash)}
        for tasks in (held.active_tasks(), held.standby, held.warmup)
    )
    return TaskSet(active, standby, warmup)
