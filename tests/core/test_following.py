"""How a follower processes the responses of its leader, and how a leader processes fetches.

Source: KIP-595, KIP-630.
"""

from dataclasses import replace

import pytest

from kraftsim.events.event import Event
from kraftsim.raft import rules_effects as do
from kraftsim.raft import rules_following, rules_leading, rules_serving
from kraftsim.raft.events import MetadataReplicated, VotersChanged
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_messages import fetch_request
from kraftsim.raft.rules_quorum import FatalQuorumError, Quorum
from kraftsim.raft.rules_replica import RaftReplica
from kraftsim.raft.rules_roles import Follower, Leader, Resigned
from kraftsim.raft.rules_voters import DYNAMIC_VOTERS, ReplicaKey
from protocol.errors import ErrorCode
from protocol.messages import k01_fetch as fetch
from protocol.messages import k59_fetch_snapshot as snapshots
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.uuids import METADATA_TOPIC_ID
from tests.core.quorum_harness import CLUSTER, LISTENER, Harness, address_of

LEADER, OWN, OBSERVER = 1, 2, 9
EPOCH = 3


def replica(node_id: int = OWN) -> RaftReplica:
    """A started replica; nodes 1 to 3 are voters."""
    harness = Harness(1)
    harness.nodes[OWN].start()
    found = harness.nodes[OWN].replica
    assert found is not None
    if node_id != OWN:
        found.quorum.own = ReplicaKey(node_id)
    found.take_effects()
    return found


def follower(*epochs: int, node_id: int = OWN) -> Quorum:
    """A follower of node 1 in epoch 3, with a record of each of these epochs, all of them
    flushed.
    """
    quorum = replica(node_id).quorum
    for epoch in epochs:
        quorum.log.append(epoch, 1)
    quorum.log.flushed_end_offset = quorum.log.end_offset
    quorum.see_epoch(EPOCH, LEADER, {LISTENER: address_of(LEADER)}, 0)
    assert isinstance(quorum.role, Follower)
    quorum.effects.clear()
    return quorum


def batch(first_offset: int, epoch: int, count: int = 1, *, is_sound: bool = True) -> bytes:
    content = bytearray(
        build_batch([Record(value=b"x")] * count, base_offset=first_offset, leader_epoch=epoch)
    )
    content[-1] ^= not is_sound
    return bytes(content)


def answer(
    *batches: bytes,
    leader_epoch: int = EPOCH,
    high_watermark: int = -1,
    diverging: tuple[int, int] | None = None,
    snapshot: SnapshotId | None = None,
) -> fetch.FetchResponse:
    """A response of the leader to a Fetch."""
    data = fetch.PartitionData(
        partition_index=0,
        high_watermark=high_watermark,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=leader_epoch),
        records=b"".join(batches),
    )
    if diverging is not None:
        data.diverging_epoch = fetch.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    if snapshot is not None:
        data.snapshot_id = fetch.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[data])])


def receive(quorum: Quorum, response: fetch.FetchResponse) -> list[do.Effect]:
    """Deliver a response of the leader."""
    rules_following.on_fetch_response(quorum, LEADER, fetch_request(quorum), response, 0)
    effects, quorum.effects = quorum.effects, []
    return effects


@pytest.mark.parametrize(
    ("batches", "end_offset", "last_epoch"),
    [
        ([], 2, 2),
        ([batch(2, 2)], 3, 2),
        ([batch(2, 3, count=4)], 6, 3),
        ([batch(2, 2), batch(3, 3), batch(4, 3)], 5, 3),
        ([batch(3, 3)], 2, 2),  # behind a gap
        ([batch(1, 3)], 2, 2),  # already appended
        ([batch(2, 1)], 2, 2),  # of an epoch that has ended in this log
        ([batch(2, 4)], 2, 2),  # of an epoch above the leader's
        ([batch(2, 3), batch(3, 2)], 3, 3),
        ([batch(2, 3), batch(4, 3)], 3, 3),
        ([batch(2, 3, is_sound=False)], 2, 2),
        ([batch(2, 3), batch(3, 3, is_sound=False), batch(4, 3)], 3, 3),
        ([batch(2, 3), batch(3, 3)[:-5]], 3, 3),  # truncated by the maximum size of a Fetch
    ],
)
def test_only_batches_that_follow_the_log_are_appended(
    batches: list[bytes], end_offset: int, last_epoch: int
) -> None:
    """Whole, valid batches in order, of epochs that do not decrease and are not above the
    leader's.
    """
    quorum = follower(1, 2)
    effects = receive(quorum, answer(*batches))
    assert (quorum.log.end_offset, quorum.log.last_epoch, quorum.log.flushed_end_offset) == (
        end_offset,
        last_epoch,
        2,
    )
    written = [effect for effect in effects if isinstance(effect, do.WriteFetched)]
    assert b"".join(bytes(each.records) for each in written) == b"".join(
        batches[: len(written[0].batches) if written else 0]
    )
    assert [type(effect) for effect in effects] == (
        [do.WriteFetched, do.Flush] if end_offset > 2 else []
    )


def test_replica_without_flushes_counts_written_records_as_durable() -> None:
    """An observer may: the leader has whatever it loses. It fetches again immediately."""
    quorum = follower(1)
    quorum.settings = replace(quorum.settings, always_flushes=False)
    assert [type(effect) for effect in receive(quorum, answer(batch(1, 3)))] == [do.WriteFetched]
    assert quorum.log.flushed_end_offset == quorum.log.end_offset == 2


@pytest.mark.parametrize(("node_id", "is_reported"), [(OWN, True), (OBSERVER, False)])
def test_voter_emits_an_event_for_replicated_records(
    node_id: int, is_reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First and last offset are inclusive; observers would only repeat the voters' events."""
    emitted: list[object] = []
    quorum = follower(1, node_id=node_id)
    monkeypatch.setattr(quorum, "emit", emitted.append)
    receive(quorum, answer(batch(1, 3, count=5)))
    assert emitted == (
        [MetadataReplicated(leader_epoch=EPOCH, first_offset=1, last_offset=5)]
        if is_reported
        else []
    )


@pytest.mark.parametrize(
    ("theirs", "truncated_to"),
    [
        ((1, 2), 2),  # our epoch 1 is longer than the leader's
        ((1, 9), 3),  # ours is the shorter one: everything behind it differs
        ((2, 4), 4),
        ((2, 9), 5),
        ((0, 0), 0),  # nothing in common
        ((0, 9), 5),
    ],
)
def test_diverging_log_is_truncated_to_the_common_end(
    theirs: tuple[int, int], truncated_to: int
) -> None:
    """Own epochs: 1 1 1 2 2. (KIP-595, DivergingEpoch.)"""
    quorum = follower(1, 1, 1, 2, 2)
    assert receive(quorum, answer(diverging=theirs)) == [do.Truncate(truncated_to)]
    assert (quorum.log.end_offset, quorum.log.flushed_end_offset) == (truncated_to, truncated_to)


def test_log_is_truncated_once_for_two_responses() -> None:
    """A replica that looks for the leader at its bootstrap servers may send it two requests: the
    second response describes a log that no longer exists.
    """
    quorum = follower(1, 1, 1, 2, 2)
    asked = fetch_request(quorum)
    for cut in ([do.Truncate(2)], []):
        rules_following.on_fetch_response(quorum, LEADER, asked, answer(diverging=(1, 2)), 0)
        assert quorum.effects == cut
        quorum.effects.clear()


@pytest.mark.parametrize(
    ("asked_as_follower", "asked_in"), [(False, EPOCH), (False, EPOCH - 1), (True, EPOCH - 1)]
)
def test_response_that_is_no_longer_awaited_is_ignored(
    asked_as_follower: bool, asked_in: int
) -> None:
    """A replica sends a new request in another role or another epoch; a response to the former
    request must not truncate the log.

    Source: RequestManager.resetAll, KafkaRaftClient.handleInboundMessage.
    """
    found = replica()
    quorum = found.quorum
    quorum.log.append(1, 1)
    if asked_as_follower:
        quorum.see_epoch(asked_in, LEADER, {LISTENER: address_of(LEADER)}, 0)
    else:
        quorum.become_unattached(asked_in, 0)
    sent = quorum.peers.send(LEADER, address_of(LEADER), fetch_request(quorum))
    quorum.see_epoch(EPOCH, LEADER, {LISTENER: address_of(LEADER)}, 0)
    quorum.log.flushed_end_offset = quorum.log.end_offset
    quorum.effects.clear()
    found.on_response(sent.number, answer(diverging=(0, 0)), 0)
    assert (quorum.effects, quorum.log.end_offset) == ([], 1)
    found.on_response(
        quorum.peers.send(LEADER, address_of(LEADER), fetch_request(quorum)).number,
        answer(diverging=(0, 0)),
        0,
    )
    assert quorum.effects == [do.Truncate(0)], "the same response counts if it is awaited"


@pytest.mark.parametrize(
    ("high_watermark", "start_offset", "is_fatal"),
    [(2, 0, False), (3, 0, True), (None, 2, False), (None, 3, True), (0, 3, True)],
)
def test_committed_records_and_snapshots_are_not_truncated(
    high_watermark: int | None, start_offset: int, is_fatal: bool
) -> None:
    """No valid leader can request it. The truncation would be at offset 2."""
    quorum = follower(1, 1, 1, 2, 2)
    quorum.log.high_watermark, quorum.log.start_offset = high_watermark, start_offset
    if is_fatal:
        with pytest.raises(FatalQuorumError, match="below the high watermark"):
            receive(quorum, answer(diverging=(1, 2)))
        assert quorum.log.end_offset == 5
    else:
        receive(quorum, answer(diverging=(1, 2)))
        assert quorum.log.end_offset == 2


@pytest.mark.parametrize(
    ("known", "reported", "becomes", "is_news"),
    [(None, 1, 1, True), (1, 2, 2, True), (2, 2, 2, False), (2, 1, 2, False), (1, 9, 3, True)],
)
def test_high_watermark_is_the_leaders_bounded_by_the_own_log(
    known: int | None, reported: int, becomes: int, is_news: bool
) -> None:
    """It never decreases, and an unchanged value is not published."""
    quorum = follower(1, 1, 1)
    quorum.log.high_watermark = known
    effects = receive(quorum, answer(high_watermark=reported))
    assert quorum.log.high_watermark == becomes
    assert any(isinstance(effect, do.Advance) for effect in effects) is is_news


def test_response_of_a_former_epochs_leader_is_ignored() -> None:
    """It was sent before the epoch ended and arrived late."""
    quorum = follower(1)
    assert receive(quorum, answer(batch(1, 2), leader_epoch=2, high_watermark=1)) == []
    assert (quorum.log.end_offset, quorum.log.high_watermark, quorum.epoch) == (1, None, EPOCH)


def test_snapshot_is_complete_with_its_last_chunk() -> None:
    """Only then does it replace the log; its records are committed, and its epoch is the last
    one.
    """
    quorum = follower(1)
    receive(quorum, answer(snapshot=SnapshotId(7, 2)))
    for position in (0, 40, 80):
        piece = snapshots.PartitionSnapshot(
            index=0,
            snapshot_id=snapshots.SnapshotId(end_offset=7, epoch=2),
            current_leader=snapshots.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=EPOCH),
            size=100,
            position=position,
            unaligned_records=bytes(min(40, 100 - position)),
        )
        response = snapshots.FetchSnapshotResponse(
            topics=[snapshots.TopicSnapshot(partitions=[piece])]
        )
        rules_following.on_fetch_snapshot_response(quorum, LEADER, response, 0)
        effects, quorum.effects = quorum.effects, []
        assert [type(effect) for effect in effects] == [do.WriteSnapshotPiece] + [
            do.FinishSnapshot
        ] * (position == 80)
    rules_following.on_snapshot_installed(quorum, SnapshotId(7, 2), None, 0)
    assert (
        quorum.log.start_offset,
        quorum.log.end,
        quorum.log.high_watermark,
        quorum.log.flushed_end_offset,
    ) == (7, (2, 7), 7, 7)


def test_snapshot_with_another_voter_set_is_reported() -> None:
    """A replica that loads it uses its voters; if they are the same, nothing has changed."""
    quorum = follower(1)
    emitted: list[Event] = []
    quorum.emit = emitted.append
    all_three = quorum.voters.latest
    rules_following.on_snapshot_installed(
        quorum, SnapshotId(7, 2), all_three.without_voter(ReplicaKey(3)), DYNAMIC_VOTERS
    )
    rules_following.on_snapshot_installed(
        quorum, SnapshotId(8, 2), all_three.without_voter(ReplicaKey(3)), DYNAMIC_VOTERS
    )
    changes = [event for event in emitted if isinstance(event, VotersChanged)]
    assert changes == [VotersChanged(offset=6, voters="1,2", kraft_version=DYNAMIC_VOTERS)]


# Leading
# --------------------------------------------------------------------------------------------------


def leader() -> Quorum:
    """A leader whose first record is not replicated yet."""
    quorum = replica().quorum
    quorum.become_candidate(0, retries=0)
    rules_leading.lead(quorum, 0)
    quorum.effects.clear()
    return quorum


@pytest.mark.parametrize(
    ("ahead", "error"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_serves_only_replicas_that_know_its_epoch(ahead: int, error: ErrorCode) -> None:
    """A follower of a former leader must learn of the new epoch before it receives records."""
    quorum = leader()
    partition = fetch.FetchPartition(
        partition=0, current_leader_epoch=quorum.epoch + ahead, fetch_offset=0, last_fetched_epoch=0
    )
    request = fetch.FetchRequest(
        cluster_id=CLUSTER,
        replica_state=fetch.ReplicaState(replica_id=LEADER),
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )
    refused = rules_serving.refuse_fetch(quorum, request)
    assert (
        ErrorCode.NONE
        if refused is None
        else ErrorCode(refused.responses[0].partitions[0].error_code)
    ) is error


@pytest.mark.parametrize(
    ("asks", "leads"),
    [((LEADER,), True), ((OBSERVER,), False), ((OBSERVER, LEADER), True), ((), False)],
)
def test_only_voter_fetches_prevent_a_leader_from_resigning(
    asks: tuple[int, ...], leads: bool
) -> None:
    """Of three voters, the leader and one more; a fetching observer proves nothing about the
    quorum.
    """
    quorum = leader()
    late_ms = quorum.settings.check_quorum_ms
    for node_id in asks:
        rules_leading.on_fetch(quorum, ReplicaKey(node_id), 0, 0, late_ms - 1, 0)
    assert isinstance(quorum.role, Leader)
    rules_leading.poll_leader(quorum, quorum.role, late_ms)
    assert isinstance(quorum.role, Leader if leads else Resigned)


def test_leader_becomes_active_when_the_first_record_of_its_epoch_is_committed() -> None:
    """Before that it cannot know which records of former epochs are committed."""
    quorum = replica().quorum
    quorum.become_candidate(0, retries=0)
    rules_leading.lead(quorum, 0)
    quorum.log.flushed_end_offset = quorum.log.end_offset
    rules_leading.on_flushed(quorum)
    assert not any(isinstance(effect, do.Lead) for effect in quorum.effects)
    rules_leading.on_fetch(quorum, ReplicaKey(LEADER), quorum.log.end_offset, quorum.epoch, 0, 0)
    assert sum(isinstance(effect, do.Lead) for effect in quorum.effects) == 1
    rules_leading.on_fetch(quorum, ReplicaKey(3), quorum.log.end_offset, quorum.epoch, 0, 0)
    assert sum(isinstance(effect, do.Lead) for effect in quorum.effects) == 1
