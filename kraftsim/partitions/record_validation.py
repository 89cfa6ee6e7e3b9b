"""Validation of Produce records that is too long for the event loop: a thread does it, and the loop
serves other connections.

This covers decompression, validation of single records, recompression in the codec of the topic,
and conversion of the message sets of Produce 0 to 2. Apache Kafka does it in a request handler
thread.
Source: org.apache.kafka.storage.internals.log.LogValidator.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from kraftsim.core.decision import Refusal
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.partitions import HostingBroker
from kraftsim.partitions.rules_append import (
    AppendRules,
    ConvertedRecords,
    ExaminedBatch,
    LogPlace,
    UncheckedRecords,
    checked_batch,
    client_batch,
    converted_records,
)
from kraftsim.partitions.rules_reading import (
    BELIEVED_BYTES_MAX,
    LOOKED_THROUGH_BYTES_MAX,
    believed_bytes,
    produced_work,
    takes_long,
)
from kraftsim.server.serving_broker import ImageBroker, RunningBroker
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

WALKED_BYTES_MAX: Final = 1 << 20
"""The most bytes that one request may have decompressed and iterated on the event loop: 2 to 5 ms
with gzip, at most 40 ms with the shortest records.
"""
SINGLE_RECORDS_COST: Final = 4
"""The cost of validating single records, relative to iterating over them."""
REBUILDING_COST: Final = WALKED_BYTES_MAX // LOOKED_THROUGH_BYTES_MAX
"""The cost of rebuilding all records, relative to iterating over them."""
FIRST_VERSION_OF_FORMAT_2: Final = 3
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
BEGINNING: Final = 0
"""Placeholder offset and epoch of rebuilt records; the real ones are set on append, as for a
producer's own batch.
"""
ValidatedRecords = dict[int, tuple[AppendRules, ExaminedBatch | ConvertedRecords]]
"""Key: identity of a row of the request, which keeps the row alive.

Value: the rules used for validation, and its result.
"""


class ValidatingBroker(HostingBroker, ImageBroker, RunningBroker, Protocol):
    """A broker that validates produced records."""


def topic_name(broker: ValidatingBroker, topic: TopicProduceData, version: int) -> str | None:
    """Return the name of a topic; None for an id that is not known."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    known = broker.image.topic_by_id(topic.topic_id)
    return None if known is None else known.name


def validated_by(
    examined: ValidatedRecords, data: PartitionProduceData, rules: AppendRules
) -> ExaminedBatch | ConvertedRecords | None:
    """Return the validation result of a row; None if the rules differ, because the topic's
    configuration has changed since.
    """
    found = examined.get(id(data))
    return None if found is None or found[0] != rules else found[1]


def must_validate_aside(broker: ValidatingBroker, request: ProduceRequest, version: int) -> bool:
    """Return whether validating the records of a request may take longer than one may block the
    event loop.
    """
    rows = [data.records for topic in request.topic_data for data in topic.partition_data]
    if version < FIRST_VERSION_OF_FORMAT_2:
        size_bytes = sum(0 if records is None else len(records) for records in rows)
        return size_bytes > LOOKED_THROUGH_BYTES_MAX or takes_long(
            b"".join(records for records in rows if records)
        )
    held_bytes = walked_bytes = estimated_bytes = 0
    for records in rows:
        held, walked = produced_work(records)
        held_bytes += held
        walked_bytes += walked
        estimated_bytes += believed_bytes(records)
    if walked_bytes > WALKED_BYTES_MAX or estimated_bytes > BELIEVED_BYTES_MAX:
        return True
    return (
        held_bytes > LOOKED_THROUGH_BYTES_MAX and _cost(broker, request, version) > WALKED_BYTES_MAX
    )


def _cost(broker: ValidatingBroker, request: ProduceRequest, version: int) -> int:
    """Return the cost of validating the records by the rules of their topics, in bytes that could
    be iterated in the same time.
    """
    cost = 0
    for _, data, hosted in _hosted_rows(broker, request, version):
        held, walked = produced_work(data.records)
        if hosted.replica.rules.compression is not None:
            cost += held * REBUILDING_COST
        else:
            cost += (
                walked * SINGLE_RECORDS_COST if hosted.replica.rules.validates_records else walked
            )
    return cost


def _hosted_rows(
    broker: ValidatingBroker, request: ProduceRequest, version: int
) -> Iterator[tuple[str, PartitionProduceData, HostedPartition]]:
    """Yield the rows of partitions hosted here; all others are rejected without validating their
    records.
    """
    for topic in request.topic_data:
        name = topic_name(broker, topic, version)
        for data in topic.partition_data if name is not None else ():
            hosted = broker.partitions.find(name or "", data.index)
            if hosted is not None:
                yield f"{name}-{data.index}", data, hosted


async def validate_records(
    broker: ValidatingBroker, request: ProduceRequest, version: int, now_ms: int
) -> ValidatedRecords:
    """Validate the records of a request; the result has their errors, and the rebuilt records where
    they are rebuilt.

    Batches that are too large are rejected without validating their records. All bytes are copied,
    because they outlive the receive buffer.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None if data.records is None else bytes(data.records)
    found: ValidatedRecords = {}
    rows: list[_Row] = []
    held_bytes = 0
    for name, data, hosted in list(_hosted_rows(broker, request, version)):
        place = LogPlace(
            base_offset=BEGINNING, leader_epoch=BEGINNING, now_ms=now_ms, topic_partition=name
        )
        rows.append(_Row(id(data), data.records, hosted.replica.rules, place))
        held_bytes += produced_work(data.records)[0]
        if held_bytes > WALKED_BYTES_MAX:  # other requests use the thread, too
            found.update(await _aside(broker, rows, version))
            rows, held_bytes = [], 0
    found.update(await _aside(broker, rows, version))
    return found


async def _aside(
    broker: ValidatingBroker, rows: Sequence["_Row"], version: int
) -> ValidatedRecords:
    def look() -> ValidatedRecords:
        process_entries = ((row, _validated(row, version)) for row in rows)
        return {
            row.identity: (row.rules, examined)
            for row, examined in process_entries
            if examined is not None
        }

    return await broker.world.aside(look) if rows else {}


class _Row(NamedTuple):
    identity: int
    records: bytes | memoryview | None
    rules: AppendRules
    place: LogPlace


def _validated(row: _Row, version: int) -> ExaminedBatch | ConvertedRecords | None:
    """Validate the records of one partition; None if there is nothing to validate.

    Touches no shared state, so that a thread may run it.
    """
    rules, place = row.rules, row.place
    if version < FIRST_VERSION_OF_FORMAT_2:
        unchecked = UncheckedRecords(row.records or b"")
        return ConvertedRecords(unchecked, converted_records(unchecked.data, rules, place))
    batch = client_batch(row.records, version)
    return (
        None
        if isinstance(batch, Refusal)
        else ExaminedBatch(batch, checked_batch(batch, rules, place))
    )
