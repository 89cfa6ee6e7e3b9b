"""Apache Kafka meets every requirement: one that it does not meet is an error of the suite."""

import pytest

from kraftsim.conformance.release_line import release_line_of
from kraftsim.conformance.requirement import Requirement, all_requirements
from kraftsim.conformance.runner import RequirementVerdict, check
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
LINES = {
    "apache_kafka_3_5": "3.5",
    "apache_kafka": "3.9",
    "apache_kafka_4": "4.1",
    "apache_kafka_newest": "4.4",
}
"""Fixture -> release line."""


def sentence(requirement: Requirement) -> str:
    """The test id of a requirement."""
    return f"{requirement.label} {requirement.sentence}"


ASKED_ELSEWHERE = {"security", "tiered-storage", "zookeeper", "describe/4"}
"""Requirements for nodes with authentication (test_security.py), remote store
(test_tiered_storage.py), several log directories, ZooKeeper mode.
"""


def target_of(kafka: ApacheKafka) -> Target:
    """A combined broker and controller, both of which are tested."""
    return Target(kafka.bootstrap, kafka.controller)


def cases(*, holding: bool) -> list[object]:
    """Every requirement with every release, split by whether it holds."""
    return [
        pytest.param(fixture, requirement, id=f"{line} {sentence(requirement)}")
        for fixture, line in LINES.items()
        for requirement in all_requirements()
        if requirement.holds_for(line) is holding
    ]


@pytest.mark.parametrize(("fixture", "requirement"), cases(holding=True))
def test_apache_kafka_meets_every_requirement(
    fixture: str, requirement: Requirement, request: pytest.FixtureRequest
) -> None:
    finding = check(requirement, target_of(request.getfixturevalue(fixture)))
    if finding.verdict is RequirementVerdict.SKIPPED and (
        {requirement.section.chapter, requirement.section.label} & ASKED_ELSEWHERE
    ):
        pytest.skip(f"tested with other nodes: {finding.why}")
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.mark.parametrize(("fixture", "requirement"), cases(holding=False))
def test_apache_kafka_fails_requirements_of_other_releases(
    fixture: str, requirement: Requirement, request: pytest.FixtureRequest
) -> None:
    """Otherwise the release of the requirement is wrong."""
    assert (
        check(requirement, target_of(request.getfixturevalue(fixture))).verdict
        is not RequirementVerdict.MET
    )


@pytest.mark.parametrize(("fixture", "line"), LINES.items(), ids=LINES.values())
def test_the_release_is_guessed_from_what_a_node_advertises(
    fixture: str, line: str, request: pytest.FixtureRequest
) -> None:
    assert release_line_of(target_of(request.getfixturevalue(fixture))).name == line


def test_the_first_init_producer_id_returns_coordinator_load_in_progress(
    apache_kafka: ApacheKafka,
) -> None:
    """A broker requests its first block at the first InitProducerId, and does not let the producer
    wait (KAFKA-15459; since 3.6).
    """
    with ApacheKafka(apache_kafka.release) as fresh, Target(fresh.bootstrap).peer() as peer:
        version = Target(fresh.bootstrap).newest(ApiKey.INIT_PRODUCER_ID)
        codes: list[int] = []
        while not codes or codes[-1] != ErrorCode.NONE:
            codes.append(
                peer.ask(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000),
                    version,
                    InitProducerIdResponse,
                ).error_code
            )
            assert len(codes) < 100_000, "no producer id"
    assert len(codes) > 1
    assert set(codes[:-1]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
