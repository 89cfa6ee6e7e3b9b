"""Three controllers over real sockets and real files: who leads, what survives, and what a directory must hold."""

import asyncio
import json
from pathlib import Path

import pytest

from kraftsim.core.raft.quorum import FatalQuorumError
from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.events.metadata import ControllerElected, ControllerResigned, MetadataReverted
from kraftsim.events.nodes import DiskFailed, NodeReady
from kraftsim.events.raft import MetadataTruncated, SnapshotLoaded
from kraftsim.node.config_keys import ConfigError
from kraftsim.node.controller.controller import Controller
from protocol.batches import split_batches
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k52_vote import VotePartition, VoteRequest, VoteTopic
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumPartition, BeginQuorumTopic
from protocol.messages.k55_describe_quorum import DescribeQuorumPartition, DescribeQuorumRequest, DescribeQuorumTopic
from protocol.messages.k58_envelope import EnvelopeRequest
from protocol.messages.k59_fetch_snapshot import FetchPartitionSnapshot, FetchSnapshotRequest, FetchTopicSnapshot
from protocol.messages.k59_fetch_snapshot import SnapshotId as AskedSnapshot
from tests.node.controllers import connected, metadata_partition
from tests.node.quorums import IDS, Quorum, running_quorum

METADATA = "__cluster_metadata"


def quorum_state(quorum: Quorum, node_id: int) -> dict[str, object]:
    found: dict[str, object] = json.loads((quorum.log_directory(node_id) / "quorum-state").read_text())
    return found


def log_bytes(quorum: Quorum, node_id: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(quorum.log_directory(node_id).glob("*.log")))


async def test_three_controllers_elect_one_and_write_the_same_log(tmp_path: Path) -> None:
    """KIP-595: quorum-state of each names the leader; the log opens with its LeaderChange record, and is the same in all three places."""
    patient = {"controller_quorum_fetch_timeout_ms": "4000", "controller_quorum_request_timeout_ms": "4000"}
    async with running_quorum(tmp_path, metadata_max_idle_interval_ms="0", **patient) as quorum:
        async with quorum.broker() as broker:
            assert (await broker.allocate()).producer_id_len == 1000
        leader = await quorum.leader()
        nodes = list(quorum.running.values())
        await quorum.until(lambda: all(each.registration.is_registered for each in nodes))
        await quorum.until(lambda: len({offset for each in nodes for offset in (each.raft.log_end_offset, each.raft.applied_end_offset)}) == 1)
        assert all(each.ledger.state.producer_ids.next_producer_id == 1000 for each in quorum.running.values())
        await quorum.until(lambda: {quorum_state(quorum, node_id)["leaderId"] for node_id in IDS} == {leader.config.node_id})
        logs = [log_bytes(quorum, node_id) for node_id in IDS]
        assert logs[0] == logs[1] == logs[2]
        [opening] = next(split_batches(logs[0])).records()
        assert opening.key == bytes.fromhex("0000 0002") and opening.value is not None and int.from_bytes(opening.value[2:6]) in IDS
        assert all(quorum.noted(node_id, NodeReady) for node_id in IDS)
        epochs = [event.leader_epoch for node_id in IDS for event in quorum.noted(node_id, ControllerElected)]  # type: ignore[attr-defined]
        assert epochs and len(set(epochs)) == len(epochs)


async def test_the_next_leader_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    """What was answered is known to whoever is elected; the broker keeps its registration and gets the next block."""
    async with running_quorum(tmp_path) as quorum:
        async with quorum.broker() as broker:
            assert (await broker.allocate()).producer_id_start == 0
            epoch = broker.broker_epoch
        former = (await quorum.leader()).config.node_id
        quorum.abort(former)
        leader = await quorum.leader()
        assert leader.config.node_id != former
        async with connected(leader.addresses["CONTROLLER"]) as broker:
            broker.broker_epoch = epoch
            assert (await broker.allocate()).producer_id_start == 1000
        await quorum.start(former)
        back = quorum.running[former]
        await quorum.until(lambda: back.raft.applied_end_offset >= leader.raft.high_watermark - 1 > 0)
        assert back.ledger.state.producer_ids.next_producer_id == 2000
        assert not back.is_active


async def test_a_leader_that_stops_hands_over(tmp_path: Path) -> None:
    """EndQuorumEpoch: the others elect without waiting for a time-out; who waits for the one that goes is told NOT_CONTROLLER or is cut off."""
    async with running_quorum(tmp_path, controller_quorum_fetch_timeout_ms="15000", controller_quorum_request_timeout_ms="15000") as quorum:
        former = (await quorum.leader()).config.node_id
        await asyncio.wait_for(quorum.stop(former), 5)
        assert [event.reason for event in quorum.noted(former, ControllerResigned)] == ["stopping"]  # type: ignore[attr-defined]
        await quorum.until(lambda: quorum.active is not None, 5)


async def test_all_three_come_back_with_everything(tmp_path: Path) -> None:
    """Killed together, they elect in a higher epoch and know what was answered."""
    async with running_quorum(tmp_path) as quorum:
        async with quorum.broker() as broker:
            await broker.allocate()
        epoch = (await quorum.leader()).raft.leader_epoch
        for node_id in IDS:
            quorum.abort(node_id)
        await quorum.start()
        leader = await quorum.leader()
        assert leader.raft.leader_epoch > epoch
        assert leader.ledger.state.producer_ids.next_producer_id == 1000


async def test_a_minority_answers_nobody(tmp_path: Path) -> None:
    """Two of three are needed: a leader alone writes, is not committed, resigns (KAFKA-15489), undoes it, and says that it is not the controller."""
    async with running_quorum(tmp_path) as quorum, quorum.broker() as broker:
        leader = await quorum.leader()
        for other in quorum.standbys():
            quorum.abort(other.config.node_id)
        answer = await broker.allocate()
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert leader.ledger.state.producer_ids.next_producer_id == 0
        node_id = leader.config.node_id
        assert quorum.noted(node_id, MetadataReverted)
        assert [event.reason for event in quorum.noted(node_id, ControllerResigned)] == ["no majority of the voters is heard"]  # type: ignore[attr-defined]
        assert (await broker.allocate()).error_code == ErrorCode.NOT_CONTROLLER
        topics = await broker.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]))
        assert [topic.error_code for topic in topics.topics] == [ErrorCode.NOT_CONTROLLER]
        envelope = await broker.ask(EnvelopeRequest(request_data=b"", client_host_address=bytes(4)))
        assert (envelope.error_code, envelope.response_data) == (ErrorCode.NOT_CONTROLLER, None)
        assert (await broker.beat(0)).error_code == ErrorCode.NOT_CONTROLLER


async def test_what_was_never_committed_is_cut_when_another_led_meanwhile(tmp_path: Path) -> None:
    """A leader that died with records that nobody else had comes back as a follower and drops them."""
    async with running_quorum(tmp_path) as quorum, quorum.broker() as broker:
        leader = await quorum.leader()
        node_id, others = leader.config.node_id, [each.config.node_id for each in quorum.standbys()]
        for other in others:
            quorum.abort(other)
        waiting = asyncio.ensure_future(broker.allocate())
        await quorum.until(lambda: leader.ledger.state.producer_ids.next_producer_id == 1000)
        quorum.abort(node_id)
        with pytest.raises(OSError):
            await waiting
        await quorum.start(*others)
        await quorum.leader()
        await quorum.start(node_id)
        await quorum.until(lambda: bool(quorum.noted(node_id, MetadataTruncated)))
        back = quorum.running[node_id]
        await quorum.until(lambda: quorum.active is not None and back.raft.applied_end_offset >= (quorum.active.raft.high_watermark or 0) - 1)
        assert back.ledger.state.producer_ids.next_producer_id == 0


# What others ask of a controller that does not lead ----------------------------------------------------------------------------------------------


async def test_only_the_leader_describes_the_quorum(tmp_path: Path) -> None:
    """The others say NOT_LEADER_OR_FOLLOWER without a hint, as 3.9 does; the leader knows how far each voter and observer is."""
    question = DescribeQuorumRequest(topics=[DescribeQuorumTopic(topic_name=METADATA, partitions=[DescribeQuorumPartition(partition_index=0)])])
    async with running_quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        async with connected(leader.addresses["CONTROLLER"], 7) as broker:
            await broker.fetch(0, leader_epoch=leader.raft.leader_epoch)
            async with asyncio.timeout(10):
                while True:
                    described = (await broker.ask(question)).topics[0].partitions[0]
                    if min(voter.log_end_offset for voter in described.current_voters) >= 5:
                        break
        assert (described.error_code, described.leader_id) == (ErrorCode.NONE, leader.config.node_id)
        assert [voter.replica_id for voter in described.current_voters] == list(IDS)
        assert [observer.replica_id for observer in described.observers] == [7]
        async with connected(quorum.standbys()[0].addresses["CONTROLLER"]) as broker:
            refused = (await broker.ask(question)).topics[0].partitions[0]
        assert (refused.error_code, refused.leader_id, refused.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0)


async def test_a_follower_names_the_leader_to_whoever_fetches_from_it(tmp_path: Path) -> None:
    """Error 6 with the id of the leader and where it is reached (Fetch v17)."""
    async with running_quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await quorum.until(lambda: all(each.raft.high_watermark for each in quorum.running.values()))
        async with connected(quorum.standbys()[0].addresses["CONTROLLER"]) as broker:
            answer = await broker.fetch(0, leader_epoch=leader.raft.leader_epoch)
        data = answer.responses[0].partitions[0]
        assert (data.error_code, data.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.config.node_id)
        assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(leader.config.node_id, quorum.port(leader.config.node_id))]


async def test_a_vote_is_on_the_disk_before_it_is_answered(tmp_path: Path) -> None:
    """A candidate of a much higher epoch gets the vote, and the file says so when the answer is there (facts 2.5)."""
    async with running_quorum(tmp_path, 101) as quorum, connected(quorum.running[101].addresses["CONTROLLER"]) as candidate:
        partition = VotePartition(partition_index=0, replica_epoch=500, replica_id=103, last_offset_epoch=7, last_offset=1000)
        answer = await candidate.ask(VoteRequest(cluster_id=None, topics=[VoteTopic(topic_name=METADATA, partitions=[partition])]))
        result = answer.topics[0].partitions[0]
        assert (result.vote_granted, result.leader_epoch, result.error_code) == (True, 500, ErrorCode.NONE)
        state = quorum_state(quorum, 101)
        assert (state["votedId"], state["leaderEpoch"]) == (103, 500)


async def test_two_leaders_of_one_epoch_end_the_node(tmp_path: Path) -> None:
    """What cannot be is fatal in Kafka, too: the process ends, and whoever said it gets no answer."""
    async with running_quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await quorum.until(lambda: all(each.raft.high_watermark for each in quorum.running.values()))
        victim = quorum.standbys()[0]
        pretender = next(node_id for node_id in IDS if node_id not in (leader.config.node_id, victim.config.node_id))
        partition = BeginQuorumPartition(partition_index=0, leader_id=pretender, leader_epoch=leader.raft.leader_epoch)
        async with connected(victim.addresses["CONTROLLER"]) as liar:
            with pytest.raises(OSError):
                await liar.ask(BeginQuorumEpochRequest(cluster_id=None, topics=[BeginQuorumTopic(topic_name=METADATA, partitions=[partition])]))
        failure = await asyncio.wait_for(victim.failed(), 5)
        assert isinstance(failure, FatalQuorumError) and "lead epoch" in str(failure)
        quorum.running.pop(victim.config.node_id)


# Snapshots, and directories that are not as they were left ---------------------------------------------------------------------------------------

SMALL_LOGS = {
    "metadata_log_max_record_bytes_between_snapshots": "400",
    "metadata_max_retention_bytes": "800",
    "metadata_log_segment_bytes": "300",
}


def snapshots_of(quorum: Quorum, node_id: int) -> list[Path]:
    return sorted(quorum.log_directory(node_id).glob("*.checkpoint"))


def first_segment_of(quorum: Quorum, node_id: int) -> int:
    return min(int(path.stem) for path in quorum.log_directory(node_id).glob("*.log"))


async def with_snapshots(quorum: Quorum) -> Controller:
    """Let the log begin behind its first record everywhere, and return the leader."""
    async with quorum.broker() as broker:
        await broker.allocate()
        await quorum.until(lambda: all(first_segment_of(quorum, node_id) > 0 for node_id in IDS))
    return await quorum.leader()


async def test_a_new_disk_gets_a_snapshot_and_the_rest_of_the_log(tmp_path: Path) -> None:
    """KIP-630: whoever begins with nothing is sent the latest snapshot; files that Kafka names alike are there, and no part of one."""
    async with running_quorum(tmp_path, **SMALL_LOGS) as quorum:
        leader = await with_snapshots(quorum)
        node_id = quorum.standbys()[0].config.node_id
        quorum.abort(node_id)
        for path in quorum.log_directory(node_id).iterdir():
            path.unlink(missing_ok=True)
        await quorum.start(node_id)
        await quorum.until(lambda: bool(quorum.noted(node_id, SnapshotLoaded)))
        back = quorum.running[node_id]
        await quorum.until(lambda: back.raft.applied_end_offset >= (leader.raft.high_watermark or 0) - 1)
        assert back.ledger.state.producer_ids.next_producer_id == 1000
        await quorum.until(lambda: bool(snapshots_of(quorum, node_id)) and not list(quorum.log_directory(node_id).glob("*.part")))
        oldest = snapshots_of(quorum, node_id)[0].name
        assert len(oldest) == len("00000000000000000042-0000000003.checkpoint")


async def test_after_a_restart_a_snapshot_stands_for_the_log_before_it(tmp_path: Path) -> None:
    """All of them begin with their own snapshots, and know what was answered before."""
    async with running_quorum(tmp_path, **SMALL_LOGS) as quorum:
        await with_snapshots(quorum)
        for node_id in IDS:
            quorum.abort(node_id)
        await quorum.start()
        leader = await quorum.leader()
        assert leader.raft.quorum.log.start_offset > 0
        assert leader.ledger.state.producer_ids.next_producer_id == 1000
        assert leader.ledger.state.cluster.broker(1) is not None


async def test_a_piece_of_a_snapshot_is_where_it_was_asked_for(tmp_path: Path) -> None:
    """FetchSnapshot: size and position; what is not there is refused as a whole. Others' partitions may stand beside."""
    async with running_quorum(tmp_path, **SMALL_LOGS) as quorum:
        leader = await with_snapshots(quorum)
        latest = leader.raft.quorum.log.latest_snapshot
        assert latest is not None
        content = leader.raft.store.snapshots.read_piece(latest, 0, 1 << 20)

        def ask(snapshot: SnapshotId, position: int) -> FetchSnapshotRequest:
            wanted = FetchPartitionSnapshot(
                partition=0,
                current_leader_epoch=leader.raft.leader_epoch,
                snapshot_id=AskedSnapshot(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
                position=position,
            )
            return FetchSnapshotRequest(cluster_id=None, replica_id=9, max_bytes=50, topics=[FetchTopicSnapshot(name=METADATA, partitions=[wanted])])

        async with connected(leader.addresses["CONTROLLER"]) as broker:
            piece = (await broker.ask(ask(latest, 10))).topics[0].partitions[0]
            assert (piece.error_code, piece.size, piece.position) == (ErrorCode.NONE, len(content), 10)
            assert bytes(piece.unaligned_records) == content[10:60]
            two = ask(latest, 10)
            two.topics.insert(0, FetchTopicSnapshot(name="other", partitions=[FetchPartitionSnapshot()]))
            assert bytes((await broker.ask(two)).topics[0].partitions[0].unaligned_records) == content[10:60]
            other_partition, old_epoch, nothing, many = ask(latest, 0), ask(latest, 0), ask(latest, 0), ask(latest, 0)
            other_partition.topics[0].partitions[0].partition = 1
            old_epoch.topics[0].partitions[0].current_leader_epoch -= 1
            nothing.topics[0].partitions = []
            many.topics = [FetchTopicSnapshot(name=METADATA, partitions=many.topics[0].partitions * 2)] * 2
            for request, error in [
                (ask(SnapshotId(1, 1), 0), ErrorCode.UNKNOWN_SERVER_ERROR),
                (ask(latest, len(content)), ErrorCode.UNKNOWN_SERVER_ERROR),
                (ask(latest, -1), ErrorCode.UNKNOWN_SERVER_ERROR),
                (other_partition, ErrorCode.UNKNOWN_SERVER_ERROR),
                (old_epoch, ErrorCode.UNKNOWN_SERVER_ERROR),
                (nothing, ErrorCode.INVALID_REQUEST),
                (many, ErrorCode.INVALID_REQUEST),
            ]:
                refused = await broker.ask(request)
                assert (refused.error_code, refused.topics) == (error, [])


async def test_who_fetches_gets_no_more_at_once_than_is_set(tmp_path: Path) -> None:
    """controller.quorum.fetch.max.bytes and controller.quorum.fetch.snapshot.max.bytes (KIP-1219): one batch in any case."""
    small = {"controller_quorum_fetch_max_bytes": "1", "controller_quorum_fetch_snapshot_max_bytes": "40"}
    async with running_quorum(tmp_path, **SMALL_LOGS, **small) as quorum:
        leader = await with_snapshots(quorum)
        node_id = quorum.standbys()[0].config.node_id
        quorum.abort(node_id)
        for path in quorum.log_directory(node_id).iterdir():
            path.unlink(missing_ok=True)
        await quorum.start(node_id)
        await quorum.until(lambda: bool(quorum.noted(node_id, SnapshotLoaded)))
        back = quorum.running[node_id]
        await quorum.until(lambda: back.raft.applied_end_offset >= (leader.raft.high_watermark or 0) - 1)
        async with connected(leader.addresses["CONTROLLER"]) as reader:
            epoch = {"leader_epoch": leader.raft.leader_epoch}
            records: bytes | memoryview | None = None
            while not records:  # the log may begin behind a later snapshot before the question is there
                start = leader.raft.quorum.log.earliest_snapshot
                assert start is not None
                records = metadata_partition(await reader.fetch(start.end_offset, last_epoch=start.epoch, max_wait_ms=500, **epoch)).records
        assert len(list(split_batches(records))) == 1
        asked = quorum.running[node_id].raft.quorum.settings
        assert (asked.fetch_max_bytes, asked.fetch_snapshot_max_bytes) == (1, 40)


async def one_with_snapshots(tmp_path: Path) -> Quorum:
    """Leave the directory of a controller whose log begins behind its first record; nobody runs any more."""
    async with running_quorum(tmp_path, **SMALL_LOGS) as quorum:
        await with_snapshots(quorum)
    return quorum


@pytest.mark.parametrize(
    "harm, complaint",
    [
        (lambda directory: [path.unlink() for path in directory.glob("*.checkpoint")], "begins at offset .*, and no snapshot covers what is before"),
        (lambda directory: [path.write_bytes(path.read_bytes()[:-5]) for path in directory.glob("*.checkpoint")], "is damaged"),
        (lambda directory: (directory / "quorum-state").write_text("{"), "quorum-state cannot be read"),
    ],
)
async def test_a_directory_that_cannot_be_believed_is_refused_in_one_line(tmp_path: Path, harm: object, complaint: str) -> None:
    """Nobody votes or leads with less than it once acknowledged."""
    quorum = await one_with_snapshots(tmp_path)
    harm(quorum.log_directory(101))  # type: ignore[operator]
    with pytest.raises(ConfigError, match=complaint) as refused:
        await quorum.start(101)
    assert "\n" not in str(refused.value)


async def test_a_damaged_snapshot_is_left_out_where_the_log_says_as_much(tmp_path: Path) -> None:
    """The log was not cut behind it yet, so nothing is lost."""
    async with running_quorum(tmp_path, metadata_log_max_record_bytes_between_snapshots="400") as quorum:
        async with quorum.broker() as broker:
            await broker.allocate()
            await quorum.until(lambda: bool(snapshots_of(quorum, 101)))
        for node_id in IDS:
            quorum.abort(node_id)
        for path in snapshots_of(quorum, 101):
            path.write_bytes(path.read_bytes()[:-1])
        await quorum.start()
        await quorum.leader()
        assert quorum.noted(101, DiskFailed)
        await quorum.until(lambda: quorum.running[101].ledger.state.producer_ids.next_producer_id == 1000)


@pytest.mark.parametrize("is_truncated", [True, False])
async def test_a_log_that_lost_what_was_flushed_is_refused(tmp_path: Path, is_truncated: bool) -> None:
    """A tail that was never flushed is cut; damage before that would make the voter forget what it acknowledged."""
    async with running_quorum(tmp_path) as quorum:
        await quorum.leader()
        await quorum.until(lambda: all(each.raft.log_end_offset >= 8 for each in quorum.running.values()))
        await quorum.stop(101)
        path = quorum.log_directory(101) / "00000000000000000000.log"
        whole = path.read_bytes()
        path.write_bytes(whole + b"torn")
        await quorum.start(101)
        await quorum.stop(101)
        whole = path.read_bytes()
        damaged = whole[:-3] if is_truncated else whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"is damaged at offset .*, and was on disk up to"):
            await quorum.start(101)
        assert path.read_bytes() == damaged, "what is left is not cut away: the disk may give the rest back"
        path.write_bytes(whole)
        await quorum.start(101)


async def test_a_lost_quorum_state_is_made_again_from_the_log(tmp_path: Path) -> None:
    """As in Kafka: the epoch of the last record is where it goes on."""
    async with running_quorum(tmp_path) as quorum:
        await quorum.leader()
        quorum.abort(101)
        (quorum.log_directory(101) / "quorum-state").unlink()
        await quorum.start(101)
        await quorum.leader()
        await quorum.until(lambda: bool(quorum.running[101].raft.high_watermark))
        assert quorum_state(quorum, 101)["leaderEpoch"] != -1


async def test_what_is_left_of_unfinished_and_deleted_snapshots_goes(tmp_path: Path) -> None:
    """Kafka names them so that nobody takes them for whole ones."""
    async with running_quorum(tmp_path, 101) as quorum:
        quorum.abort(101)
        left = [quorum.log_directory(101) / f"00000000000000000005-0000000001{suffix}" for suffix in ("-3.checkpoint.part", ".checkpoint.deleted")]
        for path in left:
            path.write_bytes(b"half")
        await quorum.start(101)
        assert not any(path.exists() for path in left)
