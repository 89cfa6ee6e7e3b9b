"""kafka-python processes a topic exactly once while members, brokers and coordinators are killed, on kraftsim as on Apache Kafka 3.9.1."""

import pytest

from tests.clients.copying.clusters import Brokers
from tests.clients.copying.readers import ByLibrdkafka
from tests.clients.copying.story import Copying, python, trouble_of_every_kind

pytestmark = pytest.mark.interop


def test_every_input_has_one_committed_output(three_brokers: Brokers, keep_copies):
    with Copying(three_brokers, "kafka-python", python("by_kafka_python"), ByLibrdkafka) as copying:
        trouble_of_every_kind(copying, goes_on_without=False)
        keep_copies(copying)
