"""Apache Kafka and kraftsim beside each other: every value of every field of one byte in a request is answered alike, known or not."""

import pytest

from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.enum_answers import Case, answers
from tests.conformance.secured import secured_apache_kafka, secured_kraftsim

pytestmark = pytest.mark.interop
GROUP = 32
OF_GROUPS = "configurations of groups (KIP-848) are not built: their type of resource is one that there is not"
EXPLAINED = {
    "DESCRIBE_CONFIGS": OF_GROUPS,
    "ALTER_CONFIGS": OF_GROUPS,
    "INCREMENTAL_ALTER_CONFIGS": OF_GROUPS,
    "LIST_CONFIG_RESOURCES": OF_GROUPS,
}
"""API -> why ours answers otherwise where the value is that of groups."""


def is_explained(case: Case) -> bool:
    _, key, _, _, value = case
    return value == GROUP and key.name in EXPLAINED


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_every_value_of_a_byte_is_answered_alike(release):
    line = line_of(release)
    with secured_kraftsim(line) as target:
        ours = answers(target, line)
    with secured_apache_kafka(release) as target:
        theirs = answers(target, line)
    assert theirs.keys() == ours.keys()
    differing = {case: (theirs[case], ours[case]) for case in theirs if theirs[case] != ours[case]}
    assert {case: both for case, both in differing.items() if not is_explained(case)} == {}
    assert {key.name for _, key, _, _, _ in differing} <= EXPLAINED.keys()
