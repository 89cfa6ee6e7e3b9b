"""Topics, partitions and their leaders on the controller: one interface to the rules in
`rules_topics`, `rules_partitions` and `rules_reassignments`.

The state is in `rules_topic_table`; the results and errors of a method are documented at its rule.
Source: KIP-500, KIP-631, org.apache.kafka.controller.ReplicationControlManager.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kraftsim.core.decision import Decision, Refusal, Steps
from kraftsim.core.timeline import Journal
from kraftsim.events.event import Event
from kraftsim.metadata.rules_brokers import ClusterControl
from kraftsim.metadata.rules_configs import ConfigControl
from kraftsim.metadata.rules_described_configs import EARLY_BEHAVIOR, ReplicationBehavior
from kraftsim.metadata.rules_features import FeatureControl
from kraftsim.metadata.rules_partition_changes import Election, PartitionTarget, partition_events
from kraftsim.metadata.rules_partitions import (
    AlteredTopic,
    ElectedTopic,
    ReplicationView,
    TopicDefaults,
    arrival_records,
    decide_alter_partition,
    decide_balance,
    decide_elect_leaders,
    decide_unclean_elections,
    departure_records,
    elect_leaders_steps,
    is_online,
    membership_records,
    shutdown_records,
    unregistration_records,
)
from kraftsim.metadata.rules_reassignments import (
    MovedTopic,
    OngoingMoves,
    decide_reassignments,
    ongoing_moves,
    reassignment_steps,
)
from kraftsim.metadata.rules_registrations import (
    NO_ELIGIBLE_LEADERS,
    BrokerRegistration,
    PartitionRegistration,
    partition_of,
)
from kraftsim.metadata.rules_topic_table import PartitionKey, RandomSource, Topic, TopicTable
from kraftsim.metadata.rules_topics import (
    DeletedTopic,
    ExpandedTopic,
    NewTopic,
    RefusedTopic,
    TopicToDelete,
    create_partitions_steps,
    create_topics_steps,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreateTopicsRequest
from protocol.messages.k37_create_partitions import CreatePartitionsRequest
from protocol.messages.k43_elect_leaders import ElectLeadersRequest
from protocol.messages.k45_alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.k46_list_partition_reassignments import ListPartitionReassignmentsTopics
from protocol.messages.k56_alter_partition import AlterPartitionRequest
from protocol.messages.k73_assign_replicas_to_dirs import AssignedTopic, AssignReplicasToDirsRequest
from protocol.metadata.registrations import BrokerRegistrationChangeRecord
from protocol.metadata.settings import TOPIC_RESOURCE
from protocol.metadata.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message
from protocol.uuids import uuid_text

# --------------------------------------------------------------------------------------------------
# Replica-to-directory assignments, and the failure of log directories
#
# Source: KIP-858, ReplicationControlManager.{handleAssignReplicasToDirs, handleDirectoriesOffline}.


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedReplicas:
    """Partitions of one topic in one directory, in the order of the request: (partition, error)."""

    directory: bytes
    topic_id: bytes
    partitions: tuple[tuple[int, ErrorCode], ...]


def decide_assign_replicas(
    view: ReplicationView, request: AssignReplicasToDirsRequest
) -> Decision[list[list[AssignedReplicas]]] | Refusal:
    """Assign replicas of a broker to directories; results by directory, then topic, in the order of
    the request.

    A replica in an unregistered directory is offline: it loses leadership and leaves the ISR.
    Fails as a whole with UNSUPPORTED_VERSION (metadata.version) or STALE_BROKER_EPOCH.
    """
    if not view.level.has_directories:
        return Refusal(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = view.cluster.broker(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} is not at epoch {request.broker_epoch}",
        )
    results: list[list[AssignedReplicas]] = []
    records: list[Message] = []
    lost: dict[PartitionKey, None] = {}
    for directory in request.directories:
        lost_here = {} if is_online(directory.id, broker) else lost
        results.append(
            [
                _assign(view, broker, directory.id, row, records, lost_here)
                for row in directory.topics
            ]
        )
    records += membership_records(view, sorted(lost), leaving=broker.broker_id)
    return Decision(records, results, partition_events(records, view.topics))


def offline_directory_records(
    view: ReplicationView, broker: BrokerRegistration, offline: Collection[bytes]
) -> list[Message]:
    """Return the changes for the replicas in newly offline directories of a broker, and its
    remaining directories.

    Visits all partitions: directory failures are rare.
    """
    failed = [directory for directory in broker.directories if directory in offline]
    if not failed:
        return []
    records: list[Message] = []
    for directory in failed:
        keys = [
            key
            for key, partition in view.topics.partitions()
            if _is_in(partition, broker.broker_id, directory)
        ]
        records += membership_records(view, keys, leaving=broker.broker_id)
    remaining = [directory for directory in broker.directories if directory not in offline]
    return [
        *records,
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, log_dirs=remaining
        ),
    ]


def _assign(
    view: ReplicationView,
    broker: BrokerRegistration,
    directory: bytes,
    row: AssignedTopic,
    records: list[Message],
    lost: dict[PartitionKey, None],
) -> AssignedReplicas:
    """Assign the partitions of one row: add their records, and collect the assigned partitions in
    `lost`.
    """
    topic = view.topics.topic(row.topic_id)
    errors = []
    for asked in row.partitions:
        number = asked.partition_index
        error = _why_unassignable(topic, number, broker.broker_id)
        errors.append((number, error))
        if topic is None or error is not ErrorCode.NONE:
            continue
        key = (topic.topic_id, number)
        target, forgets = (
            PartitionTarget(directories={broker.broker_id: directory}),
            view.behavior.assignments_forget_eligible,
        )
        record = view.change(
            key, topic.partitions[number], target, Election.ONLINE, forgets_eligible=forgets
        )
        if record is not None:
            records.append(record)
        lost[key] = None
    return AssignedReplicas(directory=directory, topic_id=row.topic_id, partitions=tuple(errors))


def _why_unassignable(topic: Topic | None, number: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(number)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _is_in(partition: PartitionRegistration, broker_id: int, directory: bytes) -> bool:
    return broker_id in partition.replicas and partition.directory_of(broker_id) == directory


class ReplicationControl:
    """Topics and partitions. The results and errors of a method are documented at the rule."""

    def __init__(
        self,
        journal: Journal,
        features: FeatureControl,
        cluster: ClusterControl,
        configs: ConfigControl,
        defaults: TopicDefaults,
        *,
        behavior: ReplicationBehavior = EARLY_BEHAVIOR,
    ) -> None:
        self._topics = TopicTable(journal)
        self._view = ReplicationView(
            topics=self._topics,
            features=features,
            cluster=cluster,
            configs=configs,
            defaults=defaults,
            behavior=behavior,
        )

    # Queries
    # ----------------------------------------------------------------------------------------------

    @property
    def topics(self) -> TopicTable:
        """All topics and partitions; read-only."""
        return self._topics

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, or None."""
        return self._topics.topic_id(name)

    def partitions(self) -> Iterator[tuple[PartitionKey, PartitionRegistration]]:
        """Yield every partition, by topic id and number."""
        return self._topics.partitions()

    def leads_partitions(self, broker_id: int) -> bool:
        """Return whether a broker leads any partition."""
        return self._topics.leads_any(broker_id)

    def ongoing_moves(
        self, asked: Iterable[ListPartitionReassignmentsTopics] | None
    ) -> list[OngoingMoves]:
        """Return the ongoing reassignments: all (None), or those of some partitions."""
        return ongoing_moves(self._view, asked)

    def facts_of(self, records: Sequence[Message]) -> tuple[Event, ...]:
        """Return the partition events of records that are not replayed yet."""
        return partition_events(records, self._topics)

    # Client requests
    # ----------------------------------------------------------------------------------------------

    def decide_create_topics(
        self, request: CreateTopicsRequest, rng: RandomSource
    ) -> Decision[list[NewTopic | RefusedTopic]] | Refusal:
        """Create topics; ids and placement are random."""
        return decide_create_topics(self._view, request, rng)

    def create_topics_steps(
        self, request: CreateTopicsRequest, rng: RandomSource
    ) -> Steps[Decision[list[NewTopic | RefusedTopic]] | Refusal]:
        """Like `decide_create_topics`, in steps."""
        return create_topics_steps(self._view, request, rng)

    def decide_create_partitions(
        self, request: CreatePartitionsRequest, rng: RandomSource
    ) -> Decision[list[ExpandedTopic]]:
        """Add partitions; placement is random."""
        return decide_create_partitions(self._view, request, rng)

    def create_partitions_steps(
        self, request: CreatePartitionsRequest, rng: RandomSource
    ) -> Steps[Decision[list[ExpandedTopic]]]:
        """Like `decide_create_partitions`, in steps."""
        return create_partitions_steps(self._view, request, rng)

    def decide_delete_topics(
        self, asked: Sequence[TopicToDelete]
    ) -> Decision[list[DeletedTopic]] | Refusal:
        """Delete topics."""
        return decide_delete_topics(self._view, asked)

    def decide_elect_leaders(
        self, request: ElectLeadersRequest
    ) -> Decision[list[ElectedTopic]] | Refusal:
        """Elect leaders."""
        return decide_elect_leaders(self._view, request)

    def elect_leaders_steps(
        self, request: ElectLeadersRequest
    ) -> Steps[Decision[list[ElectedTopic]] | Refusal]:
        """Like `decide_elect_leaders`, in steps."""
        return elect_leaders_steps(self._view, request)

    def decide_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Decision[list[MovedTopic]]:
        """Start or cancel reassignments."""
        return decide_reassignments(self._view, request)

    def reassignment_steps(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Steps[Decision[list[MovedTopic]]]:
        """Like `decide_reassignments`, in steps."""
        return reassignment_steps(self._view, request)

    # Broker requests
    # ----------------------------------------------------------------------------------------------

    def decide_alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> Decision[list[AlteredTopic]] | Refusal:
        """Change ISRs by a leader's AlterPartition request of some version."""
        return decide_alter_partition(self._view, request, version)

    def decide_assign_replicas(
        self, request: AssignReplicasToDirsRequest
    ) -> Decision[list[list[AssignedReplicas]]] | Refusal:
        """Assign replicas to directories."""
        return decide_assign_replicas(self._view, request)

    # Controller events
    # ----------------------------------------------------------------------------------------------

    def fence_records(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Return the changes that remove a broker from leadership, and from every ISR with another
        member.
        """
        return departure_records(self._view, broker_id)

    def shutdown_records(self, broker_id: int, *, is_clean: bool) -> list[PartitionChangeRecord]:
        """Return the changes that remove a broker's former incarnation."""
        return shutdown_records(self._view, broker_id, is_clean=is_clean)

    def unregistration_records(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Return the changes that remove an unregistered broker."""
        return unregistration_records(self._view, broker_id)

    def unfence_records(self, broker_id: int) -> list[PartitionChangeRecord]:
        """Return the changes that elect a leader for leaderless partitions when a broker is
        unfenced.
        """
        return arrival_records(self._view, broker_id)

    def offline_directory_records(
        self, broker: BrokerRegistration, offline: Collection[bytes]
    ) -> list[Message]:
        """Return the changes for the replicas in a broker's offline directories; none if they were
        applied before.
        """
        return offline_directory_records(self._view, broker, offline)

    def decide_balance(self) -> Decision[bool]:
        """Elect preferred leaders; the result is whether there may be more."""
        return decide_balance(self._view)

    def decide_unclean_elections(self) -> Decision[bool]:
        """Elect unclean leaders where no other replica is left; the result is whether there may be
        more.
        """
        return decide_unclean_elections(self._view)

    # Replay
    # ----------------------------------------------------------------------------------------------

    def replay_topic(self, record: TopicRecord) -> None:
        """Replay a topic."""
        self._topics.add_topic(record.name, record.topic_id)

    def replay_partition(self, record: PartitionRecord) -> None:
        """Replay a partition."""
        self._topics.put_partition((record.topic_id, record.partition_id), partition_of(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """Replay a change of a partition."""
        key = (record.topic_id, record.partition_id)
        partition = self._topics.partition(key)
        assert partition is not None, (
            f"partition {uuid_text(record.topic_id)}-{record.partition_id} does not exist"
        )
        self._topics.put_partition(key, partition.changed_by(record))

    def replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        """Replay the removal of a topic, and delete its configurations."""
        self._view.configs.forget(TOPIC_RESOURCE, self._topics.remove_topic(record.topic_id))

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Replay the clearing of eligible leader replicas: of one topic, or of all."""
        named = self._topics.topic_named(record.topic_name)
        for topic in (
            self._topics.topics() if not record.topic_name else [named] if named is not None else []
        ):
            for number, partition in list(topic.partitions.items()):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._topics.put_partition(
                        (topic.topic_id, number), partition.changed_by(NO_ELIGIBLE_LEADERS)
                    )
