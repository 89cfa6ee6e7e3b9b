"""A streams group of KIP-1071: its members, their tasks, its topology, and the processes that run
each task.

As in a consumer group there are the group epoch, the epoch of the target assignment and the epoch
of each member. `rules_streams_groups` decides; only `replay_*` changes what is in the log, and
`soft_*` what a coordinator keeps in memory only.
Source: org.apache.kafka.coordinator.group.streams.{StreamsGroup, StreamsGroupMember, TasksTuple,
TasksTupleWithEpochs, MemberState}.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import ClassVar, Final

from kraftsim.groups.rules_consumer_group import FIRST_COMMIT_WITH_EPOCHS, TopicsView
from kraftsim.groups.rules_consumer_group_records import Change
from kraftsim.groups.rules_offsets import GroupOffsets
from kraftsim.groups.rules_streams_assignor import NO_TASKS, Task, Tasks
from kraftsim.groups.rules_streams_topology import ConfiguredTopology, subtopologies_by_source
from protocol.coordinator.streams_groups import (
    CurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from protocol.errors import ErrorCode

STREAMS: Final = "streams"
LEFT: Final = -1
LEFT_FOR_A_WHILE: Final = -2
NO_TOPOLOGY_EPOCH: Final = -1
NO_REFINED_EPOCH: Final = -1
EpochTasks = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> the epoch in which the active task was assigned."""
TopicTasks = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions by topic."""


class StreamsMemberState(IntEnum):
    """The reconciliation state of a member; the numbers are those of the records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks of a member by role: a target, or what it reports to own."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.active or self.standby or self.warmup)


NO_TASK_SET: Final = TaskSet()


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Assigned tasks of a member, or those that it has to revoke."""

    active: EpochTasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.active or self.standby or self.warmup)

    def active_tasks(self) -> Tasks:
        """Return the active tasks without epochs."""
        return {name: tuple(epochs) for name, epochs in self.active.items()}

    def with_epochs_zero(self) -> "HeldTasks":
        """Return the tasks of a static member that has left for a while."""
        active = {name: dict.fromkeys(epochs, 0) for name, epochs in self.active.items()}
        return HeldTasks(active, self.standby, self.warmup)


NO_HELD_TASKS: Final = HeldTasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """A member, as its records have it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""
    user_endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: HeldTasks = NO_HELD_TASKS
    revoked: HeldTasks = NO_HELD_TASKS

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether its tasks are its target at an epoch."""
        return self.state is StreamsMemberState.STABLE and self.member_epoch == epoch

    def gone_for_a_while(self) -> "StreamsMember":
        """Return a static member that has left and will return."""
        return replace(
            self,
            member_epoch=LEFT_FOR_A_WHILE,
            revoked=NO_HELD_TASKS,
            assigned=self.assigned.with_epochs_zero(),
        )


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """The endpoint of a member, and the partitions whose state it has, by topic."""

    endpoint: tuple[str, int]
    active: TopicTasks
    standby: TopicTasks


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """Changelog offsets that a member reports, by task; not in the log."""

    ends: Mapping[Task, int]
    offsets: Mapping[Task, int]


NO_TASK_OFFSETS: Final = TaskOffsets({}, {})


class StreamsGroupState(Enum):
    """Group states; the values are Kafka's names."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroup:
    """Members are kept in the order in which they joined."""

    type_name: ClassVar[str] = STREAMS
    protocol_type: ClassVar[str] = STREAMS
    expires: ClassVar[bool] = True

    def __init__(
        self, group_id: str, topics: TopicsView, *, group_epoch: int, assignment_epoch: int
    ) -> None:
        self.group_id = group_id
        self._topics = topics
        self.offsets = GroupOffsets()
        self.group_epoch = group_epoch
        self.metadata_hash = 0
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        self.stored_description_epoch = NO_TOPOLOGY_EPOCH
        self.failed_description_epoch = NO_TOPOLOGY_EPOCH
        self.last_configs: tuple[tuple[str, str], ...] = ()
        """The configurations of the last assignment, sorted by key."""
        self.assignment_epoch = assignment_epoch
        self.assigned_ms = 0
        self.topology: StreamsGroupTopologyValue | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSet] = {}
        self.is_over = False
        self.configured: ConfiguredTopology | None = None
        self.seen_topics: int | None = None
        """The version of the topics view for which the hash was compared last."""
        self.endpoint_epoch = 0
        self.endpoint_rows: dict[str, EndpointRow] = {}
        """By member: its endpoint as it was returned last, until tasks or records change."""
        self.shutdown_member_id: str | None = None
        self.task_offsets: dict[str, TaskOffsets] = {}
        self.refined_epoch = NO_REFINED_EPOCH
        self.refined: dict[str, TaskSet] = {}
        """The tasks that members get at an assignment epoch: since 4.4 a place for warm-ups, up to
        4.4 always the targets. It outlives a heartbeat that fails.
        """
        self._readers: tuple[StreamsGroupTopologyValue, dict[str, str]] | None = None
        """A topology, with the subtopology that reads each topic."""
        self._static_ids: dict[str, str] = {}
        self._active: dict[Task, str] = {}
        self._standby: dict[Task, dict[str, None]] = {}
        self._warmup: dict[Task, dict[str, None]] = {}

    # Queries
    # ----------------------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        """Whether the group is removed: requests and callbacks for it have no effect."""
        return self.is_over

    def end(self) -> None:
        """The group is removed, or another broker coordinates it."""
        self.is_over = True

    @property
    def state(self) -> StreamsGroupState:
        """The state of the group."""
        if self.is_over:
            return StreamsGroupState.DEAD
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        is_there = all(
            member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
        )
        return StreamsGroupState.STABLE if is_there else StreamsGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def gives_way(self) -> bool:
        """Whether a JoinGroup makes it a classic group."""
        return self.is_empty

    def static_member(self, instance_id: str) -> StreamsMember | None:
        """Return the member of a group instance id."""
        member_id = self._static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_refined(self, member: StreamsMember) -> bool:
        """Return whether a member of a stable group has all tasks of its target."""
        target = self.targets.get(member.member_id, NO_TASK_SET)
        held = member.assigned
        tasks = TaskSet(held.active_tasks(), held.standby, held.warmup)
        return self.state is not StreamsGroupState.STABLE or target == tasks

    def active_process(self, task: Task) -> str | None:
        """Return the process that runs a task, or has to revoke it."""
        return self._active.get(task)

    def has_standby(self, task: Task, process_id: str) -> bool:
        """Return whether a process has a standby of a task."""
        return process_id in self._standby.get(task, ())

    def has_warmup(self, task: Task, process_id: str) -> bool:
        """Return whether a process warms a task up."""
        return process_id in self._warmup.get(task, ())

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a task reads a topic."""
        return bool(self.members) and topic in self.readers()

    def readers(self) -> dict[str, str]:
        """Return by source topic the subtopology that reads it; read-only."""
        if self.topology is None:
            return {}
        if self._readers is None or self._readers[0] is not self.topology:
            self._readers = self.topology, subtopologies_by_source(self.topology)
        return self._readers[1]

    def refuse_commit(
        self,
        member_id: str,
        member_epoch: int,
        api_version: int | None,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> ErrorCode | None:
        """Return the error of an offset commit: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or
        UNSUPPORTED_VERSION of OffsetCommit before 9.

        `api_version` is None inside a transaction. An earlier epoch is accepted for partitions
        whose active tasks the member has had since.
        """
        if member_epoch < 0 and not self.members:
            return None
        if api_version is None and member_epoch == LEFT and not member_id:
            return None
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if api_version is not None and api_version < FIRST_COMMIT_WITH_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        if member_epoch == member.member_epoch:
            return None
        if member_epoch > member.member_epoch or self.topology is None:
            return ErrorCode.STALE_MEMBER_EPOCH
        readers = self.readers()
        for topic_id, number in partitions:
            topic = self._topics.name_of(topic_id)
            since = _active_since(member, readers.get(topic or ""), number)
            if since is None or member_epoch < since:
                return ErrorCode.STALE_MEMBER_EPOCH
        return None

    def refuse_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode | None:
        """Return the error of an offset fetch; a request without a member is not validated."""
        if member_id is None and member_epoch < 0:
            return None
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None if member_epoch == member.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def refuse_offset_deletion(self) -> ErrorCode | None:
        """Return None: topics of tasks are refused one by one."""
        return None

    def tombstones(self) -> list[Change]:
        """Return the records that remove the group with all its members."""
        members = list(self.members)
        key = self.group_id
        return [
            *(
                (StreamsGroupCurrentMemberAssignmentKey(group_id=key, member_id=each), None)
                for each in members
            ),
            *(
                (StreamsGroupTargetAssignmentMemberKey(group_id=key, member_id=each), None)
                for each in members
            ),
            (StreamsGroupTargetAssignmentMetadataKey(group_id=key), None),
            *(
                (StreamsGroupMemberMetadataKey(group_id=key, member_id=each), None)
                for each in members
            ),
            (StreamsGroupMetadataKey(group_id=key), None),
            (StreamsGroupTopologyKey(group_id=key), None),
        ]

    # Replay
    # ----------------------------------------------------------------------------------------------

    def replay_metadata(self, value: StreamsGroupMetadataValue) -> None:
        """The group epoch is bumped."""
        self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        self.stored_description_epoch = value.stored_description_topology_epoch
        self.failed_description_epoch = value.failed_description_topology_epoch
        rows = value.last_assignment_configs or ()
        self.last_configs = tuple(sorted((row.key, row.value) for row in rows))

    def replay_member(self, member_id: str, value: StreamsGroupMemberMetadataValue) -> None:
        """A member joined, or its metadata changed."""
        known = self.members.get(member_id) or StreamsMember(member_id=member_id)
        endpoint = value.user_endpoint
        self._put(
            replace(
                known,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                topology_epoch=value.topology_epoch,
                process_id=value.process_id,
                user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
                client_tags={row.key: row.value for row in value.client_tags},
            )
        )

    def replay_gone(self, member_id: str) -> None:
        """A member is removed."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._disown(member)
        self.endpoint_rows.pop(member_id, None)
        if member.instance_id is not None:
            self._static_ids.pop(member.instance_id, None)
        self.task_offsets.pop(member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def replay_target(self, member_id: str, tasks: TaskSet | None) -> None:
        """The target tasks of a member changed; None: the member is removed."""
        if tasks is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = tasks

    def replay_target_epoch(self, epoch: int, assigned_ms: int) -> None:
        """The target assignment of all members is for this epoch."""
        self.assignment_epoch, self.assigned_ms = epoch, assigned_ms

    def replay_current(
        self, member_id: str, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """The tasks or the epoch of a member changed; None: the member has none any more."""
        known = self.members.get(member_id)
        if value is None:
            if known is not None:
                self._put(
                    replace(
                        known,
                        member_epoch=LEFT,
                        previous_member_epoch=LEFT,
                        assigned=NO_HELD_TASKS,
                        revoked=NO_HELD_TASKS,
                    )
                )
            return
        epoch = value.member_epoch
        states = {int(state): state for state in StreamsMemberState}
        self._put(
            replace(
                known or StreamsMember(member_id=member_id),
                member_epoch=epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=states.get(value.state, StreamsMemberState.UNKNOWN),
                assigned=HeldTasks(
                    _with_epochs(value.active_tasks, epoch),
                    _without_epochs(value.standby_tasks),
                    _without_epochs(value.warmup_tasks),
                ),
                revoked=HeldTasks(
                    _with_epochs(value.active_tasks_pending_revocation, epoch),
                    _without_epochs(value.standby_tasks_pending_revocation),
                    _without_epochs(value.warmup_tasks_pending_revocation),
                ),
            )
        )

    def _put(self, member: StreamsMember) -> None:
        former = self.members.get(member.member_id)
        if former is not None:
            self._disown(former)
            if former.instance_id is not None:
                self._static_ids.pop(former.instance_id, None)
        self.members[member.member_id] = member
        self.endpoint_rows.pop(member.member_id, None)
        for held in (member.assigned, member.revoked):
            for task in _each(held.active):
                self._active[task] = member.process_id
            for task in _each(held.standby):
                self._standby.setdefault(task, {})[member.process_id] = None
            for task in _each(held.warmup):
                self._warmup.setdefault(task, {})[member.process_id] = None
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id

    def _disown(self, member: StreamsMember) -> None:
        for held in (member.assigned, member.revoked):
            for task in _each(held.active):
                if self._active.get(task) == member.process_id:
                    del self._active[task]
            for tasks, owners in ((held.standby, self._standby), (held.warmup, self._warmup)):
                for task in _each(tasks):
                    processes = owners.get(task, {})
                    processes.pop(member.process_id, None)
                    if not processes:
                        owners.pop(task, None)


def _each(tasks: Mapping[str, Iterable[int]]) -> Iterable[Task]:
    return ((name, number) for name, numbers in tasks.items() for number in numbers)


def _active_since(member: StreamsMember, subtopology: str | None, number: int) -> int | None:
    """Return the epoch since which a member has an active task; None if it has not."""
    if subtopology is None:
        return None
    for held in (member.assigned, member.revoked):
        epoch = held.active.get(subtopology, {}).get(number)
        if epoch is not None:
            return epoch
    return None


def _with_epochs(rows: Iterable[CurrentTaskIds], default: int) -> EpochTasks:
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [default] * len(row.partitions)
        found[row.subtopology_id] = dict(sorted(zip(row.partitions, epochs, strict=True)))
    return found


def _without_epochs(rows: Iterable[CurrentTaskIds]) -> Tasks:
    return {row.subtopology_id: tuple(sorted({*row.partitions})) for row in rows} or NO_TASKS
