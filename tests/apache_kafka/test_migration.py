"""The same migration from ZooKeeper to KRaft by a controller of ours and by Apache Kafka's,
compared field by field.

Values that cannot be equal are normalised: generated ids, ports, times, offsets, and the order of
partitions, which is a hash order in theirs.
"""

import os

import pytest

from tests.apache_kafka.migration_comparison import records, requests, writes, znodes
from tests.apache_kafka.migration_run import LATER_TOPIC, TOPIC, Recording, migrate

pytestmark = pytest.mark.interop

compared = pytest.mark.skipif(
    not os.environ.get("KRAFTSIM_MIGRATION"),
    reason="`make migration` compares both: when a broker is unfenced depends on the speed of the "
    "machine",
)


@pytest.fixture(scope="module")
def ours() -> Recording:
    return migrate(is_ours=True)


@pytest.fixture(scope="module")
def theirs() -> Recording:
    return migrate(is_ours=False)


def test_migration_loses_no_record_and_duplicates_no_producer_id(
    ours: Recording, theirs: Recording
) -> None:
    """Clients see no error, from the blocks of ZooKeeper to those of KRaft."""
    for found in (ours, theirs):
        assert found.refused == []
        assert found.acknowledged == sum(map(len, found.read.values()))
        assert len(set(found.producer_ids)) == len(found.producer_ids)
        assert found.producer_ids[0] < 1000 <= found.producer_ids[-1]


@compared
@pytest.mark.parametrize("moment", ["before", "waiting", "dual", "mirrored", "after"])
def test_the_same_znodes_have_the_same_content(
    ours: Recording, theirs: Recording, moment: str
) -> None:
    """Before, while the controllers wait, in dual write, after changes there, and at the end (then
    the number of state writes depends on timing).
    """
    counts = moment != "after"
    assert znodes(getattr(ours, moment), counts_states=counts) == znodes(
        getattr(theirs, moment), counts_states=counts
    )


@compared
def test_the_log_has_the_same_records(ours: Recording, theirs: Recording) -> None:
    """Bootstrap, registrations, the initial copy, changes in dual write, the broker in KRaft mode,
    the finalization.
    """
    assert records(ours) == records(theirs)


@compared
def test_the_broker_receives_the_same_requests(ours: Recording, theirs: Recording) -> None:
    """The same requests with the same content. How often it receives existing partitions, and
    whether in full or incremental requests, depends on when it is unfenced: before the controller
    sends everything, or after (kafka.migration.MigrationPropagator). A new topic is sent once.
    """
    assert requests(ours, LATER_TOPIC) == requests(theirs, LATER_TOPIC)
    assert requests(ours, TOPIC, typed=False)[-1] in requests(theirs, TOPIC, typed=False)
    assert {(type(body), version) for version, _, body in ours.requests} == {
        (type(body), version) for version, _, body in theirs.requests
    }


@compared
def test_zookeeper_is_written_in_the_same_order(ours: Recording, theirs: Recording) -> None:
    """Claim, first comparison, blocks, a topic, its configuration; /migration is written with each,
    and with each NoOp.

    After the broker is restarted in KRaft mode the same znodes are written: their order and number
    depend on what is committed together.
    """
    assert writes(ours.writes) == writes(theirs.writes)
    assert set(writes(ours.later)) == set(writes(theirs.later))
