"""A Kafka Streams application with exactly_once_v2 processes a topic exactly once while instances,
brokers and coordinators are killed.
"""

from collections.abc import Callable

import pytest

from tests.clients.transform_app.clusters import Brokers
from tests.clients.transform_app.java import streams
from tests.clients.transform_app.readers import ByLibrdkafka
from tests.clients.transform_app.scenario import Command, TransformApp, inject_every_fault

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def application() -> Command:
    """The application, built; skips without Java or Maven."""
    return streams()


def test_every_input_has_one_committed_output(
    three_brokers: Brokers, keep_outputs: Callable[[TransformApp], None], application: Command
) -> None:
    with TransformApp(three_brokers, "streams", application, ByLibrdkafka) as transform_app:
        inject_every_fault(transform_app, continues_without=False)
        keep_outputs(transform_app)
