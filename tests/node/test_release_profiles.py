"""Release differences in producer handling are traits of the partition state.

Source: KIP-360, KIP-854, KIP-890.
"""

from dataclasses import replace

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.producer_state.rules_entries import APPEND, DAY_MS, CheckResult, Duplicate
from kraftsim.releases.release import release
from kraftsim.releases.traits import (
    ACCEPTS_UNKNOWN_PRODUCERS,
    PRODUCER_ID_EXPIRATION,
    VERIFIED_TRANSACTIONS,
    Trait,
)
from kraftsim.server.parts import Parts
from protocol.errors import ErrorCode
from tests.core.batches import make_batch, make_marker
from tests.node.brokers import broker_config

UNKNOWN = Refusal(ErrorCode.UNKNOWN_PRODUCER_ID)
WITHOUT = {
    "3.9": (),
    "3.5": (VERIFIED_TRANSACTIONS,),
    "3.3": (VERIFIED_TRANSACTIONS, PRODUCER_ID_EXPIRATION),
    "2.4": (VERIFIED_TRANSACTIONS, PRODUCER_ID_EXPIRATION, ACCEPTS_UNKNOWN_PRODUCERS),
}


@pytest.mark.parametrize(
    ("lacking", "unknown", "after_marker", "transactional", "days"),
    [
        (
            WITHOUT["3.9"],
            APPEND,
            Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
            Refusal(ErrorCode.INVALID_TXN_STATE),
            1,
        ),
        (WITHOUT["3.5"], APPEND, Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), APPEND, 1),
        (WITHOUT["3.3"], APPEND, Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), APPEND, 7),
        (WITHOUT["2.4"], UNKNOWN, UNKNOWN, APPEND, 7),
    ],
    ids=list(WITHOUT),
)
def test_each_release_has_its_own_results(
    lacking: tuple[Trait, ...],
    unknown: CheckResult,
    after_marker: CheckResult,
    transactional: CheckResult,
    days: int,
) -> None:
    """An unknown producer, one with only a marker, an unverified transaction, and the producer
    expiration.
    """
    newest = release("3.9")
    profile = replace(
        newest, traits=tuple(trait for trait in newest.traits if trait not in lacking)
    )
    state = Parts.for_release(profile).producer_state(broker_config(1, "host"))
    state.apply(make_marker(producer_id=8, timestamp=1000), 0)
    assert state.check(make_batch(7)) == unknown
    assert state.check(make_batch(7, producer_id=8)) == after_marker
    assert state.check(make_batch(0, transactional=True)) == transactional
    assert state.expire(999 + days * DAY_MS) == [] and state.expire(1000 + days * DAY_MS) == [8]


def test_before_2_4_a_producer_is_removed_with_its_last_record() -> None:
    """KAFKA-7190: at the next batch, together with its open transaction; a producer with a batch
    left is kept.
    """
    verdicts = {}
    for line in ("2.3", "2.4"):
        state = Parts.for_release(release(line)).producer_state(broker_config(1, "host"))
        state.apply(make_batch(0, producer_id=7, transactional=True), 0)
        state.apply(make_batch(0, producer_id=8), 1)
        state.apply(make_batch(1, producer_id=8), 2)
        state.on_log_start(2)
        verdicts[line] = (
            state.check(make_batch(1, producer_id=7, transactional=True)),
            state.check(make_batch(2, producer_id=8)),
        )
        assert (sorted(state.entries), state.first_unstable_offset) == (
            ([8], None) if line == "2.3" else ([7, 8], 0)
        )
        assert isinstance(state.check(make_batch(0, producer_id=8)), Duplicate), (
            "its first batch is known, though its records are deleted"
        )
    assert verdicts == {"2.3": (UNKNOWN, APPEND), "2.4": (APPEND, APPEND)}
