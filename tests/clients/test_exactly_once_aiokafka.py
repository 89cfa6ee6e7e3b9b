"""aiokafka processes a topic exactly once while members, brokers and coordinators are killed, on
kraftsim as on Apache Kafka 3.9.1.
"""

from collections.abc import Callable

import pytest

from tests.clients.transform_app.clusters import Brokers
from tests.clients.transform_app.readers import ByLibrdkafka
from tests.clients.transform_app.scenario import TransformApp, inject_every_fault, python

pytestmark = pytest.mark.interop


def test_every_input_has_one_committed_output(
    three_brokers: Brokers, keep_outputs: Callable[[TransformApp], None]
) -> None:
    with TransformApp(
        three_brokers, "aiokafka", python("by_aiokafka"), ByLibrdkafka
    ) as transform_app:
        inject_every_fault(transform_app)
        keep_outputs(transform_app)
