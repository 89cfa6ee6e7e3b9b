"""Apache Kafka meets every requirement: what it does not do is no requirement, but a mistake of ours."""

import pytest

from kraftsim.conformance.requirement import Requirement
from kraftsim.conformance.runner import all_requirements, judge
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
REQUIREMENTS = all_requirements()


def sentence(requirement: Requirement) -> str:
    """How a requirement is called in the list of tests."""
    return f"{requirement.api}: {requirement.sentence}"


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=sentence)
def test_apache_kafka_3_9_meets(requirement, apache_kafka):
    finding = judge(requirement, Target(apache_kafka.bootstrap))
    assert finding.is_met, finding.why


@pytest.mark.parametrize("requirement", all_requirements(release="3.5"), ids=sentence)
def test_apache_kafka_3_5_meets(requirement, apache_kafka_3_5):
    finding = judge(requirement, Target(apache_kafka_3_5.bootstrap))
    assert finding.is_met, finding.why


@pytest.mark.parametrize("requirement", [each for each in REQUIREMENTS if not each.holds_for("3.5")], ids=sentence)
def test_apache_kafka_3_5_does_not_meet_what_came_later(requirement, apache_kafka_3_5):
    assert not judge(requirement, Target(apache_kafka_3_5.bootstrap)).is_met


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=sentence)
def test_apache_kafka_4_1_meets(requirement, apache_kafka_4):
    finding = judge(requirement, Target(apache_kafka_4.bootstrap))
    assert finding.is_met, finding.why


def test_the_first_question_for_a_producer_id_is_answered_14(apache_kafka):
    """A broker asks for its first block when it is first asked itself, and does not let the producer wait (KAFKA-15459; since 3.6)."""
    with ApacheKafka(apache_kafka.release) as fresh, Target(fresh.bootstrap).peer() as peer:
        version = Target(fresh.bootstrap).newest(ApiKey.INIT_PRODUCER_ID)
        codes = []
        while not codes or codes[-1] != ErrorCode.NONE:
            codes.append(
                peer.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000), version, InitProducerIdResponse).error_code
            )
            assert len(codes) < 100_000, "no producer id"
    assert len(codes) > 1
    assert set(codes[:-1]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
