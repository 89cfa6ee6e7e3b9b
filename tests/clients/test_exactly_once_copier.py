"""Apache Kafka's TransactionalMessageCopier processes a topic exactly once, with random aborts, on
kraftsim as on Apache Kafka 3.9.1.

It exits at the end offsets of its start, and is restarted for the rest.
"""

from collections.abc import Callable

import pytest

from tests.clients.transform_app.clusters import PARTITIONS, Brokers
from tests.clients.transform_app.java import transform_worker
from tests.clients.transform_app.readers import ByLibrdkafka
from tests.clients.transform_app.scenario import TransformApp, inject_every_fault

pytestmark = pytest.mark.interop


def test_in_a_group_every_input_has_one_committed_output(
    three_brokers: Brokers, keep_outputs: Callable[[TransformApp], None]
) -> None:
    """With the member's generation in the transaction (KIP-447)."""
    with TransformApp(
        three_brokers, "copier-group", transform_worker(in_group=True), ByLibrdkafka
    ) as transform_app:
        inject_every_fault(transform_app)
        keep_outputs(transform_app)


def test_without_a_group_every_input_has_one_committed_output(
    three_brokers: Brokers, keep_outputs: Callable[[TransformApp], None]
) -> None:
    """One member for each partition, with a transactional id per partition."""
    with TransformApp(
        three_brokers, "copier-alone", transform_worker(in_group=False), ByLibrdkafka
    ) as transform_app:
        transform_app.begin(*map(str, range(PARTITIONS)))
        transform_app.read_more(80)
        transform_app.kill_member("0")
        with transform_app.without(
            transform_app.transaction_coordinator(transform_app.transactional_id("1"))
        ):
            transform_app.read_more(80)
        transform_app.kill_member("2")
        transform_app.read_more(80)
        transform_app.finish()
        keep_outputs(transform_app)
