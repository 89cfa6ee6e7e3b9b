"""A broker and a controller of ours migrate from Apache ZooKeeper and from our ZooKeeper, with the
same result.

`make migration` runs it; see `test_migration.py` for the same with a broker of Apache Kafka.
"""

import os

import pytest

from tests.apache_kafka.migration_comparison import records, znodes
from tests.apache_kafka.migration_run import Recording, broker_of_ours, migrate

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not os.environ.get("KRAFTSIM_MIGRATION"), reason="`make migration` runs complete migrations"
    ),
]


@pytest.fixture(scope="module")
def on_ours() -> Recording:
    return migrate(is_ours=True, broker=broker_of_ours)


@pytest.fixture(scope="module")
def on_theirs() -> Recording:
    return migrate(is_ours=True, broker=broker_of_ours, on_apache_zookeeper=True)


def test_migration_loses_no_record_and_duplicates_no_producer_id(
    on_ours: Recording, on_theirs: Recording
) -> None:
    """Clients see no error, on either ZooKeeper."""
    for found in (on_ours, on_theirs):
        assert found.refused == []
        assert found.acknowledged == sum(map(len, found.read.values()))
        assert len(set(found.producer_ids)) == len(found.producer_ids)
        assert found.producer_ids[0] < 1000 <= found.producer_ids[-1]


@pytest.mark.parametrize("moment", ["before", "waiting", "dual", "mirrored", "after"])
def test_both_zookeepers_hold_the_same_znodes(
    on_ours: Recording, on_theirs: Recording, moment: str
) -> None:
    """Every path, every field and every version of a znode (except the number of state writes at
    the end, which depends on timing).
    """
    counts = moment != "after"
    assert znodes(getattr(on_ours, moment), counts_states=counts) == znodes(
        getattr(on_theirs, moment), counts_states=counts
    )


def test_the_metadata_log_is_the_same(on_ours: Recording, on_theirs: Recording) -> None:
    """The migrated metadata do not depend on the server."""
    assert records(on_ours) == records(on_theirs)
