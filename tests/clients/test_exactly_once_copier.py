"""Apache Kafka's TransactionalMessageCopier processes a topic exactly once, with random aborts, on kraftsim as on Apache Kafka 3.9.1.

It exits at the end offsets of its start, and is restarted for the rest.
"""

import pytest

from tests.clients.copying.clusters import PARTITIONS, Brokers
from tests.clients.copying.java import copier
from tests.clients.copying.readers import ByLibrdkafka
from tests.clients.copying.story import Copying, trouble_of_every_kind

pytestmark = pytest.mark.interop


def test_in_a_group_every_input_has_one_committed_output(three_brokers: Brokers, keep_copies):
    """With the member's generation in the transaction (KIP-447)."""
    with Copying(three_brokers, "copier-group", copier(in_group=True), ByLibrdkafka) as copying:
        trouble_of_every_kind(copying)
        keep_copies(copying)


def test_without_a_group_every_input_has_one_committed_output(three_brokers: Brokers, keep_copies):
    """One member for each partition, with a transactional id per partition."""
    with Copying(three_brokers, "copier-alone", copier(in_group=False), ByLibrdkafka) as copying:
        copying.begin(*map(str, range(PARTITIONS)))
        copying.read_more(80)
        copying.kill_member("0")
        with copying.without(copying.transaction_coordinator(copying.transactional_id("1"))):
            copying.read_more(80)
        copying.kill_member("2")
        copying.read_more(80)
        copying.finish()
        keep_copies(copying)
