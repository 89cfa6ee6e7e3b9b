"""Batches of a Produce request that take long to unpack: a thread looks at their records, and the loop serves others meanwhile.

Apache Kafka does so in one of its request handler threads.   Source: org.apache.kafka.storage.internals.log.LogValidator.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.batch_rules import AppendRules, ExaminedBatch, client_batch, refuse_records, unpacked_bytes
from protocol.batches import RecordBatch
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

PLAIN_BYTES_MAX: Final = 1 << 20
"""So much is unpacked on the loop for one request: it takes 2 to 5 ms with gzip."""
Examined = dict[int, RecordBatch]
"""By the identity of the rows of the request, which holds them meanwhile."""


def takes_long(request: ProduceRequest) -> bool:
    """Tell whether the compressed batches of a request may hold more than is unpacked on the loop."""
    left_bytes = PLAIN_BYTES_MAX
    for topic in request.topic_data:
        for data in topic.partition_data:
            left_bytes -= unpacked_bytes(data.records)
            if left_bytes < 0:
                return True
    return False


async def examine(broker: "Broker", request: ProduceRequest, version: int, name_of: Callable[[int], str | None], now_ms: int) -> Examined:
    """Return the sound batches of a request with what their records are refused for. `name_of` knows the topics by their places.

    Only batches of partitions that are led here and are not too large: others are refused without a look at their records. Their bytes are copied,
    because they wait longer than the buffer that they came in.
    """
    found: Examined = {}
    for index, topic in enumerate(request.topic_data):
        name = name_of(index)
        for data in topic.partition_data:
            data.records = None if data.records is None else bytes(data.records)
            hosted = None if name is None else broker.partitions.find(name, data.index)
            if hosted is not None and unpacked_bytes(data.records):
                batch = await _examined(broker, data, version, hosted.replica.rules, now_ms, f"{name}-{data.index}")
                if batch is not None:
                    found[id(data)] = batch
    return found


async def _examined(
    broker: "Broker", data: PartitionProduceData, version: int, rules: AppendRules, now_ms: int, topic_partition: str
) -> ExaminedBatch | None:
    batch = client_batch(data.records, version)
    if isinstance(batch, Refusal) or batch.size_bytes > rules.max_message_bytes:
        return None
    return ExaminedBatch(batch, await broker.world.aside(lambda: refuse_records(batch, rules, now_ms, topic_partition)))
