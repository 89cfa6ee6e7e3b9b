"""Apache Kafka's kafka-configs limits the connection rate of our brokers, by IP address and by
broker (KIP-612).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer, PeerClosed
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import run_java

pytestmark = pytest.mark.interop
CONFIGS = "kafka.admin.ConfigCommand"
SECONDS = 60.0
WINDOWS_SECONDS = 12
"""After this time the rate windows are empty."""
RATE, CONNECTIONS = 2, 40
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of one broker."""
    class_path(DEFAULT_RELEASE)
    with EmbeddedCluster(ClusterSpec(brokers=1, port=free_port_range(1))) as cluster:
        yield cluster.bootstrap


def run_configs(broker: str, *arguments: str) -> str:
    """Run kafka-configs and check that it succeeds."""
    done = run_java(DEFAULT_RELEASE, CONFIGS, "--bootstrap-server", broker, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def served(address: str, patience_seconds: float) -> list[bool | None]:
    """Open many connections at once and send a request; return for each whether it got a response,
    was closed (False), or still waits (None).
    """
    with ExitStack() as opened:
        peers = [
            opened.enter_context(Peer.at(address, timeout_seconds=patience_seconds))
            for _ in range(CONNECTIONS)
        ]
        for peer in peers:
            peer.send(ApiVersionsRequest(), 0)
        return [_fate(peer, patience_seconds) for peer in peers]


def _fate(peer: Peer, patience_seconds: float) -> bool | None:
    try:
        peer.receive_frame(patience_seconds)
    except PeerClosed:
        return False
    except TimeoutError:
        return None
    return True


def wait_until_all_are_served(address: str) -> None:
    """The tool connects too: the rate windows must be empty."""
    time.sleep(WINDOWS_SECONDS)
    with Peer.at(address) as peer:
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


def test_an_ip_connection_rate_limit_can_be_set_and_removed(broker: str) -> None:
    """kafka-configs --entity-type ips: excess connections are closed, and --describe shows the
    limit; without it all are served.
    """
    one = ("--entity-type", "ips", "--entity-name", "127.0.0.1")
    run_configs(broker, "--alter", *one, "--add-config", f"connection_creation_rate={RATE}")
    assert f"connection_creation_rate={RATE}.0" in run_configs(broker, "--describe", *one)
    fates = served(broker, 5)
    assert None not in fates and 10 <= fates.count(True) <= 10 * RATE + 2, fates
    wait_until_all_are_served(broker)
    run_configs(broker, "--alter", *one, "--delete-config", "connection_creation_rate")
    assert served(broker, 5).count(True) == CONNECTIONS


def test_a_broker_delays_connections_above_its_rate_limit(broker: str) -> None:
    """kafka-configs --entity-type brokers: excess connections are delayed, and none is closed."""
    every = ("--entity-type", "brokers", "--entity-default")
    run_configs(broker, "--alter", *every, "--add-config", f"max.connection.creation.rate={RATE}")
    began = time.monotonic()
    fates = served(broker, 1.0)
    assert False not in fates and 1 <= fates.count(True) < CONNECTIONS, fates
    assert time.monotonic() - began < SECONDS
    wait_until_all_are_served(broker)
    run_configs(broker, "--alter", *every, "--delete-config", "max.connection.creation.rate")
    assert served(broker, 5).count(True) == CONNECTIONS
