"""`kraftsim kill`, `restart`, `pause`, `isolate` and `slow` on the ZooKeeper server of a detached
cluster, while a client writes.

It takes half a minute, so it is part of `make upgrades`.
"""

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.spec import ZOOKEEPER_SESSION_MS
from tests.cluster.broker_client import batch_of, broker_client
from tests.cluster.running import logged_events
from tests.cluster.test_manual_faults import BROKER, OTHER, SECONDS, Detached, wait_until
from tests.cluster.test_up import kraftsim

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        os.environ.get("KRAFTSIM_UPGRADES") is None,
        reason="takes half a minute: set KRAFTSIM_UPGRADES=1 to run it",
    ),
]

SERVER = "zookeeper-1"
TOPIC = "t"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detached]:
    data = tmp_path_factory.mktemp("manual zookeeper faults") / "run"
    try:
        found = Detached(data, "--proxy", "--zookeeper")
        create(found, TOPIC)
        yield found
    finally:
        kraftsim("down", "--data", str(data))


def write(cluster: Detached, value: bytes) -> None:
    """Write a record to the current leader; leaders stay leaders without ZooKeeper."""
    with broker_client(f"127.0.0.1:{cluster.port}") as first:
        leader = first.metadata(TOPIC).topics[0].partitions[0].leader_id
        with broker_client(f"127.0.0.1:{cluster.port + leader - 1}") as broker:
            assert broker.produce(TOPIC, batch_of([value])).error_code == 0


def values(cluster: Detached) -> list[bytes]:
    with broker_client(f"127.0.0.1:{cluster.port}") as first:
        leader = first.metadata(TOPIC).topics[0].partitions[0].leader_id
        with broker_client(f"127.0.0.1:{cluster.port + leader - 1}") as broker:
            return broker.values(TOPIC)


def create(cluster: Detached, topic: str) -> None:
    """Create a topic with the current controller, and wait until all brokers have it."""
    addresses = [("127.0.0.1", cluster.port), ("127.0.0.1", cluster.port + 1)]
    asyncio.run(asyncio.wait_for(create_topic(addresses, topic, 1, 2), SECONDS))


def test_zookeeper_is_killed_and_restarted_while_a_client_writes(cluster: Detached) -> None:
    """Its sessions survive; nothing is lost."""
    assert cluster.do("kill", SERVER) == "zookeeper-1 killed\n"
    write(cluster, b"without")
    assert cluster.do("restart", SERVER) == "zookeeper-1 started again\n"
    write(cluster, b"with")
    create(cluster, "after-the-kill")
    assert not logged_events(cluster.directory, "BrokerSessionLost", BROKER)
    assert cluster.do("restart", SERVER) == "zookeeper-1 stopped and started again\n"
    assert values(cluster) == [b"without", b"with"]


def test_zookeeper_is_paused_and_resumed(cluster: Detached) -> None:
    assert cluster.do("pause", SERVER) == "zookeeper-1 paused\n"
    write(cluster, b"paused")
    assert cluster.do("resume", SERVER) == "zookeeper-1 resumed\n"
    create(cluster, "after-the-pause")
    assert values(cluster)[-1] == b"paused"


def test_a_broker_partitioned_from_zookeeper_gets_a_new_session(cluster: Detached) -> None:
    """The other broker keeps its session: only one link is partitioned."""
    lost, began = (
        len(logged_events(cluster.directory, kind, OTHER))
        for kind in ("BrokerSessionLost", "BrokerSessionBegan")
    )
    others = len(logged_events(cluster.directory, "BrokerSessionLost", BROKER))
    assert (
        cluster.do("isolate", f"{OTHER}<>{SERVER}")
        == "broker-2<>zookeeper-1 isolated until `kraftsim heal`\n"
    )
    time.sleep(1.5 * ZOOKEEPER_SESSION_MS / 1000)  # a session cannot expire earlier
    assert cluster.do("heal") == "1 fault of the network healed\n"
    wait_until(lambda: len(logged_events(cluster.directory, "BrokerSessionLost", OTHER)) > lost)
    wait_until(lambda: len(logged_events(cluster.directory, "BrokerSessionBegan", OTHER)) > began)
    assert len(logged_events(cluster.directory, "BrokerSessionLost", BROKER)) == others
    create(cluster, "after-the-cut")
    write(cluster, b"healed")
    assert values(cluster)[-1] == b"healed"


def test_zookeeper_can_be_slowed_down(cluster: Detached) -> None:
    """Half a second for each of its responses, and a topic creation needs several; direct clients
    of its port wait as long.
    """
    assert (
        cluster.do("slow", f"{SERVER}>*", "--latency", "500")
        == "zookeeper-1>* slowed until `kraftsim heal`\n"
    )
    began = time.monotonic()
    create(cluster, "made-slowly")
    assert time.monotonic() - began >= 1.0
    assert cluster.do("heal") == "1 fault of the network healed\n"


def test_zookeeper_connections_can_be_reset(cluster: Detached) -> None:
    """Every broker reconnects with its session."""
    lost = [
        len(logged_events(cluster.directory, "BrokerSessionLost", name)) for name in (BROKER, OTHER)
    ]
    count = int(cluster.do("isolate", "--reset", SERVER).split()[0])
    assert count >= 2
    create(cluster, "after-the-reset")
    assert [
        len(logged_events(cluster.directory, "BrokerSessionLost", name)) for name in (BROKER, OTHER)
    ] == lost


def test_the_leader_target_is_the_controller_broker(cluster: Detached) -> None:
    before = {
        broker: len(logged_events(cluster.directory, "ZookeeperControllerElected", broker))
        for broker in (BROKER, OTHER)
    }
    killed, word = cluster.do("kill", "leader").split()
    assert word == "killed" and before[killed] > 0, "it has been controller"
    (other,) = set(before) - {killed}
    wait_until(
        lambda: (
            len(logged_events(cluster.directory, "ZookeeperControllerElected", other))
            > before[other]
        )
    )
    assert cluster.do("kill", "leader") == f"{other} killed\n"
    assert [cluster.do("restart", node) for node in before] == [
        f"{node} started again\n" for node in before
    ]
    create(cluster, "after-both")
