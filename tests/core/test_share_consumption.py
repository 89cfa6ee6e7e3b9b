"""A share consumer's sessions and the records that it holds (KIP-932, KIP-1222)."""

import pytest

from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_share_consumer import (
    EPOCH_MAX,
    AcquiredRange,
    AnsweredRange,
    ShareConsumption,
    ShareQuestion,
    ShareRow,
)
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import AcknowledgeType

HERE, THERE = TopicPartition("lines", 0), TopicPartition("lines", 1)
NODE = 1
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


def fetched(
    consumption: ShareConsumption, *acquired: AcquiredRange, node: int = NODE
) -> ShareQuestion:
    """Send a ShareFetch for one partition, and answer it."""
    asked = consumption.question(node, (HERE,), fetches=True)
    assert asked is not None, "nothing was in flight"
    consumption.answered(asked, ErrorCode.NONE, {HERE: ShareRow(acquired=acquired)})
    return asked


def test_a_session_names_its_partitions_once_and_counts_its_epochs() -> None:
    consumption = ShareConsumption()
    first = consumption.question(NODE, (THERE, HERE), fetches=True)
    assert first is not None
    assert (first.session_epoch, first.added, first.forgotten) == (0, (HERE, THERE), ())
    assert consumption.question(NODE, (HERE,), fetches=True) is None, "one request at a time"
    consumption.answered(first, ErrorCode.NONE, {})
    second = consumption.question(NODE, (HERE,), fetches=True)
    assert second is not None
    assert (second.session_epoch, second.added, second.forgotten) == (1, (), (THERE,))


def test_the_epoch_after_the_largest_one_is_1() -> None:
    """ShareSession.nextEpoch: 0 would open a new session."""
    consumption = ShareConsumption()
    fetched(consumption)
    consumption._sessions[NODE].epoch = EPOCH_MAX
    assert fetched(consumption).session_epoch == EPOCH_MAX
    assert fetched(consumption).session_epoch == 1


def test_answers_are_sent_in_ranges_by_type_and_given_up() -> None:
    consumption = ShareConsumption()
    fetched(consumption, AcquiredRange(0, 4, 1))
    for offset, kind in ((0, ACCEPT), (1, ACCEPT), (2, RELEASE), (4, ACCEPT)):
        assert consumption.answer(HERE, offset, kind)
    assert consumption.unanswered == 1
    asked = consumption.question(NODE, (HERE,), fetches=True)
    assert asked is not None
    assert asked.acknowledged == {
        HERE: (
            AnsweredRange(0, 1, ACCEPT, 1),
            AnsweredRange(2, 2, RELEASE, 1),
            AnsweredRange(4, 4, ACCEPT, 1),
        )
    }
    assert not consumption.answer(HERE, 0, RELEASE), "it was sent already"
    outcomes = consumption.answered(asked, ErrorCode.NONE, {})
    assert [each.error_code for each in outcomes] == [ErrorCode.NONE] * 3
    assert consumption.held(HERE, 0) is None
    assert consumption.held(HERE, 3) is not None


def test_a_poll_of_the_implicit_mode_accepts_the_rest() -> None:
    consumption = ShareConsumption()
    fetched(consumption, AcquiredRange(0, 2, 1))
    consumption.answer(HERE, 1, RELEASE)
    consumption.accept_the_rest()
    asked = consumption.question(NODE, (), fetches=False)
    assert asked is not None and not asked.fetches
    assert [each.kind for each in asked.acknowledged[HERE]] == [ACCEPT, RELEASE, ACCEPT]


def test_a_renewed_record_is_held_on_and_may_be_answered_again() -> None:
    """KIP-1222: a request that renews returns no records, so it is a ShareAcknowledge."""
    consumption = ShareConsumption()
    fetched(consumption, AcquiredRange(0, 1, 2))
    consumption.answer(HERE, 0, RENEW)
    asked = consumption.question(NODE, (HERE,), fetches=True)
    assert asked is not None
    assert (asked.fetches, asked.renews) == (False, True)
    consumption.answered(asked, ErrorCode.NONE, {})
    assert consumption.answer(HERE, 0, ACCEPT)
    held = consumption.held(HERE, 0)
    assert held is not None and held.delivery_count == 2


def test_a_renewal_that_is_refused_ends_the_hold() -> None:
    consumption = ShareConsumption()
    fetched(consumption, AcquiredRange(0, 1, 1))
    consumption.answer(HERE, 0, RENEW)
    asked = consumption.question(NODE, (), fetches=False)
    assert asked is not None
    refused = ShareRow(acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE)
    outcomes = consumption.answered(asked, ErrorCode.NONE, {HERE: refused})
    assert [each.error_code for each in outcomes] == [ErrorCode.INVALID_RECORD_STATE]
    assert consumption.held(HERE, 0) is None
    assert consumption.held(HERE, 1) is not None


@pytest.mark.parametrize(
    "error", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH]
)
def test_an_error_of_the_whole_request_ends_the_session_and_its_holds(error: ErrorCode) -> None:
    consumption = ShareConsumption()
    fetched(consumption, AcquiredRange(0, 1, 1))
    fetched(consumption, AcquiredRange(7, 7, 1), node=2)
    consumption.answer(HERE, 0, ACCEPT)
    asked = consumption.question(NODE, (HERE,), fetches=True)
    assert asked is not None
    assert [each.error_code for each in consumption.answered(asked, error, {})] == [error]
    assert consumption.held_count == 1, "that of the other leader"
    assert consumption.node_ids == [2]
    again = consumption.question(NODE, (HERE,), fetches=True)
    assert again is not None
    assert (again.session_epoch, again.added, dict(again.acknowledged)) == (0, (HERE,), {})


def test_without_a_response_the_outcome_is_unknown_and_the_session_over() -> None:
    consumption = ShareConsumption()
    fetched(consumption, AcquiredRange(0, 1, 1))
    consumption.accept_the_rest()
    asked = consumption.question(NODE, (HERE,), fetches=True)
    assert asked is not None
    assert [each.error_code for each in consumption.lost(asked)] == [None]
    assert (consumption.held_count, consumption.node_ids) == (0, [])


def test_the_last_request_has_the_final_epoch_and_the_last_answers() -> None:
    consumption = ShareConsumption()
    assert consumption.last_question(NODE) is None, "no session"
    fetched(consumption, AcquiredRange(0, 2, 1))
    consumption.answer(HERE, 1, ACCEPT)
    asked = consumption.last_question(NODE)
    assert asked is not None
    assert (asked.session_epoch, asked.acknowledged) == (
        -1,
        {HERE: (AnsweredRange(1, 1, ACCEPT, 1),)},
    )
    consumption.answered(asked, ErrorCode.NONE, {})
    assert (consumption.held_count, consumption.node_ids) == (0, [])


def test_a_record_that_another_leader_delivers_meanwhile_stays_held() -> None:
    """The first leader's lock expired, or it is the leader no longer, when its response comes."""
    consumption = ShareConsumption()
    fetched(consumption, AcquiredRange(0, 0, 1))
    consumption.accept_the_rest()
    asked = consumption.question(NODE, (HERE,), fetches=True)
    assert asked is not None
    fetched(consumption, AcquiredRange(0, 0, 2), node=2)
    consumption.answered(asked, ErrorCode.NONE, {})
    held = consumption.held(HERE, 0)
    assert held is not None and (held.node_id, held.delivery_count) == (2, 2)
