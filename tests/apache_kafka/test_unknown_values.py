"""Apache Kafka and kraftsim compared: every value of every one-byte field of a request gets the
same response, known or not.
"""

import pytest

from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.enum_responses import Case, answers
from tests.conformance.secured import secured_apache_kafka, secured_kraftsim

pytestmark = pytest.mark.interop
GROUP = 32
OF_GROUPS = "group configs (KIP-848) are not implemented: their resource type is unknown"
EXPLAINED = {
    "DESCRIBE_CONFIGS": OF_GROUPS,
    "ALTER_CONFIGS": OF_GROUPS,
    "INCREMENTAL_ALTER_CONFIGS": OF_GROUPS,
    "LIST_CONFIG_RESOURCES": OF_GROUPS,
}
"""API -> why kraftsim responds differently to the group resource type."""


def is_explained(case: Case) -> bool:
    _, key, _, _, value = case
    return value == GROUP and key.name in EXPLAINED


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_every_enum_value_gets_the_same_response(release: str) -> None:
    line = line_of(release)
    with secured_kraftsim(line) as target:
        ours = answers(target, line)
    with secured_apache_kafka(release) as target:
        theirs = answers(target, line)
    assert theirs.keys() == ours.keys()
    differing = {case: (theirs[case], ours[case]) for case in theirs if theirs[case] != ours[case]}
    assert {case: both for case, both in differing.items() if not is_explained(case)} == {}
    assert {key.name for _, key, _, _, _ in differing} <= EXPLAINED.keys()
