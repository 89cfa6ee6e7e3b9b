"""The replica scenarios find historical bugs of producer state and replication, and the same seeds are clean without them."""

import pytest

from tests.simulate.findings import finds, is_clean

FINDINGS = [
    ("KAFKA-1211", "leaders_fail_under_idempotent_load", 24, "partition-leader-completeness"),
    ("KAFKA-5435", "answers_get_lost", 1, "one-append-per-sequence"),
    ("KAFKA-5435", "producers_are_remembered", 4, "records-in-final-log-once"),
    ("librdkafka-forgotten-sequence", "topic_vanishes_from_metadata", 3, "acknowledged-records-in-final-log"),
    ("KAFKA-6683", "producers_are_remembered", 1, "producer-snapshot-of-appended-only"),
    ("KAFKA-6683", "old_leader_cuts_and_leads_again", 2, "acknowledged-records-in-final-log"),
    ("KAFKA-7128", "leaders_fail_under_idempotent_load", 1, "replicas-join-beyond-epoch-start"),
    ("KAFKA-7692", "producers_are_remembered", 2, "records-in-final-log-once"),
]


@pytest.mark.parametrize("name, scenario, seed, invariant", FINDINGS)
def test_injected_bug_is_found(name, scenario, seed, invariant):
    """The seeds are the first of a sweep that find it; the bug declares which check detects it."""
    finds(name, scenario, seed, invariant)


@pytest.mark.parametrize("scenario, seed", sorted({(scenario, seed) for _, scenario, seed, _ in FINDINGS}))
def test_without_the_bug_the_seeds_are_clean(scenario, seed):
    """Otherwise a finding would prove nothing about the bug."""
    is_clean(scenario, seed)
