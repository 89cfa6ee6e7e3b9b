"""Bugs that no release up to 4.4.0 is without: kraftsim has them, as Apache Kafka does."""

import pytest

from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.present_bugs import is_shown, observed
from tests.apache_kafka.probes import line_of


def test_kraftsim_answers_as_the_newest_apache_kafka() -> None:
    """KAFKA-15591: the first batch is out of order for ever. KAFKA-20310: the retry is fenced after
    a restart, and only then.
    """
    answers = observed(f"kraftsim {line_of(NEWEST_RELEASE)}")
    assert is_shown(answers), answers


@pytest.mark.interop
def test_the_newest_apache_kafka_has_the_bugs() -> None:
    answers = observed(f"Apache Kafka {NEWEST_RELEASE}")
    assert is_shown(answers), answers
