"""The tables of error codes and API keys match Kafka."""

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage

RETRIABLE = (
    *(
        2,
        3,
        5,
        6,
        7,
        9,
        13,
        14,
        15,
        16,
        19,
        20,
        41,
        51,
        56,
        70,
        71,
        72,
        74,
        75,
        78,
        80,
        83,
        84,
        88,
        89,
    ),
    *(100, 103, 106, 122, 123, 133),
)
"""Source: subclasses of RetriableException in org.apache.kafka.common.protocol.Errors."""
STALE_METADATA = (3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103)
"""Source: subclasses of InvalidMetadataException."""


def test_error_codes_are_dense_and_have_a_retriable_flag() -> None:
    assert [int(error) for error in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
    assert tuple(int(error) for error in ErrorCode if error.retriable) == RETRIABLE
    assert tuple(int(error) for error in ErrorCode if error.refreshes_metadata) == STALE_METADATA


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-1, "UNKNOWN_SERVER_ERROR"),
        (0, "NONE"),
        (35, "UNSUPPORTED_VERSION"),
        (45, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (59, "UNKNOWN_PRODUCER_ID"),
        (90, "PRODUCER_FENCED"),
        (120, "TRANSACTION_ABORTABLE"),
        (127, "VOTER_NOT_FOUND"),
    ],
)
def test_an_error_has_kafkas_number(code: int, name: str) -> None:
    assert ErrorCode(code) is ErrorCode[name] and ErrorCode[name] == code


def test_api_keys_are_dense_and_have_listeners() -> None:
    assert [int(api_key) for api_key in ApiKey] == list(range(len(ApiKey)))
    assert ApiKey(67) is ApiKey.ALLOCATE_PRODUCER_IDS
    assert ApiKey.ALLOCATE_PRODUCER_IDS.listeners == {"zkBroker", "controller"}
    assert ApiKey.INIT_PRODUCER_ID.listeners == {
        "zkBroker",
        "broker",
    } and ApiKey.VOTE.listeners == {"controller"}
    known_to_3_9 = [
        api_key for api_key in ApiKey if api_key <= ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    ]
    counts = [
        sum(listener in api_key.listeners for api_key in known_to_3_9)
        for listener in ("zkBroker", "broker", "controller")
    ]
    assert counts == [62, 72, 42], (
        "the numbers of keys of a 3.9.1 node, with telemetry (2) and unstable ones (9) of the "
        "broker"
    )


def test_a_malformed_message_error_is_one_line() -> None:
    error = MalformedMessage(0, 9, "topic_data[1].name", "null, but not nullable", 17)
    assert str(error) == "api 0 v9 at topic_data[1].name (byte 17): null, but not nullable"
    assert str(MalformedMessage(None, None, "", "empty")) == "message: empty"
    assert (error.api_key, error.version, error.path, error.position) == (
        0,
        9,
        "topic_data[1].name",
        17,
    )
