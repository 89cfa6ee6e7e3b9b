"""A migration that is rolled back and begun again with a controller that is formatted again: by
Apache Kafka's controllers and by ours the same happens.

`make migration` runs it.
"""

import os

import pytest

from tests.apache_kafka.second_migration import (
    TwoMigrations,
    contents,
    in_any_order,
    migrate_twice,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not os.environ.get("KRAFTSIM_MIGRATION"), reason="`make migration` runs complete migrations"
    ),
]


@pytest.fixture(scope="module")
def ours() -> TwoMigrations:
    return migrate_twice(is_ours=True)


@pytest.fixture(scope="module")
def theirs() -> TwoMigrations:
    return migrate_twice(is_ours=False)


def test_no_producer_id_is_given_twice_and_no_record_is_refused(
    ours: TwoMigrations, theirs: TwoMigrations
) -> None:
    """Blocks of the second log begin behind those of the first, and of ZooKeeper in between."""
    for found in (ours, theirs):
        assert found.refused == []
        assert len(set(found.producer_ids)) == len(found.producer_ids)


def test_the_controller_epoch_rises_while_that_of_the_log_begins_again(
    ours: TwoMigrations, theirs: TwoMigrations
) -> None:
    """ZooKeeper, the first quorum, the broker again, the second quorum."""
    assert ours.controller_epochs == theirs.controller_epochs
    assert sorted(set(ours.controller_epochs)) == ours.controller_epochs


def test_znodes_are_the_same_after_the_rollback_and_in_the_second_dual_write(
    ours: TwoMigrations, theirs: TwoMigrations
) -> None:
    """Also /latest_producer_id_block, /controller_epoch and the states of partitions."""
    assert contents(ours.rolled_back) == contents(theirs.rolled_back)
    assert contents(ours.dual) == contents(theirs.dual)


def test_both_logs_have_the_same_records(ours: TwoMigrations, theirs: TwoMigrations) -> None:
    """The second one has what the first one decided, and the next block of producer ids."""
    for mine, other in ((ours.first_records, theirs.first_records), (ours.records, theirs.records)):
        assert in_any_order(mine) == in_any_order(other)
    blocks = [
        each["data"]["nextProducerId"]
        for each in ours.records
        if each["type"] == "PRODUCER_IDS_RECORD"
    ]
    assert blocks == [4000, 5000]
