"""Apache Kafka with a SASL listener and an authorizer, and kraftsim with the same configuration,
meet the section on security.
"""

from collections.abc import Iterator

import pytest

from kraftsim.conformance.requirement import Requirement, all_requirements
from kraftsim.conformance.runner import check
from kraftsim.conformance.target import Target
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.conformance.secured import secured_apache_kafka, secured_kraftsim, secured_zookeeper_mode

NEWEST, NEWEST_LINE = "", "4.4"
"""All requirements that still hold, and the newest release line."""
APACHE = {"3.9": DEFAULT_RELEASE, "4.1": "4.1.2", NEWEST_LINE: NEWEST_RELEASE}


def sentence(requirement: Requirement) -> str:
    """The test id of a requirement."""
    return f"{requirement.label} {requirement.sentence}"


def security_requirements(release: str) -> list[Requirement]:
    """The requirements of the section that hold for a release."""
    return [
        each for each in all_requirements(release=release) if each.section.chapter == "security"
    ]


@pytest.fixture(scope="module")
def kraftsim_secured() -> Iterator[Target]:
    """A cluster of ours."""
    with secured_kraftsim("3.9") as target:
        yield target


@pytest.fixture(scope="module", params=APACHE)
def apache_secured(request: pytest.FixtureRequest) -> Iterator[tuple[str, Target]]:
    """Apache Kafka, and its release line."""
    with secured_apache_kafka(APACHE[request.param]) as target:
        yield request.param, target


@pytest.mark.parametrize("requirement", security_requirements("3.9"), ids=sentence)
def test_kraftsim_meets_every_requirement(
    requirement: Requirement, kraftsim_secured: Target
) -> None:
    finding = check(requirement, kraftsim_secured)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.fixture(scope="module")
def newest_kraftsim_secured() -> Iterator[Target]:
    """A cluster of ours, as the newest release."""
    with secured_kraftsim(NEWEST_LINE) as target:
        yield target


@pytest.mark.parametrize(
    "requirement",
    [each for each in security_requirements(NEWEST) if not each.holds_for("3.9")],
    ids=sentence,
)
def test_kraftsim_as_the_newest_release_meets_every_requirement(
    requirement: Requirement, newest_kraftsim_secured: Target
) -> None:
    """Requirements of later releases in addition to those of 3.9."""
    finding = check(requirement, newest_kraftsim_secured)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.fixture(scope="module")
def zookeeper_secured() -> Iterator[Target]:
    """A broker in ZooKeeper mode, where no KRaft controller checks forwarded requests."""
    with secured_zookeeper_mode("3.5") as target:
        yield target


DECIDED_BY_CONTROLLER = ("security/2.8", "security/2.9")


@pytest.mark.parametrize(
    "requirement",
    [each for each in security_requirements("3.5") if each.label in DECIDED_BY_CONTROLLER],
    ids=sentence,
)
def test_kraftsim_in_zookeeper_mode_meets_every_requirement(
    requirement: Requirement, zookeeper_secured: Target
) -> None:
    """The whole section holds there; these two depend on the broker that is the controller."""
    finding = check(requirement, zookeeper_secured)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.mark.interop
@pytest.mark.parametrize("requirement", security_requirements(NEWEST), ids=sentence)
def test_apache_kafka_meets_every_requirement(
    requirement: Requirement, apache_secured: tuple[str, Target]
) -> None:
    line, target = apache_secured
    if not requirement.holds_for(line):
        pytest.skip(f"does not hold for {line}")
    finding = check(requirement, target)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])
