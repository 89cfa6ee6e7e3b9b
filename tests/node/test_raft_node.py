"""A replica on a simulated disk: the order in which it executes effects, and what it passes on.

Source: KafkaRaftClient.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence

import pytest

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.raft import rules_effects as do
from kraftsim.raft.metadata_store import DIRECTORY, MetadataStore, path_of
from kraftsim.raft.quorum_requests import WaitingFetches
from kraftsim.raft.quorum_settings import static_voters
from kraftsim.raft.raft_node import APPLY_BYTES, RaftNode
from kraftsim.raft.rules_following import on_fetch_response
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_messages import fetch_request
from kraftsim.raft.rules_settings import RaftSettings
from kraftsim.raft.rules_voters import Address, VoterNode
from kraftsim.raft.snapshotting import Snapshotting
from kraftsim.server.call import Deferred
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import YieldPoint
from kraftsim.world.simulated import Simulation
from protocol.messages import k01_fetch as fetch
from protocol.metadata.controller import NoOpRecord
from protocol.metadata.registry import build_record
from protocol.records.batches import RecordBatch, build_batch
from protocol.records.record import Record
from protocol.storage.quorum_state import QuorumState, parse_quorum_state
from protocol.uuids import METADATA_TOPIC_ID
from tests.node.controllers import controller_config

HOST, LISTENER = "controller-101", "CONTROLLER"
ALONE = f"101@{HOST}:9193"
OF_THREE = f"{ALONE},102@controller-102:9193,103@controller-103:9193"
EPOCH = 5


class Listener:
    """Records the committed batches and leadership changes of a replica.

    `slowly` is awaited for committed batches.
    """

    def __init__(self) -> None:
        self.received: list[RecordBatch] = []
        self.led: list[tuple[int, int]] = []
        """(epoch, offset up to which everything was received by then)."""
        self.slowly: Callable[[], Coroutine[object, object, None]] | None = None

    @property
    def end_offset(self) -> int:
        return self.received[-1].next_offset if self.received else 0

    async def on_committed(self, batches: Sequence[RecordBatch]) -> None:
        self.received += batches
        if self.slowly is not None:
            await self.slowly()

    async def on_snapshot(self, snapshot: SnapshotId, batches: Iterator[RecordBatch]) -> None:
        raise AssertionError("there is none")

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        pass

    def on_lead(self, leader_epoch: int) -> None:
        self.led.append((leader_epoch, self.end_offset))

    def on_stop_leading(self, leader_epoch: int, reason: str, high_watermark: int) -> None:
        pass

    def on_high_watermark(self, high_watermark: int) -> None:
        pass

    def on_readable(self, *, is_committed: bool) -> None:
        pass

    def on_lost(self, reason: str, high_watermark: int) -> None:
        pass


class Harness:
    """One replica on its own host. Use as a context manager; `up` in the host's process."""

    def __init__(self, voters: str, **settings: str) -> None:
        self.sim = Simulation(1)
        self.sim.add_host(HOST)
        self.listener = Listener()
        config = controller_config(HOST, 9193, settings, controller_quorum_voters=voters)
        self.shell = NodeShell(self.sim.world_of(HOST), config, lambda: self.raft.abort())
        self.raft = RaftNode(
            self.shell,
            directory_id=bytes(16),
            own_versions={},
            settings=RaftSettings(),
            listener=self.listener,
            duties=self.listener,
        )

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, *trouble: object) -> None:
        self.sim.close()

    def run(self, program: Coroutine[object, object, object]) -> None:
        """Run a coroutine in the process of the replica."""
        self.sim.run_until(self.sim.spawn(HOST, program))

    async def up(self, *before: bytes) -> RaftNode:
        """Start the replica on a log that already has these batches."""
        if before:
            store = MetadataStore(self.shell.world, self.shell.config, has_recovery_point=True)
            await store.load(static_voters(self.shell.config))
            for each in before:
                store.append(each)
            await store.flush()
            store.close()
        await self.raft.load()
        self.raft.own_endpoints[LISTENER] = Address(HOST, 9193)
        self.raft.begin()
        self.raft.run()
        return self.raft

    async def up_as_follower(self, *before: bytes) -> RaftNode:
        """The same, behind controller 102 in epoch 5."""
        raft = await self.up(*before)
        raft.quorum.see_epoch(
            EPOCH, 102, {LISTENER: Address("controller-102", 9193)}, raft.now_ms()
        )
        raft.run()
        await self.pass_ms(50)
        return raft

    async def pass_ms(self, milliseconds: int) -> None:
        """Yield for a while."""
        await asyncio.sleep(milliseconds / 1000)


def batch(first_offset: int, epoch: int = 1, value: bytes = b"x") -> bytes:
    return build_batch([Record(value=value)], base_offset=first_offset, leader_epoch=epoch)


def no_op(first_offset: int, epoch: int = 1) -> bytes:
    return batch(first_offset, epoch, build_record(NoOpRecord(), 0))


def answer(
    raft: RaftNode,
    *batches: bytes,
    high_watermark: int = -1,
    diverging: tuple[int, int] | None = None,
) -> None:
    """Let the leader of epoch 5 answer a Fetch."""
    data = fetch.PartitionData(
        high_watermark=high_watermark,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=102, leader_epoch=EPOCH),
        records=b"".join(batches),
    )
    if diverging is not None:
        data.diverging_epoch = fetch.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    response = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[data])])
    on_fetch_response(raft.quorum, 102, fetch_request(raft.quorum), response, raft.now_ms())
    raft.run()


def test_only_committed_records_are_passed_on() -> None:
    """Neither records found on disk nor those sent by the leader, until its high watermark covers
    them.
    """
    with Harness(OF_THREE) as harness:

        async def program() -> None:
            raft = await harness.up_as_follower(batch(0), batch(1))
            answer(raft, batch(2, EPOCH), batch(3, EPOCH), high_watermark=1)
            await harness.pass_ms(100)
            assert harness.listener.end_offset == 1
            answer(raft, high_watermark=3)
            await harness.pass_ms(100)
            assert harness.listener.end_offset == 3

        harness.run(program())


def test_truncated_records_are_not_passed_on_though_cached() -> None:
    """Other records have replaced them by the time they are committed."""
    with Harness(OF_THREE) as harness:

        async def program() -> None:
            raft = await harness.up_as_follower()
            answer(raft, batch(0, 4, b"cut"), batch(1, 4, b"cut"))
            await harness.pass_ms(100)
            answer(raft, diverging=(0, 0))
            await harness.pass_ms(100)
            answer(raft, batch(0, EPOCH, b"kept"), batch(1, EPOCH, b"kept"))
            await harness.pass_ms(100)
            answer(raft, high_watermark=2)
            await harness.pass_ms(100)
            assert [
                record.value for each in harness.listener.received for record in each.records()
            ] == [b"kept", b"kept"]

        harness.run(program())


def test_leader_becomes_active_after_reading_all_committed_records() -> None:
    """The log is passed on in pieces; the last of them must be included."""
    count = 4
    large = [batch(offset, 1, b"x" * (APPLY_BYTES // 2)) for offset in range(count)]
    with Harness(ALONE) as harness:

        async def program() -> None:
            await harness.up(*large)
            await harness.pass_ms(3000)
            assert [end_offset >= count for _, end_offset in harness.listener.led] == [True]

        harness.run(program())


def test_former_leader_does_not_become_active() -> None:
    """It receives a later epoch while it still reads committed records, and the notification comes
    only when its own state is durable.
    """
    with Harness(ALONE) as harness:

        async def program() -> None:
            raft = await harness.up(batch(0))

            async def lose() -> None:
                raft.quorum.become_unattached(raft.quorum.epoch + 1, raft.now_ms())

            harness.listener.slowly = lose
            while not harness.listener.received:
                await harness.pass_ms(1)
            await harness.pass_ms(5)
            assert harness.listener.led == []

        harness.run(program())


def test_flush_commits_exactly_what_was_written_before_it() -> None:
    """A record that arrives during the flush waits for the next one."""
    with Harness(ALONE) as harness:

        async def program() -> None:
            raft = await harness.up()
            while not harness.listener.led:
                await harness.pass_ms(10)
            seen: list[tuple[int | None, int]] = []
            flush = raft.store.flush

            async def flushed() -> int:
                before = raft.log_end_offset
                raft.append(batch(raft.log_end_offset, raft.leader_epoch), 1, "")
                done = await flush()
                seen.append((done, before))
                return before

            raft.store.flush = flushed  # type: ignore[method-assign]  # replaced for the test
            await raft.flush()
            (_, before) = seen[0]
            assert raft.quorum.log.flushed_end_offset == before

        harness.run(program())


def test_failed_flush_stops_the_node() -> None:
    """Unflushed data may be lost, whatever the next flush returns."""
    with Harness(ALONE) as harness:

        async def program() -> None:
            raft = await harness.up()

            async def refuse() -> int:
                raise OSError(5, "the disk refuses")

            raft.store.flush = refuse  # type: ignore[method-assign]  # replaced for the test
            await raft.flush()
            assert isinstance(harness.shell.failure, OSError)

        harness.run(program())


def test_state_is_durable_before_it_is_announced() -> None:
    """Of two consecutive states the first write may be skipped, unless a response was sent in
    between.
    """
    with Harness(OF_THREE) as harness:

        async def program() -> None:
            raft = await harness.up_as_follower()
            offsets: list[int] = []

            def tell(body: object) -> None:
                offsets.append(
                    parse_quorum_state(
                        harness.shell.world.disk.read("__cluster_metadata-0/quorum-state")
                    ).leader_epoch
                )

            first, second = (QuorumState(leader_epoch=epoch, voted_id=101) for epoch in (8, 9))
            raft.quorum.effects += [
                do.Persist(first, 0),
                do.Reply(tell, None),
                do.Persist(second, 0),
                do.Persist(second, 0),
                do.Reply(tell, None),
            ]
            raft.run()
            await harness.pass_ms(200)
            assert offsets == [8, 9]

        harness.run(program())


def test_cached_fetch_response_is_always_current() -> None:
    """A response is built once for all identical fetches while nothing in it has changed, including
    the high watermark.
    """
    with Harness(OF_THREE) as harness:

        async def program() -> None:
            raft = await harness.up_as_follower(batch(0), batch(1))
            fetches = WaitingFetches(raft, harness.shell.world)
            said = [fetches.give(17, 0, 7), fetches.give(17, 0, 8)]
            assert said[0] is said[1]
            raft.quorum.log.high_watermark = 1
            said.append(fetches.give(17, 0, 7))
            raft.quorum.log.high_watermark = 2
            said.append(fetches.give(17, 0, 7))
            raft.quorum.see_epoch(
                EPOCH + 1, 103, {LISTENER: Address("controller-103", 9193)}, raft.now_ms()
            )
            said.append(fetches.give(17, 0, 7))
            assert len({each.rest for each in said}) == 4

        harness.run(program())


def test_disk_that_fails_in_a_preempted_fetch_stops_the_node() -> None:
    """The thread that completes the waiting Fetch handles the failure: the one that woke it goes on
    long before.
    """
    with Harness(ALONE) as harness:

        async def program() -> None:
            raft = await harness.up()
            while not harness.listener.led:
                await harness.pass_ms(10)
            late = Late()
            fetches = WaitingFetches(raft, late)
            asked = fetch.FetchPartition(
                partition=0,
                current_leader_epoch=raft.leader_epoch,
                fetch_offset=raft.log_end_offset,
                last_fetched_epoch=raft.leader_epoch,
            )
            topic = fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[asked])
            request = fetch.FetchRequest(max_wait_ms=1000, topics=[topic])
            request.replica_state = fetch.ReplicaState(replica_id=7)
            fetches.fetch(request, 17)  # has the high watermark
            later = fetches.fetch(request, 17)
            assert isinstance(later, Deferred) and not late.works
            raft.append(no_op(raft.log_end_offset, raft.leader_epoch), 1, "x")
            fetches.on_readable(is_committed=True)

            def refuse(offset: int, max_bytes: int, end_offset: int) -> "memoryview[int]":
                raise OSError(5, "the disk refuses")

            raft.store.read = refuse  # type: ignore[method-assign]  # replaced for the test
            (work,) = late.works
            work()
            assert later.answer is None
            assert isinstance(harness.shell.failure, OSError)

        harness.run(program())


class Late:
    """A world in which each thread that gets work is preempted."""

    def __init__(self) -> None:
        self.works: list[Callable[[], object]] = []

    def hand_over(self, place: YieldPoint, work: Callable[[], object]) -> None:
        """Keep the work."""
        self.works.append(work)


@pytest.mark.parametrize("is_installed", [False, True])
def test_no_snapshot_is_written_of_a_log_replaced_by_the_leaders_snapshot(
    is_installed: bool,
) -> None:
    """The records read so far belong to a log that no longer exists."""
    with Harness(OF_THREE) as harness:

        async def program() -> None:
            raft = await harness.up_as_follower(no_op(0), no_op(1))
            answer(raft, high_watermark=2)
            await harness.pass_ms(100)

            class Image(MetadataImage):
                def replay(self, record: object, offset: int) -> None:
                    raft.installed_count += is_installed

            written = await Snapshotting(harness.shell, raft, Image).write()
            assert (written is None) is is_installed

        harness.run(program())


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize(("max_bytes", "stays"), [("0", 1), ("-1", 5)])
def test_only_the_newest_snapshot_of_an_oversized_log_is_kept(
    count: int, max_bytes: str, stays: int
) -> None:
    """However many there are; the others are deleted, and the log begins at the newest one.

    Source: KafkaMetadataLog.maybeClean.
    """
    retention = {"metadata_max_retention_bytes": max_bytes, "metadata_max_retention_ms": "-1"}
    with Harness(OF_THREE, **retention) as harness:

        async def program() -> None:
            raft = await harness.up_as_follower(*(no_op(offset) for offset in range(count)))
            snapshotting = Snapshotting(harness.shell, raft, MetadataImage)
            written = []
            for high_watermark in range(1, count + 1):
                answer(raft, high_watermark=high_watermark)
                written.append(await snapshotting.write())
            assert raft.quorum.log.snapshots == written
            await snapshotting.clean()
            kept = [each for each in written if each is not None][-stays:]
            assert raft.quorum.log.snapshots == kept
            names = list(harness.shell.world.disk.list(DIRECTORY))
            found = [f"{DIRECTORY}/{name}" for name in names if name.endswith(".checkpoint")]
            assert found == [path_of(each) for each in kept]
            assert raft.quorum.log.start_offset == (kept[0].end_offset if len(kept) < count else 0)

        harness.run(program())
