"""No client blocks the loop with records that take long to read, whichever request reads them: a
thread does.

A small block may decompress to very much. Each path that decompresses client data is tested with
such a block, and with many records.
"""

import asyncio
import gzip
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import pytest

from kraftsim.partitions.log_cleaner import CleaningPace
from kraftsim.partitions.log_reading import LogGate
from kraftsim.partitions.record_validation import WALKED_BYTES_MAX
from kraftsim.partitions.rules_reading import (
    BELIEVED_BYTES_MAX,
    LOOKED_THROUGH_BYTES_MAX,
    batch_work,
    produced_work,
    takes_long,
)
from kraftsim.server.events import CleaningFailed, LogCleaned
from kraftsim.world.simulated.world import SimulatedWorld
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.k02_list_offsets import (
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest
from protocol.messages.k33_alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from protocol.records import batches, message_sets
from protocol.records.batches import HEADER_SIZE_BYTES, RecordBatch, TimestampType, build_batch
from protocol.records.message_sets import build_message_set, open_batch, split_any_batches
from protocol.records.record import (
    GZIP_RATIO_MAX,
    Compression,
    Record,
    decompress,
    decompress_in_pieces,
)
from tests.core.batches import doctored
from tests.node.brokers import NOW, Client, batch, running_cluster

T = TypeVar("T")
CODECS = [each for each in Compression if each is not Compression.NONE]
OLD_CODECS = [each for each in CODECS if each is not Compression.ZSTD]
PLAIN_BYTES = 3 << 20
COUNT = 12
ROOM = {"max_message_bytes": str(16 << 20)}


class Watch:
    """Where blocks were decompressed and records built, and the maximum number of bytes."""

    def __init__(self) -> None:
        self.is_aside = False
        self.calls = 0
        self.seconds = 0.2
        """The time a thread takes."""
        self.on_loop_bytes = 0
        self.in_turn_bytes = 0
        """The maximum decompressed in one turn of the loop."""
        self._this_turn_bytes = 0

    def saw(self, size_bytes: int) -> None:
        """Count a decompression."""
        if not self.is_aside:
            self.on_loop_bytes = max(self.on_loop_bytes, size_bytes)
            if not self._this_turn_bytes:
                try:
                    asyncio.get_running_loop().call_soon(self._end_turn)
                except RuntimeError:
                    return  # the test itself reads records
            self._this_turn_bytes += size_bytes
            self.in_turn_bytes = max(self.in_turn_bytes, self._this_turn_bytes)

    def _end_turn(self) -> None:
        self._this_turn_bytes = 0


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Observe each way to decompress a block, and `aside`."""
    found = Watch()
    aside = SimulatedWorld.aside

    def watched(*args: Any) -> bytes:
        plain = decompress(*args)
        found.saw(len(plain))
        return plain

    def watched_pieces(*args: Any) -> Iterator[bytes]:
        size_bytes = 0
        for piece in decompress_in_pieces(*args):
            size_bytes += len(piece)
            found.saw(size_bytes)
            yield piece

    async def watched_aside(world: SimulatedWorld, work: Callable[[], T]) -> T:
        def marked() -> T:
            found.is_aside = True
            try:
                return work()
            finally:
                found.is_aside = False

        found.calls += 1
        await asyncio.sleep(found.seconds)
        return await aside(world, marked)

    monkeypatch.setattr(batches, "decompress", watched)
    monkeypatch.setattr(message_sets, "decompress", watched)
    monkeypatch.setattr(batches, "decompress_in_pieces", watched_pieces)
    monkeypatch.setattr(SimulatedWorld, "aside", watched_aside)
    return found


def large(codec: Compression, count: int = COUNT, first: int = 0) -> bytes:
    """Return a small batch that decompresses to much."""
    records = [
        Record(
            timestamp=NOW + index,
            key=b"key-%d" % (index + first),
            value=bytes(PLAIN_BYTES // count),
        )
        for index in range(count)
    ]
    return build_batch(records, compression=codec)


def old(codec: Compression, count: int = COUNT) -> bytes:
    """Return the same as a message set."""
    records = [
        Record(offset=index, timestamp=NOW + index, key=b"key", value=bytes(PLAIN_BYTES // count))
        for index in range(count)
    ]
    return build_message_set(records, magic=1, compression=codec)


@pytest.mark.parametrize("codec", CODECS)
def test_produce_batch_is_decompressed_in_a_thread(watch: Watch, codec: Compression) -> None:
    """And appended unchanged."""
    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t", configs=ROOM))
        row = cluster.run(lambda client: client.produce(large(codec)))
        assert (row.error_code, row.base_offset) == (0, 0)
    assert watch.calls and watch.on_loop_bytes == 0


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_produce_v2_message_set_is_converted_in_a_thread(watch: Watch, codec: Compression) -> None:
    """Its records get the next offsets of the log."""

    async def twice(client: Client) -> list[tuple[int, int]]:
        answers = [await client.produce(old(codec), version=2, acks=1) for _ in range(2)]
        return [(each.error_code, each.base_offset) for each in answers]

    with running_cluster(release_name="3.9") as cluster:
        cluster.run(lambda client: client.create_topic("t", configs=ROOM))
        assert cluster.run(twice) == [(0, 0), (0, COUNT)]
        there = RecordBatch(bytes(cluster.run(lambda client: client.fetch(COUNT)).records or b""))
        assert (there.base_offset, there.last_offset) == (COUNT, 2 * COUNT - 1)
    assert watch.calls and watch.on_loop_bytes == 0


@pytest.mark.parametrize("codec", CODECS)
def test_batch_is_recompressed_to_the_topics_codec_in_a_thread(
    watch: Watch, codec: Compression
) -> None:
    """From another codec, and from no compression."""
    kept = Compression.LZ4 if codec is not Compression.LZ4 else Compression.GZIP
    with running_cluster() as cluster:
        cluster.run(
            lambda client: client.create_topic(
                "t", compression_type=kept.name.lower(), configs=ROOM
            )
        )
        for first_offset, sent in ((0, codec), (COUNT, Compression.NONE)):
            # misc: mypy infers no type for a lambda with a default
            row = cluster.run(lambda client, sent=sent: client.produce(large(sent)))  # type: ignore[misc]
            assert (row.error_code, row.base_offset) == (0, first_offset)
            calls, watch.calls = watch.calls, 0
            assert calls, "a thread rebuilds it"
        there = RecordBatch(bytes(cluster.run(lambda client: client.fetch(COUNT)).records or b""))
        assert there.compression is kept and there.base_offset == COUNT
        assert [record.offset for record in there.records()] == list(range(COUNT, 2 * COUNT))
    assert watch.on_loop_bytes == 0 or not watch.calls


@pytest.mark.parametrize("version", [2, 11])
def test_records_are_validated_by_the_config_at_append_time(watch: Watch, version: int) -> None:
    """A topic that became compacted after a thread validated the records rejects those without a
    key.
    """
    watch.seconds = 5
    records = [
        Record(timestamp=NOW + index, value=bytes(PLAIN_BYTES // COUNT)) for index in range(COUNT)
    ]
    sent = build_batch(records, compression=Compression.GZIP)
    if version == 2:
        old_records = [
            Record(offset=index, timestamp=NOW, value=bytes(PLAIN_BYTES // COUNT))
            for index in range(COUNT)
        ]
        sent = build_message_set(old_records, magic=1, compression=Compression.GZIP)

    with running_cluster(release_name="3.9") as cluster:

        async def both(client: Client) -> int:
            produced = asyncio.ensure_future(client.produce(sent, version=version, acks=1))
            await asyncio.sleep(1)
            other = await cluster.connect()
            configs = [
                AlterableConfig(name="cleanup.policy", value="compact"),
                AlterableConfig(name="max.message.bytes", value=str(16 << 20)),
            ]
            compacted = AlterConfigsResource(
                resource_type=ConfigResourceType.TOPIC, resource_name="t", configs=configs
            )
            answer = await other.ask(AlterConfigsRequest(resources=[compacted]))
            assert answer.responses[0].error_code == 0
            other.connection.close()
            assert not produced.done()
            return (await produced).error_code

        cluster.run(lambda client: client.create_topic("t", configs=ROOM))
        assert cluster.run(both) == ErrorCode.INVALID_RECORD
    assert watch.calls


def searching(timestamps: list[int], version: int = 7) -> Callable[[Client], Any]:
    async def search(client: Client) -> list[tuple[int, int, int]]:
        partitions = [
            ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            for index, timestamp in enumerate(timestamps)
        ]
        answer = await client.ask(
            ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)]
            ),
            version,
        )
        return [
            (each.error_code, each.offset, each.timestamp) for each in answer.topics[0].partitions
        ]

    return search


@pytest.mark.parametrize("codec", CODECS)
def test_search_by_timestamp_decompresses_in_a_thread(watch: Watch, codec: Compression) -> None:
    """It finds what a search on the event loop finds, and other partitions of the request are
    answered normally.
    """

    async def fill(client: Client) -> None:
        for index in range(2):
            assert not (await client.produce(large(codec), partition=index)).error_code
        assert not (
            await client.produce(batch(3, timestamp=NOW + 7, compression=codec), partition=2)
        ).error_code

    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t", 4, configs=ROOM))
        cluster.run(fill)
        watch.calls = watch.on_loop_bytes = 0
        found = cluster.run(searching([NOW + 5, MAX_TIMESTAMP, NOW + 8, NOW]))
        assert found == [
            (0, 5, NOW + 5),
            (0, COUNT - 1, NOW + COUNT - 1),
            (0, 1, NOW + 8),
            (0, -1, -1),
        ]
    assert watch.calls == 2 and watch.on_loop_bytes <= LOOKED_THROUGH_BYTES_MAX


def test_search_in_a_topic_deleted_meanwhile_is_rejected(watch: Watch) -> None:
    """Like one that arrives after the deletion."""
    watch.seconds = 5

    async def delete_meanwhile(client: Client) -> list[tuple[int, int, int]]:
        assert not (await client.produce(large(Compression.GZIP))).error_code
        searched = asyncio.ensure_future(searching([NOW + 5])(client))
        await asyncio.sleep(0.1)
        other = await cluster.connect()
        deleted = await other.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert [each.error_code for each in deleted.responses] == [0]
        other.connection.close()
        return list(await searched)

    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t", configs=ROOM))
        assert cluster.run(delete_meanwhile) == [
            (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1, -1)
        ]


def test_search_continues_in_a_log_that_rolls_segments_meanwhile(watch: Watch) -> None:
    """Two batches claim later timestamps than they have; the matching record arrives while they are
    read.
    """
    claiming = b"".join(
        RecordBatch(large(Compression.GZIP)).with_max_timestamp(
            0, 0, TimestampType.CREATE_TIME, NOW + 10_000
        )
    )
    watch.seconds = 5

    async def produce_meanwhile(client: Client) -> list[tuple[int, int, int]]:
        for _ in range(2):
            assert not (await client.produce(claiming)).error_code
        searched = asyncio.ensure_future(searching([NOW + 5000])(client))
        await asyncio.sleep(0.1)
        other = await cluster.connect()
        for timestamp in (NOW, NOW + 5000):
            assert not (
                await other.produce(batch(1, timestamp=timestamp, value=bytes(900)))
            ).error_code
        other.connection.close()
        return list(await searched)

    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t", segment_bytes="30000", configs=ROOM))
        found = cluster.run(produce_meanwhile)
        assert found in (
            [(0, 2 * COUNT + 1, NOW + 5000)],
            [(0, -1, -1)],
        )  # the end offset at the time of the request counts
    assert watch.calls >= 4


@pytest.mark.parametrize("version", [0, 2, 3])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_records_are_down_converted_in_a_thread(
    watch: Watch, codec: Compression, version: int
) -> None:
    """Old consumers get whole messages."""

    async def fetch(client: Client) -> bytes:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=8 << 20,
            topics=[FetchTopic(topic="t", partitions=[partition])],
        )
        answer = await client.ask(request, version)
        return bytes(answer.responses[0].partitions[0].records)

    with running_cluster(release_name="3.9") as cluster:
        cluster.run(lambda client: client.create_topic("t", configs=ROOM))
        assert not cluster.run(lambda client: client.produce(large(codec))).error_code
        watch.calls = watch.on_loop_bytes = 0
        fetched = cluster.run(fetch)
        assert watch.calls and watch.on_loop_bytes == 0
    assert [
        record.offset for each in split_any_batches(fetched) for record in each.records()
    ] == list(range(COUNT))


@pytest.mark.parametrize("codec", CODECS)
def test_log_is_compacted_in_a_thread(watch: Watch, codec: Compression) -> None:
    """The result has the latest value of each key, once."""

    async def fill(client: Client) -> None:
        for _ in range(3):
            assert not (await client.produce(large(codec))).error_code
        assert not (await client.produce(batch(1))).error_code

    segment_bytes = str(len(large(codec)) + 100)
    with running_cluster(settings={"log.cleaner.backoff.ms": "1000"}) as cluster:
        cluster.run(
            lambda client: client.create_topic(
                "t",
                cleanup_policy="compact",
                segment_bytes=segment_bytes,
                min_cleanable_dirty_ratio="0.01",
                configs=ROOM,
            )
        )
        cluster.run(fill)
        watch.on_loop_bytes = 0
        cluster.simulation.run_until(
            lambda: bool(cluster.emitted(LogCleaned) or cluster.emitted(CleaningFailed)), limit_s=60
        )
        cleaned = cluster.emitted(LogCleaned)[-1]
        assert cleaned.kept_records < cleaned.read_records
    assert watch.on_loop_bytes == 0


def lying() -> bytes:
    """Return a gzip batch that contains a megabyte but claims a hundred bytes; its checksum is
    valid.
    """
    honest = RecordBatch(
        build_batch([Record(timestamp=NOW, value=bytes(1 << 20))], compression=Compression.GZIP)
    )
    body = bytes(honest.view()[HEADER_SIZE_BYTES:])
    return bytes(doctored(honest, records=body[:-4] + (100).to_bytes(4, "little")).view())


def test_small_blocks_with_a_false_size_are_decompressed_in_a_thread(watch: Watch) -> None:
    """One of them is trusted; many in one request are not, whatever size they claim."""
    records = lying()
    assert len(records) < BELIEVED_BYTES_MAX and produced_work(records)[0] < 200
    count = BELIEVED_BYTES_MAX // len(records) + 1
    rows = [PartitionProduceData(index=0, records=records) for _ in range(count)]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=rows)]
    )
    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t", configs=ROOM))
        answer = cluster.run(lambda client: client.ask(request, 11))
        assert {row.error_code for row in answer.responses[0].partition_responses} == {
            int(ErrorCode.UNKNOWN_SERVER_ERROR)
        }
    assert watch.calls and watch.on_loop_bytes == 0


def understating(max_timestamp: int = NOW) -> bytes:
    """Return a valid gzip batch that contains 3 MB but appears to be empty: its last member is
    empty, and only that one has a size.
    """
    honest = RecordBatch(
        build_batch(
            [Record(timestamp=NOW, key=b"key", value=bytes(PLAIN_BYTES))],
            compression=Compression.GZIP,
        )
    )
    body = bytes(honest.view()[HEADER_SIZE_BYTES:]) + gzip.compress(b"")
    padded = RecordBatch(bytes(doctored(honest, records=body).view()))
    return b"".join(padded.with_max_timestamp(0, 0, TimestampType.CREATE_TIME, max_timestamp))


def test_search_trusts_a_limited_number_of_small_blocks_per_turn(watch: Watch) -> None:
    """Each of them claims a later timestamp than it has, so that all are read."""
    records, count = understating(NOW + 10_000), 10
    assert count * len(records) > 3 * BELIEVED_BYTES_MAX and produced_work(records)[0] < 200

    async def fill(client: Client) -> None:
        for _ in range(count):
            assert not (await client.produce(records)).error_code

    with running_cluster() as cluster:
        cluster.run(lambda client: client.create_topic("t", configs=ROOM))
        cluster.run(fill)
        watch.in_turn_bytes = 0
        assert cluster.run(searching([NOW + 5000])) == [(0, -1, -1)]
    assert PLAIN_BYTES < watch.in_turn_bytes <= BELIEVED_BYTES_MAX * GZIP_RATIO_MAX


def test_cleaner_yields_between_small_blocks() -> None:
    """Per turn of the event loop it reads no more of them than the trusted number."""
    found = RecordBatch(understating())
    turns = 0
    looked_in_turn: dict[int, int] = {}

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def look() -> None:
        looked_in_turn[turns] = looked_in_turn.get(turns, 0) + found.size_bytes

    async def clean() -> None:
        counting = asyncio.ensure_future(count_turns())
        await asyncio.sleep(0)
        pace = CleaningPace(cast(SimulatedWorld, None), LogGate(), 1e300)
        for _ in range(20):
            await pace.through(found, look)
            await pace.spend(found.size_bytes)
        counting.cancel()

    asyncio.run(clean())
    assert sum(looked_in_turn.values()) == 20 * found.size_bytes
    assert max(looked_in_turn.values()) <= BELIEVED_BYTES_MAX + found.size_bytes


def test_work_estimate_includes_the_number_of_records() -> None:
    """A batch whose header claims a million records may contain them, whatever its size."""
    many = build_batch([Record(timestamp=NOW) for _ in range(200_000)])
    held, walked = produced_work(many)
    assert held == len(many) and walked > WALKED_BYTES_MAX
    few = build_batch([Record(timestamp=NOW, value=bytes(1 << 20))])
    assert produced_work(few)[1] < 10
    announcing = bytearray(build_batch([Record(timestamp=NOW)], compression=Compression.GZIP))
    announcing[57:61] = (1 << 20).to_bytes(4)
    assert produced_work(bytes(announcing))[1] > WALKED_BYTES_MAX


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_work_estimate_of_messages_includes_wrapped_ones(codec: Compression) -> None:
    """Also if the wrapper is not the first message."""
    wrapper = old(codec)
    assert batch_work(open_batch(wrapper)) >= PLAIN_BYTES
    plain = build_message_set([Record(offset=0, timestamp=NOW, value=b"v")], magic=1)
    assert takes_long(plain + wrapper) and not takes_long(plain)
    assert not takes_long(b"") and not takes_long(b"\xff" * 100)
