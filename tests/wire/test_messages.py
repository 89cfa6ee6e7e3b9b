"""Messages and records from the registries, external test vectors, and the metadata log of a real
node.
"""

from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from protocol.codec.message_codec import compiled
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages import registry
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k01_fetch import FetchRequest, FetchResponse
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.k04_leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from protocol.messages.k19_create_topics import CreateTopicsRequest
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.metadata.controller import NoOpRecord, ProducerIdsRecord
from protocol.metadata.registry import build_record, declared_records, parse_record, record_version
from protocol.metadata.settings import FeatureLevelRecord
from protocol.metadata.topics import PartitionChangeRecord
from protocol.records.batches import split_batches
from protocol.schema import Message, declaration_of

METADATA_LOG = (
    Path(__file__).parent / "kafka_3_9_1" / "__cluster_metadata-0" / "00000000000000000000.log"
)


def test_the_api_keys_of_basic_clients_are_declared() -> None:
    keys = registry.declared_api_keys()
    first_journeys = {0, 1, 2, 3, 18, 19, 22, 58, 62, 63, 67}
    assert first_journeys <= set(keys) and list(keys) == sorted(keys)


@pytest.mark.parametrize("key", registry.declared_api_keys(), ids=lambda key: key.name)
def test_request_and_response_versions_match_and_errors_exist(key: ApiKey) -> None:
    """Kafka requires this of its own definitions: one range, and flexible from the same version
    on.
    """
    request, response = (
        declaration_of(registry.request_class(key)),
        declaration_of(registry.response_class(key)),
    )
    assert (request.api_key, request.kind, response.api_key, response.kind) == (
        key,
        "request",
        key,
        "response",
    )
    assert request.versions == response.versions and request.flexible == response.flexible
    first, last = registry.versions_of(key)
    assert [registry.is_flexible(key, version) for version in range(first, last + 1)] == [
        version in response.flexible for version in range(first, last + 1)
    ]
    errors = import_module(registry.request_class(key).__module__).ERRORS
    assert (
        errors
        and all(isinstance(error, ErrorCode) for error in errors)
        and len(set(errors)) == len(errors)
    )
    assert ErrorCode.NONE not in errors


def test_an_undeclared_key_is_a_key_error() -> None:
    for look_up in (registry.request_class, registry.response_class, registry.versions_of):
        with pytest.raises(KeyError):
            look_up(999)


@pytest.mark.parametrize(
    "message, version, hexed",
    [
        (
            AllocateProducerIdsRequest(broker_id=1, broker_epoch=5),
            0,
            "00000001 0000000000000005 00",
        ),
        (
            AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=1000),
            0,
            "00000000 0000 0000000000000000 000003e8 00",
        ),
        (
            ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2)])
                ],
            ),
            3,
            "ffff ffff 000003e8 00000001 0001 74 00000001 00000002 ffffffff",
        ),
        (CreateTopicsRequest(), 0, "00000000 0000ea60"),
        (
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="t",
                        partitions=[
                            ListOffsetsPartitionResponse(
                                partition_index=1, old_style_offsets=[7, 0]
                            )
                        ],
                    )
                ]
            ),
            0,
            "00000001 0001 74 00000001 00000001 0000 00000002 0000000000000007 0000000000000000",
        ),
        (
            ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2)])
                ],
            ),
            0,
            "ffff 000003e8 00000001 0001 74 00000001 00000002 ffffffff",
        ),
        (
            FetchRequest(max_wait_ms=500, min_bytes=1),
            4,
            "ffffffff 000001f4 00000001 7fffffff 00 00000000",
        ),
        (
            FetchRequest(max_wait_ms=500, min_bytes=1),
            3,
            "ffffffff 000001f4 00000001 7fffffff 00000000",
        ),
        (FetchRequest(max_wait_ms=500, min_bytes=1), 0, "ffffffff 000001f4 00000001 00000000"),
        (FetchResponse(), 0, "00000000"),
        (FetchResponse(), 1, "00000000 00000000"),
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=7,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[2])],
            ),
            0,
            "0001 78 0000000000000007 0000 00000001 0001 74 00000001 00000002",
        ),
        (
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id="x",
                        producer_id=7,
                        verify_only=True,
                        topics=[AddPartitionsToTxnTopic(name="t", partitions=[2])],
                    )
                ]
            ),
            4,
            "02 02 78 0000000000000007 0000 01 02 02 74 02 00000002 00 00 00",
        ),
        (
            LeaderAndIsrRequest(
                controller_id=3,
                ungrouped_partition_states=[
                    LeaderAndIsrPartitionState(
                        topic_name="t", partition_index=2, isr=[1], is_new=True
                    )
                ],
            ),
            1,
            (
                "00000003 00000000 00000001 0001 74 00000002 00000000 00000000 00000000 00000001 "
                "00000001 00000000 00000000 01 00000000"
            ),
        ),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1, "0005 504c41494e"),
    ],
)
def test_a_message_is_built_byte_for_byte(message: Message, version: int, hexed: str) -> None:
    """Handwritten vectors from the definitions."""
    codec = compiled(type(message), version)
    assert codec.encode(message) == bytes.fromhex(hexed)
    assert codec.parse(bytes.fromhex(hexed)) == message


def test_fetch_version_15_moves_replica_id_into_replica_state() -> None:
    """KIP-903: a field that a version lacks must have its default, so that no replica id is
    lost.
    """
    with pytest.raises(MalformedMessage):
        compiled(FetchRequest, 15).encode(FetchRequest(replica_id=1))
    assert (
        compiled(FetchRequest, 14)
        .parse(compiled(FetchRequest, 14).encode(FetchRequest(replica_id=1)))
        .replica_id
        == 1
    )


def test_fetch_response_defaults_are_kafkas() -> None:
    response = FetchResponse()
    assert response.responses == [] and response.node_endpoints == [] and response.session_id == 0


def test_the_metadata_log_of_a_real_node_is_read_and_built_byte_for_byte() -> None:
    """Every record of a 3.9.1 log, thirteen types; values have their own version."""
    kinds: Counter[str] = Counter()
    for batch in split_batches(METADATA_LOG.read_bytes()):
        assert batch.crc_is_valid()
        for record in () if batch.is_control else batch.records():
            assert record.key is None and record.value is not None
            found = parse_record(record.value)
            assert build_record(found, record_version(record.value)) == record.value
            kinds[type(found).__name__] += 1
    assert len(kinds) == 13 and kinds["ProducerIdsRecord"] == 1 and kinds["PartitionRecord"] == 51


def test_a_producer_ids_record_is_built_byte_for_byte() -> None:
    record = ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000)
    assert build_record(record, 0) == bytes.fromhex(
        "010f00 00000001 0000000000000005 00000000000003e8 00"
    )


def test_a_partition_change_record_has_only_changed_fields() -> None:
    """Null and the sentinels are not written: a new leader is one tagged field."""
    nothing = build_record(PartitionChangeRecord(partition_id=1, topic_id=bytes(16)), 0)
    leader = build_record(PartitionChangeRecord(partition_id=1, topic_id=bytes(16), leader=3), 0)
    assert nothing == bytes.fromhex("010500 00000001") + bytes(16) + b"\x00"
    assert leader == nothing[:-1] + bytes.fromhex("01 01 04 00000003")


def test_records_are_numbered_as_kafka_numbers_them() -> None:
    """29 numbers; 6, 13 and 16 belonged to records that no log of a release has."""
    assert [declaration_of(cls).api_key for cls in declared_records()] == [
        number for number in range(30) if number not in (6, 13, 16)
    ]
    assert all(declaration_of(cls).kind == "metadata" for cls in declared_records())


@pytest.mark.parametrize(
    "value, error",
    [
        (b"", "frame"),
        (b"\x01\x14", "frame"),
        (b"\x00\x14\x00\x00", "frame version 0"),
        (b"\x01\x06\x00\x00", "unknown kind"),
        (b"\x01\x63\x00\x00", "unknown kind"),
        (b"\x01\x14\x01\x00", "versions 0"),
        (b"\x01\x14\x00\x00\x00", "left"),
        (b"\x01\x0c\x00\x02m\x00", "api 12 v0"),
    ],
)
def test_an_unreadable_metadata_record_stops_the_reader(value: bytes, error: str) -> None:
    """MetadataRecordSerde: skipping a record would mean acting on incomplete metadata."""
    with pytest.raises(MalformedMessage, match=error):
        parse_record(value)


def test_the_shortest_records_round_trip() -> None:
    assert build_record(NoOpRecord(), 0) == b"\x01\x14\x00\x00"
    assert (
        parse_record(
            build_record(FeatureLevelRecord(name="metadata.version", feature_level=21), 0)
        ).feature_level
        == 21
    )
