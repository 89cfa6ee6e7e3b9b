"""kraftsim denies a principal without ACLs what Apache Kafka denies: every API and version on both
listeners, compared with recorded responses.

`python -m tests.rights.record` writes the tables; `make interop` compares Apache Kafka again. Every
request names existing resources.
"""

import pytest

from tests.conformance.secured import secured_kraftsim, secured_zookeeper_mode
from tests.rights.answers import Table, by_version, table_of
from tests.rights.record import TABLES, ZOOKEEPER_MODE, asked, recorded

OF_GROUPS = (
    "3.9 returns no topics and no error to a client that is not authorized for the group; 4.x "
    "and kraftsim return error 30"
)
OF_VERSION_0 = (
    "version 0 reads offsets from ZooKeeper, where kraftsim never writes them: UNSUPPORTED_VERSION"
)
DIFFERENCES = {
    ("3.9", "broker", "bob", "OFFSET_FETCH", 1): OF_GROUPS,
    (ZOOKEEPER_MODE, "broker", "bob", "OFFSET_FETCH", 1): OF_GROUPS,
    (ZOOKEEPER_MODE, "broker", "alice", "OFFSET_FETCH", 0): OF_VERSION_0,
}
"""Release, listener, principal, request, version -> why kraftsim responds differently; see
docs/deviations.md.
"""
Case = tuple[str, str, str, str, int]


def cases(line: str, table: Table) -> dict[Case, list[str]]:
    """Expand a table into single responses."""
    return {
        (line, listener, principal, label, version): words
        for listener, principals in table.items()
        for principal, rows in principals.items()
        for label, ranges in rows.items()
        for version, words in by_version(ranges).items()
    }


def different(
    line: str, found: Table, expected: Table
) -> dict[Case, tuple[list[str] | None, list[str] | None]]:
    """Return the differing responses: Apache Kafka's, then the other's."""
    theirs, ours = cases(line, expected), cases(line, found)
    return {
        case: (theirs.get(case), ours.get(case))
        for case in {**theirs, **ours}
        if theirs.get(case) != ours.get(case)
    }


@pytest.mark.parametrize("line", TABLES)
def test_kraftsim_denies_what_apache_kafka_denied(line: str) -> None:
    """A difference that is not in the list fails, and so does a listed one that no longer
    exists.
    """
    with (
        secured_zookeeper_mode("3.9")
        if line == ZOOKEEPER_MODE
        else secured_kraftsim(line) as target
    ):
        found = different(line, table_of(target, line), recorded(line))
    listed = {case for case in DIFFERENCES if case[0] == line}
    assert {case: answers for case, answers in found.items() if case not in listed} == {}
    assert listed <= set(found)


@pytest.mark.parametrize("line", TABLES)
def test_the_tables_cover_denials_of_nearly_every_request(line: str) -> None:
    """Without ACLs nearly every response has an error: a table of served requests would prove
    nothing.
    """
    for listener, principals in recorded(line).items():
        rows = principals["bob"]
        served = {
            label
            for label, ranges in rows.items()
            for words in ranges.values()
            if not any(_is_refusal(word) for word in words)
        }
        assert served <= SERVED[listener], served - SERVED[listener]


SERVED = {
    "broker": {
        "DESCRIBE_CLUSTER",
        "DESCRIBE_LOG_DIRS",
        "DESCRIBE_LOG_DIRS of all",
        "ELECT_LEADERS of all",
        "DESCRIBE_TOPIC_PARTITIONS of all",
        "LIST_GROUPS",
        "LIST_TRANSACTIONS",
        "METADATA",
        "METADATA of all topics",
        "OFFSET_FETCH",
        "OFFSET_FETCH of all topics",
        "FIND_COORDINATOR",
    },
    "controller": {"ELECT_LEADERS of all"},
}
"""Responses without an error for a principal without ACLs: filtered lists, and old versions without
an error field.
"""


def _is_refusal(word: str) -> bool:
    return word == "closed" or ("error_code=" in word and not word.endswith("error_code=0"))


@pytest.mark.interop
@pytest.mark.parametrize("line", TABLES)
def test_apache_kafka_answers_as_recorded(line: str) -> None:
    assert different(line, asked(line), recorded(line)) == {}
