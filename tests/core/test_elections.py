"""A candidate's steps: which voters it asks, when it gives up, its backoff, and what follows.

Source: KIP-595, KIP-996.
"""

import pytest

from kraftsim.raft import rules_effects as do
from kraftsim.raft import rules_elections
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_roles import Candidate, Leader, Prospective
from kraftsim.raft.rules_settings import RaftSettings
from tests.core.quorum_harness import Harness

OWN, OTHER, THIRD = 2, 1, 3
REQUEST_MS = 700


def candidate(*, has_pre_vote: bool = False, retries: int = 1) -> tuple[Quorum, Candidate]:
    """One of three voters that has just started an election, with maximal backoff."""
    harness = Harness(
        1,
        settings=RaftSettings(
            has_pre_vote=has_pre_vote, request_timeout_ms=REQUEST_MS, election_backoff_max_ms=10_000
        ),
    )
    harness.nodes[OWN].start()
    replica = harness.nodes[OWN].replica
    assert replica is not None
    quorum = replica.quorum
    quorum.draw = lambda slots: slots - 1
    quorum.become_candidate(0, retries=retries)
    assert isinstance(quorum.role, Candidate)
    quorum.effects.clear()
    return quorum, quorum.role


def asked(quorum: Quorum) -> list[int]:
    """The voters asked since the last call."""
    effects, quorum.effects = quorum.effects, []
    return [effect.node_id for effect in effects if isinstance(effect, do.Send)]


def test_unanswered_voters_are_asked_until_a_majority_has_granted() -> None:
    """Each once; the next poll is due when a response is overdue or the election ends, whichever
    comes first.
    """
    quorum, role = candidate()
    assert role.election_at_ms > REQUEST_MS
    assert rules_elections.poll_candidate(quorum, role, 0) == REQUEST_MS
    assert asked(quorum) == [OTHER, THIRD]
    assert rules_elections.poll_candidate(quorum, role, 1) == 1 + REQUEST_MS
    assert asked(quorum) == []
    late_ms = role.election_at_ms - 1
    assert rules_elections.poll_candidate(quorum, role, late_ms) == role.election_at_ms, (
        "it waits for no voter longer than that"
    )
    role.canvass.grant(THIRD)
    rules_elections.poll_candidate(quorum, role, late_ms)
    assert isinstance(quorum.role, Leader)


@pytest.mark.parametrize("is_refused", [True, False])
@pytest.mark.parametrize(("retries", "pause_ms"), [(1, 100), (2, 300), (3, 700)])
def test_lost_election_is_followed_by_exponential_backoff(
    is_refused: bool, retries: int, pause_ms: int
) -> None:
    """Two voters have rejected, or the election timeout has passed, at exactly that millisecond.
    Then a new epoch starts as the next attempt.
    """
    quorum, role = candidate(retries=retries)
    now_ms = 10 if is_refused else role.election_at_ms
    if is_refused:
        role.canvass.reject(OTHER)
        role.canvass.reject(THIRD)
    assert rules_elections.poll_candidate(quorum, role, now_ms) == now_ms + pause_ms
    assert asked(quorum) == []
    assert rules_elections.poll_candidate(quorum, role, now_ms + pause_ms - 1) == now_ms + pause_ms
    assert quorum.role is role, "it backs off"
    rules_elections.poll_candidate(quorum, role, now_ms + pause_ms)
    assert isinstance(quorum.role, Candidate)
    assert (quorum.role.epoch, quorum.role.retries) == (role.epoch + 1, retries + 1)


def test_with_pre_vote_a_lost_election_is_followed_by_a_pre_vote() -> None:
    """It checks whether another election could be won without raising the epoch (KIP-996)."""
    quorum, role = candidate(has_pre_vote=True)
    pause_ends_ms = rules_elections.poll_candidate(quorum, role, role.election_at_ms)
    rules_elections.poll_candidate(quorum, role, pause_ends_ms)
    assert isinstance(quorum.role, Prospective)
    assert quorum.role.epoch == role.epoch
