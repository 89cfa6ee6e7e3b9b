"""The metadata log and its two consumers, the controller's state and the broker's image.

Source: KIP-500, KIP-778.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftsim.core.decision import Decision
from kraftsim.metadata.rules_controller_state import ControllerState, kinds_of
from kraftsim.metadata.rules_features import (
    MigrationStatePolicy,
    bootstrap_at,
    bootstrap_records,
    takeover_records,
)
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_partitions import TopicDefaults
from kraftsim.metadata.rules_versions import MetadataLevel
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.metadata.controller import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from protocol.metadata.registrations import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from protocol.metadata.registry import build_record, parse_record, record_version
from protocol.metadata.settings import ConfigRecord, FeatureLevelRecord
from protocol.metadata.topics import PartitionChangeRecord, PartitionRecord, TopicRecord
from protocol.schema import Message
from tests.core.fixed_random import Drawn


def new_state() -> ControllerState:
    return ControllerState(
        cluster_id="cluster",
        session_timeout_ms=9000,
        metadata_version=21,
        topic_defaults=TopicDefaults(),
    )


@pytest.mark.parametrize(
    ("level", "migration_state_policy", "kinds"),
    [
        (7, MigrationStatePolicy.WHERE_IT_CAN_BE, "FeatureLevelRecord"),
        (11, MigrationStatePolicy.WHERE_IT_CAN_BE, "FeatureLevelRecord,ZkMigrationStateRecord"),
        (11, MigrationStatePolicy.IN_TRANSACTIONS, "FeatureLevelRecord"),
        (
            21,
            MigrationStatePolicy.IN_TRANSACTIONS,
            "BeginTransactionRecord,FeatureLevelRecord,ZkMigrationStateRecord,EndTransactionRecord",
        ),
        (
            21,
            MigrationStatePolicy.NEVER,
            "BeginTransactionRecord,FeatureLevelRecord,EndTransactionRecord",
        ),
    ],
)
def test_empty_log_begins_with_the_metadata_version(
    level: int, migration_state_policy: MigrationStatePolicy, kinds: str
) -> None:
    """Since 3.4 also with the migration state (3.9 omits it below level 3.6: KAFKA-17457; none
    since 4.0), since 3.6 in a transaction.
    """
    records = bootstrap_records(bootstrap_at(level), migration_state_policy)
    assert kinds_of(records) == kinds
    assert FeatureLevelRecord(name="metadata.version", feature_level=level) in records


def test_open_metadata_transaction_is_aborted_by_the_next_controller() -> None:
    """Otherwise no later record would become visible."""
    assert kinds_of(takeover_records(is_in_transaction=True)) == "AbortTransactionRecord"
    assert takeover_records(is_in_transaction=False) == []


SHUTS_DOWN = BrokerRegistrationChangeRecord(in_controlled_shutdown=1)


@pytest.mark.parametrize(
    ("record", "versions"),
    [  # at the levels 4, 7, 8, 11, 14, 17, 21, 22, 23
        (RegisterBrokerRecord(), (0, 1, 2, 2, 2, 3, 3, 3, 3)),
        (PartitionRecord(), (0, 0, 0, 0, 0, 1, 1, 1, 2)),
        (PartitionChangeRecord(), (0, 0, 0, 0, 0, 1, 1, 1, 2)),
        (BrokerRegistrationChangeRecord(fenced=-1), (0,) * 9),
        (SHUTS_DOWN, (1,) * 9),
        (TopicRecord(), (0,) * 9),
        (ProducerIdsRecord(), (0,) * 9),
    ],
)
def test_records_have_the_version_of_the_level(record: Message, versions: tuple[int, ...]) -> None:
    """As written by running nodes of 3.3 to 4.0.   Source: dumps of their metadata logs."""
    assert (
        tuple(
            MetadataLevel(level).record_version(record)
            for level in (4, 7, 8, 11, 14, 17, 21, 22, 23)
        )
        == versions
    )


def test_records_of_a_transaction_become_visible_at_its_end() -> None:
    """Not at all if it is aborted; the offsets advance all the same.   Source: KIP-868."""
    image = MetadataImage()
    feature = FeatureLevelRecord(name="metadata.version", feature_level=21)
    for offset, record in enumerate((BeginTransactionRecord(), feature, NoOpRecord())):
        image.replay(record, offset)
        assert image.finalized_features == {} and not image.take_changes()
    image.replay(EndTransactionRecord(), 3)
    assert image.finalized_features == {"metadata.version": 21} and image.take_changes().features
    for offset, record in enumerate(
        (
            BeginTransactionRecord(),
            TopicRecord(name="t", topic_id=b"t" * 16),
            AbortTransactionRecord(),
        ),
        start=4,
    ):
        image.replay(record, offset)
    image.replay(TopicRecord(name="later", topic_id=b"l" * 16), 7)
    assert [topic.name for topic in image.topics()] == ["later"] and image.highest_offset == 7


def test_controller_reverts_an_aborted_transaction_even_if_committed() -> None:
    """The high watermark may be inside a transaction; its records take effect only at its end."""
    state = new_state()
    for offset, record in enumerate(
        (BeginTransactionRecord(), TopicRecord(name="t", topic_id=b"t" * 16))
    ):
        state.replay(record, offset)
        state.commit_through(offset)
    assert state.is_in_transaction and state.replication.topic_id("t") is not None
    state.replay(AbortTransactionRecord(), 2)
    assert not state.is_in_transaction and state.replication.topic_id("t") is None


@pytest.mark.parametrize("fold", [new_state, MetadataImage])
def test_unknown_record_stops_the_node(fold: type[MetadataImage]) -> None:
    """A node must not skip a record that it cannot interpret."""
    with pytest.raises(AssertionError):
        fold().replay(CreateTopicsRequest(), 0)


def test_image_reports_what_was_touched_since_the_last_call() -> None:
    """Each entity once, in the order in which it was first touched."""
    image = MetadataImage()
    topic_id = b"t" * 16
    image.skip(0)
    for offset, record in enumerate(
        (
            RegisterBrokerRecord(broker_id=2, broker_epoch=1),
            BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=-1),
            TopicRecord(name="t", topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=[2],
                isr=[2],
                leader=2,
                leader_epoch=0,
                partition_epoch=0,
            ),
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1),
            ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="99"),
            ProducerIdsRecord(broker_id=2, broker_epoch=1, next_producer_id=1000),
        ),
        start=1,
    ):
        image.replay(record, offset)
    changes = image.take_changes()
    assert (list(changes.brokers), list(changes.topics), list(changes.partitions)) == (
        [2],
        [topic_id],
        [(topic_id, 0)],
    )
    assert list(changes.configs) == [(2, "t")] and not changes.features
    assert not image.take_changes()
    partition = image.partition("t", 0)
    assert partition is not None and (partition.leader, partition.leader_epoch, partition.isr) == (
        -1,
        1,
        (2,),
    )
    assert image.topic_configs("t") == {"segment.bytes": "99"} and image.next_producer_id == 1000
    assert [broker.broker_id for broker in image.alive_brokers()] == [2]
    image.replay(
        ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value=None), 8
    )
    assert image.topic_configs("t") == {} and image.highest_offset == 8


def known(fold: ControllerState | MetadataImage) -> object:
    """Return what a controller and an image both know."""
    if isinstance(fold, MetadataImage):
        partitions = {
            (topic.topic_id, number): held
            for topic in fold.topics()
            for number, held in sorted(topic.partitions.items())
        }
        brokers = list(fold.brokers())
        return partitions, brokers, fold.topic_configs("t0"), fold.next_producer_id or 0
    configs = fold.configs.configs_of(2, "t0")
    return (
        dict(fold.replication.partitions()),
        list(fold.cluster.brokers()),
        configs,
        fold.producer_ids.next_producer_id,
    )


operations = st.lists(
    st.tuples(
        st.sampled_from(["register", "heartbeat", "shutdown", "topic", "allocate", "tick"]),
        st.integers(1, 3),
    ),
    max_size=30,
)


def propose(
    state: ControllerState, operation: str, number: int, next_offset: int, now_ms: int
) -> object:
    """Request one operation; a broker's incarnation changes every twenty seconds."""
    broker = state.cluster.broker(number)
    epoch = -1 if broker is None else broker.broker_epoch
    match operation:
        case "register":
            incarnation = (now_ms // 20_000).to_bytes(16)
            features = [
                Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)
            ]
            request = BrokerRegistrationRequest(
                broker_id=number,
                cluster_id="cluster",
                incarnation_id=incarnation,
                features=features,
                log_dirs=[bytes([number]) * 16],
            )
            return state.decide_register(request, next_offset, now_ms)
        case "heartbeat" | "shutdown":
            heartbeat = BrokerHeartbeatRequest(
                broker_id=number,
                broker_epoch=epoch,
                current_metadata_offset=next_offset - 1,
                want_shut_down=operation == "shutdown",
            )
            return state.decide_heartbeat(heartbeat, next_offset, now_ms)
        case "topic":
            topic = CreatableTopic(
                name=f"t{next_offset % 3}",
                num_partitions=number,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="segment.bytes", value=f"{99 + number}")],
            )
            return state.replication.decide_create_topics(
                CreateTopicsRequest(topics=[topic]), Drawn((next_offset + 2).to_bytes(16), number)
            )
        case "allocate":
            return state.producer_ids.decide_allocate(number, epoch)
        case _:
            return state.decide_fence_stale(now_ms)


@settings(max_examples=60, deadline=None)
@given(operations, st.data())
def test_state_depends_only_on_the_log(history: list[tuple[str, int]], data: st.DataObject) -> None:
    """A new controller, an image built from the bytes, and a controller reverted to an offset all
    have the state of the log up to that offset.
    """
    leader, log = (
        new_state(),
        [parse_record(build_record(record, 0)) for record in bootstrap_records(bootstrap_at(21))],
    )
    for offset, record in enumerate(log):
        leader.replay(record, offset)
    for step, (operation, number) in enumerate(history):
        decision = propose(leader, operation, number, len(log), now_ms=step * 4000)
        for record in decision.records if isinstance(decision, Decision) else ():
            value = build_record(record, leader.record_version(record))
            assert parse_record(value) == record and record_version(value) == leader.record_version(
                record
            )
            leader.replay(record, len(log))
            log.append(record)
    cut = data.draw(st.integers(len(bootstrap_records(bootstrap_at(21))), len(log)))
    for end_offset in (len(log), cut):
        follower, image = new_state(), MetadataImage()
        for offset, record in enumerate(log[:end_offset]):
            follower.replay(record, offset)
            image.replay(record, offset)
        leader.revert_to(end_offset)
        assert known(leader) == known(follower) == known(image)
