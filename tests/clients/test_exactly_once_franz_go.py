"""franz-go's group transact session processes a topic exactly once while nodes are killed, on
kraftsim as on Apache Kafka 3.9.1.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.clients.transform_app.clusters import Brokers
from tests.clients.transform_app.readers import ByLibrdkafka
from tests.clients.transform_app.scenario import TransformApp, inject_every_fault

pytestmark = pytest.mark.interop


def test_every_input_has_one_committed_output(
    three_brokers: Brokers, keep_outputs: Callable[[TransformApp], None], franz_go: Path
) -> None:
    def command(transform_app: TransformApp, name: str) -> Sequence[str]:
        return [
            str(franz_go),
            "copy",
            transform_app.bootstrap,
            transform_app.group,
            transform_app.input,
            transform_app.output,
            transform_app.transactional_id(name),
        ]

    with TransformApp(three_brokers, "franz-go", command, ByLibrdkafka) as transform_app:
        inject_every_fault(transform_app)
        keep_outputs(transform_app)
