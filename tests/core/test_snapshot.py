"""A snapshot is equivalent to the log that it replaces: replaying it, the log, or an older snapshot
and the rest of the log gives the same state.
"""

from random import Random
from typing import Any

import pytest

from kraftsim.core.timeline import Journal, TimelineDict
from kraftsim.metadata.rules_image import MetadataImage, snapshot_records
from kraftsim.metadata.rules_registries import Registries
from protocol.codec.declaration import snake_case
from protocol.metadata import registry
from protocol.metadata.controller import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from protocol.metadata.registrations import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from protocol.metadata.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.metadata.settings import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)
from protocol.metadata.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message
from tools.claims.recording import Figures

FIRST_TOPIC, SECOND_TOPIC, THIRD_TOPIC = (bytes([number]) * 16 for number in (1, 2, 3))


def a_long_history(level: int) -> list[Message]:
    """Every kind of record at least once, each of them reverted or changed at least once."""
    user = [
        EntityData(entity_type="user", entity_name="ann"),
        EntityData(entity_type="client-id", entity_name=None),
    ]
    return [
        FeatureLevelRecord(name="metadata.version", feature_level=level),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="group.version", feature_level=0),
        ZkMigrationStateRecord(zk_migration_state=0),
        *(registration(broker_id) for broker_id in (1, 2, 3)),
        UnfenceBrokerRecord(id=1, epoch=11),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=12, fenced=-1),
        FenceBrokerRecord(id=1, epoch=11),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=12, in_controlled_shutdown=1),
        UnregisterBrokerRecord(broker_id=3, broker_epoch=13),
        RegisterControllerRecord(controller_id=101, incarnation_id=FIRST_TOPIC),
        RegisterControllerRecord(controller_id=102, incarnation_id=SECOND_TOPIC),
        UnregisterControllerRecord(controller_id=102),
        TopicRecord(name="orders", topic_id=FIRST_TOPIC),
        *(partition(FIRST_TOPIC, number) for number in (0, 1)),
        TopicRecord(name="gone", topic_id=SECOND_TOPIC),
        partition(SECOND_TOPIC, 0),
        ConfigRecord(resource_type=2, resource_name="gone", name="retention.ms", value="1"),
        RemoveTopicRecord(topic_id=SECOND_TOPIC),
        PartitionChangeRecord(topic_id=FIRST_TOPIC, partition_id=1, isr=[2], leader=2),
        *(
            ConfigRecord(resource_type=2, resource_name="orders", name=name, value=name)
            for name in ("retention.ms", "cleanup.policy")
        ),
        ConfigRecord(resource_type=2, resource_name="orders", name="cleanup.policy", value=None),
        ConfigRecord(resource_type=4, resource_name="", name="num.io.threads", value="8"),
        BeginTransactionRecord(name="never"),
        TopicRecord(name="never", topic_id=THIRD_TOPIC),
        AbortTransactionRecord(reason="because"),
        BeginTransactionRecord(name="at once"),
        ProducerIdsRecord(broker_id=1, broker_epoch=11, next_producer_id=1000),
        ProducerIdsRecord(broker_id=2, broker_epoch=12, next_producer_id=2000),
        EndTransactionRecord(),
        *(
            ClientQuotaRecord(entity=user, key=key, value=5.5)
            for key in ("producer_byte_rate", "request_percentage")
        ),
        ClientQuotaRecord(entity=list(reversed(user)), key="request_percentage", remove=True),
        *(
            UserScramCredentialRecord(
                name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
            )
            for name in ("ann", "bob")
        ),
        RemoveUserScramCredentialRecord(name="bob", mechanism=1),
        *(
            DelegationTokenRecord(owner="User:ann", requester="User:ann", token_id=token)
            for token in ("one", "two")
        ),
        RemoveDelegationTokenRecord(token_id="one"),
        *(
            AccessControlEntryRecord(
                id=entry, resource_name="orders", principal="User:ann", host="*"
            )
            for entry in (FIRST_TOPIC, SECOND_TOPIC)
        ),
        RemoveAccessControlEntryRecord(id=SECOND_TOPIC),
        ClearElrRecord(topic_name="orders"),
        NoOpRecord(),
    ]


def registration(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=10 + broker_id,
        incarnation_id=bytes([broker_id]) * 16,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="host", port=9092)],
        features=[
            BrokerFeature(
                name="metadata.version", min_supported_version=1, max_supported_version=25
            )
        ],
        rack="r",
        log_dirs=[bytes([9, broker_id]) * 8],
    )


def partition(topic_id: bytes, number: int) -> PartitionRecord:
    directories = [bytes([9, 1]) * 8, bytes([9, 2]) * 8]
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=number,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        directories=directories,
    )


def replayed(records: list[Message], onto: MetadataImage | None = None) -> MetadataImage:
    image = onto or MetadataImage()
    for offset, record in enumerate(records, image.highest_offset + 1):
        image.replay(record, offset)
    return image


def contents(image: MetadataImage) -> list[Message]:
    return list(snapshot_records(image))


def test_every_record_type_is_part_of_the_history() -> None:
    assert {type(record) for record in a_long_history(25)} == set(registry.declared_records())


@pytest.mark.parametrize("level", [8, 14, 17, 21, 25])
def test_snapshot_has_the_same_state_as_its_log(level: int) -> None:
    """Also after it was serialized in the versions of the level and read back."""
    image = replayed(a_long_history(level))
    written = [
        registry.build_record(record, image.metadata_level.record_version(record))
        for record in snapshot_records(image)
    ]
    again = replayed([registry.parse_record(value) for value in written])
    assert contents(again) == contents(image) and len(written) > 12
    assert [topic.name for topic in again.topics()] == ["orders"] and again.next_producer_id == 2000
    assert [broker.broker_id for broker in again.brokers()] == [1, 2]
    assert again.configs_of(2, "orders") == {"retention.ms": "retention.ms"}


@pytest.mark.parametrize("seed", range(20))
def test_snapshot_and_remaining_log_equal_the_whole_log(seed: int) -> None:
    history = a_long_history(21)
    cut = Random(seed).randrange(1, len(history))
    before = replayed(history[:cut])
    if before.is_in_transaction:
        with pytest.raises(AssertionError, match="no snapshot in a metadata transaction"):
            snapshot_records(before)
        return
    resumed = replayed(history[cut:], replayed(contents(before)))
    assert contents(resumed) == contents(replayed(history))


def test_order_of_snapshot_records_is_kafkas() -> None:
    kinds = list(
        dict.fromkeys(
            snake_case(type(record).__name__)
            for record in snapshot_records(replayed(a_long_history(21)))
        )
    )
    assert kinds == [
        "feature_level_record",
        "zk_migration_state_record",
        "register_broker_record",
        "register_controller_record",
        "topic_record",
        "partition_record",
        "config_record",
        "client_quota_record",
        "producer_ids_record",
        "access_control_entry_record",
        "user_scram_credential_record",
        "delegation_token_record",
    ]


def test_snapshot_without_producer_id_allocations_has_no_block_record() -> None:
    assert contents(replayed([FeatureLevelRecord(name="metadata.version", feature_level=7)])) == [
        FeatureLevelRecord(name="metadata.version", feature_level=7)
    ]


def test_state_registered_for_other_components_can_be_reverted() -> None:
    journal = Journal()

    def new_table() -> TimelineDict[Any, Any]:
        return TimelineDict(journal)

    registries = Registries(new_table)
    kept = UserScramCredentialRecord(name="ann", mechanism=1, iterations=4096)
    journal.mark(0)
    registries.replay(kept)
    journal.commit_through(0)
    journal.mark(1)
    registries.replay(RemoveUserScramCredentialRecord(name="ann", mechanism=1))
    assert registries.scram_credentials.records() == []
    journal.revert_to(1)
    assert registries.scram_credentials.records() == [kept]


def test_any_number_of_blocks_is_one_snapshot_record(figures: Figures) -> None:
    """KIP-730: a snapshot needs the latest block only."""
    level = FeatureLevelRecord(name="metadata.version", feature_level=7)
    found = {}
    for count in (1, 100_000):
        blocks = [
            ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000 * (number + 1))
            for number in range(count)
        ]
        found[count] = [
            record
            for record in contents(replayed([level, *blocks]))
            if isinstance(record, ProducerIdsRecord)
        ]
        assert [record.next_producer_id for record in found[count]] == [1000 * count]
    (few, records_few), (many, records_many) = found.items()
    figures(
        blocks_few=few,
        records_few=len(records_few),
        blocks_many=many,
        records_many=len(records_many),
    )
