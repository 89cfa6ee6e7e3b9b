"""Faults of the remote store: each changes an outcome, takes nothing that was acknowledged, and leaves nothing once it is healed."""

import pytest

from kraftsim.core.partitions.following import CutTo
from kraftsim.events.tiered_storage import RebuiltFromRemote, RemoteCopyFinished, RemoteCopyStarted
from kraftsim.faults.arm import arm
from kraftsim.faults.fault import Fault, Value
from kraftsim.faults.strike import Strike
from kraftsim.faults.trigger import AtTime
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from tests.tiered_storage.lab import LOCATION, TOPIC, TieredLab

KINDS: list[tuple[str, dict[str, Value]]] = [
    ("slow-store", {"delay_ms": 700}),
    ("failing-store", {"permille": 600}),
    ("half-copied-segment", {"ending": ".snapshot"}),
    ("lost-object", {"ending": ".log"}),
    ("lost-object", {"ending": ".snapshot"}),
    ("snapshot-of-another-segment", {}),
]


def strike(lab: TieredLab, kind: str, params: dict[str, Value]) -> Strike:
    """Let a fault go off now, and go on until it is ended."""
    at_ms = lab.simulation.now_ns // 1_000_000 + 1
    struck = arm(Fault(kind=kind, target="all", trigger=AtTime(at_ms=at_ms), params={"duration_ms": 600_000, **params}), lab.simulation)
    lab.wait(0.1)
    return struck


@pytest.mark.parametrize(("kind", "params"), KINDS)
def test_what_was_acknowledged_is_there_once_the_store_is_well(kind: str, params: dict[str, Value]) -> None:
    """Writers go on meanwhile, copies wait, a follower begins anew; then every record is read, wherever it lies, and the follower can lead."""
    with TieredLab() as lab:
        lab.create_topic()
        for index in range(6):
            lab.produce(1, producer_id=index)
        lab.wait(6)
        struck = strike(lab, kind, params)
        for index in range(6, 12):
            assert lab.produce(1, producer_id=index)[0] is ErrorCode.NONE
        lab.set_replicas(1, 2)
        lab.wait(6)
        lab.fetch(1, 0)
        struck.end()
        assert struck.has_bitten
        lab.wait(12)
        assert [batch.base_offset for batch in lab.read_all(1)] == list(range(12))
        assert lab.hosted(2).replica.log_end_offset == 12
        assert lab.hosted(1).replica.copied_offset >= 9
        lab.simulation.kill("broker-1")
        lab.wait(5)
        assert [batch.base_offset for batch in lab.read_all(2)] == list(range(12))


def test_a_snapshot_of_a_later_segment_is_not_believed() -> None:
    """It names batches that the segments before it do not have; one of an earlier segment cannot be told from the right one, in Kafka either."""
    with TieredLab() as lab:
        lab.create_topic()
        for index in range(9):
            lab.produce(1, producer_id=index)
        lab.wait(8)
        snapshots = sorted(
            (key for key in lab.store.contents if key.endswith(".snapshot")), key=lambda key: int(key.rpartition("/")[2].partition("-")[0])
        )
        last_copied = snapshots[-1]
        right = lab.store.contents[last_copied]
        lab.produce(1, producer_id=50)
        lab.produce(1, producer_id=51)
        lab.wait(0.1)
        taken = [lab.hosted(1).log.file_of_segment(offset, ".snapshot") for offset in lab.hosted(1).snapshots.offsets]
        later = next(each for each in reversed(taken) if each is not None and each != right)
        for key in snapshots:
            lab.store.contents[key] = later
        lab.set_replicas(1, 2)
        lab.wait(5)
        assert lab.of(RebuiltFromRemote) == [] or lab.hosted(2).replica.local_start_offset > 8


def test_stale_listings_disturb_nobody() -> None:
    """What is in the store is told by the metadata topic alone: no decision hangs on a listing (KIP-405)."""
    with TieredLab(brokers=1) as lab:
        lab.create_topic()
        lab.wait(1)
        struck = strike(lab, "stale-store-listing", {})
        for _ in range(9):
            lab.produce(1)
        lab.wait(8)
        assert [batch.base_offset for batch in lab.read_all(1)] == list(range(9))
        listed = lab.run(lab.broker(1).world.objects(LOCATION, {}).list(""))
        assert listed == [] and struck.has_bitten


@pytest.mark.parametrize(
    ("ending", "damage", "error"),
    [
        (".index", b"odd", ErrorCode.UNKNOWN_SERVER_ERROR),
        (".log", b"\xff" * 8192, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["index", "log"],
)
def test_a_damaged_object_costs_who_reads_it_and_not_the_broker(ending: str, damage: bytes, error: ErrorCode) -> None:
    """What lies elsewhere in the log is read as ever."""
    with TieredLab(brokers=1) as lab:
        lab.create_topic()
        for _ in range(9):
            lab.produce(1)
        lab.wait(8)
        first_offset = lab.hosted(1).replica.local_start_offset
        assert first_offset > 1
        whole = dict(lab.store.contents)
        lab.store.contents.update({key: damage for key in whole if key.endswith(ending)})
        assert lab.fetch(1, 1).error_code == error
        assert [batch.base_offset for batch in lab.read_all(1, first_offset)] == list(range(first_offset, 9))
        lab.store.contents.update(whole)
        assert [batch.base_offset for batch in lab.read_all(1)] == list(range(9))


def test_a_copy_that_ends_after_the_log_was_cut_does_not_count_as_a_copy_of_it() -> None:
    """Else retention could delete local segments that are nowhere else: what is in the store there is of another history."""
    with TieredLab(brokers=1) as lab:
        lab.create_topic()
        lab.wait(1)
        strike(lab, "slow-store", {"delay_ms": 3000})
        for _ in range(6):
            lab.produce(1)
        while not lab.of(RemoteCopyStarted):
            lab.wait(0.1)
        assert not lab.of(RemoteCopyFinished)
        hosted = lab.hosted(1)
        (started,) = lab.of(RemoteCopyStarted)
        assert isinstance(started, RemoteCopyStarted)
        hosted.replica.resign()
        hosted.cut(CutTo(started.first_offset))
        while not lab.of(RemoteCopyFinished):
            lab.wait(0.1)
        lab.wait(4)
        assert hosted.replica.log_end_offset == started.first_offset <= started.last_offset
        assert hosted.replica.copied_offset < hosted.replica.log_end_offset


def test_segments_that_were_cut_off_are_not_copied_after_those_before_them() -> None:
    """A broker that followed, and leads again, within one copy goes on with what its log has now."""
    with TieredLab(brokers=1, settings={"remote.log.manager.task.interval.ms": "10000"}) as lab:
        lab.create_topic()
        strike(lab, "slow-store", {"delay_ms": 3000})
        for _ in range(8):
            lab.produce(1)
        assert not lab.of(RemoteCopyStarted), "all segments are due in one go"
        while not lab.of(RemoteCopyStarted):
            lab.wait(0.1)
        hosted = lab.hosted(1)
        (started,) = lab.of(RemoteCopyStarted)
        assert isinstance(started, RemoteCopyStarted)
        hosted.cut(CutTo(started.last_offset + 1))
        lab.wait(25)
        assert hosted.replica.copied_offset < hosted.replica.log_end_offset == started.last_offset + 1
        assert [each.first_offset for each in lab.of(RemoteCopyStarted) if isinstance(each, RemoteCopyStarted)] == [started.first_offset]


def test_a_damaged_index_costs_a_search_for_its_partition_only() -> None:
    """Other partitions of the same ListOffsets are answered."""
    with TieredLab(brokers=1) as lab:
        lab.create_topic()
        lab.create_topic(topic="whole")
        for _ in range(9):
            lab.produce(1)
        lab.wait(8)
        assert lab.hosted(1).replica.local_start_offset > 1
        lab.store.contents.update({key: b"odd" for key in lab.store.contents if key.endswith(".timeindex")})
        topics = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=0)]) for name in (TOPIC, "whole")]
        answer = lab.ask(1, ListOffsetsRequest(replica_id=-1, topics=topics), 9)
        assert isinstance(answer, ListOffsetsResponse)
        errors = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
        assert errors == {TOPIC: ErrorCode.UNKNOWN_SERVER_ERROR, "whole": ErrorCode.NONE}
