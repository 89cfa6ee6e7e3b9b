"""`kraftsim.Cluster`: its life, faults, upgrades and checks, in both modes."""

from pathlib import Path

import pytest

import kraftsim
from kraftsim.cluster.readiness import NotReady
from kraftsim.cluster.spec import SpecError
from kraftsim.conformance.peer import Peer
from kraftsim.invariants.verdict import Outcome
from kraftsim.partitions.events import BatchAppended
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.server.events import NodeStarted
from kraftsim.testing.cluster import FaultNotPossible, InvariantsViolated
from kraftsim.testing.security import SecurityNotPossible
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.cluster.broker_client import BrokerClient, batch_of, broker_client
from tests.cluster.running import QUICK_SESSIONS

SHORT_SECONDS = 0.5
ONE_RECORD = batch_of([b"one"])


def produce(cluster: kraftsim.Cluster, topic: str) -> int:
    """Append one record at the leader, and return its offset."""
    addresses = cluster.bootstrap.split(",")
    with broker_client(addresses[0]) as broker:
        leader = broker.metadata(topic).topics[0].partitions[0].leader_id
    with broker_client(addresses[leader - 1]) as broker:
        return broker.produce(topic, ONE_RECORD).base_offset


def test_a_cluster_serves_and_leaves_nothing_behind() -> None:
    with kraftsim.Cluster() as cluster:
        topic = cluster.create_topic()
        assert produce(cluster, topic) == 0
        assert [event.topic for _, event in cluster.events(BatchAppended)].count(topic) == 1
        assert cluster.events(ProducerIdBlockAllocated)
        assert cluster.leader() == "controller-101"
        directory = cluster.directory
        assert directory.exists()
    assert not directory.exists()
    cluster.stop()  # a second time does nothing


def test_a_cluster_that_was_never_started_can_be_stopped() -> None:
    cluster = kraftsim.Cluster()
    cluster.stop()
    assert not cluster.directory.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"release": "3.3"},
        {"release": "4.4", "controllers": 3},
        {"release": "2.8", "zookeeper": 1, "controllers": 0},
    ],
    ids=lambda options: options["release"],
)
def test_groups_and_transactions_have_a_coordinator_at_once(options: dict[str, object]) -> None:
    # arg-type: options of several types
    with kraftsim.Cluster(**options) as cluster:  # type: ignore[arg-type]
        with broker_client(cluster.bootstrap) as broker:
            for kind in (0, 1):
                found = broker.peer.ask(
                    FindCoordinatorRequest(key="mine", key_type=kind), 2, FindCoordinatorResponse
                )
                assert (found.error_code, found.node_id) == (0, 1)
        topic = cluster.create_topic()
        fault = cluster.inject_error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=topic)
        with broker_client(cluster.bootstrap) as broker:
            assert broker.metadata(topic).topics[0].error_code == 3
        assert fault.took_effect


def test_a_cluster_that_cannot_have_coordinators_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftsim.testing.cluster.COORDINATOR_SECONDS", SHORT_SECONDS)
    settings = {"offsets.topic.replication.factor": "3"}
    with kraftsim.Cluster(settings=settings) as cluster:
        assert produce(cluster, cluster.create_topic()) == 0


async def test_an_async_block_has_the_same_methods_as_coroutines() -> None:
    async with kraftsim.Cluster(settings=QUICK_SESSIONS) as cluster:
        topic = await cluster.aio.create_topic("orders", partitions=2)
        assert topic == "orders"
        await cluster.aio.kill("broker-1")
        assert cluster.is_down("broker-1")
        await cluster.aio.restart("broker-1")
        assert not cluster.is_down("broker-1")
        assert await cluster.aio.leader() == "controller-101"
        await cluster.aio.check()


def test_all_nodes_can_be_upgraded_while_a_topic_is_used() -> None:
    with kraftsim.Cluster(brokers=2, controllers=3, release="3.9", settings=QUICK_SESSIONS) as made:
        topic = made.create_topic(replicas=2)
        assert produce(made, topic) == 0
        made.upgrade("4.1")
        assert produce(made, topic) == 1
        started = [event for _, event in made.events(NodeStarted)]
    assert [event.release for event in started] == ["3.9"] * 5 + ["4.1"] * 5


def test_a_restarted_node_has_the_settings_it_is_given() -> None:
    with kraftsim.Cluster() as cluster:
        cluster.restart("broker-1", settings={"num.partitions": "7"})
        with broker_client(cluster.bootstrap) as broker:
            assert len(broker.metadata("automatic", create=True).topics) == 1
            broker.wait_for_leaders("automatic", 7)


def test_network_faults_hold_bytes_until_they_are_healed() -> None:
    with kraftsim.Cluster(network_faults=True) as cluster:
        topic = cluster.create_topic()
        cluster.cut("clients<>broker-1")
        with pytest.raises(TimeoutError), Peer.at(cluster.bootstrap, SHORT_SECONDS) as peer:
            BrokerClient(peer).produce(topic, ONE_RECORD)
        cluster.heal()
        assert produce(cluster, topic) >= 0
        cluster.slow("broker-1", latency_ms=20)
        assert cluster.reset("broker-1") > 0


def test_faults_that_a_cluster_cannot_have_say_which_can() -> None:
    with kraftsim.Cluster() as cluster:
        with pytest.raises(FaultNotPossible, match="network_faults=True"):
            cluster.cut("broker-1")
        with pytest.raises(FaultNotPossible, match='mode="processes"'):
            cluster.pause("broker-1")
        with pytest.raises(KeyError, match="broker-9"):
            cluster.kill("broker-9")


def test_processes_can_be_paused(tmp_path: Path) -> None:
    with kraftsim.Cluster(mode="processes", directory=tmp_path / "kept") as cluster:
        topic = cluster.create_topic()
        cluster.pause("broker-1")
        with pytest.raises(TimeoutError), Peer.at(cluster.bootstrap, SHORT_SECONDS) as peer:
            BrokerClient(peer).produce(topic, ONE_RECORD)
        cluster.resume()
        assert produce(cluster, topic) >= 0
        cluster.kill("broker-1")
        cluster.restart("broker-1")
    assert (tmp_path / "kept" / "data" / "broker-1").is_dir()


def test_a_check_reads_the_disks_and_names_what_is_violated(tmp_path: Path) -> None:
    """A second controller that allocated the same block: its log is a copy of the first one's."""
    with kraftsim.Cluster(directory=tmp_path / "sound") as cluster:
        produce(cluster, cluster.create_topic())
        cluster.check()
    assert {each.outcome for each in cluster.verdicts()} <= set(Outcome) - {Outcome.VIOLATED}
    broken = kraftsim.Cluster(directory=tmp_path / "broken")
    with broken:
        log = broken.directory / "events" / "controller-101.1.jsonl"
        copied = log.read_bytes().replace(b'"controller-101"', b'"controller-102"')
        log.with_name("controller-102.1.jsonl").write_bytes(copied)
        with pytest.raises(InvariantsViolated, match="block"):
            broken.check()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL", "SASL_SSL"])
def test_a_secured_cluster_starts_and_says_what_clients_need(protocol: str) -> None:
    with kraftsim.Cluster(security=protocol) as cluster:
        assert cluster.create_topic() == "topic-1"
        settings = cluster.client_settings()
    assert settings["security.protocol"] == protocol
    assert ("sasl.password" in settings) == protocol.startswith("SASL")
    assert ("ssl.ca.location" in settings) == protocol.endswith("SSL")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"brokerz": 3}, SpecError, "no option brokerz"),
        ({"brokers": "3"}, SpecError, "are numbers"),
        ({"mode": "threads"}, ValueError, "'embedded' or 'processes'"),
        ({"security": "TLS"}, SecurityNotPossible, "SASL_PLAINTEXT"),
        ({"release": "9.9"}, KeyError, "9.9"),
    ],
)
def test_options_that_are_not_valid_are_named(
    options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        # arg-type: options of several types, wrong on purpose
        kraftsim.Cluster(**options).start()  # type: ignore[arg-type]


def test_a_cluster_that_cannot_start_says_why() -> None:
    with kraftsim.Cluster() as first, pytest.raises((SpecError, NotReady), match="cannot listen"):
        kraftsim.Cluster(port=first.spec.port).start()
