"""Three controllers over real sockets and real files: elections, durability, and the required
contents of a directory.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftsim.metadata.events import ControllerElected, ControllerResigned, MetadataReverted
from kraftsim.raft.events import MetadataTruncated, SnapshotLoaded
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_quorum import FatalQuorumError
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.controller import Controller
from kraftsim.server.events import DiskFailed, NodeReady
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k52_vote import VotePartition, VoteRequest, VoteTopic
from protocol.messages.k53_begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumPartition,
    BeginQuorumTopic,
)
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from protocol.messages.k58_envelope import EnvelopeRequest
from protocol.messages.k59_fetch_snapshot import (
    FetchPartitionSnapshot,
    FetchSnapshotRequest,
    FetchTopicSnapshot,
)
from protocol.messages.k59_fetch_snapshot import SnapshotId as AskedSnapshot
from protocol.records.batches import split_batches
from tests.node.controllers import connected, metadata_partition
from tests.node.quorums import IDS, Quorum, running_quorum

METADATA = "__cluster_metadata"


def quorum_state(quorum: Quorum, node_id: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        (quorum.log_directory(node_id) / "quorum-state").read_text()
    )
    return found


def log_bytes(quorum: Quorum, node_id: int) -> bytes:
    return b"".join(
        path.read_bytes() for path in sorted(quorum.log_directory(node_id).glob("*.log"))
    )


async def test_three_controllers_elect_a_leader_and_write_the_same_log(tmp_path: Path) -> None:
    """KIP-595: each quorum-state names the leader; the log opens with its LeaderChange record, and
    is identical on all three.
    """
    patient = {
        "controller_quorum_fetch_timeout_ms": "4000",
        "controller_quorum_request_timeout_ms": "4000",
    }
    async with running_quorum(tmp_path, metadata_max_idle_interval_ms="0", **patient) as quorum:
        async with quorum.broker() as broker:
            assert (await broker.allocate()).producer_id_len == 1000
        leader = await quorum.leader()
        nodes = list(quorum.running.values())
        await quorum.until(lambda: all(each.registration.is_registered for each in nodes))
        await quorum.until(
            lambda: (
                len(
                    {
                        offset
                        for each in nodes
                        for offset in (each.raft.log_end_offset, each.raft.applied_end_offset)
                    }
                )
                == 1
            )
        )
        assert all(
            each.metadata_writer.state.producer_ids.next_producer_id == 1000
            for each in quorum.running.values()
        )
        await quorum.until(
            lambda: (
                {quorum_state(quorum, node_id)["leaderId"] for node_id in IDS}
                == {leader.config.node_id}
            )
        )
        logs = [log_bytes(quorum, node_id) for node_id in IDS]
        assert logs[0] == logs[1] == logs[2]
        [opening] = next(split_batches(logs[0])).records()
        assert (
            opening.key == bytes.fromhex("0000 0002")
            and opening.value is not None
            and int.from_bytes(opening.value[2:6]) in IDS
        )
        assert all(quorum.emitted(node_id, NodeReady) for node_id in IDS)
        epochs = [
            event.leader_epoch
            for node_id in IDS
            for event in quorum.emitted(node_id, ControllerElected)
        ]
        assert epochs and len(set(epochs)) == len(epochs)


async def test_next_leader_continues_where_the_killed_one_stopped(tmp_path: Path) -> None:
    """The elected leader has everything that was answered; the broker keeps its registration and
    gets the next block.
    """
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
        await quorum.until(
            lambda: back.raft.applied_end_offset >= (leader.raft.high_watermark or 0) - 1 > 0
        )
        assert back.metadata_writer.state.producer_ids.next_producer_id == 2000
        assert not back.is_active


async def test_stopping_leader_triggers_an_election(tmp_path: Path) -> None:
    """EndQuorumEpoch: the others elect without waiting for a timeout; requests waiting at the old
    leader return NOT_CONTROLLER or lose their connection.
    """
    async with running_quorum(
        tmp_path,
        controller_quorum_fetch_timeout_ms="15000",
        controller_quorum_request_timeout_ms="15000",
    ) as quorum:
        former = (await quorum.leader()).config.node_id
        await asyncio.wait_for(quorum.stop(former), 5)
        assert [event.reason for event in quorum.emitted(former, ControllerResigned)] == [
            "stopping"
        ]
        await quorum.until(lambda: quorum.active is not None, 5)


async def test_all_three_restart_with_everything(tmp_path: Path) -> None:
    """Killed together, they elect in a higher epoch and have everything that was answered."""
    async with running_quorum(tmp_path) as quorum:
        async with quorum.broker() as broker:
            await broker.allocate()
        epoch = (await quorum.leader()).raft.leader_epoch
        for node_id in IDS:
            quorum.abort(node_id)
        await quorum.start()
        leader = await quorum.leader()
        assert leader.raft.leader_epoch > epoch
        assert leader.metadata_writer.state.producer_ids.next_producer_id == 1000


async def test_minority_answers_nothing(tmp_path: Path) -> None:
    """Two of three are needed: an isolated leader writes, cannot commit, resigns (KAFKA-15489),
    reverts, and returns NOT_CONTROLLER.
    """
    async with running_quorum(tmp_path) as quorum, quorum.broker() as broker:
        leader = await quorum.leader()
        for other in quorum.standbys():
            quorum.abort(other.config.node_id)
        answer = await broker.allocate()
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert leader.metadata_writer.state.producer_ids.next_producer_id == 0
        node_id = leader.config.node_id
        assert quorum.emitted(node_id, MetadataReverted)
        assert [event.reason for event in quorum.emitted(node_id, ControllerResigned)] == [
            "no requests from a majority of the voters"
        ]
        assert (await broker.allocate()).error_code == ErrorCode.NOT_CONTROLLER
        topics = await broker.ask(
            CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
            )
        )
        assert [topic.error_code for topic in topics.topics] == [ErrorCode.NOT_CONTROLLER]
        envelope = await broker.ask(EnvelopeRequest(request_data=b"", client_host_address=bytes(4)))
        assert (envelope.error_code, envelope.response_data) == (ErrorCode.NOT_CONTROLLER, None)
        assert (await broker.beat(0)).error_code == ErrorCode.NOT_CONTROLLER


async def test_uncommitted_records_of_a_former_leader_are_truncated(tmp_path: Path) -> None:
    """A leader that died with records that no other replica had returns as a follower and drops
    them.
    """
    async with running_quorum(tmp_path) as quorum, quorum.broker() as broker:
        leader = await quorum.leader()
        node_id, others = leader.config.node_id, [each.config.node_id for each in quorum.standbys()]
        for other in others:
            quorum.abort(other)
        waiting = asyncio.ensure_future(broker.allocate())
        await quorum.until(
            lambda: leader.metadata_writer.state.producer_ids.next_producer_id == 1000
        )
        quorum.abort(node_id)
        with pytest.raises(OSError):
            await waiting
        await quorum.start(*others)
        await quorum.leader()
        await quorum.start(node_id)
        await quorum.until(lambda: bool(quorum.emitted(node_id, MetadataTruncated)))
        back = quorum.running[node_id]
        await quorum.until(
            lambda: (
                quorum.active is not None
                and back.raft.applied_end_offset >= (quorum.active.raft.high_watermark or 0) - 1
            )
        )
        assert back.metadata_writer.state.producer_ids.next_producer_id == 0


# Requests to a controller that is not the leader
# -------------------------------------------------------------------------------------------------


async def test_only_the_leader_answers_describe_quorum(tmp_path: Path) -> None:
    """The others return NOT_LEADER_OR_FOLLOWER without a hint, as 3.9 does; the leader knows the
    position of each voter and observer.
    """
    question = DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=METADATA, partitions=[DescribeQuorumPartition(partition_index=0)]
            )
        ]
    )
    async with running_quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        async with connected(leader.addresses["CONTROLLER"], 7) as broker:
            await broker.fetch(0, leader_epoch=leader.raft.leader_epoch)
            async with asyncio.timeout(10):
                while True:
                    described = (await broker.ask(question)).topics[0].partitions[0]
                    if min(voter.log_end_offset for voter in described.current_voters) >= 5:
                        break
        assert (described.error_code, described.leader_id) == (
            ErrorCode.NONE,
            leader.config.node_id,
        )
        assert [voter.replica_id for voter in described.current_voters] == list(IDS)
        assert [observer.replica_id for observer in described.observers] == [7]
        async with connected(quorum.standbys()[0].addresses["CONTROLLER"]) as broker:
            refused = (await broker.ask(question)).topics[0].partitions[0]
        assert (refused.error_code, refused.leader_id, refused.high_watermark) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            0,
            0,
        )


async def test_follower_returns_the_leader_to_a_fetch(tmp_path: Path) -> None:
    """Error 6 with the id of the leader and its endpoint (Fetch v17)."""
    async with running_quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await quorum.until(
            lambda: all(each.raft.high_watermark for each in quorum.running.values())
        )
        async with connected(quorum.standbys()[0].addresses["CONTROLLER"]) as broker:
            answer = await broker.fetch(0, leader_epoch=leader.raft.leader_epoch)
        data = answer.responses[0].partitions[0]
        assert (data.error_code, data.current_leader.leader_id) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            leader.config.node_id,
        )
        assert [(node.node_id, node.port) for node in answer.node_endpoints] == [
            (leader.config.node_id, quorum.port(leader.config.node_id))
        ]


async def test_vote_is_durable_before_the_response(tmp_path: Path) -> None:
    """A candidate of a much higher epoch gets the vote, and the file has it when the response
    arrives (facts 2.5).
    """
    async with (
        running_quorum(tmp_path, 101) as quorum,
        connected(quorum.running[101].addresses["CONTROLLER"]) as candidate,
    ):
        partition = VotePartition(
            partition_index=0,
            replica_epoch=500,
            replica_id=103,
            last_offset_epoch=7,
            last_offset=1000,
        )
        answer = await candidate.ask(
            VoteRequest(
                cluster_id=None, topics=[VoteTopic(topic_name=METADATA, partitions=[partition])]
            )
        )
        result = answer.topics[0].partitions[0]
        assert (result.vote_granted, result.leader_epoch, result.error_code) == (
            True,
            500,
            ErrorCode.NONE,
        )
        state = quorum_state(quorum, 101)
        assert (state["votedId"], state["leaderEpoch"]) == (103, 500)


async def test_second_leader_in_one_epoch_is_fatal(tmp_path: Path) -> None:
    """An impossible state is fatal in Kafka, too: the process ends, and the request gets no
    response.
    """
    async with running_quorum(tmp_path) as quorum:
        leader = await quorum.leader()
        await quorum.until(
            lambda: all(each.raft.high_watermark for each in quorum.running.values())
        )
        victim = quorum.standbys()[0]
        pretender = next(
            node_id
            for node_id in IDS
            if node_id not in (leader.config.node_id, victim.config.node_id)
        )
        partition = BeginQuorumPartition(
            partition_index=0, leader_id=pretender, leader_epoch=leader.raft.leader_epoch
        )
        async with connected(victim.addresses["CONTROLLER"]) as liar:
            with pytest.raises(OSError):
                await liar.ask(
                    BeginQuorumEpochRequest(
                        cluster_id=None,
                        topics=[BeginQuorumTopic(topic_name=METADATA, partitions=[partition])],
                    )
                )
        failure = await asyncio.wait_for(victim.failed(), 5)
        assert isinstance(failure, FatalQuorumError) and "lead epoch" in str(failure)
        quorum.running.pop(victim.config.node_id)


# Snapshots, and damaged directories
# --------------------------------------------------------------------------------------------------

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
    """Make the log begin behind its first record everywhere, and return the leader."""
    async with quorum.broker() as broker:
        await broker.allocate()
        await quorum.until(lambda: all(first_segment_of(quorum, node_id) > 0 for node_id in IDS))
    return await quorum.leader()


async def test_new_disk_gets_a_snapshot_and_the_rest_of_the_log(tmp_path: Path) -> None:
    """KIP-630: an empty replica receives the latest snapshot; the files have Kafka's names, and no
    partial file is left.
    """
    async with running_quorum(tmp_path, **SMALL_LOGS) as quorum:
        leader = await with_snapshots(quorum)
        node_id = quorum.standbys()[0].config.node_id
        quorum.abort(node_id)
        for path in quorum.log_directory(node_id).iterdir():
            path.unlink(missing_ok=True)
        await quorum.start(node_id)
        await quorum.until(lambda: bool(quorum.emitted(node_id, SnapshotLoaded)))
        back = quorum.running[node_id]
        await quorum.until(
            lambda: back.raft.applied_end_offset >= (leader.raft.high_watermark or 0) - 1
        )
        assert back.metadata_writer.state.producer_ids.next_producer_id == 1000
        await quorum.until(
            lambda: (
                bool(snapshots_of(quorum, node_id))
                and not list(quorum.log_directory(node_id).glob("*.part"))
            )
        )
        oldest = snapshots_of(quorum, node_id)[0].name
        assert len(oldest) == len("00000000000000000042-0000000003.checkpoint")


async def test_after_a_restart_a_snapshot_replaces_the_earlier_log(tmp_path: Path) -> None:
    """All of them load their own snapshots, and have everything that was answered before."""
    async with running_quorum(tmp_path, **SMALL_LOGS) as quorum:
        await with_snapshots(quorum)
        for node_id in IDS:
            quorum.abort(node_id)
        await quorum.start()
        leader = await quorum.leader()
        assert leader.raft.quorum.log.start_offset > 0
        assert leader.metadata_writer.state.producer_ids.next_producer_id == 1000
        assert leader.metadata_writer.state.cluster.broker(1) is not None


async def test_snapshot_chunk_is_read_at_the_requested_position(tmp_path: Path) -> None:
    """FetchSnapshot: size and position; an invalid request is rejected as a whole.

    Other topics may be in it.
    """
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
            return FetchSnapshotRequest(
                cluster_id=None,
                replica_id=9,
                max_bytes=50,
                topics=[FetchTopicSnapshot(name=METADATA, partitions=[wanted])],
            )

        async with connected(leader.addresses["CONTROLLER"]) as broker:
            piece = (await broker.ask(ask(latest, 10))).topics[0].partitions[0]
            assert (piece.error_code, piece.size, piece.position) == (
                ErrorCode.NONE,
                len(content),
                10,
            )
            assert bytes(piece.unaligned_records) == content[10:60]
            two = ask(latest, 10)
            two.topics.insert(
                0, FetchTopicSnapshot(name="other", partitions=[FetchPartitionSnapshot()])
            )
            assert (
                bytes((await broker.ask(two)).topics[0].partitions[0].unaligned_records)
                == content[10:60]
            )
            other_partition, old_epoch, nothing, many = (
                ask(latest, 0),
                ask(latest, 0),
                ask(latest, 0),
                ask(latest, 0),
            )
            other_partition.topics[0].partitions[0].partition = 1
            old_epoch.topics[0].partitions[0].current_leader_epoch -= 1
            nothing.topics[0].partitions = []
            many.topics = [
                FetchTopicSnapshot(name=METADATA, partitions=many.topics[0].partitions * 2)
            ] * 2
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


async def test_fetch_responses_respect_the_configured_size(tmp_path: Path) -> None:
    """controller.quorum.fetch.max.bytes and controller.quorum.fetch.snapshot.max.bytes (KIP-1219):
    at least one batch.
    """
    small = {
        "controller_quorum_fetch_max_bytes": "1",
        "controller_quorum_fetch_snapshot_max_bytes": "40",
    }
    async with running_quorum(tmp_path, **SMALL_LOGS, **small) as quorum:
        leader = await with_snapshots(quorum)
        node_id = quorum.standbys()[0].config.node_id
        quorum.abort(node_id)
        for path in quorum.log_directory(node_id).iterdir():
            path.unlink(missing_ok=True)
        await quorum.start(node_id)
        await quorum.until(lambda: bool(quorum.emitted(node_id, SnapshotLoaded)))
        back = quorum.running[node_id]
        await quorum.until(
            lambda: back.raft.applied_end_offset >= (leader.raft.high_watermark or 0) - 1
        )
        async with connected(leader.addresses["CONTROLLER"]) as reader:
            epoch = {"leader_epoch": leader.raft.leader_epoch}
            records: bytes | memoryview | None = None
            while (
                not records
            ):  # the log may begin behind a later snapshot before the request arrives
                start = leader.raft.quorum.log.earliest_snapshot
                assert start is not None
                records = metadata_partition(
                    await reader.fetch(
                        start.end_offset, last_epoch=start.epoch, max_wait_ms=500, **epoch
                    )
                ).records
        assert len(list(split_batches(records))) == 1
        asked = quorum.running[node_id].raft.quorum.settings
        assert (asked.fetch_max_bytes, asked.fetch_snapshot_max_bytes) == (1, 40)


async def one_with_snapshots(tmp_path: Path) -> Quorum:
    """Leave the directory of a controller whose log begins behind its first record; no controller
    is running.
    """
    async with running_quorum(tmp_path, **SMALL_LOGS) as quorum:
        await with_snapshots(quorum)
    return quorum


@pytest.mark.parametrize(
    "harm, complaint",
    [
        (
            lambda directory: [path.unlink() for path in directory.glob("*.checkpoint")],
            "begins at offset .*, and no snapshot covers the earlier records",
        ),
        (
            lambda directory: [
                path.write_bytes(path.read_bytes()[:-5]) for path in directory.glob("*.checkpoint")
            ],
            "is damaged",
        ),
        (
            lambda directory: (directory / "quorum-state").write_text("{"),
            "quorum-state cannot be read",
        ),
    ],
)
async def test_inconsistent_directory_is_rejected_in_one_line(
    tmp_path: Path, harm: Callable[[Path], object], complaint: str
) -> None:
    """A node must not vote or lead with less than it has acknowledged."""
    quorum = await one_with_snapshots(tmp_path)
    harm(quorum.log_directory(101))
    with pytest.raises(ConfigError, match=complaint) as refused:
        await quorum.start(101)
    assert "\n" not in str(refused.value)


async def test_damaged_snapshot_is_ignored_if_the_log_still_has_its_records(tmp_path: Path) -> None:
    """The log was not truncated behind it yet, so nothing is lost."""
    async with running_quorum(
        tmp_path, metadata_log_max_record_bytes_between_snapshots="400"
    ) as quorum:
        async with quorum.broker() as broker:
            await broker.allocate()
            await quorum.until(lambda: bool(snapshots_of(quorum, 101)))
        for node_id in IDS:
            quorum.abort(node_id)
        for path in snapshots_of(quorum, 101):
            path.write_bytes(path.read_bytes()[:-1])
        await quorum.start()
        await quorum.leader()
        assert quorum.emitted(101, DiskFailed)
        await quorum.until(
            lambda: quorum.running[101].metadata_writer.state.producer_ids.next_producer_id == 1000
        )


@pytest.mark.parametrize("is_truncated", [True, False])
async def test_log_that_lost_flushed_records_is_rejected(
    tmp_path: Path, is_truncated: bool
) -> None:
    """An unflushed tail is truncated; with earlier damage the voter would have lost what it
    acknowledged.
    """
    async with running_quorum(tmp_path) as quorum:
        await quorum.leader()
        await quorum.until(
            lambda: all(each.raft.log_end_offset >= 8 for each in quorum.running.values())
        )
        await quorum.stop(101)
        path = quorum.log_directory(101) / "00000000000000000000.log"
        whole = path.read_bytes()
        path.write_bytes(whole + b"torn")
        await quorum.start(101)
        await quorum.stop(101)
        whole = path.read_bytes()
        damaged = (
            whole[:-3] if is_truncated else whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]
        )
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"is damaged at offset .*, and was on disk up to"):
            await quorum.start(101)
        assert path.read_bytes() == damaged, (
            "the remains are not truncated: the disk may return the rest later"
        )
        path.write_bytes(whole)
        await quorum.start(101)


async def test_lost_quorum_state_is_recreated_from_the_log(tmp_path: Path) -> None:
    """As in Kafka: it continues with the epoch of the last record."""
    async with running_quorum(tmp_path) as quorum:
        await quorum.leader()
        quorum.abort(101)
        (quorum.log_directory(101) / "quorum-state").unlink()
        await quorum.start(101)
        await quorum.leader()
        await quorum.until(lambda: bool(quorum.running[101].raft.high_watermark))
        assert quorum_state(quorum, 101)["leaderEpoch"] != -1


async def test_leftovers_of_unfinished_and_deleted_snapshots_are_removed(tmp_path: Path) -> None:
    """Kafka's names distinguish them from complete ones."""
    async with running_quorum(tmp_path, 101) as quorum:
        quorum.abort(101)
        left = [
            quorum.log_directory(101) / f"00000000000000000005-0000000001{suffix}"
            for suffix in ("-3.checkpoint.part", ".checkpoint.deleted")
        ]
        for path in left:
            path.write_bytes(b"half")
        await quorum.start(101)
        assert not any(path.exists() for path in left)
