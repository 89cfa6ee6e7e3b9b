"""Leader elections: Vote requests and responses, pre-votes, and the result of an election.

A voter grants one vote per epoch, and only to a candidate whose log is at least as complete as its
own. With a pre-vote (KIP-996) a voter asks first, without bumping the epoch.
Source: KIP-595, KIP-996, org.apache.kafka.raft.KafkaRaftClient (handleVoteRequest,
handleVoteResponse, pollCandidate, pollProspective).
"""

from typing import assert_never

from kraftsim.raft import rules_leading, rules_messages
from kraftsim.raft.events import ElectionLost, VoteAnswered, VoteSent
from kraftsim.raft.rules_effects import EmitEvent, Reply
from kraftsim.raft.rules_log import LogEnd
from kraftsim.raft.rules_messages import VoteInput, is_settled_by_epoch
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import (
    Candidate,
    Canvass,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from protocol.errors import ErrorCode
from protocol.messages.k52_vote import VoteRequest, VoteResponse


def poll_unattached(quorum: Quorum, role: Unattached, now_ms: int) -> int:
    """Wait for a leader, and start an election at the timeout. Returns the next poll time."""
    if now_ms >= role.election_at_ms or quorum.voter_set.is_only_voter(quorum.own):
        stand(quorum, now_ms)
        return now_ms
    return role.election_at_ms


def stand(quorum: Quorum, now_ms: int) -> None:
    """Start an election: with a pre-vote if the release has it."""
    if not quorum.is_voter:
        quorum.become_unattached(quorum.epoch, now_ms)
    elif quorum.settings.has_pre_vote:
        quorum.become_prospective(now_ms)
    else:
        quorum.become_candidate(now_ms)


def poll_candidate(quorum: Quorum, role: Candidate, now_ms: int) -> int:
    """Send requests to voters without a response; after a lost election, back off and start another
    one.

    Returns the next poll time.
    """
    if len(role.canvass.granted) >= quorum.voter_set.majority:
        rules_leading.lead(quorum, now_ms)
        return now_ms
    if role.backs_off_until_ms is not None:
        if now_ms < role.backs_off_until_ms:
            return role.backs_off_until_ms
        if quorum.settings.has_pre_vote:
            quorum.become_prospective(now_ms)
        else:
            quorum.become_candidate(now_ms, retries=role.retries + 1)
        return now_ms
    if _is_lost(quorum, role.canvass) or now_ms >= role.election_at_ms:
        pause_ms = quorum.election_backoff(role.retries)
        role.backs_off_until_ms = now_ms + pause_ms
        quorum.emit(ElectionLost(leader_epoch=role.epoch, defeats=role.retries, pause_ms=pause_ms))
        return role.backs_off_until_ms
    return min(role.election_at_ms, _ask(quorum, role.canvass, now_ms, is_pre_vote=False))


def poll_prospective(quorum: Quorum, role: Prospective, now_ms: int) -> int:
    """Send pre-vote requests.

    If the pre-vote fails, become unattached or follower again. Returns the next poll time.
    """
    if len(role.canvass.granted) >= quorum.voter_set.majority:
        quorum.become_candidate(now_ms)
        return now_ms
    if _is_lost(quorum, role.canvass) or now_ms >= role.election_at_ms:
        if role.leader_id not in (None, quorum.own.id) and role.leader_endpoints:
            quorum.become_follower(role.epoch, role.leader_id, role.leader_endpoints, now_ms)
        else:
            quorum.become_unattached(role.epoch, now_ms, leader_id=role.leader_id, voted=role.voted)
        return now_ms
    return min(role.election_at_ms, _ask(quorum, role.canvass, now_ms, is_pre_vote=True))


def on_vote_request(quorum: Quorum, request: VoteRequest, ticket: object, now_ms: int) -> None:
    """Handle a vote request. A higher epoch is adopted in any case."""
    refused = rules_messages.refuse_vote(quorum, request)
    if refused is not None:
        quorum.effects.append(Reply(ticket, refused))
        return
    asked = rules_messages.parse_vote(request)
    error = _check(quorum, asked)
    is_granted = False
    if error is ErrorCode.NONE:
        if asked.epoch > quorum.epoch:
            quorum.become_unattached(asked.epoch, now_ms)
        if asked.is_for_another(quorum.own):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            is_granted = (
                _would_grant_pre_vote(quorum, asked)
                if asked.is_pre_vote
                else _would_grant(quorum, asked)
            )
            if is_granted and not asked.is_pre_vote:
                quorum.vote_for(asked.candidate, now_ms)
                quorum.effects.append(
                    EmitEvent(VoteSent(leader_epoch=asked.epoch, candidate_id=asked.candidate.id))
                )
        quorum.emit(
            VoteAnswered(
                leader_epoch=quorum.epoch,
                candidate_id=asked.candidate.id,
                is_granted=is_granted,
                is_pre_vote=asked.is_pre_vote,
            )
        )
    quorum.effects.append(
        Reply(ticket, rules_messages.vote_response(quorum, error, is_granted=is_granted))
    )


def on_vote_response(
    quorum: Quorum, voter_id: int, request: VoteRequest, response: VoteResponse, now_ms: int
) -> None:
    """Handle a vote response."""
    answer = rules_messages.vote_answer(quorum, response)
    if is_settled_by_epoch(quorum, voter_id, answer, now_ms):
        return
    asked = rules_messages.parse_vote(request)
    match quorum.role:
        case Candidate(canvass=canvass) if not asked.is_pre_vote and asked.epoch == quorum.epoch:
            _count(canvass, voter_id, is_granted=answer.is_granted)
        case Prospective(canvass=canvass) if asked.is_pre_vote and asked.epoch == quorum.epoch:
            _count(canvass, voter_id, is_granted=answer.is_granted)
        case _:
            pass  # the election is over


def on_pre_vote_unsupported(quorum: Quorum, now_ms: int) -> None:
    """A voter of an older release does not support pre-votes: become candidate without one."""
    if isinstance(quorum.role, Prospective):
        quorum.become_candidate(now_ms)


def _count(canvass: Canvass, voter_id: int, *, is_granted: bool) -> None:
    if is_granted:
        canvass.grant(voter_id)
    else:
        canvass.reject(voter_id)


def _is_lost(quorum: Quorum, canvass: Canvass) -> bool:
    """Return whether too many voters have rejected."""
    return len(quorum.voter_set) - len(canvass.rejected) < quorum.voter_set.majority


def _ask(quorum: Quorum, canvass: Canvass, now_ms: int, *, is_pre_vote: bool) -> int:
    wake_ms = now_ms + quorum.settings.request_timeout_ms
    for voter in quorum.voter_set.others(quorum.own.id):
        if canvass.has_answered(voter.key.id):
            continue
        if quorum.peers.is_ready(voter.key.id, now_ms):
            quorum.send_to(
                voter, rules_messages.vote_request(quorum, voter, is_pre_vote=is_pre_vote)
            )
        else:
            ready_ms = quorum.peers.ready_at_ms(voter.key.id)
            wake_ms = wake_ms if ready_ms is None else min(wake_ms, ready_ms)
    return wake_ms


def _check(quorum: Quorum, asked: VoteInput) -> ErrorCode:
    """Validate a request in Kafka's order: first inconsistent fields, then the epoch."""
    is_illegal = (
        asked.log_end.epoch > asked.epoch
        if asked.is_pre_vote
        else asked.log_end.epoch >= asked.epoch
    )
    if asked.log_end.offset < 0 or asked.log_end.epoch < 0 or is_illegal:
        return ErrorCode.INVALID_REQUEST
    if asked.epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if asked.candidate.id < 0 else ErrorCode.NONE


def _would_grant(quorum: Quorum, asked: VoteInput) -> bool:
    match quorum.role:
        case (
            Unattached(voted=voted, leader_id=leader_id)
            | Prospective(voted=voted, leader_id=leader_id)
        ):
            if voted is not None:
                return voted.is_same_as(asked.candidate)
            return leader_id is None and _is_complete(quorum, asked.log_end)
        case Follower() | Candidate() | Leader() | Resigned():
            return False
        case unknown:
            assert_never(unknown)


def _would_grant_pre_vote(quorum: Quorum, asked: VoteInput) -> bool:
    match quorum.role:
        case Leader():
            return False
        case Follower(has_fetched=has_fetched):
            return not has_fetched and _is_complete(quorum, asked.log_end)
        case Unattached() | Prospective() | Candidate() | Resigned():
            return _is_complete(quorum, asked.log_end)
        case unknown:
            assert_never(unknown)


def _is_complete(quorum: Quorum, theirs: LogEnd) -> bool:
    """Return whether a log is at least as complete as this one; only such a candidate may become
    leader.
    """
    return theirs >= quorum.log.end
