"""A reassignment to a broker that is down, replaced by one that adds no replica, is in progress for
ever since 4.3: on Apache Kafka and on kraftsim.
"""

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.target import Target
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.replaced_reassignments import (
    BROKERS,
    CONTROL,
    SETTINGS,
    await_brokers,
    expected,
    observed,
    three_brokers,
)

LIMIT_SECONDS = 2.0


@pytest.mark.parametrize("release", [CONTROL, NEWEST_RELEASE])
def test_kraftsim_completes_it_or_not_as_apache_kafka(release: str) -> None:
    line = release.rpartition(".")[0]
    port = free_port_range(len(BROKERS))
    spec = ClusterSpec(brokers=len(BROKERS), release=line, port=port, settings=SETTINGS)
    with EmbeddedCluster(spec) as cluster:
        target = Target(cluster.bootstrap.partition(",")[0])

        def stop(broker_id: int) -> None:
            cluster.kill(f"broker-{broker_id}")
            await_brokers(target, len(BROKERS) - 1)

        assert observed(target, stop, LIMIT_SECONDS) == expected(release)


@pytest.mark.interop
@pytest.mark.parametrize("release", [CONTROL, NEWEST_RELEASE])
def test_apache_kafka_does_what_the_page_says(release: str) -> None:
    with three_brokers(release) as (target, stop):
        assert observed(target, stop) == expected(release)
