"""The releases of a requirement are right for Apache Kafka: it is checked on the release lines on
both sides of each boundary, also with kraftsim.

test_apache_kafka.py tests 3.5, 3.9, 4.1 and 4.4; a requirement that was added or removed between
these is tested here with the line of the change.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from kraftsim.conformance.requirement import Requirement, all_requirements
from kraftsim.conformance.runner import RequirementVerdict, check
from kraftsim.conformance.target import Target
from kraftsim.releases.release import releases
from tests.apache_kafka.config_facts import RELEASES
from tests.apache_kafka.harness import ApacheKafka
from tests.conformance.test_apache_kafka import ASKED_ELSEWHERE, sentence
from tests.conformance.test_kraftsim import AT_ONCE
from tests.conftest import QUICK

LINES: Final = [each.name for each in releases()]
ASKED: Final = ("3.6", "3.7", "3.8", "4.0", "4.2", "4.3")
OTHERWISE_HERE: Final = {
    ("3.6", "consumer-groups/5.10"),
    ("3.6", "consumer-groups/5.11"),
    ("3.7", "produce/1.17"),
    ("3.8", "list-offsets/1.4"),
    ("3.8", "controller/2.3"),
    ("4.0", "consumer-groups/6.17"),
    ("4.0", "transactions/12.11"),
    ("4.3", "consumer-groups/7.9"),
    ("4.3", "share-groups/3.12"),
}
"""(line, requirement) that an emulated release meets one line too early, see docs/deviations.md."""


def changes_at(line: str) -> list[Requirement]:
    """Return the requirements that hold for a line or the one before or after it, and not for all
    three.
    """
    place = LINES.index(line)
    around = LINES[place - 1 : place + 2]
    chosen = [
        each for each in all_requirements() if len({each.holds_for(one) for one in around}) == 2
    ]
    return [
        each for each in chosen if not {each.section.chapter, each.section.label} & ASKED_ELSEWHERE
    ]


CASES: Final = [
    pytest.param(line, each, id=f"{line} {sentence(each)}")
    for line in ASKED
    for each in changes_at(line)
]


@contextmanager
def apache_kafka_of(line: str) -> Iterator[Target]:
    """One node of Apache Kafka."""
    release = next(each for each in RELEASES if each.startswith(f"{line}."))
    with ApacheKafka(release, QUICK) as kafka:
        yield Target(kafka.bootstrap, kafka.controller)


@contextmanager
def kraftsim_of(line: str) -> Iterator[Target]:
    """One broker and one controller of ours."""
    port = free_port_range(1)
    with EmbeddedCluster(
        ClusterSpec(brokers=1, release=line, port=port, settings=AT_ONCE)
    ) as cluster:
        yield Target(
            cluster.bootstrap.partition(",")[0], f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}"
        )


def one_line_at_a_time(
    start: Callable[[str], AbstractContextManager[Target]],
) -> Iterator[Callable[[str], Target]]:
    """Yield a function that returns the running node of a line, and stops that of another line.

    A parametrised fixture would start a node for every case: the line is only one of the two
    parameters of a case.
    """
    with ExitStack() as running:
        nodes: dict[str, Target] = {}

        def node_of(line: str) -> Target:
            if line not in nodes:
                nodes.clear()
                running.close()
                nodes[line] = running.enter_context(start(line))
            return nodes[line]

        yield node_of


@pytest.fixture(scope="module")
def theirs() -> Iterator[Callable[[str], Target]]:
    """The node of Apache Kafka of a line."""
    yield from one_line_at_a_time(apache_kafka_of)


@pytest.fixture(scope="module")
def ours() -> Iterator[Callable[[str], Target]]:
    """The cluster of ours of a line."""
    yield from one_line_at_a_time(kraftsim_of)


def assert_holds(requirement: Requirement, target: Target, line: str) -> None:
    """It is met exactly by the lines for which it holds."""
    finding = check(requirement, target)
    assert (finding.verdict is RequirementVerdict.MET) == requirement.holds_for(line), "\n".join(
        [finding.why, *finding.transcript]
    )


def test_every_release_line_changes_a_requirement() -> None:
    assert all(changes_at(line) for line in ASKED)
    assert {(line, each.label) for line in ASKED for each in changes_at(line)} >= OTHERWISE_HERE


@pytest.mark.interop
@pytest.mark.parametrize(("line", "requirement"), CASES)
def test_apache_kafka_changes_at_the_release_boundary(
    theirs: Callable[[str], Target], line: str, requirement: Requirement
) -> None:
    assert_holds(requirement, theirs(line), line)


@pytest.mark.parametrize(("line", "requirement"), CASES)
def test_kraftsim_changes_at_the_release_boundary(
    ours: Callable[[str], Target], line: str, requirement: Requirement
) -> None:
    if (line, requirement.label) not in OTHERWISE_HERE:
        assert_holds(requirement, ours(line), line)
    else:
        assert check(requirement, ours(line)).verdict is RequirementVerdict.MET
        assert not requirement.holds_for(line)
