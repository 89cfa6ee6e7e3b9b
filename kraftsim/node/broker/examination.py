"""Records of a Produce request that take long to look through: a thread does it, and the loop serves others meanwhile.

That is: unpacking them, checking single records, rebuilding them in the codec of their topic, and converting message sets of Produce 0 to 2.
Apache Kafka does so in one of its request handler threads.   Source: org.apache.kafka.storage.internals.log.LogValidator.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kraftsim.core.decision import Refusal
from kraftsim.core.partitions.batch_rules import AppendRules, ExaminedBatch, client_batch, refuse_records
from kraftsim.core.partitions.record_conversion import ConvertedRecords, LogPlace, UncheckedRecords, converted, recompressed
from kraftsim.core.partitions.record_work import BELIEVED_BYTES_MAX, LOOKED_THROUGH_BYTES_MAX, believed_bytes, produced_work, takes_long
from kraftsim.node.broker.hosted_partition import HostedPartition
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

WALKED_BYTES_MAX: Final = 1 << 20
"""So much is unpacked and walked over on the loop for one request: 2 to 5 ms with gzip, and up to 40 ms for records as short as can be."""
SINGLE_RECORDS_COST: Final = 4
"""How many times as long it takes to check single records as to walk over them."""
REBUILDING_COST: Final = WALKED_BYTES_MAX // LOOKED_THROUGH_BYTES_MAX
"""The same of building all of them anew."""
FIRST_VERSION_OF_FORMAT_2: Final = 3
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
BEGINNING: Final = 0
"""Of a log: records are rebuilt for this offset and epoch, and get their real ones when they are appended, as a producer's own batch does."""
Examined = dict[int, tuple[AppendRules, ExaminedBatch | ConvertedRecords]]
"""By the identity of the rows of the request, which holds them meanwhile: by which rules records were looked at, and what came of it."""


def topic_name(broker: "Broker", topic: TopicProduceData, version: int) -> str | None:
    """Return the name of a topic; None for an id that is not known."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    known = broker.image.topic_by_id(topic.topic_id)
    return None if known is None else known.name


def examined_by(examined: Examined, data: PartitionProduceData, rules: AppendRules) -> ExaminedBatch | ConvertedRecords | None:
    """Return what came of a look at the records of a row. What was looked at by other rules counts for nothing: the topic was changed meanwhile."""
    found = examined.get(id(data))
    return None if found is None or found[0] != rules else found[1]


def must_be_examined(broker: "Broker", request: ProduceRequest, version: int) -> bool:
    """Tell whether the records of a request may take longer than they may hold the loop."""
    rows = [data.records for topic in request.topic_data for data in topic.partition_data]
    if version < FIRST_VERSION_OF_FORMAT_2:
        size_bytes = sum(0 if records is None else len(records) for records in rows)
        return size_bytes > LOOKED_THROUGH_BYTES_MAX or takes_long(b"".join(records for records in rows if records))
    held_bytes = walked_bytes = believed = 0
    for records in rows:
        held, walked = produced_work(records)
        held_bytes += held
        walked_bytes += walked
        believed += believed_bytes(records)
    if walked_bytes > WALKED_BYTES_MAX or believed > BELIEVED_BYTES_MAX:
        return True
    return held_bytes > LOOKED_THROUGH_BYTES_MAX and _cost(broker, request, version) > WALKED_BYTES_MAX


def _cost(broker: "Broker", request: ProduceRequest, version: int) -> int:
    """Return the bytes that could be walked over in the time that the records take with the rules of their topics."""
    cost = 0
    for _, data, hosted in _hosted_rows(broker, request, version):
        held, walked = produced_work(data.records)
        if hosted.replica.rules.compression is not None:
            cost += held * REBUILDING_COST
        else:
            cost += walked * SINGLE_RECORDS_COST if hosted.replica.rules.looks_into_records else walked
    return cost


def _hosted_rows(broker: "Broker", request: ProduceRequest, version: int) -> Iterator[tuple[str, PartitionProduceData, HostedPartition]]:
    """Yield the rows of partitions that are here: all others are refused without a look at their records."""
    for topic in request.topic_data:
        name = topic_name(broker, topic, version)
        for data in topic.partition_data if name is not None else ():
            hosted = broker.partitions.find(name or "", data.index)
            if hosted is not None:
                yield f"{name}-{data.index}", data, hosted


async def examine(broker: "Broker", request: ProduceRequest, version: int, now_ms: int) -> Examined:
    """Return the records of a request with what they are refused for, and as they go into the log where they are built anew.

    Batches that are too large are refused without a look at their records. All bytes are copied, because they wait longer than the buffer that they
    came in.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None if data.records is None else bytes(data.records)
    found: Examined = {}
    rows: list[_Row] = []
    held_bytes = 0
    for name, data, hosted in list(_hosted_rows(broker, request, version)):
        place = LogPlace(base_offset=BEGINNING, leader_epoch=BEGINNING, now_ms=now_ms, topic_partition=name)
        rows.append(_Row(id(data), data.records, hosted.replica.rules, place))
        held_bytes += produced_work(data.records)[0]
        if held_bytes > WALKED_BYTES_MAX:  # others use the thread, too
            found.update(await _aside(broker, rows, version))
            rows, held_bytes = [], 0
    found.update(await _aside(broker, rows, version))
    return found


async def _aside(broker: "Broker", rows: Sequence["_Row"], version: int) -> Examined:
    def look() -> Examined:
        looked_at = ((row, _examined(row, version)) for row in rows)
        return {row.identity: (row.rules, examined) for row, examined in looked_at if examined is not None}

    return await broker.world.aside(look) if rows else {}


class _Row(NamedTuple):
    identity: int
    records: bytes | memoryview | None
    rules: AppendRules
    place: LogPlace


def _examined(row: _Row, version: int) -> ExaminedBatch | ConvertedRecords | None:
    """Look at the records of one partition; None if there is nothing to look at. It depends on nothing else, so that a thread may do it."""
    rules, place = row.rules, row.place
    if version < FIRST_VERSION_OF_FORMAT_2:
        unchecked = UncheckedRecords(row.records or b"")
        return ConvertedRecords(unchecked, converted(unchecked, rules, place))
    batch = client_batch(row.records, version)
    if isinstance(batch, Refusal) or batch.size_bytes > rules.max_message_bytes or not batch.crc_is_valid():
        return None
    refusal = refuse_records(batch, rules, place.now_ms, place.topic_partition)
    return ExaminedBatch(batch, refusal, recompressed(batch, rules, place) if refusal is None and rules.recompresses(batch) else None)
