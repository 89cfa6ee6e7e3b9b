"""Apache Kafka's own tool limits how fast connections come to our brokers: kafka-configs for addresses, and for brokers (KIP-612)."""

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
"""After so long nothing counts any more."""
RATE, CONNECTIONS = 2, 40
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of one broker."""
    class_path(DEFAULT_RELEASE)
    with EmbeddedCluster(ClusterSpec(brokers=1, port=free_port_range(1))) as cluster:
        yield cluster.bootstrap


def tell(broker: str, *arguments: str) -> str:
    """Run kafka-configs to its good end."""
    done = run_java(DEFAULT_RELEASE, CONFIGS, "--bootstrap-server", broker, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def served(address: str, patience_seconds: float) -> list[bool | None]:
    """Connect many times at once and ask; tell of each whether it was answered, was closed (False), or still waits (None)."""
    with ExitStack() as opened:
        peers = [opened.enter_context(Peer.at(address, timeout_seconds=patience_seconds)) for _ in range(CONNECTIONS)]
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
    """The tool connects, too: nothing of what was counted may be left."""
    time.sleep(WINDOWS_SECONDS)
    with Peer.at(address) as peer:
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


def test_an_address_is_limited_and_let_go(broker):
    """kafka-configs --entity-type ips: what is too much is closed, and told of by --describe; without the limit all are served."""
    one = ("--entity-type", "ips", "--entity-name", "127.0.0.1")
    tell(broker, "--alter", *one, "--add-config", f"connection_creation_rate={RATE}")
    assert f"connection_creation_rate={RATE}.0" in tell(broker, "--describe", *one)
    fates = served(broker, 5)
    assert None not in fates and 10 <= fates.count(True) <= 10 * RATE + 2, fates
    wait_until_all_are_served(broker)
    tell(broker, "--alter", *one, "--delete-config", "connection_creation_rate")
    assert served(broker, 5).count(True) == CONNECTIONS


def test_a_broker_lets_connections_wait(broker):
    """kafka-configs --entity-type brokers: whoever comes too fast is served later, and nobody is closed."""
    every = ("--entity-type", "brokers", "--entity-default")
    tell(broker, "--alter", *every, "--add-config", f"max.connection.creation.rate={RATE}")
    began = time.monotonic()
    fates = served(broker, 1.0)
    assert False not in fates and 1 <= fates.count(True) < CONNECTIONS, fates
    assert time.monotonic() - began < SECONDS
    wait_until_all_are_served(broker)
    tell(broker, "--alter", *every, "--delete-config", "max.connection.creation.rate")
    assert served(broker, 5).count(True) == CONNECTIONS
