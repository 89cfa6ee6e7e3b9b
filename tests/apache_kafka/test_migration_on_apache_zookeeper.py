"""A broker and a controller of ours migrate what is in an Apache ZooKeeper, and what is in one of ours: both say the same afterwards.

`make migration` plays it; see `test_migration.py` for the same with a broker of Apache Kafka.
"""

import os

import pytest

from tests.apache_kafka.migration_comparison import records, znodes
from tests.apache_kafka.migration_run import Recording, broker_of_ours, migrate

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not os.environ.get("KRAFTSIM_MIGRATION"), reason="`make migration` plays whole migrations"),
]


@pytest.fixture(scope="module")
def on_ours() -> Recording:
    return migrate(is_ours=True, broker=broker_of_ours)


@pytest.fixture(scope="module")
def on_theirs() -> Recording:
    return migrate(is_ours=True, broker=broker_of_ours, on_apache_zookeeper=True)


def test_nothing_is_lost_and_no_producer_id_is_given_twice(on_ours: Recording, on_theirs: Recording) -> None:
    """Clients hear of nothing, on either ZooKeeper."""
    for found in (on_ours, on_theirs):
        assert found.refused == []
        assert found.acknowledged == sum(map(len, found.read.values()))
        assert len(set(found.producer_ids)) == len(found.producer_ids)
        assert found.producer_ids[0] < 1000 <= found.producer_ids[-1]


@pytest.mark.parametrize("moment", ["before", "waiting", "dual", "mirrored", "after"])
def test_both_servers_hold_the_same(on_ours: Recording, on_theirs: Recording, moment: str) -> None:
    """Every path, every field of every text, every version of a znode (but for how often states were written in the end, which is timing)."""
    counts = moment != "after"
    assert znodes(getattr(on_ours, moment), counts_states=counts) == znodes(getattr(on_theirs, moment), counts_states=counts)


def test_the_log_is_the_same(on_ours: Recording, on_theirs: Recording) -> None:
    """What is copied does not depend on the server."""
    assert records(on_ours) == records(on_theirs)
