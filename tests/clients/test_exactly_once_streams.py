"""A Kafka Streams application with exactly_once_v2 processes a topic exactly once while instances, brokers and coordinators are killed."""

import pytest

from tests.clients.copying.clusters import Brokers
from tests.clients.copying.java import streams
from tests.clients.copying.readers import ByLibrdkafka
from tests.clients.copying.story import Command, Copying, trouble_of_every_kind

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def application() -> Command:
    """The application, built; skips without Java or Maven."""
    return streams()


def test_every_input_has_one_committed_output(three_brokers: Brokers, keep_copies, application: Command):
    with Copying(three_brokers, "streams", application, ByLibrdkafka) as copying:
        trouble_of_every_kind(copying, goes_on_without=False)
        keep_copies(copying)
