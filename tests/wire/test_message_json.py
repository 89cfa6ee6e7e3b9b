"""Messages as Kafka's JSON: cases not covered by the Java oracle, which compares the JSON of every
message with Kafka's own converters.
"""

from random import Random
from typing import Any

import pytest

from protocol.codec.tree import layout_of
from protocol.coordinator.transactions import PartitionsSchema, TransactionLogValue
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.message_json import message_from_json, message_to_json
from protocol.records.control_records import LeaderChangeMessage, Voter
from protocol.schema import declaration_of
from protocol.storage.quorum_state import QuorumState, QuorumVoter

VALUE = TransactionLogValue(
    producer_id=4000,
    transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[1])],
    next_producer_id=7,
)


def test_json_of_a_message_can_be_read_back(message_class: type) -> None:
    """Every field of the newest version; unknown tagged fields are not in the JSON."""
    version = declaration_of(message_class).versions.last
    random = Random(message_class.__name__)
    for _ in range(3):
        message = example(layout_of(message_class, version), random.randrange, unknown_tags=False)
        assert (
            message_from_json(message_class, message_to_json(message, version), version) == message
        )


def test_json_names_are_kafkas_and_default_tagged_fields_are_omitted() -> None:
    assert message_to_json(VALUE, 1) == {
        "producerId": 4000,
        "nextProducerId": 7,
        "producerEpoch": 0,
        "transactionTimeoutMs": 0,
        "transactionStatus": 0,
        "transactionPartitions": [{"topic": "orders", "partitionIds": [1]}],
        "transactionLastUpdateTimestampMs": 0,
        "transactionStartTimestampMs": 0,
    }
    voter = LeaderChangeMessage(version=1, voters=[Voter(voter_directory_id=bytes(range(16)))])
    assert message_to_json(voter, 1)["voters"] == [
        {"voterId": 0, "voterDirectoryId": "AAECAwQFBgcICQoLDA0ODw"}
    ]


def test_fields_that_a_version_cannot_carry_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="next_producer_id"):
        message_to_json(VALUE, 0)
    with pytest.raises(MalformedMessage, match="current_voters"):
        message_to_json(QuorumState(current_voters=[QuorumVoter(voter_id=1)]), 1)


@pytest.mark.parametrize(
    "change, error",
    [
        ({"producerId": 2**63}, r"producerId: .* is no int64"),
        ({"producerId": "4000"}, "producerId: '4000' is no int64"),
        ({"producerId": True}, "producerId: True is no int64"),
        ({"producerId": 4000.0}, "producerId: 4000.0 is no int64"),
        ({"producerId": None}, "producerId: null, but not nullable"),
        ({"transactionPartitions": {}}, "transactionPartitions: no list"),
        (
            {"transactionPartitions": [{"topic": "t"}]},
            r"transactionPartitions\[0\].partitionIds: missing",
        ),
        (
            {"transactionPartitions": [{"topic": 1, "partitionIds": []}]},
            r"transactionPartitions\[0\].topic: 1 is no string",
        ),
        ({"transactionPartitions": [3]}, r"transactionPartitions\[0\]: no object"),
    ],
)
def test_invalid_message_json_is_refused_with_its_path(change: dict[str, Any], error: str) -> None:
    with pytest.raises(MalformedMessage, match=error):
        message_from_json(TransactionLogValue, {**message_to_json(VALUE, 1), **change}, 1)


def test_json_without_an_object_or_a_field_is_refused() -> None:
    invalid: tuple[object, ...] = (None, [], 3, {"producerId": 1})
    for found in invalid:
        with pytest.raises(MalformedMessage):
            message_from_json(TransactionLogValue, found, 1)
