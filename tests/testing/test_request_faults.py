"""Faults of requests from a test: what clients see, in both modes, and what is reported."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

import kraftsim
from kraftsim.conformance.peer import Peer
from kraftsim.events.runs import FaultEnded, FaultInjected, FaultTookEffect
from kraftsim.partitions.events import BatchAppended
from kraftsim.testing.cluster import FaultNotPossible
from protocol.errors import ErrorCode
from tests.cluster.broker_client import BrokerClient, batch_of, broker_client

SHORT_SECONDS = 0.4
ONE_RECORD = batch_of([b"one"])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({}, id="embedded"),
        pytest.param({"mode": "processes", "network_faults": True}, id="processes"),
    ],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[kraftsim.Cluster]:
    """A cluster of one broker, for all tests of a mode."""
    with kraftsim.Cluster(**request.param) as running:
        yield running


def appended(cluster: kraftsim.Cluster, topic: str) -> int:
    """How many batches are in the log of a topic."""
    return sum(event.topic == topic for _, event in cluster.events(BatchAppended))


def until_appended(cluster: kraftsim.Cluster, topic: str, count: int) -> None:
    """Wait until so many are, and no more: a node writes its events a little later."""
    give_up_at = time.monotonic() + 10
    while appended(cluster, topic) < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    assert appended(cluster, topic) == count


def test_an_error_is_answered_so_often_and_nothing_is_done(cluster: kraftsim.Cluster) -> None:
    topic = cluster.create_topic()
    fault = cluster.inject_error("Produce", "KAFKA_STORAGE_ERROR", topic=topic, times=2)
    with broker_client(cluster.bootstrap) as client:
        codes = [client.produce(topic, ONE_RECORD).error_code for _ in range(4)]
    wrong = ErrorCode.KAFKA_STORAGE_ERROR
    assert codes == [wrong, wrong, 0, 0]
    assert [(hit.node, hit.api) for hit in fault.hits] == [("broker-1", "Produce")] * 2
    until_appended(cluster, topic, 2)
    assert (fault.effects, fault.took_effect) == (2, True)


def test_a_fault_of_another_topic_or_client_changes_nothing(cluster: kraftsim.Cluster) -> None:
    mine, other = cluster.create_topic(), cluster.create_topic()
    with (
        cluster.inject_error("Produce", 6, topic=other) as first,
        cluster.drop_request("Produce", client_id="no-client") as second,
        cluster.disconnect("Produce", topic=mine, partition=7) as third,
        broker_client(cluster.bootstrap) as client,
    ):
        assert client.produce(mine, ONE_RECORD).error_code == 0
        assert not first.took_effect and not second.took_effect and not third.took_effect
    with broker_client(cluster.bootstrap) as client:
        assert client.produce(other, ONE_RECORD).error_code == 0  # the fault is over
    assert not first.took_effect


@pytest.mark.parametrize("is_done", [False, True])
def test_a_lost_request_or_reply_is_never_answered(
    cluster: kraftsim.Cluster, is_done: bool
) -> None:
    topic = cluster.create_topic()
    lose = cluster.drop_reply if is_done else cluster.drop_request
    with lose("Produce", topic=topic) as fault:
        with pytest.raises(TimeoutError), Peer.at(cluster.bootstrap, SHORT_SECONDS) as peer:
            BrokerClient(peer).produce(topic, ONE_RECORD)
        assert fault.effects == 1
    until_appended(cluster, topic, int(is_done))


@pytest.mark.parametrize("is_done", [False, True])
def test_a_delay_lasts_as_long_as_it_says(cluster: kraftsim.Cluster, is_done: bool) -> None:
    topic = cluster.create_topic()
    delay = cluster.delay_reply if is_done else cluster.delay_request
    with delay("Produce", 300, topic=topic) as fault, broker_client(cluster.bootstrap) as client:
        began = time.monotonic()
        worker = threading.Thread(target=client.produce, args=(topic, ONE_RECORD))
        worker.start()
        if is_done:
            until_appended(cluster, topic, 1)
        fault.wait()
        worker.join()
        assert time.monotonic() - began >= 0.3
    assert appended(cluster, topic) == 1


def test_a_duplicate_is_served_twice_and_answered_once(cluster: kraftsim.Cluster) -> None:
    topic = cluster.create_topic()
    with (
        cluster.duplicate_request("Produce", topic=topic) as fault,
        broker_client(cluster.bootstrap) as client,
    ):
        assert client.produce(topic, ONE_RECORD).base_offset == 0
        fault.wait()
        until_appended(cluster, topic, 2)  # without a sequence, nothing says that it is the same
        assert client.produce(topic, ONE_RECORD).base_offset == 2


@pytest.mark.parametrize("is_done", [False, True])
def test_a_connection_ends_instead_of_an_answer(cluster: kraftsim.Cluster, is_done: bool) -> None:
    topic = cluster.create_topic()
    with cluster.disconnect("Produce", topic=topic, done=is_done) as fault:
        with pytest.raises((EOFError, ConnectionError)), broker_client(cluster.bootstrap) as client:
            client.produce(topic, ONE_RECORD)
        assert fault.took_effect
    until_appended(cluster, topic, int(is_done))


async def test_the_verbs_are_coroutines_as_well(cluster: kraftsim.Cluster) -> None:
    topic = await cluster.aio.create_topic()
    async with await cluster.aio.inject_error("Produce", "KAFKA_STORAGE_ERROR", topic=topic) as one:
        with broker_client(cluster.bootstrap) as client:
            assert client.produce(topic, ONE_RECORD).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await one.wait_async()
    for made in (
        await cluster.aio.drop_request("Produce"),
        await cluster.aio.drop_reply("Produce"),
        await cluster.aio.delay_request("Produce", 10),
        await cluster.aio.delay_reply("Produce", 10),
        await cluster.aio.duplicate_request("Produce"),
        await cluster.aio.disconnect("Produce"),
    ):
        made.end()
        assert not made.took_effect
    with pytest.raises(TimeoutError, match="0 times"):
        made.wait(seconds=0.01)


def test_healing_ends_faults_of_requests(cluster: kraftsim.Cluster) -> None:
    topic = cluster.create_topic()
    cluster.drop_request("*", times=None)
    cluster.heal()
    with broker_client(cluster.bootstrap) as client:
        assert client.produce(topic, ONE_RECORD).error_code == 0


def test_faults_and_their_effects_are_events(cluster: kraftsim.Cluster) -> None:
    topic = cluster.create_topic()
    with (
        cluster.inject_error("Produce", 6, topic=topic),
        broker_client(cluster.bootstrap) as client,
    ):
        client.produce(topic, ONE_RECORD)
    name = "error NOT_LEADER_OR_FOLLOWER for Produce"
    assert name in [event.fault for _, event in cluster.events(FaultInjected)]
    assert name in [event.fault for _, event in cluster.events(FaultTookEffect)]
    assert name in [event.fault for _, event in cluster.events(FaultEnded)]


def test_names_that_do_not_exist_are_refused(cluster: kraftsim.Cluster) -> None:
    with pytest.raises(ValueError, match="did you mean Produce"):
        cluster.inject_error("Prodce", 6)
    with pytest.raises(ValueError, match="did you mean NOT_LEADER_OR_FOLLOWER"):
        cluster.inject_error("Produce", "NOT_LEADER_OR_FOLOWER")
    with pytest.raises(ValueError, match="NONE is no error"):
        cluster.inject_error("Produce", "NONE")
    with pytest.raises(ValueError, match="needs its topic"):
        cluster.drop_request("Produce", partition=1)


def test_processes_without_a_proxy_have_no_faults_of_requests() -> None:
    made = kraftsim.Cluster(mode="processes")
    made._thread.start()
    try:
        with pytest.raises(FaultNotPossible, match="network_faults=True"):
            made.drop_request("Produce")
    finally:
        made._end()
    secured = kraftsim.Cluster(mode="processes", network_faults=True, security="SSL")
    with pytest.raises(FaultNotPossible, match="TLS"):
        secured.drop_request("Produce")
    secured.stop()


def test_a_restarted_node_has_the_faults_of_its_cluster() -> None:
    with kraftsim.Cluster() as cluster:
        topic = cluster.create_topic()
        fault = cluster.inject_error("Produce", 56, topic=topic)
        cluster.restart("broker-1")
        with broker_client(cluster.bootstrap) as client:
            assert client.produce(topic, ONE_RECORD).error_code == 56
        assert fault.took_effect
    assert fault.effects == 1  # known after the end, too


def test_requests_inside_tls_have_faults_in_an_embedded_cluster() -> None:
    with kraftsim.Cluster(security="SASL_SSL") as cluster:
        with cluster.inject_error("CreateTopics", 41, sender=None, times=2) as fault:
            assert cluster.create_topic() == "topic-1"
        assert fault.effects == 2


def test_a_socket_of_a_silent_connection_can_be_closed() -> None:
    """A connection that waits for an answer that never comes goes away with its client."""
    with kraftsim.Cluster() as cluster:
        topic = cluster.create_topic()
        cluster.drop_request("Produce", topic=topic)
        host, _, port = cluster.bootstrap.partition(":")
        with socket.create_connection((host, int(port))):
            pass
        with pytest.raises(TimeoutError), Peer.at(cluster.bootstrap, SHORT_SECONDS) as peer:
            BrokerClient(peer).produce(topic, ONE_RECORD)
        assert produce_again(cluster, topic) == 0


def produce_again(cluster: kraftsim.Cluster, topic: str) -> int:
    with broker_client(cluster.bootstrap) as client:
        return client.produce(topic, ONE_RECORD).base_offset
