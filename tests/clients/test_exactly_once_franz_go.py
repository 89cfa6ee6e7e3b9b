"""franz-go's group transact session processes a topic exactly once while nodes are killed, on kraftsim as on Apache Kafka 3.9.1."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.clients.copying.clusters import Brokers
from tests.clients.copying.readers import ByLibrdkafka
from tests.clients.copying.story import Copying, trouble_of_every_kind

pytestmark = pytest.mark.interop


def test_every_input_has_one_committed_output(three_brokers: Brokers, keep_copies, franz_go: Path):
    def command(copying: Copying, name: str) -> Sequence[str]:
        return [str(franz_go), "copy", copying.bootstrap, copying.group, copying.input, copying.output, copying.transactional_id(name)]

    with Copying(three_brokers, "franz-go", command, ByLibrdkafka) as copying:
        trouble_of_every_kind(copying)
        keep_copies(copying)
