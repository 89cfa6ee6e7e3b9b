"""What a follower makes of the answers of its leader, one at a time, and what a leader makes of those who ask it.   Source: KIP-595, KIP-630."""

from dataclasses import replace

import pytest

from kraftsim.core.raft import effects as do
from kraftsim.core.raft import following, leading, serving
from kraftsim.core.raft.fetch_messages import fetch_request
from kraftsim.core.raft.quorum import FatalQuorumError, Quorum
from kraftsim.core.raft.raft_log import SnapshotId
from kraftsim.core.raft.replica import RaftReplica
from kraftsim.core.raft.roles import Follower, Leader, Resigned
from kraftsim.core.raft.voter_set import DYNAMIC_VOTERS, ReplicaKey
from kraftsim.events.event import Event
from kraftsim.events.raft import MetadataReplicated, VotersChanged
from protocol.batches import build_batch
from protocol.errors import ErrorCode
from protocol.messages import k01_fetch as fetch
from protocol.messages import k59_fetch_snapshot as snapshots
from protocol.records import Record
from protocol.uuids import METADATA_TOPIC_ID
from tests.core.quorum_lab import CLUSTER, LISTENER, Lab, address_of

LEADER, OWN, OBSERVER = 1, 2, 9
EPOCH = 3


def replica(node_id: int = OWN) -> RaftReplica:
    """A replica that has begun; nodes 1 to 3 vote."""
    lab = Lab(1)
    lab.nodes[OWN].start()
    found = lab.nodes[OWN].replica
    assert found is not None
    if node_id != OWN:
        found.quorum.own = ReplicaKey(node_id)
    found.take_effects()
    return found


def follower(*epochs: int, node_id: int = OWN) -> Quorum:
    """One that follows node 1 in epoch 3, with a record of each of these epochs, all of them flushed."""
    quorum = replica(node_id).quorum
    for epoch in epochs:
        quorum.log.append(epoch, 1)
    quorum.log.flushed_end_offset = quorum.log.end_offset
    quorum.see_epoch(EPOCH, LEADER, {LISTENER: address_of(LEADER)}, 0)
    assert isinstance(quorum.role, Follower)
    quorum.effects.clear()
    return quorum


def batch(first_offset: int, epoch: int, count: int = 1, *, is_sound: bool = True) -> bytes:
    content = bytearray(build_batch([Record(value=b"x")] * count, base_offset=first_offset, leader_epoch=epoch))
    content[-1] ^= not is_sound
    return bytes(content)


def answer(
    *batches: bytes, leader_epoch: int = EPOCH, high_watermark: int = -1, diverging: tuple[int, int] | None = None, snapshot: SnapshotId | None = None
) -> fetch.FetchResponse:
    """An answer of the leader to a Fetch."""
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


def hear(quorum: Quorum, response: fetch.FetchResponse) -> list[do.Effect]:
    """Let an answer of the leader come."""
    following.on_fetch_response(quorum, LEADER, fetch_request(quorum), response, 0)
    effects, quorum.effects = quorum.effects, []
    return effects


@pytest.mark.parametrize(
    ("batches", "end_offset", "last_epoch"),
    [
        ([], 2, 2),
        ([batch(2, 2)], 3, 2),
        ([batch(2, 3, count=4)], 6, 3),
        ([batch(2, 2), batch(3, 3), batch(4, 3)], 5, 3),
        ([batch(3, 3)], 2, 2),  # behind a hole
        ([batch(1, 3)], 2, 2),  # what is there already
        ([batch(2, 1)], 2, 2),  # of an epoch that is over in this log
        ([batch(2, 4)], 2, 2),  # of an epoch that the leader cannot know
        ([batch(2, 3), batch(3, 2)], 3, 3),
        ([batch(2, 3), batch(4, 3)], 3, 3),
        ([batch(2, 3, is_sound=False)], 2, 2),
        ([batch(2, 3), batch(3, 3, is_sound=False), batch(4, 3)], 3, 3),
        ([batch(2, 3), batch(3, 3)[:-5]], 3, 3),  # cut off by what a Fetch may have at most
    ],
)
def test_only_what_follows_the_own_log_is_taken(batches: list[bytes], end_offset: int, last_epoch: int) -> None:
    """Whole batches, in order, sound, of epochs that do not fall and are not above the leader's."""
    quorum = follower(1, 2)
    effects = hear(quorum, answer(*batches))
    assert (quorum.log.end_offset, quorum.log.last_epoch, quorum.log.flushed_end_offset) == (end_offset, last_epoch, 2)
    written = [effect for effect in effects if isinstance(effect, do.WriteFetched)]
    assert b"".join(bytes(each.records) for each in written) == b"".join(batches[: len(written[0].batches) if written else 0])
    assert [type(effect) for effect in effects] == ([do.WriteFetched, do.Flush] if end_offset > 2 else [])


def test_a_replica_that_need_not_flush_counts_what_it_has_written_as_durable() -> None:
    """An observer may: whatever it loses, the leader has. It fetches on at once."""
    quorum = follower(1)
    quorum.settings = replace(quorum.settings, always_flushes=False)
    assert [type(effect) for effect in hear(quorum, answer(batch(1, 3)))] == [do.WriteFetched]
    assert quorum.log.flushed_end_offset == quorum.log.end_offset == 2


@pytest.mark.parametrize(("node_id", "is_noted"), [(OWN, True), (OBSERVER, False)])
def test_a_voter_notes_what_it_has_copied(node_id: int, is_noted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """First and last offset are inside; observers would only repeat what voters say."""
    noted: list[object] = []
    quorum = follower(1, node_id=node_id)
    monkeypatch.setattr(quorum, "note", noted.append)
    hear(quorum, answer(batch(1, 3, count=5)))
    assert noted == ([MetadataReplicated(leader_epoch=EPOCH, first_offset=1, last_offset=5)] if is_noted else [])


@pytest.mark.parametrize(
    ("theirs", "cut_at"),
    [
        ((1, 2), 2),  # our epoch 1 is longer than the leader's
        ((1, 9), 3),  # ours is the shorter one: behind it nothing is the same
        ((2, 4), 4),
        ((2, 9), 5),
        ((0, 0), 0),  # nothing in common
        ((0, 9), 5),
    ],
)
def test_a_log_that_diverges_is_cut_where_both_may_agree(theirs: tuple[int, int], cut_at: int) -> None:
    """Our epochs: 1 1 1 2 2. (KIP-595, DivergingEpoch.)"""
    quorum = follower(1, 1, 1, 2, 2)
    assert hear(quorum, answer(diverging=theirs)) == [do.Truncate(cut_at)]
    assert (quorum.log.end_offset, quorum.log.flushed_end_offset) == (cut_at, cut_at)


def test_a_log_is_cut_once_however_often_the_leader_was_asked() -> None:
    """Whoever looks for the leader at its bootstrap servers may ask it twice: the second answer is of a log that is no more."""
    quorum = follower(1, 1, 1, 2, 2)
    asked = fetch_request(quorum)
    for cut in ([do.Truncate(2)], []):
        following.on_fetch_response(quorum, LEADER, asked, answer(diverging=(1, 2)), 0)
        assert quorum.effects == cut
        quorum.effects.clear()


@pytest.mark.parametrize(("asked_as_follower", "asked_in"), [(False, EPOCH), (False, EPOCH - 1), (True, EPOCH - 1)])
def test_an_answer_that_is_not_waited_for_any_more_is_passed_over(asked_as_follower: bool, asked_in: int) -> None:
    """A replica asks again in another role or another epoch; an answer to what it asked before must
    not cut the log.   Source: RequestManager.resetAll, KafkaRaftClient.handleInboundMessage."""
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
    found.on_response(quorum.peers.send(LEADER, address_of(LEADER), fetch_request(quorum)).number, answer(diverging=(0, 0)), 0)
    assert quorum.effects == [do.Truncate(0)], "the same answer counts where it is awaited"


@pytest.mark.parametrize(
    ("high_watermark", "start_offset", "is_fatal"), [(2, 0, False), (3, 0, True), (None, 2, False), (None, 3, True), (0, 3, True)]
)
def test_what_is_committed_or_in_a_snapshot_is_not_cut(high_watermark: int | None, start_offset: int, is_fatal: bool) -> None:
    """A leader that wants it so is no leader that there can be. The cut is at 2."""
    quorum = follower(1, 1, 1, 2, 2)
    quorum.log.high_watermark, quorum.log.start_offset = high_watermark, start_offset
    if is_fatal:
        with pytest.raises(FatalQuorumError, match="below what is committed"):
            hear(quorum, answer(diverging=(1, 2)))
        assert quorum.log.end_offset == 5
    else:
        hear(quorum, answer(diverging=(1, 2)))
        assert quorum.log.end_offset == 2


@pytest.mark.parametrize(
    ("known", "told", "becomes", "is_news"), [(None, 1, 1, True), (1, 2, 2, True), (2, 2, 2, False), (2, 1, 2, False), (1, 9, 3, True)]
)
def test_the_high_watermark_is_the_leaders_as_far_as_the_own_log_goes(known: int | None, told: int, becomes: int, is_news: bool) -> None:
    """It never falls, and what is no news is not told."""
    quorum = follower(1, 1, 1)
    quorum.log.high_watermark = known
    effects = hear(quorum, answer(high_watermark=told))
    assert quorum.log.high_watermark == becomes
    assert any(isinstance(effect, do.Advance) for effect in effects) is is_news


def test_what_a_leader_of_a_past_epoch_says_is_not_taken() -> None:
    """It was sent before the epoch was over, and came late."""
    quorum = follower(1)
    assert hear(quorum, answer(batch(1, 2), leader_epoch=2, high_watermark=1)) == []
    assert (quorum.log.end_offset, quorum.log.high_watermark, quorum.epoch) == (1, None, EPOCH)


def test_a_snapshot_is_whole_with_its_last_piece() -> None:
    """Then, and not before, it takes the place of the log; what it covers is committed, and its epoch is the last one."""
    quorum = follower(1)
    hear(quorum, answer(snapshot=SnapshotId(7, 2)))
    for position in (0, 40, 80):
        piece = snapshots.PartitionSnapshot(
            index=0,
            snapshot_id=snapshots.SnapshotId(end_offset=7, epoch=2),
            current_leader=snapshots.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=EPOCH),
            size=100,
            position=position,
            unaligned_records=bytes(min(40, 100 - position)),
        )
        response = snapshots.FetchSnapshotResponse(topics=[snapshots.TopicSnapshot(partitions=[piece])])
        following.on_fetch_snapshot_response(quorum, LEADER, response, 0)
        effects, quorum.effects = quorum.effects, []
        assert [type(effect) for effect in effects] == [do.WriteSnapshotPiece] + [do.FinishSnapshot] * (position == 80)
    following.on_snapshot_installed(quorum, SnapshotId(7, 2), None, 0)
    assert (quorum.log.start_offset, quorum.log.end, quorum.log.high_watermark, quorum.log.flushed_end_offset) == (7, (2, 7), 7, 7)


def test_a_snapshot_that_names_other_voters_says_so() -> None:
    """Whoever takes it in goes by them; where they are the same, nothing has changed."""
    quorum = follower(1)
    noted: list[Event] = []
    quorum.note = noted.append
    all_three = quorum.voters.latest
    following.on_snapshot_installed(quorum, SnapshotId(7, 2), all_three.without_voter(ReplicaKey(3)), DYNAMIC_VOTERS)
    following.on_snapshot_installed(quorum, SnapshotId(8, 2), all_three.without_voter(ReplicaKey(3)), DYNAMIC_VOTERS)
    told = [event for event in noted if isinstance(event, VotersChanged)]
    assert told == [VotersChanged(offset=6, voters="1,2", kraft_version=DYNAMIC_VOTERS)]


# Leading --------------------------------------------------------------------------------------------------------------------------------------


def leader() -> Quorum:
    """One that leads, and whose first record is nowhere else yet."""
    quorum = replica().quorum
    quorum.become_candidate(0, retries=0)
    leading.lead(quorum, 0)
    quorum.effects.clear()
    return quorum


@pytest.mark.parametrize(("ahead", "error"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_leader_serves_those_who_know_its_epoch(ahead: int, error: ErrorCode) -> None:
    """Whoever follows a leader of the past must hear of it before it is given records."""
    quorum = leader()
    partition = fetch.FetchPartition(partition=0, current_leader_epoch=quorum.epoch + ahead, fetch_offset=0, last_fetched_epoch=0)
    request = fetch.FetchRequest(
        cluster_id=CLUSTER,
        replica_state=fetch.ReplicaState(replica_id=LEADER),
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )
    refused = serving.refuse_fetch(quorum, request)
    assert (ErrorCode.NONE if refused is None else ErrorCode(refused.responses[0].partitions[0].error_code)) is error


@pytest.mark.parametrize(("asks", "leads"), [((LEADER,), True), ((OBSERVER,), False), ((OBSERVER, LEADER), True), ((), False)])
def test_only_voters_keep_a_leader_in_its_place(asks: tuple[int, ...], leads: bool) -> None:
    """Of three, it and one more; an observer that reads tells nothing of the quorum."""
    quorum = leader()
    late_ms = quorum.settings.check_quorum_ms
    for node_id in asks:
        leading.on_fetch(quorum, ReplicaKey(node_id), 0, 0, late_ms - 1, 0)
    assert isinstance(quorum.role, Leader)
    leading.poll_leader(quorum, quorum.role, late_ms)
    assert isinstance(quorum.role, Leader if leads else Resigned)


def test_a_leader_acts_once_the_first_record_of_its_epoch_is_committed() -> None:
    """Before that it cannot know what of former epochs is."""
    quorum = replica().quorum
    quorum.become_candidate(0, retries=0)
    leading.lead(quorum, 0)
    quorum.log.flushed_end_offset = quorum.log.end_offset
    leading.on_flushed(quorum)
    assert not any(isinstance(effect, do.Lead) for effect in quorum.effects)
    leading.on_fetch(quorum, ReplicaKey(LEADER), quorum.log.end_offset, quorum.epoch, 0, 0)
    assert sum(isinstance(effect, do.Lead) for effect in quorum.effects) == 1
    leading.on_fetch(quorum, ReplicaKey(3), quorum.log.end_offset, quorum.epoch, 0, 0)
    assert sum(isinstance(effect, do.Lead) for effect in quorum.effects) == 1
