"""Faults of the remote store: each takes effect, loses no acknowledged record, and leaves nothing
once it is healed.
"""

import pytest

from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import AtTime, Fault, Value
from kraftsim.lab.faults.injection import Injection
from kraftsim.partitions.rules_follower import TruncateTo
from kraftsim.tiered_storage.events import RebuiltFromRemote, RemoteCopyFinished, RemoteCopyStarted
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.tiered_storage.harness import LOCATION, TOPIC, TieredHarness

KINDS: list[tuple[str, dict[str, Value]]] = [
    ("slow-store", {"delay_ms": 700}),
    ("failing-store", {"permille": 600}),
    ("half-copied-segment", {"ending": ".snapshot"}),
    ("lost-object", {"ending": ".log"}),
    ("lost-object", {"ending": ".snapshot"}),
    ("snapshot-of-another-segment", {}),
]


def inject(harness: TieredHarness, kind: str, params: dict[str, Value]) -> Injection:
    """Fire a fault now, until it is ended."""
    at_ms = harness.simulation.now_ns // 1_000_000 + 1
    injection = arm(
        Fault(
            kind=kind,
            target="all",
            trigger=AtTime(at_ms=at_ms),
            params={"duration_ms": 600_000, **params},
        ),
        harness.simulation,
    )
    harness.wait(0.1)
    return injection


@pytest.mark.parametrize(("kind", "params"), KINDS)
def test_acknowledged_records_are_readable_once_the_store_recovers(
    kind: str, params: dict[str, Value]
) -> None:
    """Writers continue meanwhile, copies wait, a follower restarts its log; then every record is
    read, local or remote, and the follower can lead.
    """
    with TieredHarness() as harness:
        harness.create_topic()
        for index in range(6):
            harness.produce(1, producer_id=index)
        harness.wait(6)
        injection = inject(harness, kind, params)
        for index in range(6, 12):
            assert harness.produce(1, producer_id=index)[0] is ErrorCode.NONE
        harness.set_replicas(1, 2)
        harness.wait(6)
        harness.fetch(1, 0)
        injection.end()
        assert injection.is_effective
        harness.wait(12)
        assert [batch.base_offset for batch in harness.read_all(1)] == list(range(12))
        assert harness.hosted(2).replica.log_end_offset == 12
        assert harness.hosted(1).replica.remote_end_offset >= 9
        harness.simulation.kill("broker-1")
        harness.wait(5)
        assert [batch.base_offset for batch in harness.read_all(2)] == list(range(12))


def test_snapshot_of_a_later_segment_is_rejected() -> None:
    """It names batches that the earlier segments do not have; one of an earlier segment is
    indistinguishable from the right one, in Kafka as well.
    """
    with TieredHarness() as harness:
        harness.create_topic()
        for index in range(9):
            harness.produce(1, producer_id=index)
        harness.wait(8)
        snapshots = sorted(
            (key for key in harness.store.contents if key.endswith(".snapshot")),
            key=lambda key: int(key.rpartition("/")[2].partition("-")[0]),
        )
        last_copied = snapshots[-1]
        right = harness.store.contents[last_copied]
        harness.produce(1, producer_id=50)
        harness.produce(1, producer_id=51)
        harness.wait(0.1)
        taken = [
            harness.hosted(1).log.file_of_segment(offset, ".snapshot")
            for offset in harness.hosted(1).snapshots.offsets
        ]
        later = next(each for each in reversed(taken) if each is not None and each != right)
        for key in snapshots:
            harness.store.contents[key] = later
        harness.set_replicas(1, 2)
        harness.wait(5)
        assert (
            harness.of(RebuiltFromRemote) == [] or harness.hosted(2).replica.local_start_offset > 8
        )


def test_stale_listings_have_no_effect() -> None:
    """The metadata topic alone decides what is in the store, never a listing (KIP-405)."""
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        harness.wait(1)
        injection = inject(harness, "stale-store-listing", {})
        for _ in range(9):
            harness.produce(1)
        harness.wait(8)
        assert [batch.base_offset for batch in harness.read_all(1)] == list(range(9))
        listed = harness.run(harness.broker(1).world.objects(LOCATION, {}).list(""))
        assert listed == [] and injection.is_effective


@pytest.mark.parametrize(
    ("ending", "damage", "error"),
    [
        (".index", b"odd", ErrorCode.UNKNOWN_SERVER_ERROR),
        (".log", b"\xff" * 8192, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["index", "log"],
)
def test_damaged_object_fails_only_its_reads(ending: str, damage: bytes, error: ErrorCode) -> None:
    """Other parts of the log are read normally."""
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        for _ in range(9):
            harness.produce(1)
        harness.wait(8)
        first_offset = harness.hosted(1).replica.local_start_offset
        assert first_offset > 1
        whole = dict(harness.store.contents)
        harness.store.contents.update({key: damage for key in whole if key.endswith(ending)})
        assert harness.fetch(1, 1).error_code == error
        assert [batch.base_offset for batch in harness.read_all(1, first_offset)] == list(
            range(first_offset, 9)
        )
        harness.store.contents.update(whole)
        assert [batch.base_offset for batch in harness.read_all(1)] == list(range(9))


def test_copy_completed_after_a_truncation_does_not_count() -> None:
    """Otherwise retention could delete local segments that exist nowhere else: the copy in the
    store is of another history.
    """
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        harness.wait(1)
        inject(harness, "slow-store", {"delay_ms": 3000})
        for _ in range(6):
            harness.produce(1)
        while not harness.of(RemoteCopyStarted):
            harness.wait(0.1)
        assert not harness.of(RemoteCopyFinished)
        hosted = harness.hosted(1)
        (started,) = harness.of(RemoteCopyStarted)
        assert isinstance(started, RemoteCopyStarted)
        hosted.replica.resign()
        hosted.truncate(TruncateTo(started.first_offset))
        while not harness.of(RemoteCopyFinished):
            harness.wait(0.1)
        harness.wait(4)
        assert hosted.replica.log_end_offset == started.first_offset <= started.last_offset
        assert hosted.replica.remote_end_offset < hosted.replica.log_end_offset


def test_truncated_segments_are_not_copied_after_earlier_ones() -> None:
    """A broker that became follower and leader again during one copy continues with its current
    log.
    """
    with TieredHarness(
        brokers=1, settings={"remote.log.manager.task.interval.ms": "10000"}
    ) as harness:
        harness.create_topic()
        inject(harness, "slow-store", {"delay_ms": 3000})
        for _ in range(8):
            harness.produce(1)
        assert not harness.of(RemoteCopyStarted), "all segments are due at once"
        while not harness.of(RemoteCopyStarted):
            harness.wait(0.1)
        hosted = harness.hosted(1)
        (started,) = harness.of(RemoteCopyStarted)
        assert isinstance(started, RemoteCopyStarted)
        hosted.truncate(TruncateTo(started.last_offset + 1))
        harness.wait(25)
        assert (
            hosted.replica.remote_end_offset
            < hosted.replica.log_end_offset
            == started.last_offset + 1
        )
        assert [
            each.first_offset
            for each in harness.of(RemoteCopyStarted)
            if isinstance(each, RemoteCopyStarted)
        ] == [started.first_offset]


def test_damaged_index_fails_only_its_partition() -> None:
    """Other partitions of the same ListOffsets are answered."""
    with TieredHarness(brokers=1) as harness:
        harness.create_topic()
        harness.create_topic(topic="whole")
        for _ in range(9):
            harness.produce(1)
        harness.wait(8)
        assert harness.hosted(1).replica.local_start_offset > 1
        harness.store.contents.update(
            {key: b"odd" for key in harness.store.contents if key.endswith(".timeindex")}
        )
        topics = [
            ListOffsetsTopic(
                name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=0)]
            )
            for name in (TOPIC, "whole")
        ]
        answer = harness.ask(1, ListOffsetsRequest(replica_id=-1, topics=topics), 9)
        assert isinstance(answer, ListOffsetsResponse)
        errors = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        assert errors == {TOPIC: ErrorCode.UNKNOWN_SERVER_ERROR, "whole": ErrorCode.NONE}
