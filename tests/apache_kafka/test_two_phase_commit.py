"""InitProducerId version 6: kraftsim answers as Apache Kafka with unstable versions enabled, and
with `keeping` as KIP-939 says.
"""

from collections.abc import Callable

import pytest

from protocol.errors import ErrorCode
from tests.apache_kafka.two_phase_commit import (
    ON,
    RELEASES,
    SETTINGS,
    all_answers,
    answers_of_one,
)
from tests.conformance.secured import secured_kraftsim

GONE = "NONE; Fetch from 0: OFFSET_OUT_OF_RANGE"
EXPECTED = {
    "participates": "NONE -1/-1",
    "keeps": "UNSUPPORTED_VERSION -1/-1",
    "after its time-out": "Ongoing 2147483647",
    "WRITE: participates": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED -1/-1",
    "both: participates": "NONE -1/-1",
    "off: participates": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED -1/-1",
    "off: keeps": "UNSUPPORTED_VERSION -1/-1",
    "participates, time-out above the maximum": "NONE -1/-1",
    "an operator aborts it in the partition": "NONE; 0 of 1 record",
    "its log is larger than retention.bytes": GONE,
}
"""The answers that say most, of Apache Kafka 4.1.2 and 4.4.0."""


@pytest.mark.parametrize("line", RELEASES)
def test_kraftsim_answers_as_measured(line: str, figures: Callable[..., None]) -> None:
    found = all_answers(f"kraftsim {line}")
    assert {row: found[row] for row in EXPECTED} == EXPECTED
    figures(
        off=code(found["off: participates"]),
        without_the_right=code(found["WRITE: participates"]),
        with_both=code(found["both: participates"]),
        above_the_maximum=code(found["participates, time-out above the maximum"]),
        keeps_as_merged=code(found["keeps"]),
        after_its_timeout=str(found["after its time-out"]),
        read_after_an_operator=str(found["an operator aborts it in the partition"]),
        read_after_retention=str(found["its log is larger than retention.bytes"]),
    )


def code(answer: object) -> int:
    """Return the error code of an answer."""
    return int(ErrorCode[str(answer).partition(" ")[0]])


@pytest.mark.interop
@pytest.mark.parametrize("line", RELEASES)
def test_apache_kafka_and_kraftsim_answer_alike(line: str) -> None:
    assert all_answers(f"Apache Kafka {line}") == all_answers(f"kraftsim {line}")


def test_open_transaction_is_kept_where_the_setting_says_so(figures: Callable[..., None]) -> None:
    """The answer has its identity, the producer before is fenced, and one that does not keep the
    transaction has it aborted.
    """
    own = {**SETTINGS, **ON, "kraftsim.two.phase.commit": "keeping"}
    with secured_kraftsim("4.4", others=own) as target:
        found = answers_of_one(target)
    assert found["keeps"] == "NONE -1/-1", "nothing is open"
    assert found["keeps an open transaction"] == "NONE the same id/0"
    assert found["its former producer commits"] == "PRODUCER_FENCED"
    assert found["does not keep it"] == "CONCURRENT_TRANSACTIONS -1/-1"
    figures(
        kept_as=str(found["keeps an open transaction"]),
        former_commits=code(found["its former producer commits"]),
        not_kept=code(found["does not keep it"]),
    )
