"""Bugs that no release up to 4.4.0 is without: kraftsim has them, as Apache Kafka does."""

import pytest

from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.present_bugs import (
    LOST_EPOCHS,
    answers_about_the_last_epoch,
    is_shown,
    observed,
)
from tests.apache_kafka.probes import line_of, subject, warmed_up


def test_kraftsim_answers_as_the_newest_apache_kafka() -> None:
    """KAFKA-15591: the first batch is out of order for ever. KAFKA-20310: the retry is fenced after
    a restart, and only then. KAFKA-20961 is a bug switch.
    """
    answers = observed(f"kraftsim {line_of(NEWEST_RELEASE)}", [LOST_EPOCHS])
    assert is_shown(answers), answers


def test_kraftsim_keeps_leader_epochs_when_a_replica_moves() -> None:
    """Without the switch: another behavior than that of Apache Kafka 4.4.0, on purpose."""
    node = subject(f"kraftsim {line_of(NEWEST_RELEASE)}")
    with node as target:
        warmed_up(target)
        before, after = answers_about_the_last_epoch(node, target)
    assert before == after and before[0] == "NONE"


@pytest.mark.interop
def test_the_newest_apache_kafka_has_the_bugs() -> None:
    answers = observed(f"Apache Kafka {NEWEST_RELEASE}")
    assert is_shown(answers), answers
