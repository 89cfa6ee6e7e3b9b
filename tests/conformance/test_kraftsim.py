"""kraftsim meets every requirement that Apache Kafka meets: with one broker, with three, and as its
oldest and newest release.
"""

from collections.abc import Iterator

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.release_line import release_line_of
from kraftsim.conformance.requirement import Requirement, all_requirements
from kraftsim.conformance.runner import RequirementVerdict, check
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

AT_ONCE = {
    "group.initial.rebalance.delay.ms": "0",
    "socket.listen.backlog.size": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
}
"""No initial rebalance delay, no SYN retry with many connections, a short check interval for
transaction timeouts, and short locks for share groups.
"""


def meets(requirement: Requirement, target: Target) -> None:
    """A check as a test."""
    finding = check(requirement, target)
    if finding.verdict is RequirementVerdict.SKIPPED:
        pytest.skip(finding.why)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


def sentence(requirement: Requirement) -> str:
    """The test id of a requirement."""
    return f"{requirement.label} {requirement.sentence}"


def running(brokers: int, release: str, *, combined: int = 0) -> Iterator[Target]:
    """A cluster for all tests of this file."""
    port = free_port_range(brokers)
    with EmbeddedCluster(
        ClusterSpec(
            brokers=brokers, combined=combined, release=release, port=port, settings=AT_ONCE
        )
    ) as cluster:
        yield Target(
            cluster.bootstrap.partition(",")[0], f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}"
        )


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[Target]:
    """Three brokers of the default release."""
    yield from running(3, "3.9")


@pytest.fixture(scope="module")
def kraftsim_3_5() -> Iterator[Target]:
    """One broker that emulates 3.5."""
    yield from running(1, "3.5")


@pytest.fixture(scope="module")
def kraftsim_4_4() -> Iterator[Target]:
    """One combined node that emulates 4.4, the newest."""
    yield from running(1, "4.4", combined=1)


@pytest.mark.parametrize("requirement", all_requirements(release="3.9"), ids=sentence)
def test_three_brokers_meet_every_requirement(
    requirement: Requirement, three_brokers: Target
) -> None:
    meets(requirement, three_brokers)


@pytest.mark.parametrize("requirement", all_requirements(release="3.5"), ids=sentence)
def test_kraftsim_as_3_5_meets_every_requirement(
    requirement: Requirement, kraftsim_3_5: Target
) -> None:
    meets(requirement, kraftsim_3_5)


@pytest.mark.parametrize("requirement", all_requirements(release="4.4"), ids=sentence)
def test_kraftsim_as_4_4_meets_every_requirement(
    requirement: Requirement, kraftsim_4_4: Target
) -> None:
    meets(requirement, kraftsim_4_4)


def test_the_guessed_release_is_the_emulated_one(
    three_brokers: Target, kraftsim_3_5: Target, kraftsim_4_4: Target
) -> None:
    assert [release_line_of(node).name for node in (three_brokers, kraftsim_3_5, kraftsim_4_4)] == [
        "3.9",
        "3.5",
        "4.4",
    ]


def codes_until_an_id(target: Target) -> list[int]:
    """Send InitProducerId to a broker without a block until it returns an id, and return all error
    codes.
    """
    version = target.newest(ApiKey.INIT_PRODUCER_ID)
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    codes: list[int] = []
    with target.peer() as peer:
        while not codes or codes[-1] != ErrorCode.NONE:
            codes.append(peer.ask(asked, version, InitProducerIdResponse).error_code)
            assert len(codes) < 100_000, "no producer id"
    return codes


def test_the_first_init_producer_id_returns_coordinator_load_in_progress(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """A broker requests its first block at the first InitProducerId, and does not let the producer
    wait (since 3.6).
    """
    embedded_cluster.kill(
        "broker-1"
    )  # the fixture has fetched a block, which the next incarnation does not have
    embedded_cluster.restart("broker-1")
    embedded_cluster.wait_until_ready()
    codes = codes_until_an_id(Target(embedded_cluster.bootstrap))
    assert len(codes) > 1
    assert set(codes[:-1]) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.mark.kraftsim(release="3.5")
def test_before_3_6_the_first_init_producer_id_waits_for_the_block(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """KAFKA-15459: the request thread of 3.5 blocks until the controller has responded."""
    assert codes_until_an_id(Target(embedded_cluster.bootstrap)) == [ErrorCode.NONE]
