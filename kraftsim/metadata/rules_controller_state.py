"""The state of a controller, replayed from the metadata log, and the operations that touch more
than one part of it.

The active controller replays its own records before they are committed, so that later requests see
them; on loss of leadership the journal reverts what was not committed.
Source: org.apache.kafka.controller.QuorumController.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal, Key, TimelineDict, TimelineValue, Value
from kraftsim.metadata.events import (
    BrokerFenced,
    BrokerUnfenced,
    BrokerUnregistered,
    PartitionChanged,
)
from kraftsim.metadata.rules_brokers import (
    BrokerControlState,
    ClusterControl,
    HeartbeatReply,
    HeartbeatTransition,
    control_state,
    controlled_shutdown_record,
    fence_record,
    next_state,
    unfence_record,
)
from kraftsim.metadata.rules_configs import ConfigControl, ConfigView
from kraftsim.metadata.rules_described_configs import ControllerNode
from kraftsim.metadata.rules_feature_updates import FeatureView
from kraftsim.metadata.rules_features import FeatureControl
from kraftsim.metadata.rules_partitions import RECORDS_PER_OPERATION_MAX, TOO_LARGE, TopicDefaults
from kraftsim.metadata.rules_registrations import BrokerRegistration, as_registration_change
from kraftsim.metadata.rules_registries import MetadataRecord, Registries
from kraftsim.metadata.rules_replication import ReplicationControl
from kraftsim.migration.rules_driver import MigrationStatus
from kraftsim.producer_ids.rules_allocation import DynamicConfig, ProducerIdControl
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.metadata.controller import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from protocol.metadata.registrations import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from protocol.metadata.settings import ConfigRecord, FeatureLevelRecord
from protocol.metadata.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message

FIRST_WITH_PREVIOUS_EPOCH: Final = 3
"""The BrokerRegistration version since which a broker sends the epoch of its last clean
shutdown.
"""
ProducerIdControlFactory = Callable[
    [Journal, Callable[[int, int], bool], DynamicConfig], ProducerIdControl
]


class ControllerState:
    """The control managers of one controller over one journal.

    Offsets are those of the metadata log; `now_ms` is the monotonic clock.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        session_timeout_ms: int,
        metadata_version: int,
        topic_defaults: TopicDefaults,
        producer_id_control: ProducerIdControlFactory = ProducerIdControl,
        node: ControllerNode | None = None,
    ) -> None:
        self.journal = Journal()
        self.node = node or ControllerNode()
        self.features = FeatureControl(self.journal, metadata_version)
        self.cluster = ClusterControl(
            self.journal,
            self.features,
            cluster_id=cluster_id,
            session_timeout_ms=session_timeout_ms,
            has_sessions_of_epochs=self.node.fences_at_registration,
        )
        self.configs = ConfigControl(self.journal, self.node)
        self.replication = ReplicationControl(
            self.journal,
            self.features,
            self.cluster,
            self.configs,
            topic_defaults,
            behavior=self.node.replication,
        )
        self.producer_ids = producer_id_control(
            self.journal, self.cluster.is_current, self.configs.of_all_brokers
        )
        self.registries = Registries(self._new_table)
        self.cluster.standing = MigrationStatus(
            self.features,
            lambda: self.registries.migration_state.zk_migration_state,
            is_enabled=self.node.migrates,
            listener=self.node.inter_broker_listener,
        )
        self._transaction_start: TimelineValue[int | None] = TimelineValue(self.journal, None)

    @property
    def is_before_migration(self) -> bool:
        """Whether the cluster is still in ZooKeeper mode: only registrations are handled."""
        return self.cluster.standing.is_before

    @property
    def is_in_transaction(self) -> bool:
        """Whether the log ends in an open metadata transaction."""
        return self._transaction_start.value is not None

    def activate(self, now_ms: int) -> None:
        """Start monitoring broker sessions: every unfenced broker gets a full session."""
        self.cluster.sessions.renew_all(
            (broker.broker_id for broker in self.cluster.brokers() if not broker.fenced), now_ms
        )

    def decide_register(
        self,
        request: BrokerRegistrationRequest,
        next_offset: int,
        now_ms: int,
        version: int = FIRST_WITH_PREVIOUS_EPOCH,
    ) -> Decision[int] | Refusal:
        """Register a broker; the result is its epoch.

        `next_offset` is the offset of the first record.

        If another incarnation is still unfenced after its session, the same batch fences it.
        Errors: `ClusterControl`.
        """
        known = self.cluster.broker(request.broker_id)
        if self.node.fences_at_registration:
            return self._decide_register_since_4_0(request, known, next_offset, now_ms, version)
        is_replaced = (
            known is not None
            and not known.fenced
            and known.incarnation_id != request.incarnation_id
        )
        fenced = (
            self._decide_fence(known, "registered again")
            if known is not None and is_replaced
            else Decision([], None)
        )
        registered = self.cluster.decide_register(
            request, next_offset + len(fenced.records), now_ms
        )
        if isinstance(registered, Refusal):
            return registered
        return Decision(
            [*fenced.records, *registered.records],
            registered.result,
            (*fenced.facts, *registered.facts),
        )

    def _decide_register_since_4_0(
        self,
        request: BrokerRegistrationRequest,
        known: BrokerRegistration | None,
        next_offset: int,
        now_ms: int,
        version: int,
    ) -> Decision[int] | Refusal:
        """Register a broker as since 4.0: a new incarnation reports whether the former one shut
        down cleanly (since version 3).
        """
        registered = self.cluster.decide_register(request, next_offset, now_ms)
        if isinstance(registered, Refusal) or (
            known is not None and known.incarnation_id == request.incarnation_id
        ):
            return registered
        is_clean = (
            version >= FIRST_WITH_PREVIOUS_EPOCH
            and known is not None
            and request.previous_broker_epoch == known.broker_epoch
        )
        left = self._departure_of_former(request.broker_id, is_clean=is_clean)
        return Decision(
            [*left, *registered.records],
            registered.result,
            (*self.replication.facts_of(left), *registered.facts),
        )

    def _departure_of_former(
        self, broker_id: int, *, is_clean: bool
    ) -> list[PartitionChangeRecord]:
        """Return the changes that remove a broker's former incarnation: it leads no partition, so
        that the new one does not lead in its epochs (KAFKA-18106).
        """
        return self.replication.shutdown_records(broker_id, is_clean=is_clean)

    def decide_heartbeat(
        self, request: BrokerHeartbeatRequest, next_offset: int, now_ms: int
    ) -> Decision[HeartbeatReply] | Refusal:
        """Handle a heartbeat: state transition of the broker, and its session, which is not
        replicated.

        Fails with STALE_BROKER_EPOCH. `next_offset` is the offset of the first record.
        """
        broker = self.cluster.broker(request.broker_id)
        register_offset = self.cluster.register_offset(request.broker_id)
        if broker is None or register_offset is None or broker.broker_epoch != request.broker_epoch:
            return Refusal(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {request.broker_id} is not at epoch {request.broker_epoch}",
            )
        self.cluster.sessions.touch(request.broker_id, request.current_metadata_offset, now_ms)
        is_caught_up = request.current_metadata_offset >= register_offset
        begun = self.cluster.sessions.is_leaving(request.broker_id)
        is_leaving = request.want_shut_down or begun  # else the two last fields are not used
        wish = HeartbeatTransition(
            wants_fence=request.want_fence,
            wants_shut_down=request.want_shut_down,
            is_caught_up=is_caught_up,
            leads_partitions=is_leaving and self.replication.leads_partitions(request.broker_id),
            others_are_caught_up=is_leaving
            and self.cluster.others_are_caught_up(request.broker_id),
        )
        current = control_state(broker, is_leaving=begun)
        following = next_state(current, wish)
        changed = self._with_offline_directories(
            self._decide_transition(broker, current, following), broker, request.offline_log_dirs
        )
        changed = self._with_cordons(changed, broker, request.cordoned_log_dirs)
        if following is BrokerControlState.CONTROLLED_SHUTDOWN and current is not following:
            self.cluster.sessions.begin_controlled_shutdown(
                request.broker_id, next_offset + len(changed.records) - 1
            )
        reply = HeartbeatReply(
            is_caught_up=is_caught_up,
            is_fenced=following in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
        )
        return Decision(changed.records, reply, changed.facts)

    def decide_fence_stale(self, now_ms: int) -> Decision[int] | None:
        """Fence the broker with the oldest heartbeat if its session has expired; the result is its
        id.

        Repeat until None.
        """
        broker = self.cluster.stale_broker(now_ms)
        if broker is None:
            return None
        fenced = self._decide_fence(
            broker, "session timed out", self.cluster.sessions.session_timeout_ms
        )
        return Decision(fenced.records, broker.broker_id, fenced.facts)

    def decide_unregister(self, broker_id: int) -> Decision[None] | Refusal:
        """Unregister a broker, fenced or not: it leaves every ISR.

        Fails with BROKER_ID_NOT_REGISTERED, or with POLICY_VIOLATION if it is in too many ISRs.
        Source: KIP-631, ReplicationControlManager.unregisterBroker.
        """
        broker = self.cluster.broker(broker_id)
        if broker is None:
            return Refusal(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"Broker ID {broker_id} is not currently registered",
            )
        left = self.replication.unregistration_records(broker_id)
        if len(left) >= RECORDS_PER_OPERATION_MAX:
            return Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
        gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
        fact = BrokerUnregistered(broker_id=broker_id, broker_epoch=broker.broker_epoch)
        return Decision([*left, gone], None, (*self.replication.facts_of(left), fact))

    def decide_unregister_controller(self, controller_id: int) -> Decision[None] | Refusal:
        """Unregister a controller, so that its supported features do not matter any more.

        Fails with INVALID_REQUEST (itself), UNSUPPORTED_VERSION (no such record at this level) or
        CONTROLLER_ID_NOT_REGISTERED.
        Source: QuorumController.unregisterController (4.4).
        """
        if controller_id == self.node.node_id:
            return Refusal(
                ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
            )
        if not self.features.metadata_level.has_controller_unregistration:
            return Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                "The current MetadataVersion is too old to support controller unregistration.",
            )
        if self.registries.controllers.get(controller_id) is None:
            return Refusal(
                ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
                f"Controller ID {controller_id} is not currently registered.",
            )
        return Decision([UnregisterControllerRecord(controller_id=controller_id)], None)

    def config_view(self) -> ConfigView:
        """Return the state that configuration changes are validated against."""
        return ConfigView(
            configs=self.configs,
            resource_types=self.node.resource_types,
            refuse_missing=self._refuse_missing,
            has_eligible_leaders=self.features.has_eligible_leaders,
        )

    def feature_view(self) -> FeatureView:
        """Return the state that feature updates are validated against."""
        return FeatureView(
            node=self.node,
            features=self.features,
            cluster=self.cluster,
            configs=self.configs,
            registries=self.registries,
        )

    def record_version(self, record: Message) -> int:
        """Return the version of a record at the current metadata.version."""
        return self.features.metadata_level.record_version(record)

    def replay(self, record: Message, offset: int) -> None:
        """Replay the record at an offset: the only way to change replicated state.

        Offsets increase; control records have none here.
        """
        self.journal.mark(offset)
        self._apply(record, offset)

    def commit_through(self, last_offset: int) -> None:
        """Drop the undo information up to and including an offset.

        An open transaction stays revertible as a whole.
        """
        start = self._transaction_start.value
        self.journal.commit_through(last_offset if start is None else min(last_offset, start - 1))

    def revert_to(self, next_offset: int) -> None:
        """Revert the record at next_offset and all later ones."""
        self.journal.revert_to(next_offset)
        self.registries.on_undone()

    def _decide_transition(
        self, broker: BrokerRegistration, current: BrokerControlState, following: BrokerControlState
    ) -> Decision[None]:
        level = self.features.metadata_level
        match following:
            case BrokerControlState.SHUTDOWN_NOW:
                return self._decide_fence(
                    broker, "shut down"
                )  # each time: the record is written even for a fenced broker
            case _ if following is current:
                return Decision([], None)
            case BrokerControlState.FENCED:
                return self._decide_fence(broker, "requested by the broker")
            case BrokerControlState.UNFENCED:
                fact = BrokerUnfenced(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
                led = self.replication.unfence_records(broker.broker_id)
                return Decision(
                    [unfence_record(broker, level), *led],
                    None,
                    (fact, *self.replication.facts_of(led)),
                )
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                begins = (
                    [controlled_shutdown_record(broker)]
                    if level.has_controlled_shutdown and not broker.in_controlled_shutdown
                    else []
                )
                left = self.replication.fence_records(broker.broker_id)
                return Decision([*begins, *left], None, self.replication.facts_of(left))

    def _with_offline_directories(
        self, changed: Decision[None], broker: BrokerRegistration, offline: Sequence[bytes]
    ) -> Decision[None]:
        """Add the partition changes for directories that a heartbeat reports offline."""
        if not offline or not self.features.metadata_level.has_directories:
            return changed
        records = [*changed.records, *self.replication.offline_directory_records(broker, offline)]
        others = [fact for fact in changed.facts if not isinstance(fact, PartitionChanged)]
        return Decision(records, None, (*self.replication.facts_of(records), *others))

    def _with_cordons(
        self, changed: Decision[None], broker: BrokerRegistration, cordoned: Sequence[bytes] | None
    ) -> Decision[None]:
        """Add the registration change if the cordoned directories of a heartbeat differ from the
        registered ones.
        """
        known = broker.cordoned_directories
        if (
            cordoned is None
            or not self.features.metadata_level.has_cordons
            or (known is not None and set(known) == set(cordoned))
        ):
            return changed
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            cordoned_log_dirs=list(cordoned),
        )
        return Decision([*changed.records, record], None, changed.facts)

    def _decide_fence(
        self, broker: BrokerRegistration, reason: str, session_timeout_ms: int = 0
    ) -> Decision[None]:
        fact = BrokerFenced(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            reason=reason,
            session_timeout_ms=session_timeout_ms,
        )
        left = self.replication.fence_records(broker.broker_id)
        records = [*left, fence_record(broker, self.features.metadata_level)]
        return Decision(
            records, None, (*self.replication.facts_of(left), *(() if broker.fenced else (fact,)))
        )

    def _apply(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case RegisterBrokerRecord():
                self.cluster.replay_register(record, offset)
            case UnregisterBrokerRecord():
                self.cluster.replay_unregister(record)
            case BrokerRegistrationChangeRecord():
                self.cluster.replay_change(record)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                self.cluster.replay_change(as_registration_change(record))
            case TopicRecord():
                self.replication.replay_topic(record)
            case PartitionRecord():
                self.replication.replay_partition(record)
            case PartitionChangeRecord():
                self.replication.replay_partition_change(record)
            case RemoveTopicRecord():
                self.replication.replay_remove_topic(record)
            case ConfigRecord():
                self.configs.replay(record)
            case FeatureLevelRecord():
                self.features.replay(record)
            case ProducerIdsRecord():
                self.producer_ids.replay(record)
            case BeginTransactionRecord():
                assert not self.is_in_transaction, "transactions do not nest"
                self._transaction_start.value = offset
            case EndTransactionRecord():
                assert self.is_in_transaction, "the end of a transaction without its begin"
                self._transaction_start.value = None
            case AbortTransactionRecord():
                self._abort_transaction()
            case ClearElrRecord():
                self.replication.replay_clear_elr(record)
            case NoOpRecord():
                pass
            case _:
                self.registries.replay(record)

    def _refuse_missing(self, resource_type: ConfigResourceType, name: str) -> Refusal | None:
        """Return the error of a resource that does not exist, or None.

        Source: QuorumController.ConfigResourceExistenceChecker.
        """
        if resource_type is ConfigResourceType.BROKER and name:
            is_known = (
                self.cluster.broker(int(name)) is not None or int(name) in self.node.quorum_ids
            )
            return (
                None
                if is_known
                else Refusal(
                    ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {int(name)} found."
                )
            )
        if resource_type is ConfigResourceType.TOPIC and self.replication.topic_id(name) is None:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return None

    def _new_table(self) -> TimelineDict[Key, Value]:
        return TimelineDict(self.journal)

    def _abort_transaction(self) -> None:
        start = self._transaction_start.value
        assert start is not None, "the abort of a transaction without its begin"
        self.journal.revert_to(start)
        self.registries.on_undone()


def kinds_of(records: Sequence[Message]) -> str:
    """Return the record types as the event log lists them."""
    return ",".join(type(record).__name__ for record in records)
