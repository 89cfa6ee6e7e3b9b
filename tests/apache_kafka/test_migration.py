"""The same migration from ZooKeeper to KRaft twice, by a controller of ours and by Apache Kafka's own, compared field by field.

What cannot be equal is made so before: ids that are drawn, ports, times, offsets, and the order of partitions, which theirs takes from a hash map.
"""

import os

import pytest

from tests.apache_kafka.migration_comparison import records, requests, writes, znodes
from tests.apache_kafka.migration_run import LATER_TOPIC, TOPIC, Recording, migrate

pytestmark = pytest.mark.interop

compared = pytest.mark.skipif(
    not os.environ.get("KRAFTSIM_MIGRATION"),
    reason="`make migration` compares both: when a broker is let in again depends on how fast the machine is",
)


@pytest.fixture(scope="module")
def ours() -> Recording:
    return migrate(is_ours=True)


@pytest.fixture(scope="module")
def theirs() -> Recording:
    return migrate(is_ours=False)


def test_nothing_is_lost_and_no_producer_id_is_given_twice(ours: Recording, theirs: Recording) -> None:
    """Clients hear of nothing, from ZooKeeper's blocks to those of KRaft."""
    for found in (ours, theirs):
        assert found.refused == []
        assert found.acknowledged == sum(map(len, found.read.values()))
        assert len(set(found.producer_ids)) == len(found.producer_ids)
        assert found.producer_ids[0] < 1000 <= found.producer_ids[-1]


@compared
@pytest.mark.parametrize("moment", ["before", "waiting", "dual", "mirrored", "after"])
def test_the_same_znodes_say_the_same(ours: Recording, theirs: Recording, moment: str) -> None:
    """Before, while the controllers wait, in dual write, after changes there, and when it is over (how often states were written then is timing)."""
    counts = moment != "after"
    assert znodes(getattr(ours, moment), counts_states=counts) == znodes(getattr(theirs, moment), counts_states=counts)


@compared
def test_the_log_has_the_same_records(ours: Recording, theirs: Recording) -> None:
    """Bootstrap, registrations, the copy, what was decided in dual write, the broker as one of KRaft, the end."""
    assert records(ours) == records(theirs)


@compared
def test_the_broker_is_told_the_same(ours: Recording, theirs: Recording) -> None:
    """The same requests with the same content. How often it hears of what it has, and whether as everything there is or as what is new, depends on
    when it is let in: before the controller tells all, or after (kafka.migration.MigrationPropagator). Of a new topic it hears once.
    """
    assert requests(ours, LATER_TOPIC) == requests(theirs, LATER_TOPIC)
    assert requests(ours, TOPIC, typed=False)[-1] in requests(theirs, TOPIC, typed=False)
    assert {(type(body), version) for version, _, body in ours.requests} == {(type(body), version) for version, _, body in theirs.requests}


@compared
def test_zookeeper_is_written_in_the_same_order(ours: Recording, theirs: Recording) -> None:
    """Claim, first comparison, blocks, a topic, its configuration; /migration moves with each, and with each NoOp.

    Once the broker is restarted as one of KRaft the same znodes are written: in which order, and how often, hangs on what is committed together.
    """
    assert writes(ours.writes) == writes(theirs.writes)
    assert set(writes(ours.later)) == set(writes(theirs.later))
