"""Events as sentences: every kind that an invariant watches has one, and nothing that a client
chose leaves it unescaped.
"""

import pytest

from kraftsim.analysis.columns import fields_of
from kraftsim.analysis.sentences import _TEMPLATES, fields_of_sentence, has_sentence, sentence_of
from kraftsim.events.catalogue import KINDS
from kraftsim.invariants.invariant import INVARIANTS

WATCHED = sorted({kind.__name__ for each in INVARIANTS.all() for kind in each.watches})


@pytest.mark.parametrize("kind", WATCHED)
def test_every_watched_kind_has_a_sentence(kind: str) -> None:
    assert has_sentence(kind)


@pytest.mark.parametrize("kind", sorted(_TEMPLATES))
def test_a_sentence_names_only_fields_of_its_kind(kind: str) -> None:
    assert kind in KINDS
    assert fields_of_sentence(kind) <= {*fields_of(kind), "node"}


def test_flags_errors_and_absent_nodes_are_words() -> None:
    marker: dict[str, int | str | bool] = {
        "topic": "t",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 1,
        "coordinator_epoch": 2,
        "is_commit": False,
        "offset": 9,
        "on_leader": True,
    }
    assert sentence_of("b", "MarkerAppended", marker) == (
        "b has the abort marker of producer id 7, epoch 1 at offset 9 of t-0, as leader, "
        "coordinator epoch 2"
    )
    assert sentence_of("b", "InitProducerIdRefused", {"error_code": 51}) == (
        "b answered InitProducerId with CONCURRENT_TRANSACTIONS"
    )
    stored = {"leader_epoch": 3, "leader_id": -1, "voted_id": 2}
    assert sentence_of("c", "QuorumStateStored", stored) == (
        "c stored its quorum state: epoch 3, leader none, vote for 2"
    )


def test_an_unknown_kind_is_described_by_its_fields() -> None:
    assert sentence_of("b", "OfTheFuture", {"a": 1, "b": "x\ny"}) == "b: OfTheFuture a=1 b=x\\ny"


def test_a_missing_field_and_a_hostile_one_leave_a_printable_sentence() -> None:
    text = sentence_of("\x1b[2J", "RecordSent", {"client_id": "{topic}\x00", "record_key": "k"})
    assert text.isprintable()
    assert text == "client {topic}\\x00 sent record k to (none)-(none)"


def test_counts_and_ranges_are_words() -> None:
    batch: dict[str, int | str | bool] = {
        "topic": "t",
        "partition": 0,
        "leader_epoch": 0,
        "first_offset": 4,
        "last_offset": 4,
        "record_count": 1,
        "producer_id": 7,
        "producer_epoch": 1,
        "base_sequence": 2,
        "last_sequence": 3,
    }
    text = sentence_of("b", "BatchAppended", batch)
    assert text == (
        "b appended 1 record as leader in epoch 0: offset 4 of t-0, producer id 7, epoch 1, "
        "sequences 2 to 3"
    )
