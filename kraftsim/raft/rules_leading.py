"""Leaders: the start of an epoch, appends, fetches by followers, and resignation.

Source: KIP-595, KIP-853, org.apache.kafka.raft.KafkaRaftClient (onBecomeLeader, pollLeader,
handleFetchRequest, pollResigned).
"""

from typing import Final

from msgspec import Struct

from kraftsim.metadata.events import ControllerElected, MetadataAppended, MetadataCommitted
from kraftsim.raft import rules_messages
from kraftsim.raft.events import CheckQuorumFailed, LeaderLogHeld, VotersChanged
from kraftsim.raft.rules_effects import (
    Flush,
    Lead,
    Reply,
    WakeFetches,
    WriteLeaderChange,
    WriteVoters,
)
from kraftsim.raft.rules_log import DivergingEpoch, SnapshotId
from kraftsim.raft.rules_messages import is_settled_by_epoch
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import Leader, Leadership, Resigned
from kraftsim.raft.rules_voters import DYNAMIC_VOTERS, ReplicaKey, VoterNode, VoterSet
from protocol.errors import ErrorCode
from protocol.messages.k53_begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse

FORMATTED_OFFSET = -1
"""The offset of the voters from formatting: before the log."""


def lead(quorum: Quorum, now_ms: int) -> None:
    """Start the epoch after a won election: append the LeaderChange record, and notify the
    voters.
    """
    leadership = quorum.become_leader(now_ms)
    log, voters = quorum.log, quorum.voters
    first_offset = log.end_offset
    renewed = _voters_to_write(quorum)
    has_version = renewed is not None and voters.latest_offset == FORMATTED_OFFSET
    log.append(quorum.epoch, 1 + (renewed is not None) + has_version)
    if renewed is not None:
        if has_version:
            voters.add_version(first_offset + 1, DYNAMIC_VOTERS)
        _use_voters(quorum, log.end_offset - 1, renewed)
    _emit_log_epochs(quorum, first_offset)
    elected = ControllerElected(
        leader_epoch=quorum.epoch,
        epoch_start_offset=first_offset,
        leader_id=quorum.own.id,
        voter_count=len(leadership.voters),
    )
    quorum.emit(elected)
    quorum.emit(
        MetadataAppended(
            leader_epoch=quorum.epoch,
            first_offset=first_offset,
            last_offset=log.end_offset - 1,
            record_kinds="LeaderChange",
        )
    )
    quorum.effects.append(
        WriteLeaderChange(
            leader_epoch=quorum.epoch,
            first_offset=first_offset,
            voters=leadership.voters.keys,
            granting=leadership.granting,
            voters_record=renewed.record() if renewed is not None else None,
            kraft_version=DYNAMIC_VOTERS if has_version else None,
        )
    )
    on_written(quorum)


def poll_leader(quorum: Quorum, role: Leader, now_ms: int) -> int:
    """Send BeginQuorumEpoch periodically; resign without a majority, or on shutdown.

    Returns the next poll time.
    """
    leadership = role.leadership
    committed = quorum.log.high_watermark or 0
    if leadership.removed_at_offset is not None and committed > leadership.removed_at_offset:
        quorum.resign(now_ms, "it is no voter any more")
        return now_ms
    if quorum.is_stopping and not quorum.voter_set.is_only_voter(quorum.own):
        quorum.resign(now_ms, "stopping")
        return now_ms
    resigns_at_ms = leadership.resigns_at_ms(quorum.settings.check_quorum_ms)
    if resigns_at_ms is not None and now_ms >= resigns_at_ms:
        reachable_count = leadership.reachable_count(now_ms - quorum.settings.check_quorum_ms)
        quorum.emit(
            CheckQuorumFailed(
                leader_epoch=quorum.epoch,
                reachable_count=reachable_count,
                voter_count=len(leadership.voters),
                kraft_version=quorum.voters.kraft_version,
            )
        )
        quorum.resign(now_ms, "no requests from a majority of the voters")
        return now_ms
    if now_ms >= role.begin_epoch_at_ms:
        _notify_voters(quorum, role, now_ms)
    return min(
        role.begin_epoch_at_ms,
        resigns_at_ms if resigns_at_ms is not None else role.begin_epoch_at_ms,
    )


def poll_resigned(quorum: Quorum, role: Resigned, now_ms: int) -> int:
    """Send EndQuorumEpoch, the most complete log first. Returns the next poll time."""
    wake_ms = role.election_at_ms
    for voter in quorum.voter_set.others(quorum.own.id):
        if voter.key.id in role.acknowledged:
            continue
        if quorum.peers.is_ready(voter.key.id, now_ms):
            quorum.send_to(voter, rules_messages.end_epoch_request(quorum, role.successors))
        else:
            ready_ms = quorum.peers.ready_at_ms(voter.key.id)
            wake_ms = wake_ms if ready_ms is None else min(wake_ms, ready_ms)
    return wake_ms


def append(quorum: Quorum, record_count: int, record_kinds: str) -> int:
    """Assign offsets to the records of one batch and return the first.

    Write and replay them, then call `on_written`.
    """
    assert isinstance(quorum.role, Leader), "only a leader appends"
    first_offset = quorum.log.append(quorum.epoch, record_count)
    quorum.emit(
        MetadataAppended(
            leader_epoch=quorum.epoch,
            first_offset=first_offset,
            last_offset=quorum.log.end_offset - 1,
            record_kinds=record_kinds,
        )
    )
    return first_offset


def append_voters(quorum: Quorum, voters: VoterSet) -> int:
    """Append a voter set and return the offset; it is used at once."""
    assert isinstance(quorum.role, Leader), "only a leader changes the voters"
    offset = append(quorum, 1, "Voters")
    quorum.effects.append(WriteVoters(quorum.epoch, offset, voters.record()))
    _use_voters(quorum, offset, voters)
    on_written(quorum)
    return offset


def on_written(quorum: Quorum) -> None:
    """All appended records are written: flush them, and let followers fetch them."""
    quorum.effects.append(Flush(quorum.log.end_offset))
    quorum.effects.append(WakeFetches())
    _advance(quorum)


def on_flushed(quorum: Quorum) -> None:
    """The flushed offset of the leader's log has advanced."""
    _advance(quorum)


class Readable(Struct, frozen=True):
    """A Fetch may be answered with records from its offset on, or wait for some."""


READABLE: Final = Readable()
FetchOutcome = Readable | DivergingEpoch | SnapshotId


def on_fetch(
    quorum: Quorum,
    replica: ReplicaKey,
    fetch_offset: int,
    last_fetched_epoch: int,
    now_ms: int,
    wall_ms: int,
) -> FetchOutcome:
    """Compare a follower's log with this one, and record its progress.

    The request is already validated.
    """
    assert isinstance(quorum.role, Leader), "only a leader answers a Fetch"
    found = quorum.log.agreement_with(fetch_offset, last_fetched_epoch)
    if found is not None:
        return found
    if replica.id >= 0:
        quorum.role.leadership.on_fetch(
            replica, fetch_offset, quorum.log.end_offset, now_ms, wall_ms
        )
        if quorum.voters.latest.includes(replica):
            _advance(quorum)
    return READABLE


def on_fetch_snapshot(quorum: Quorum, replica: ReplicaKey, now_ms: int) -> None:
    """Record that a replica fetches a snapshot: it is reachable, without progress."""
    if isinstance(quorum.role, Leader):
        quorum.role.leadership.record_contact(replica, now_ms)


def on_begin_epoch_request(
    quorum: Quorum, request: BeginQuorumEpochRequest, ticket: object, now_ms: int
) -> None:
    """Handle BeginQuorumEpoch. Raises FatalQuorumError for an invalid leader."""
    refused = rules_messages.refuse_begin_epoch(quorum, request)
    if refused is None:
        answer = rules_messages.parse_begin_epoch(request)
        error = ErrorCode.NONE
        if answer.epoch < quorum.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif answer.leader_id < 0:
            error = ErrorCode.INVALID_REQUEST
        else:
            quorum.see_epoch(answer.epoch, answer.leader_id, answer.endpoints, now_ms)
            if answer.is_for_another(quorum.own):
                error = ErrorCode.INVALID_VOTER_KEY
        refused = rules_messages.begin_epoch_response(quorum, error)
    quorum.effects.append(Reply(ticket, refused))


def on_begin_epoch_response(
    quorum: Quorum, voter_id: int, response: BeginQuorumEpochResponse, now_ms: int
) -> None:
    """A voter has acknowledged the leader, or has a higher epoch."""
    answer = rules_messages.begin_epoch_answer(quorum, response)
    if not is_settled_by_epoch(quorum, voter_id, answer, now_ms) and isinstance(
        quorum.role, Leader
    ):
        for progress in quorum.role.leadership.followers:
            if progress.key.id == voter_id:
                progress.has_acknowledged = True


def on_end_epoch_response(
    quorum: Quorum, voter_id: int, response: EndQuorumEpochResponse, now_ms: int
) -> None:
    """A voter has acknowledged the resignation."""
    answer = rules_messages.end_epoch_answer(quorum, response)
    if not is_settled_by_epoch(quorum, voter_id, answer, now_ms) and isinstance(
        quorum.role, Resigned
    ):
        quorum.role.acknowledged[voter_id] = None


def _notify_voters(quorum: Quorum, role: Leader, now_ms: int) -> None:
    for voter in quorum.voter_set.others(quorum.own.id):
        if quorum.peers.is_ready(voter.key.id, now_ms):
            quorum.send_to(voter, rules_messages.begin_epoch_request(quorum, voter))
    role.begin_epoch_at_ms = now_ms + quorum.settings.begin_epoch_interval_ms


def _advance(quorum: Quorum) -> None:
    """Advance the high watermark to the majority's offset, and become active once the epoch's first
    record is committed.
    """
    if not isinstance(quorum.role, Leader):
        return
    leadership: Leadership = quorum.role.leadership
    high_watermark = leadership.high_watermark(quorum.log)
    if high_watermark is None:
        return
    quorum.emit(MetadataCommitted(leader_epoch=quorum.epoch, high_watermark=high_watermark))
    quorum.advance(high_watermark)
    quorum.effects.append(WakeFetches())
    if not leadership.is_announced:
        leadership.is_announced = True
        quorum.effects.append(Lead(quorum.epoch))


def _emit_log_epochs(quorum: Quorum, end_offset: int) -> None:
    """Emit the epochs of the log at the start of this replica's leadership."""
    log = quorum.log
    if log.start_offset:
        quorum.emit(
            LeaderLogHeld(
                leader_epoch=quorum.epoch, epoch=-1, first_offset=0, end_offset=log.start_offset
            )
        )
    ends = [start.start_offset for start in log.epochs.starts[1:]]
    for start, end in zip(log.epochs.starts, [*ends, end_offset], strict=False):
        if start.start_offset < end_offset:
            quorum.emit(
                LeaderLogHeld(
                    leader_epoch=quorum.epoch,
                    epoch=start.leader_epoch,
                    first_offset=start.start_offset,
                    end_offset=end,
                )
            )


def _use_voters(quorum: Quorum, offset: int, voters: VoterSet) -> None:
    quorum.voters.add_voters(offset, voters)
    if isinstance(quorum.role, Leader):
        quorum.role.leadership.set_voters(voters, offset)
    quorum.emit(
        VotersChanged(
            offset=offset,
            voters=",".join(map(str, voters.ids)),
            kraft_version=quorum.voters.kraft_version,
        )
    )


def _voters_to_write(quorum: Quorum) -> VoterSet | None:
    """Return the voters to write with the epoch: those from formatting, or with this node's updated
    entry.
    """
    voters = quorum.voters
    if voters.kraft_version < DYNAMIC_VOTERS:
        return None
    known = voters.latest.node(quorum.own.id)
    own = VoterNode(
        key=quorum.own,
        endpoints=quorum.own_endpoints,
        kraft_versions=known.kraft_versions if known is not None else (0, 1),
    )
    if known is not None and known.endpoints != quorum.own_endpoints:
        return voters.latest.with_updated(own)
    return voters.latest if voters.latest_offset == FORMATTED_OFFSET else None
