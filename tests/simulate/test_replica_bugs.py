"""Historical bugs of producer state and of replication are found by the stories of replicas, and without them the same seeds are clean."""

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
def test_a_bug_that_is_put_back_is_found(name, scenario, seed, invariant):
    """The seeds are the first of a sweep that find it; what catches it is what the bug says of itself."""
    finds(name, scenario, seed, invariant)


@pytest.mark.parametrize("scenario, seed", sorted({(scenario, seed) for _, scenario, seed, _ in FINDINGS}))
def test_without_a_bug_the_seeds_are_clean(scenario, seed):
    """Otherwise a finding would say nothing about the bug."""
    is_clean(scenario, seed)
