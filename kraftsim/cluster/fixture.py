"""The pytest plug-in: `kraftsim_cluster` gives a running cluster to sync and async tests,
`kraftsim_spec` is its specification.

    def test_mine(kraftsim_cluster):
        producer = confluent_kafka.Producer({"bootstrap.servers": kraftsim_cluster.bootstrap})

    @pytest.mark.kraftsim(brokers=1, settings={"num.partitions": "4"})
    async def test_other(kraftsim_cluster): ...

The cluster runs for one test. `kraftsim_cluster_factory` starts as many as a test needs.

Two defaults are for speed: a new group does not wait 3 s for more members
(group.initial.rebalance.delay.ms is 0 unless `settings` override it, as in Apache Kafka's container
examples), and every broker has fetched its first block of producer ids, of which one id is used.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

if (
    TYPE_CHECKING
):  # the plug-in is loaded in every pytest run: what it needs is imported when it is used
    from kraftsim.cluster.embedded import EmbeddedCluster

QUICK: Final = {"group.initial.rebalance.delay.ms": "0"}
"""Settings that the fixture adds unless a test overrides them."""
ClusterFactory = Callable[..., "EmbeddedCluster"]


def pytest_configure(config: pytest.Config) -> None:
    """Announce the marker."""
    config.addinivalue_line(
        "markers",
        "kraftsim(**options): options of the cluster that `kraftsim_cluster` starts, as fields "
        "of ClusterSpec",
    )


@pytest.fixture
def kraftsim_cluster_factory() -> Iterator[ClusterFactory]:
    """Return a function that starts an embedded cluster; its keywords are the fields of
    ClusterSpec.

    All are stopped after the test.
    """
    from kraftsim.cluster.embedded import EmbeddedCluster
    from kraftsim.cluster.ports import free_port_range
    from kraftsim.cluster.spec import ClusterSpec

    with ExitStack() as running:

        def start(**options: object) -> EmbeddedCluster:
            chosen: dict[str, object] = {"brokers": 1, **options}
            brokers = chosen["brokers"]
            assert isinstance(brokers, int), "brokers is a number"
            chosen.setdefault("port", free_port_range(brokers))
            settings = chosen.get("settings", {})
            assert isinstance(settings, Mapping), "settings are Kafka properties"
            chosen["settings"] = {**QUICK, **settings}
            # arg-type: a dict of values of several types
            spec = ClusterSpec(**chosen)  # type: ignore[arg-type]
            cluster = running.enter_context(EmbeddedCluster(spec))
            cluster.fetch_producer_ids()
            return cluster

        yield start


@pytest.fixture
def kraftsim_cluster(
    request: pytest.FixtureRequest, kraftsim_cluster_factory: ClusterFactory
) -> "EmbeddedCluster":
    """Return a running cluster of one broker and one controller, or of the size that the `kraftsim`
    marker gives.
    """
    marker = request.node.get_closest_marker("kraftsim")
    return kraftsim_cluster_factory(**(marker.kwargs if marker is not None else {}))
