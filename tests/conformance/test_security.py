"""The chapter of security is kept by Apache Kafka with a SASL listener and an authorizer, and by kraftsim configured likewise."""

from collections.abc import Iterator

import pytest

from kraftsim.conformance.requirement import Requirement
from kraftsim.conformance.runner import judge
from kraftsim.conformance.selection import all_requirements
from kraftsim.conformance.target import Target
from tests.conformance.secured import secured_apache_kafka, secured_kraftsim

APACHE = {"3.9": "3.9.1", "4.1": "4.1.2"}


def sentence(requirement: Requirement) -> str:
    """How a requirement is called in the list of tests."""
    return f"{requirement.label} {requirement.sentence}"


def of_security(release: str) -> list[Requirement]:
    """The chapter, as far as it holds for a release."""
    return [each for each in all_requirements(release=release) if each.section.chapter == "security"]


@pytest.fixture(scope="module")
def kraftsim_secured() -> Iterator[Target]:
    """A cluster of ours."""
    with secured_kraftsim("3.9") as target:
        yield target


@pytest.fixture(scope="module", params=APACHE)
def apache_secured(request) -> Iterator[tuple[str, Target]]:
    """Apache Kafka, and its release line."""
    with secured_apache_kafka(APACHE[request.param]) as target:
        yield request.param, target


@pytest.mark.parametrize("requirement", of_security("3.9"), ids=sentence)
def test_kraftsim_meets(requirement, kraftsim_secured):
    finding = judge(requirement, kraftsim_secured)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])


@pytest.mark.interop
@pytest.mark.parametrize("requirement", of_security("4.1"), ids=sentence)
def test_apache_kafka_meets(requirement, apache_secured):
    line, target = apache_secured
    if not requirement.holds_for(line):
        pytest.skip(f"{line} is not held to it")
    finding = judge(requirement, target)
    assert finding.is_met, "\n".join([finding.why, *finding.transcript])
