"""Followers and observers: fetching, truncation, snapshots, flushing, and detecting a failed
leader. Observers never vote.

Source: KIP-595, KIP-630, KIP-853, org.apache.kafka.raft.KafkaRaftClient (pollFollower,
handleFetchResponse, handleFetchSnapshotResponse).
"""

from kraftsim.raft import rules_elections, rules_messages
from kraftsim.raft.events import (
    MetadataReplicated,
    MetadataTruncated,
    SnapshotLoaded,
    VotersChanged,
)
from kraftsim.raft.rules_effects import (
    FinishSnapshot,
    Flush,
    Reply,
    Truncate,
    WriteFetched,
    WriteSnapshotPiece,
)
from kraftsim.raft.rules_log import DivergingEpoch, SnapshotId
from kraftsim.raft.rules_messages import emit_other_cluster, is_settled_by_epoch
from kraftsim.raft.rules_quorum import FatalQuorumError, Quorum
from kraftsim.raft.rules_roles import NEVER, Follower, SnapshotFetch
from kraftsim.raft.rules_settings import UPDATE_VOTER_FACTOR
from kraftsim.raft.rules_voters import (
    DYNAMIC_VOTERS,
    STATIC_VOTERS,
    Address,
    ReplicaKey,
    VoterSet,
    voter_set_of,
)
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.k59_fetch_snapshot import FetchSnapshotResponse
from protocol.messages.k82_update_raft_voter import UpdateRaftVoterResponse
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.control_records import (
    ControlType,
    KRaftVersionRecord,
    VotersRecord,
    control_type,
    parse_control_record,
)
from protocol.schema import Message

NOT_IN_THE_LOG = -1
"""The offset of voters without a record."""


def poll_follower(quorum: Quorum, role: Follower, now_ms: int) -> int:
    """Fetch from the leader continuously. Returns the next poll time."""
    if quorum.is_voter:
        if now_ms >= role.fetch_until_ms:
            rules_elections.stand(quorum, now_ms)
            return now_ms
        _fetch_from_leader(quorum, role, now_ms)
        return min(role.fetch_until_ms, _ready_at(quorum, role.leader_id, now_ms))
    is_lost = now_ms >= role.fetch_until_ms or quorum.peers.is_backing_off(role.leader_id, now_ms)
    if is_lost:
        return poll_bootstrap(quorum, now_ms)
    _fetch_from_leader(quorum, role, now_ms)
    return min(role.fetch_until_ms, _ready_at(quorum, role.leader_id, now_ms))


def poll_bootstrap(quorum: Quorum, now_ms: int) -> int:
    """Send a Fetch of an observer without leader to any voter, one at a time; the response has the
    leader.

    Returns the next poll time.
    """
    if _is_flushing(quorum) or quorum.peers.is_awaiting_any():
        return NEVER
    addresses = _bootstrap_addresses(quorum)
    chosen = quorum.peers.some_ready(list(addresses), now_ms, quorum.draw)
    if chosen is None:
        ready = [
            ready_ms
            for node_id in addresses
            if (ready_ms := quorum.peers.ready_at_ms(node_id)) is not None
        ]
        return min(ready, default=NEVER)
    quorum.effects.append(
        quorum.peers.send(chosen, addresses[chosen], rules_messages.fetch_request(quorum))
    )
    return NEVER


def on_end_epoch_request(
    quorum: Quorum, request: EndQuorumEpochRequest, ticket: object, now_ms: int
) -> None:
    """Handle EndQuorumEpoch: start an election, the most complete log first."""
    answer = rules_messages.refuse_end_epoch(quorum, request)
    if answer is None:
        ended = rules_messages.parse_end_epoch(request)
        error = ErrorCode.NONE
        if ended.epoch < quorum.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif ended.leader_id < 0:
            error = ErrorCode.INVALID_REQUEST
        else:
            quorum.see_epoch(ended.epoch, ended.leader_id, ended.endpoints, now_ms)
            on_leader_resigned(quorum, ended.leader_id, ended.successors, now_ms)
        answer = rules_messages.end_epoch_response(quorum, error)
    quorum.effects.append(Reply(ticket, answer))


def on_leader_resigned(
    quorum: Quorum, leader_id: int, successors: tuple[ReplicaKey, ...], now_ms: int
) -> None:
    """The leader resigned: the first of its preferred successors starts an election at once, later
    ones after a backoff, others last.
    """
    role = quorum.role
    if not isinstance(role, Follower) or role.leader_id != leader_id or not quorum.is_voter:
        return
    position = next(
        (index for index, key in enumerate(successors) if key.is_same_as(quorum.own)),
        len(successors),
    )
    role.fetch_until_ms = now_ms + _pause_of(
        position, len(successors), quorum.settings.election_backoff_max_ms
    )


def on_fetch_response(
    quorum: Quorum, node_id: int, request: Message, response: FetchResponse, now_ms: int
) -> None:
    """Handle a Fetch response. Raises FatalQuorumError if it contradicts a committed record."""
    answer = rules_messages.fetch_answer(quorum, response)
    if answer is None:
        emit_other_cluster(quorum, node_id, response.error_code)
        quorum.peers.back_off(node_id, now_ms)
        return
    if is_settled_by_epoch(quorum, node_id, answer, now_ms):
        return
    role = quorum.role
    if not isinstance(role, Follower) or answer.error is not ErrorCode.NONE:
        quorum.peers.back_off(node_id, now_ms)
        return
    _renew(quorum, role, now_ms)
    if answer.diverging is not None:
        if (
            rules_messages.asked_end(request) == quorum.log.end
        ):  # a replica that looks for the leader may fetch twice from it
            _truncate(quorum, answer.diverging)
    elif answer.snapshot is not None:
        role.snapshot_fetch = SnapshotFetch(snapshot=answer.snapshot)
    else:
        _append(quorum, role.epoch, answer.records)
        if answer.high_watermark >= 0:
            _learn_high_watermark(quorum, answer.high_watermark)
    role.has_fetched = True


def on_fetch_snapshot_response(
    quorum: Quorum, node_id: int, response: FetchSnapshotResponse, now_ms: int
) -> None:
    """Handle a chunk of a snapshot; the last one completes it.

    Without a chunk the snapshot is abandoned, and fetching continues.
    """
    answer = rules_messages.fetch_snapshot_answer(quorum, response)
    if answer is None:
        on_snapshot_refused(quorum, node_id, now_ms)
        return
    if is_settled_by_epoch(quorum, node_id, answer, now_ms):
        return
    role = quorum.role
    if not isinstance(role, Follower) or role.snapshot_fetch is None:
        return
    fetch = role.snapshot_fetch
    is_gone = (
        answer.error is ErrorCode.SNAPSHOT_NOT_FOUND
        or answer.snapshot.end_offset < 0
        or answer.snapshot.epoch < 0
    )
    if is_gone or answer.error is not ErrorCode.NONE:
        on_snapshot_refused(quorum, node_id, now_ms)
        return
    if answer.snapshot != fetch.snapshot or answer.position != fetch.position:
        raise FatalQuorumError(
            f"requested {fetch.snapshot} at {fetch.position}, received {answer.snapshot} at "
            f"{answer.position}"
        )
    _renew(quorum, role, now_ms)
    quorum.effects.append(WriteSnapshotPiece(fetch.snapshot, fetch.position, answer.records))
    fetch.position += len(answer.records)
    if fetch.position >= answer.size:
        fetch.is_complete = True
        quorum.effects.append(FinishSnapshot(fetch.snapshot))


def on_snapshot_refused(quorum: Quorum, node_id: int, now_ms: int) -> None:
    """Abandon a snapshot that is not available, after a backoff: the next Fetch response has
    another one, or the new leader.
    """
    if isinstance(quorum.role, Follower):
        quorum.role.snapshot_fetch = None
    quorum.peers.back_off(node_id, now_ms)


def on_snapshot_installed(
    quorum: Quorum, snapshot: SnapshotId, voters: VoterSet | None, kraft_version: int
) -> list[SnapshotId]:
    """The log starts at a snapshot, which may have voters.

    Returns the older snapshots, which are deleted.
    """
    gone = quorum.log.advance_log_start(snapshot)
    former = quorum.voters.latest
    quorum.voters.clear()
    if voters is not None:
        quorum.voters.add_version(snapshot.end_offset - 1, kraft_version)
        quorum.voters.add_voters(snapshot.end_offset - 1, voters)
    quorum.emit(SnapshotLoaded(end_offset=snapshot.end_offset, epoch=snapshot.epoch))
    if quorum.voters.latest != former:
        _emit_voters(quorum)
    if isinstance(quorum.role, Follower):
        quorum.role.snapshot_fetch = None
    return gone


def on_snapshot_damaged(quorum: Quorum, now_ms: int) -> None:
    """A fetched snapshot is corrupt: fetch it again after a backoff."""
    if isinstance(quorum.role, Follower):
        quorum.role.snapshot_fetch = None
        quorum.peers.back_off(quorum.role.leader_id, now_ms)


def on_update_voter_response(
    quorum: Quorum, node_id: int, response: UpdateRaftVoterResponse, now_ms: int
) -> None:
    """Handle an UpdateRaftVoter response: the leader has updated this voter, or there is a higher
    epoch.
    """
    answer = rules_messages.update_voter_answer(quorum, response)
    if is_settled_by_epoch(quorum, node_id, answer, now_ms) or not isinstance(
        quorum.role, Follower
    ):
        return
    quorum.role.has_updated_voter = answer.error is ErrorCode.NONE
    quorum.role.update_voter_at_ms = now_ms + UPDATE_VOTER_FACTOR * quorum.settings.fetch_timeout_ms


def take_control_records(quorum: Quorum, batch: RecordBatch) -> None:
    """Apply the voter sets of control records, committed or not."""
    for record in batch.records():
        kind = control_type(record.key)
        if kind not in (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS):
            continue
        message = parse_control_record(record.key, record.value)
        if isinstance(message, KRaftVersionRecord):
            quorum.voters.add_version(record.offset, message.k_raft_version)
        elif isinstance(message, VotersRecord):
            voters = voter_set_of(message)
            quorum.voters.add_voters(record.offset, voters)
            _emit_voters(quorum)


def _fetch_from_leader(quorum: Quorum, role: Follower, now_ms: int) -> None:
    if _is_flushing(quorum) or not quorum.peers.is_ready(role.leader_id, now_ms):
        return
    fetch = role.snapshot_fetch
    if fetch is not None and fetch.is_complete:
        return
    address = quorum.address_in(role.endpoints)
    assert address is not None, "a follower knows its leader's address"
    body: Message
    if fetch is not None:
        body = rules_messages.fetch_snapshot_request(quorum, fetch)
    elif _should_update_voter(quorum, role, now_ms):
        body = rules_messages.update_voter_request(quorum, _own_kraft_versions(quorum))
    else:
        body = rules_messages.fetch_request(quorum)
    quorum.effects.append(quorum.peers.send(role.leader_id, address, body))


def _should_update_voter(quorum: Quorum, role: Follower, now_ms: int) -> bool:
    """Return whether the voter set's entry of this node is outdated, and the check is due."""
    if (
        quorum.voters.kraft_version < DYNAMIC_VOTERS
        or not quorum.is_voter
        or now_ms < role.update_voter_at_ms
    ):
        return False
    known = quorum.voter_set.node(quorum.own.id)
    if (
        known is None
        or role.has_updated_voter
        or dict(known.endpoints) == dict(quorum.own_endpoints)
    ):
        role.update_voter_at_ms = now_ms + UPDATE_VOTER_FACTOR * quorum.settings.fetch_timeout_ms
        return False
    return True


def _own_kraft_versions(quorum: Quorum) -> tuple[int, int]:
    known = quorum.voter_set.node(quorum.own.id)
    return (STATIC_VOTERS, DYNAMIC_VOTERS) if known is None else known.kraft_versions


def _is_flushing(quorum: Quorum) -> bool:
    """Return whether records are not flushed yet: a fetch would acknowledge them."""
    return quorum.settings.always_flushes and quorum.log.flushed_end_offset < quorum.log.end_offset


def _ready_at(quorum: Quorum, node_id: int, now_ms: int) -> int:
    ready_ms = quorum.peers.ready_at_ms(node_id)
    return NEVER if ready_ms is None or ready_ms <= now_ms else ready_ms


def _renew(quorum: Quorum, role: Follower, now_ms: int) -> None:
    role.fetch_until_ms = now_ms + quorum.settings.fetch_timeout_ms


def _append(quorum: Quorum, epoch: int, records: bytes | memoryview) -> None:
    """Append the valid batches: complete, in order, with correct checksum, and no epoch above the
    leader's.
    """
    size_bytes, first_offset, taken = 0, quorum.log.end_offset, []
    for batch in split_batches(records):
        fits = (
            batch.base_offset == quorum.log.end_offset
            and quorum.log.last_epoch <= batch.partition_leader_epoch <= epoch
        )
        if not fits or not batch.crc_is_valid():
            break
        quorum.log.append(batch.partition_leader_epoch, batch.next_offset - batch.base_offset)
        if batch.is_control:
            take_control_records(quorum, batch)
        size_bytes += batch.size_bytes
        taken.append(batch)
    if not taken:
        return
    if quorum.is_voter:
        quorum.emit(
            MetadataReplicated(
                leader_epoch=epoch, first_offset=first_offset, last_offset=quorum.log.end_offset - 1
            )
        )
    quorum.effects.append(WriteFetched(memoryview(records)[:size_bytes], tuple(taken)))
    if quorum.settings.always_flushes:
        quorum.effects.append(Flush(quorum.log.end_offset))
    else:
        quorum.log.flushed_end_offset = quorum.log.end_offset


def _truncate(quorum: Quorum, theirs: DivergingEpoch) -> None:
    """Truncate the log to the largest possibly common offset."""
    log = quorum.log
    if theirs.epoch == 0:
        end_offset = min(theirs.end_offset, log.end_offset)
    else:
        ours = log.end_of_epoch(theirs.epoch)
        end_offset = (
            min(ours.end_offset, theirs.end_offset)
            if ours.epoch == theirs.epoch
            else ours.end_offset
        )
    if end_offset < (log.high_watermark or 0) or end_offset < log.start_offset:
        raise FatalQuorumError(
            f"the leader of epoch {quorum.epoch} requires truncation to {end_offset}, below the "
            "high watermark"
        )
    log.truncate_to(end_offset)
    quorum.emit(MetadataTruncated(leader_epoch=quorum.epoch, end_offset=end_offset))
    former_offset = quorum.voters.latest_offset
    quorum.voters.truncate_to(end_offset)
    if quorum.voters.latest_offset != former_offset:
        _emit_voters(quorum)
    quorum.effects.append(Truncate(end_offset))


def _emit_voters(quorum: Quorum) -> None:
    voters, offset = quorum.voters, quorum.voters.latest_offset
    ids = ",".join(map(str, voters.latest.ids))
    quorum.emit(
        VotersChanged(
            offset=NOT_IN_THE_LOG if offset is None else offset,
            voters=ids,
            kraft_version=voters.kraft_version,
        )
    )


def _learn_high_watermark(quorum: Quorum, leaders: int) -> None:
    high_watermark = min(leaders, quorum.log.end_offset)
    if quorum.log.high_watermark is None or high_watermark > quorum.log.high_watermark:
        quorum.advance(high_watermark)


def _pause_of(position: int, count: int, longest_ms: int) -> int:
    if position == 0:
        return 0
    if position >= count:
        return longest_ms
    return min(longest_ms, (longest_ms >> (count - 1)) << (position - 1))


def _bootstrap_addresses(quorum: Quorum) -> dict[int, Address]:
    """Return where to find the leader: the bootstrap servers (numbered from -2 down), else the
    voters.
    """
    if quorum.bootstrap:
        return {-2 - index: address for index, address in enumerate(quorum.bootstrap)}
    found = {}
    for voter in quorum.voter_set.others(quorum.own.id):
        address = quorum.address_in(voter.endpoints)
        if address is not None:
            found[voter.key.id] = address
    return found
