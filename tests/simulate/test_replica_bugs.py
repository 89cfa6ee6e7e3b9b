"""The replica scenarios find historical bugs of producer state and replication, and the same seeds
are clean without them.
"""

import pytest

from kraftsim.lab.bugs.bug import bug
from tests.simulate.findings import finds, is_clean

FINDINGS = [
    ("KAFKA-1211", "partition_leader_failover_idempotent", 8, "acknowledged-records-on-replicas"),
    ("KAFKA-20961", "quiet_replicas_move", 1800003, "recovers-after-heal"),
    ("KAFKA-18106", "broker_power_loss", 1, "one-partition-leader-per-epoch"),
    ("KAFKA-5435", "lost_produce_responses", 1, "one-append-per-sequence"),
    ("KAFKA-5435", "producer_state_recovery", 4, "records-in-final-log-once"),
    (
        "librdkafka-forgotten-sequence",
        "topic_missing_from_metadata",
        5,
        "acknowledged-records-in-final-log",
    ),
    ("KAFKA-6683", "producer_state_recovery", 1, "producer-snapshot-below-its-offset"),
    ("KAFKA-6683", "truncated_leader_reelected", 2, "acknowledged-records-in-final-log"),
    ("KAFKA-7128", "partition_leader_failover_idempotent", 17, "isr-joined-after-epoch-start"),
    ("KAFKA-7692", "producer_state_recovery", 9, "records-in-final-log-once"),
]


@pytest.mark.parametrize("name, scenario, seed, invariant", FINDINGS)
def test_injected_bug_is_found(name: str, scenario: str, seed: int, invariant: str) -> None:
    """The bug declares which check detects it; the seed saves runs."""
    finds(name, scenario, seed, invariant)


@pytest.mark.parametrize(
    "scenario, seed, release",
    sorted({(scenario, seed, bug(name).release) for name, scenario, seed, _ in FINDINGS}),
)
def test_without_the_bug_the_seeds_are_clean(scenario: str, seed: int, release: str) -> None:
    """Otherwise a finding would prove nothing about the bug."""
    is_clean(scenario, seed, release)
