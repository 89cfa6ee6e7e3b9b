"""Clients of many releases have the outcomes of reference/client-matrix.md on our brokers, which
equal those on Apache Kafka.
"""

import pytest

from tests.clients.versions.brokers import ours
from tests.clients.versions.catalogue import client
from tests.clients.versions.matrix import ask, installed
from tools.docs.clients_page import OURS, THEIRS, WORKS, kept, line_of

LINES = ("2.3", "4.4")
SOME = (
    "java 2.0.1",
    "java 2.8.2",
    "librdkafka 1.0.1",
    "librdkafka 1.9.2",
    "kafka-python 2.0.2",
    "kafka-python 2.2.21",
    "aiokafka 0.8.1",
)


@pytest.mark.interop
@pytest.mark.parametrize("line", LINES)
def test_clients_of_many_releases_complete_their_tasks_on_kraftsim(line: str) -> None:
    """All of them, on all release lines, also with Apache Kafka: `make clients`."""
    clients = installed([client(name) for name in SOME])
    cells = kept()
    expected = {each.name: cells[each.name][f"{OURS} {line}"] for each in clients}
    with ours(line) as bootstrap:
        assert ask(bootstrap, clients, expected) == expected


def test_outcomes_match_apache_kafka_of_the_same_release_line() -> None:
    """Including refusals, with the same error."""
    compared = 0
    for name, row in kept().items():
        beside = {
            line_of(broker): outcomes
            for broker, outcomes in row.items()
            if broker.startswith(THEIRS)
        }
        for broker, outcomes in row.items():
            if broker.startswith(OURS) and line_of(broker) in beside:
                assert outcomes == beside[line_of(broker)], f"{name} on {broker}"
                compared += sum(outcome == WORKS for outcome in outcomes.values())
    assert compared > 100
