"""The effects of each disk fault on a node: it recovers, or it stops with one line that has the
reason, and nothing remains once it is healed.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TypeVar

import pytest

from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, FileClass, OnDisk, Value
from kraftsim.lab.faults.storage_faults import sound_files
from kraftsim.server.events import DiskFailed, LogRecovered, NodeFailed
from kraftsim.world.interface import Disk, File
from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.disk_faults import LyingFlush, Slowness, SlowTail, StuckFlush
from kraftsim.world.simulated.durable_disk import Names, Wreck
from kraftsim.world.simulated.inode import SECTOR_BYTES, Damage, Fate, Inode
from protocol.errors import ErrorCode
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from tests.simulate.fault_cluster import fault_cluster
from tests.simulate.quorum_runs import QuorumRun

T = TypeVar("T")
FOLLOWER, BROKER = "controller-102", "broker-1"
LOG = FileClass.METADATA_LOG
MIDDLE_OF_A_WRITE = OnDisk(operation="flush", file_class=LOG, host=FOLLOWER, nth=5, moment="before")
AFTER_A_RENAME = OnDisk(
    operation="rename", file_class=FileClass.CHECKPOINT, host=FOLLOWER, nth=1, moment="after"
)
OFTEN_CHECKPOINTED = {"log.flush.offset.checkpoint.interval.ms": "200"}

STAYS, GOES_DOWN, RESTARTS, REFUSES = (
    "stays up",
    "goes down",
    "dies and comes back",
    "does not start before it is healed",
)

ROWS = [
    ("disk-full", FOLLOWER, None, {}, GOES_DOWN),
    ("disk-full", BROKER, None, {"file_class": "metadata-log", "after_bytes": 61}, GOES_DOWN),
    ("flush-error", FOLLOWER, None, {"file_class": "metadata-log"}, GOES_DOWN),
    ("flush-error", BROKER, None, {}, GOES_DOWN),
    ("slow-disk", FOLLOWER, None, {}, STAYS),
    ("slow-flush-tail", FOLLOWER, None, {"permille": 300}, STAYS),
    ("stuck-flush", FOLLOWER, None, {}, STAYS),
    ("stuck-flush", BROKER, None, {"duration_ms": 3000}, STAYS),
    ("read-error", "leader", None, {"file_class": "metadata-log"}, GOES_DOWN),
    ("read-error", BROKER, None, {"file_class": "checkpoint"}, GOES_DOWN),
    ("torn-write", FOLLOWER, MIDDLE_OF_A_WRITE, {"shape": "prefix"}, RESTARTS),
    ("torn-write", FOLLOWER, MIDDLE_OF_A_WRITE, {"shape": "holes"}, RESTARTS),
    ("torn-write", FOLLOWER, MIDDLE_OF_A_WRITE, {"shape": "zeros"}, RESTARTS),
    ("lost-name", FOLLOWER, AFTER_A_RENAME, {"kept": "none"}, RESTARTS),
    ("lost-name", FOLLOWER, AFTER_A_RENAME, {"kept": "some"}, RESTARTS),
    ("truncated-snapshot", FOLLOWER, None, {}, RESTARTS),
    ("bit-rot", FOLLOWER, None, {"file_class": "metadata-log"}, RESTARTS),
    ("bit-rot", FOLLOWER, None, {"file_class": "quorum-state"}, REFUSES),
    ("misdirected-write", FOLLOWER, None, {"file_class": "metadata-log"}, RESTARTS),
    ("lost-disk", BROKER, None, {}, RESTARTS),
    ("old-disk-image", BROKER, None, {}, RESTARTS),
    ("lying-flush", BROKER, None, {}, REFUSES),
]
KINDS = sorted({row[0] for row in ROWS})


@pytest.mark.parametrize(("kind", "target", "trigger", "params", "outcome"), ROWS)
def test_node_recovers_from_a_disk_fault_or_reports_why_not(
    kind: str, target: str, trigger: OnDisk | None, params: Mapping[str, Value], outcome: str
) -> None:
    """Apache Kafka halts when its only log directory fails; a node that was only killed, or lost
    power, recovers by itself.
    """
    with fault_cluster() as cluster:
        target = cluster.leader if target == "leader" else target
        injection = cluster.inject(kind, target, params, trigger)
        assert injection.is_effective
        incarnation = cluster.host(target).process.incarnation
        reasons = [event.reason for event in cluster.of(NodeFailed, target)]
        if outcome is GOES_DOWN or outcome is REFUSES:
            assert reasons and all("\n" not in reason for reason in reasons), "in one line"
            assert outcome is REFUSES or all(
                " failed: " in reason and cluster.of(DiskFailed, target) for reason in reasons
            ), "and has the reason"
            assert incarnation == (2 if outcome is GOES_DOWN else 3)
        else:
            assert reasons == [] and incarnation == (1 if outcome is STAYS else 2)


def test_every_kind_of_the_family_has_a_row() -> None:
    assert [kind.name for kind in FAULTS.all() if kind.family.value == "disk"] == KINDS


def test_torn_tail_is_truncated_and_replicated_again() -> None:
    """Unflushed records were not acknowledged."""
    with fault_cluster() as cluster:
        cluster.inject("torn-write", FOLLOWER, {"shape": "zeros"}, MIDDLE_OF_A_WRITE)
        (recovered,) = (
            event for event in cluster.of(LogRecovered, FOLLOWER)[1:] if event.truncated_bytes
        )
        assert cluster.controller(FOLLOWER).raft.log_end_offset > recovered.next_offset


def test_corruption_below_the_recovery_point_stops_a_voter_until_healed() -> None:
    """It would lose what it acknowledged.

    The log is left unchanged, so that nothing is lost for good.
    """
    with fault_cluster(settings=OFTEN_CHECKPOINTED) as cluster:
        path = cluster.host(FOLLOWER).durable.durable_files(LOG)[0]
        injection = cluster.inject(
            "bit-rot", FOLLOWER, {"file_class": "metadata-log", "is_checked": True}
        )
        assert injection.is_effective
        (reason,) = [event.reason for event in cluster.of(NodeFailed, FOLLOWER)]
        assert (
            "is damaged at offset" in reason and "records that were committed may be gone" in reason
        )
        assert [event.truncated_bytes for event in cluster.of(LogRecovered, FOLLOWER)] == [0, 0], (
            path
        )


def test_truncated_snapshot_prevents_a_start_if_the_log_begins_behind_it() -> None:
    """Its records exist nowhere else. Healed, the node starts."""
    settings = {
        "metadata.log.segment.bytes": "400",
        "metadata.max.retention.bytes": "800",
        "metadata.log.max.record.bytes.between.snapshots": "500",
    }
    with fault_cluster(settings=settings) as cluster:
        injection = cluster.inject("truncated-snapshot", BROKER, {"duration_ms": 3000})
        assert injection.is_effective
        assert cluster.of(DiskFailed, BROKER)[0].reason.startswith("it ends at position")
        assert "is damaged" in cluster.of(NodeFailed, BROKER)[0].reason
        assert cluster.host(BROKER).process.incarnation == 3


def test_damaged_old_snapshot_stops_the_node_when_it_is_read() -> None:
    """The node runs on the newest one; whether the oldest has expired cannot be read any more."""
    with fault_cluster(
        settings={"metadata.log.max.record.bytes.between.snapshots": "500"}
    ) as cluster:
        cluster.simulation.run_for(10)
        durable = cluster.host(BROKER).durable
        snapshots = [
            path
            for path in durable.durable_files(FileClass.CHECKPOINT)
            if path.endswith(".checkpoint")
        ]
        assert len(snapshots) > 2
        oldest = durable.names[snapshots[0]]
        oldest.hurt(
            Damage(
                position=0,
                right=bytes(oldest.cache),
                wrong=b"",
                effect="",
                record_effect=lambda effect: None,
            )
        )
        cluster.simulation.kill(cluster.host(BROKER))
        cluster.simulation.restart(cluster.host(BROKER))
        cluster.simulation.run_for(65)
        (failed,) = cluster.of(NodeFailed, BROKER)
        assert "the oldest snapshot is damaged: it ends at position 0" in failed.reason


def test_damaged_file_is_not_damaged_again() -> None:
    """Two overlapping damages could not be healed separately: the first healing would restore the
    other's damage.
    """
    with Simulation(1) as simulation:
        host = simulation.add_host("node")
        host.durable.names = {"whole": Inode(b"abcdef"), "cut": Inode(b"abcdef")}
        host.durable.names["cut"].hurt(
            Damage(
                position=3, right=b"def", wrong=b"", effect="", record_effect=lambda effect: None
            )
        )
        assert sound_files(host, ["whole", "cut"]) == ["whole"]


def test_broker_without_its_disk_has_another_directory_id() -> None:
    """As after formatting: it is not mistaken for the disk that had the records (KIP-858)."""
    with fault_cluster() as cluster:
        before = cluster.cluster.hosts[BROKER].durable.content()["meta.properties"]
        cluster.inject("lost-disk", BROKER, {})
        after = cluster.cluster.hosts[BROKER].durable.content()["meta.properties"]
        assert b"directory.id=" in before and b"directory.id=" in after and before != after


def test_voter_that_lost_its_disk_must_rejoin_the_quorum() -> None:
    """With voters in the log a new directory id has no vote, whatever its node id; the old one is
    removed, the new one added (KIP-853).
    """
    with Simulation(2) as simulation:
        run = QuorumRun(simulation, 2, first_voters=3)
        run.cluster.start()
        simulation.run_until(lambda: run.leader is not None, limit_s=30)
        lost = next(name for name in run.names if name != run.leader)
        old = run.key_of(lost)
        injection = arm(
            Fault(
                kind="lost-disk", target=lost, trigger=AtTime(at_ms=simulation.now_ns // 1_000_000)
            ),
            simulation,
        )
        requester = run.begin_to_ask(3000)
        simulation.run_until(requester, limit_s=60)
        new = run.key_of(lost)
        quorum = run.controller(lost).raft.quorum
        assert (
            injection.is_effective
            and new.id == old.id
            and new.directory_id != old.directory_id
            and not quorum.is_voter
        )
        gone = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=old.id, voter_directory_id=old.directory_id
        )
        assert run.ask_leader(gone).error_code == ErrorCode.NONE
        assert run.ask_leader(run.joining(lost)).error_code == ErrorCode.NONE
        simulation.run_until(lambda: run.controller(lost).raft.quorum.is_voter, limit_s=30)
        simulation.kill(next(name for name in run.names if name not in (lost, run.leader)))
        simulation.run_for(5)
        assert run.leader is not None and len(set(requester.result())) == 3000, (
            "with the added voter there is a majority again"
        )
        assert (simulation.troubles, simulation.violations, run.cluster.failures) == ([], [], [])


def test_quorum_commits_while_the_leaders_flushes_hang() -> None:
    """Two of three have the records on disk; the leader's own flush is not needed."""
    with fault_cluster() as cluster:
        leader = cluster.leader
        injection = arm(
            Fault(
                kind="stuck-flush",
                target=leader,
                trigger=AtTime(at_ms=cluster.now_ms),
                params={"duration_ms": 0},
            ),
            cluster.simulation,
        )
        cluster.simulation.run_for(0.1)
        before = cluster.controller(leader).raft.high_watermark or 0
        cluster.simulation.run_for(1)
        assert injection.is_effective and cluster.leader == leader
        assert (cluster.controller(leader).raft.high_watermark or 0) > before
        injection.end()


# The disk itself
# --------------------------------------------------------------------------------------------------

PATH = "t-0/0.log"


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        simulation.add_host("a")
        yield simulation


def disk_of(sim: Simulation) -> Disk:
    return sim.world_of("a").disk


def run(sim: Simulation, coroutine: Coroutine[object, object, T]) -> T:
    return sim.run_until(sim.spawn("a", coroutine))


async def flushed(disk: Disk, path: str, content: bytes) -> File:
    file = disk.open(path)
    file.append([content])
    await file.flush()
    await disk.flush_directory(path.rpartition("/")[0])
    return file


WRITTEN = bytes(range(1, 251)) * 12


def torn(seed: int, fate: Fate, before: int = 700) -> bytes:
    """Return what a power loss leaves of WRITTEN behind `before` flushed bytes."""
    with Simulation(seed) as sim:
        sim.add_host("a")
        file = run(sim, flushed(disk_of(sim), PATH, bytes(before)))
        file.append([WRITTEN])
        losses = sim.power_off("a", Wreck(names=Names.KEPT, fate=fate))
        left = bytes(sim.host("a").durable.names[PATH].cache)[before:]
        assert losses.lost_bytes == sum(
            at >= len(left) or left[at] != byte for at, byte in enumerate(WRITTEN)
        )
        assert losses.torn_files == (fate in (Fate.PREFIX, Fate.HOLES, Fate.ZEROS))
        return left


def test_sectors_survive_or_are_lost_whole_in_any_order() -> None:
    """A sector of 512 bytes is complete or lost; flushed bytes may share a sector with unflushed
    ones.
    """
    first = SECTOR_BYTES - 700 % SECTOR_BYTES
    ends = [first, *range(first + SECTOR_BYTES, len(WRITTEN), SECTOR_BYTES), len(WRITTEN)]
    later_without_earlier = 0
    for seed in range(20):
        prefix, holes = torn(seed, Fate.PREFIX), torn(seed, Fate.HOLES)
        assert WRITTEN.startswith(prefix) and len(prefix) in ends[:-1]
        there = [
            holes[start:end] == WRITTEN[start:end]
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        assert any(there) and not all(there)
        assert all(
            not any(holes[start:end])
            for start, end, kept in zip([0, *ends], ends, there, strict=False)
            if not kept
        )
        later_without_earlier += there != sorted(there, reverse=True)
    assert later_without_earlier
    assert (
        torn(1, Fate.ZEROS) == bytes(len(WRITTEN))
        and torn(1, Fate.KEPT) == WRITTEN
        and torn(1, Fate.LOST) == b""
    )


def test_names_are_undone_in_the_reverse_order_of_their_journal() -> None:
    """Of three changes at least the last is lost; a later one never survives without the earlier
    ones.
    """
    seen = set()
    for seed in range(20):
        with Simulation(seed) as sim:
            sim.add_host("a")
            disk = disk_of(sim)
            run(sim, flushed(disk, "old", b"old"))

            async def change(disk: Disk) -> None:
                disk.open("first")
                disk.remove("old")
                disk.open("second")

            run(sim, change(disk))
            losses = sim.power_off("a", Wreck(names=Names.SOME, fate=Fate.KEPT))
            names = tuple(sorted(sim.host("a").durable.names))
            seen.add((names, losses.lost_names))
    assert seen == {(("old",), 3), (("first", "old"), 2), (("first",), 1)}


def test_flushed_names_are_permanent() -> None:
    """They are not in the journal any more: a file that was durably created and deleted does not
    reappear.
    """
    for seed in range(10):
        with Simulation(seed) as sim:
            sim.add_host("a")
            disk = disk_of(sim)
            run(sim, flushed(disk, "gone", b"x"))
            disk.remove("gone")
            run(sim, disk.flush_directory(""))
            disk.open("new")
            sim.power_off("a", Wreck(names=Names.SOME, fate=Fate.KEPT))
            assert list(sim.host("a").durable.names) == []


def test_unflushed_rename_is_undone(sim: Simulation) -> None:
    """The old file is back under its name, the new one under its temporary one."""
    run(sim, disk_of(sim).replace("meta/quorum-state", b"old"))
    arm(
        Fault(
            kind="lost-name",
            trigger=OnDisk(
                operation="rename", file_class=FileClass.QUORUM_STATE, nth=1, moment="after"
            ),
        ),
        sim,
    )
    sim.spawn("a", disk_of(sim).replace("meta/quorum-state", b"new"))
    sim.run_for(2)
    assert disk_of(sim).read("meta/quorum-state") == b"old" and sim.world_of("a").incarnation == 2


def test_false_flush_shows_only_after_a_power_loss(sim: Simulation) -> None:
    effects: list[str] = []
    lies = sim.host("a").durable.faults.lies
    lies.append(LyingFlush(record_effect=effects.append))
    run(sim, flushed(disk_of(sim), PATH, b"x" * 2000))
    sim.kill("a")
    sim.restart("a")
    assert disk_of(sim).read(PATH) == b"x" * 2000 and not effects
    assert (
        sim.power_off("a", Wreck(names=Names.KEPT, fate=Fate.LOST)).lost_bytes == 2000
        and len(effects) == 1
    )


def test_stuck_flushes_end_in_order_once_released(sim: Simulation) -> None:
    effects: list[str] = []
    ended: list[str] = []
    stuck = StuckFlush(kind=FileClass.PARTITION_LOG, record_effect=effects.append)
    sim.host("a").durable.faults.stuck.append(stuck)

    async def flush_both(disk: Disk) -> None:
        async def flush(path: str) -> None:
            file = disk.open(path)
            file.append([b"x"])
            await file.flush()
            ended.append(path)

        await asyncio.gather(flush(PATH), flush("quorum-state"))

    done = sim.spawn("a", flush_both(disk_of(sim)))
    sim.run_for(5)
    assert ended == ["quorum-state"] and len(effects) == 1
    sim.host("a").durable.faults.stuck.remove(stuck)
    stuck.release()
    sim.run_until(done)
    assert ended == ["quorum-state", PATH] and sim.now_ns < 5_010_000_000


def test_slow_flush_tail_is_long_and_does_not_affect_other_flushes(sim: Simulation) -> None:
    """The other flushes take the same time: a fault draws from its own random stream."""

    def times(tail: bool) -> list[int]:
        with Simulation(5) as sim:
            sim.add_host("a")
            if tail:
                sim.host("a").durable.faults.tails.append(
                    SlowTail(permille=100, limit_ns=10**9, record_effect=lambda effect: None)
                )

            async def flush_often(disk: Disk) -> list[int]:
                file, loop, taken = disk.open(PATH), asyncio.get_running_loop(), []
                for _ in range(100):
                    before = loop.time()
                    await file.flush()
                    taken.append(round((loop.time() - before) * 1e6))
                return taken

            return run(sim, flush_often(disk_of(sim)))

    usual, tailed = times(False), times(True)
    slow = [us for us, before in zip(tailed, usual, strict=True) if us != before]
    assert 2 <= len(slow) <= 25 and min(slow) > max(usual) and max(slow) > 4 * min(slow)


def test_of_two_slow_disk_faults_the_worse_applies(sim: Simulation) -> None:
    """Operations in flight end with the last fault: a flush a thousand times slower must not
    outlive the fault that slowed it.
    """
    faults = sim.host("a").durable.faults
    recover = [
        faults.slow_down(Slowness(factor=factor, record_effect=lambda effect: None))
        for factor in (10_000, 1000)
    ]
    recover.append(
        faults.slow_down(
            SlowTail(permille=1000, limit_ns=10**12, record_effect=lambda effect: None)
        )
    )
    assert faults.slowness == 10_000

    async def flush_several(disk: Disk) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(flushed(disk, f"t-{number}/0.log", b"x"))

    done = sim.spawn("a", flush_several(disk_of(sim)))
    sim.run_for(1)
    for each in recover:
        assert not done.done()
        each()
        sim.run_for(0.1)
    assert done.done() and faults.late == []


def test_disk_is_full_at_a_byte_of_a_file_class(sim: Simulation) -> None:
    """Other files are not affected."""
    arm(
        Fault(
            kind="disk-full",
            target="a",
            trigger=AtTime(at_ms=0),
            params={"file_class": "partition-log", "after_bytes": 7},
        ),
        sim,
    )
    sim.run_for(0)
    file = disk_of(sim).open(PATH)
    assert file.append([b"12345"]) == 0
    with pytest.raises(OSError) as refused:
        file.append([b"6789"])
    assert refused.value.errno == errno.ENOSPC and file.read(0, 99) == b"1234567"
    disk_of(sim).open("quorum-state").append([b"x" * 100])


def test_read_of_a_bad_range_fails(sim: Simulation) -> None:
    run(sim, flushed(disk_of(sim), PATH, bytes(2000)))
    cluster = arm(
        Fault(
            kind="read-error",
            target="a",
            trigger=AtTime(at_ms=0),
            params={"first": 512, "bytes": 512, "duration_ms": 0},
        ),
        sim,
    )
    sim.run_for(0)
    file = disk_of(sim).open(PATH)
    assert (
        file.read(0, 512) == bytes(512)
        and file.read(1024, 99) == bytes(99)
        and not cluster.is_effective
    )
    refused: list[Callable[[], bytes]] = [
        lambda: file.read(0, 513),
        lambda: file.read(1023, 1),
        lambda: disk_of(sim).read(PATH),
    ]
    for refuse in refused:
        with pytest.raises(OSError, match="Input/output error"):
            refuse()
    cluster.end()
    assert disk_of(sim).read(PATH) == bytes(2000)


@pytest.mark.parametrize("kind", ["bit-rot", "misdirected-write"])
def test_corruption_shows_in_the_next_incarnation_until_healed(sim: Simulation, kind: str) -> None:
    content = b"".join(bytes([number]) * SECTOR_BYTES for number in range(1, 5))
    run(sim, flushed(disk_of(sim), PATH, content))
    cluster = arm(
        Fault(
            kind=kind,
            target="a",
            trigger=AtTime(at_ms=0),
            params={"file_class": "partition-log", "after_ms": 10},
        ),
        sim,
    )
    assert disk_of(sim).read(PATH) == content
    sim.run_for(0.1)
    assert sim.world_of("a").incarnation == 2 and not cluster.is_effective
    found = disk_of(sim).read(PATH)
    assert cluster.is_effective and len(found) == len(content)
    differing = [at for at, byte in enumerate(found) if byte != content[at]]
    assert len(differing) == (1 if kind == "bit-rot" else 2 * SECTOR_BYTES)
    sim.kill("a", power_loss=True)
    sim.restart("a")
    assert disk_of(sim).read(PATH) == found, "a medium stays as it is"
    cluster.end()
    assert disk_of(sim).read(PATH) == content


def test_data_written_over_corruption_is_not_undone(sim: Simulation) -> None:
    run(sim, flushed(disk_of(sim), PATH, b"0123456789"))
    cluster = arm(
        Fault(
            kind="bit-rot",
            target="a",
            trigger=AtTime(at_ms=0),
            params={"file_class": "partition-log", "after_ms": 10},
        ),
        sim,
    )
    sim.run_for(0.1)
    file = disk_of(sim).open(PATH)
    file.truncate(0)
    file.append([b"abcdefghij"])
    cluster.end()
    assert file.read(0, 99) == b"abcdefghij"


def test_old_image_is_restored_unchanged_and_a_lost_disk_is_empty(sim: Simulation) -> None:
    run(sim, flushed(disk_of(sim), PATH, b"old"))
    cluster = arm(
        Fault(
            kind="old-disk-image",
            target="a",
            trigger=AtTime(at_ms=100),
            params={"age_ms": 1000, "after_ms": 10},
        ),
        sim,
    )
    sim.run_for(0.5)
    run(sim, flushed(disk_of(sim), PATH, b" and new"))
    run(sim, flushed(disk_of(sim), "t-0/1.log", b"new"))
    sim.run_for(1)
    assert (
        cluster.is_effective
        and disk_of(sim).read(PATH) == b"old"
        and disk_of(sim).list("t-0") == ["0.log"]
    )
    lost = arm(Fault(kind="lost-disk", target="a", trigger=AtTime(at_ms=2000)), sim)
    sim.run_for(3)
    assert lost.is_effective and disk_of(sim).list("") == []


def test_old_image_of_a_damaged_disk_has_what_was_written(sim: Simulation) -> None:
    """It is put back after or before the damage is healed: both times on another medium."""
    run(sim, flushed(disk_of(sim), PATH, b"0123456789"))
    rotten = arm(
        Fault(
            kind="bit-rot",
            target="a",
            trigger=AtTime(at_ms=0),
            params={"file_class": "partition-log", "after_ms": 10},
        ),
        sim,
    )
    sim.run_for(0.1)
    assert disk_of(sim).read(PATH) != b"0123456789" and rotten.is_effective
    for age_ms in (200, 400):
        arm(
            Fault(
                kind="old-disk-image",
                target="a",
                trigger=AtTime(at_ms=100),
                params={"age_ms": age_ms, "after_ms": 10},
            ),
            sim,
        )
    sim.run_for(0.35)
    assert disk_of(sim).read(PATH) == b"0123456789"
    rotten.end()
    sim.run_for(0.3)
    assert disk_of(sim).read(PATH) == b"0123456789"
