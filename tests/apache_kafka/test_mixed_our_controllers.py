"""Three controllers and a broker of kraftsim with a broker of Apache Kafka: it registers, serves,
and survives a failover of ours.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kraftsim.cluster.processes import ProcessCluster
from tests.apache_kafka.harness import STOP_SECONDS, ApacheKafka
from tests.apache_kafka.mixed import (
    METADATA_LOG,
    PAIRS,
    Workload,
    apache,
    controllers_of,
    leader_of,
    logged_errors,
    metadata_of,
    metadata_records,
    mixed_port,
    new_leader,
    our_cluster,
    wait_for_leaders,
    wait_until,
)
from tests.cluster.broker_client import broker_client
from tests.cluster.running import address_of

pytestmark = pytest.mark.interop
OURS, THEIRS = 1, 7
BLOCK = 1000
PARTITIONS = 8
LETS_IN_SECONDS = 60


@dataclass(frozen=True)
class Mixed:
    """The cluster."""

    ours: ProcessCluster
    theirs: ApacheKafka

    @property
    def brokers(self) -> tuple[str, str]:
        """The address of our broker and of theirs."""
        return address_of(self.ours, "broker-1"), self.theirs.bootstrap

    def create(self, topic: str) -> None:
        """Create a topic with Apache Kafka's tool through Apache Kafka's broker, and wait until
        both brokers return the same metadata.
        """
        self.theirs.tool(
            "topics",
            "--create",
            "--if-not-exists",
            "--topic",
            topic,
            "--partitions",
            str(PARTITIONS),
        )
        wait_until(
            lambda: metadata_of(self.brokers[0], topic) == metadata_of(self.brokers[1], topic),
            "both brokers know the same",
        )


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair.theirs}-{pair.ours}")
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    """All nodes run; a test that stops a node restarts it."""
    directory = tmp_path_factory.mktemp("mixed") / "run"
    with our_cluster(
        directory, port=mixed_port(), controllers=3, brokers=1, release=request.param.ours
    ) as ours:
        voters = ours.spec.node("broker-1").properties["controller.quorum.voters"]
        with apache(
            request.param.theirs,
            {"process.roles": "broker", "node.id": str(THEIRS), "controller.quorum.voters": voters},
            level=request.param.level,
        ) as theirs:
            yield Mixed(ours, theirs)
            ours.require_running()
            assert not logged_errors(theirs)


def test_an_apache_broker_registers_and_both_brokers_return_the_same_metadata(mixed: Mixed) -> None:
    """It is registered, unfenced, and gets partitions like any other broker; it opens its port only
    after that.
    """
    assert mixed.theirs.started_seconds < LETS_IN_SECONDS
    mixed.create("shared")
    cluster_id, brokers, _, _, partitions = metadata_of(mixed.brokers[0], "shared")
    assert cluster_id == mixed.ours.spec.cluster_id
    assert [broker_id for broker_id, _, _ in brokers] == [OURS, THEIRS]
    assert {leader for _, leader, _, _, _ in partitions} == {OURS, THEIRS}


def test_our_controller_allocates_producer_ids_for_both_brokers(mixed: Mixed) -> None:
    """Each broker has its own blocks, and no id is in two of them (KIP-730)."""
    drawn = {}
    for broker_id, address in zip((OURS, THEIRS), mixed.brokers, strict=True):
        with broker_client(address) as broker:
            drawn[broker_id] = [broker.fresh_producer_id() for _ in range(20)]
    leader = new_leader(controllers_of(mixed.ours), among=(101, 102, 103))
    log = mixed.ours.directory.data(f"controller-{leader}") / METADATA_LOG
    blocks = [
        record["data"]
        for record in metadata_records(log, release=mixed.theirs.release)
        if record["type"] == "PRODUCER_IDS_RECORD"
    ]
    for broker_id, ids in drawn.items():
        own = [
            range(block["nextProducerId"] - BLOCK, block["nextProducerId"])
            for block in blocks
            if block["brokerId"] == broker_id
        ]
        assert all(any(drawn_id in block for block in own) for drawn_id in ids), (ids, own)
    assert not set(drawn[OURS]) & set(drawn[THEIRS])


def test_an_idempotent_workload_survives_a_kill_of_our_active_controller(mixed: Mixed) -> None:
    """Nothing is lost or duplicated; their broker finds the next leader, forwards CreateTopics to
    it, and gets its next block from it.
    """
    topic = "through-failover"
    mixed.create(topic)
    workload = Workload(",".join(mixed.brokers), topic, PARTITIONS)
    workload.write(2000)
    before = new_leader(controllers_of(mixed.ours), among=(101, 102, 103))
    mixed.ours.kill(f"controller-{before}")
    killed = time.monotonic()
    workload.write(2000)
    with broker_client(mixed.theirs.bootstrap) as broker:
        last = broker.fresh_producer_id()
        broker.create_topic("after-failover", 2)
        answered = time.monotonic() - killed
        drawn = [last]
        while drawn[-1] // BLOCK == last // BLOCK:
            drawn.append(broker.fresh_producer_id())
        assert drawn == sorted(set(drawn)), "ids only grow; librdkafka takes some in between"
    print(
        f"{mixed.theirs.release}: kill -9 of the active controller to CreateTopics answered "
        f"through the Apache broker: {answered:.2f} s"
    )
    after = leader_of(controllers_of(mixed.ours))
    assert after not in (None, before)
    workload.flush()
    workload.check()
    mixed.ours.restart(f"controller-{before}")
    wait_until(
        lambda: (
            metadata_of(mixed.brokers[0], "after-failover")
            == metadata_of(mixed.brokers[1], "after-failover")
        ),
        "both know the same",
    )


def test_an_apache_broker_shuts_down_cleanly_and_returns(mixed: Mixed) -> None:
    """Controlled shutdown: our controller moves its leaderships, or leaves partitions without a
    leader, and permits the shutdown (KIP-631).
    """
    topic = "there-and-back"
    mixed.create(topic)
    workload = Workload(",".join(mixed.brokers), topic, PARTITIONS)
    workload.write(400)
    workload.flush()
    began = time.monotonic()
    mixed.theirs.stop()
    assert time.monotonic() - began < STOP_SECONDS, "the controller permitted the shutdown"
    wait_for_leaders(mixed.brokers[0], topic, {OURS, -1})
    mixed.theirs.start()
    wait_for_leaders(mixed.brokers[0], topic, {OURS, THEIRS})
    workload.write(400)
    workload.flush()
    workload.check()
