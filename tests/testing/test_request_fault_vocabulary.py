"""Faults of requests beyond errors, losses and delays, in both modes: which bytes and what order
clients and nodes see.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import kraftsim
from kraftsim.conformance.peer import Peer, request_bytes
from kraftsim.partitions.events import BatchAppended
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.cluster.broker_client import batch_of, broker_client

SHORT_SECONDS = 0.4
ONE_RECORD = batch_of([b"one"])
ALL_OF_IT = 1_000_000
EARLY = 0.01
"""Timers of an event loop may be a millisecond early, because it reads the clock once a turn."""


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


@pytest.fixture
def topic(cluster: kraftsim.Cluster) -> str:
    """A topic of a test's own."""
    return cluster.create_topic()


def appended(cluster: kraftsim.Cluster, topic: str) -> int:
    return sum(event.topic == topic for _, event in cluster.events(BatchAppended))


def until_appended(cluster: kraftsim.Cluster, topic: str, count: int) -> None:
    give_up_at = time.monotonic() + 10
    while appended(cluster, topic) < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    assert appended(cluster, topic) == count


def produce_bytes(topic: str, correlation_id: int, client_id: str = "raw") -> bytes:
    """A Produce of one record as a frame."""
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=ONE_RECORD)]
    )
    body = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    return request_bytes(body, 11, correlation_id, client_id)


@contextmanager
def raw(cluster: kraftsim.Cluster) -> Iterator[socket.socket]:
    """A connection to the broker."""
    host, _, port = cluster.bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as opened:
        yield opened


def read_frame(opened: socket.socket) -> bytes:
    size = int.from_bytes(read_bytes(opened, 4))
    return read_bytes(opened, size)


def read_bytes(opened: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        piece = opened.recv(size - len(read))
        assert piece, f"the connection ended after {read!r}"
        read += piece
    return read


def read_to_the_end(opened: socket.socket) -> bytes:
    """What comes until the node ends the connection."""
    read = b""
    while piece := opened.recv(65536):
        read += piece
    return read


def answer_bytes(cluster: kraftsim.Cluster, topic: str) -> int:
    """The size of the answer to `produce_bytes`, with its size field."""
    with raw(cluster) as opened:
        opened.sendall(produce_bytes(topic, 1))
        return 4 + len(read_frame(opened))


@pytest.mark.parametrize("after_bytes", [0, 1, 3, 4, 7, 8, 11, ALL_OF_IT])
def test_client_gets_so_many_bytes_of_an_answer_and_the_end(
    cluster: kraftsim.Cluster, topic: str, after_bytes: int
) -> None:
    whole = answer_bytes(cluster, topic)
    with (
        cluster.disconnect("Produce", topic=topic, done=True, after_bytes=after_bytes) as fault,
        raw(cluster) as opened,
    ):
        opened.sendall(produce_bytes(topic, 7))
        came = read_to_the_end(opened)
        assert len(came) == min(after_bytes, whole)
        assert came[:4] == (whole - 4).to_bytes(4)[:after_bytes]
        assert fault.effects == 1
    until_appended(cluster, topic, 2)


@pytest.mark.parametrize("after_bytes", [0, 1, 4, 20, 60])
def test_node_gets_so_many_bytes_of_a_request_and_does_nothing(
    cluster: kraftsim.Cluster, topic: str, after_bytes: int
) -> None:
    with (
        cluster.disconnect("Produce", topic=topic, after_bytes=after_bytes) as fault,
        raw(cluster) as opened,
    ):
        opened.sendall(produce_bytes(topic, 7))
        assert read_to_the_end(opened) == b""
        assert fault.effects == 1
    with broker_client(cluster.bootstrap) as client:
        assert client.produce(topic, ONE_RECORD).base_offset == 0


def test_request_whose_last_byte_arrives_before_the_end_is_served(
    cluster: kraftsim.Cluster, topic: str
) -> None:
    with cluster.disconnect("Produce", topic=topic, after_bytes=ALL_OF_IT), raw(cluster) as opened:
        opened.sendall(produce_bytes(topic, 7))
        assert read_to_the_end(opened) == b""
    until_appended(cluster, topic, 1)


def test_truncated_answer_is_a_whole_frame_and_the_connection_goes_on(
    cluster: kraftsim.Cluster, topic: str
) -> None:
    with cluster.truncate_reply("Produce", 14, topic=topic) as fault, raw(cluster) as opened:
        opened.sendall(produce_bytes(topic, 7))
        assert read_bytes(opened, 8) == (10).to_bytes(4) + (7).to_bytes(4)
        assert len(read_bytes(opened, 6)) == 6
        opened.sendall(produce_bytes(topic, 8))
        assert read_frame(opened)[:4] == (8).to_bytes(4)
        assert fault.effects == 1


def test_answer_that_is_shorter_passes_and_is_no_effect(
    cluster: kraftsim.Cluster, topic: str
) -> None:
    whole = answer_bytes(cluster, topic)
    with cluster.truncate_reply("Produce", whole, topic=topic) as fault, raw(cluster) as opened:
        opened.sendall(produce_bytes(topic, 7))
        assert len(read_frame(opened)) == whole - 4
        assert (fault.matched, fault.effects) == (1, 0)


def test_node_ends_the_connection_of_a_truncated_request(
    cluster: kraftsim.Cluster, topic: str
) -> None:
    with cluster.truncate_request("Produce", 60, topic=topic) as fault, raw(cluster) as opened:
        opened.sendall(produce_bytes(topic, 7))
        assert read_to_the_end(opened) == b""
        assert fault.effects == 1
    with broker_client(cluster.bootstrap) as client:
        assert client.produce(topic, ONE_RECORD).base_offset == 0


@pytest.mark.parametrize("is_done", [False, True])
def test_request_or_reply_waits_until_others_have_passed(
    cluster: kraftsim.Cluster, topic: str, is_done: bool
) -> None:
    other = cluster.create_topic()
    verb = cluster.reorder_reply if is_done else cluster.reorder_request
    with (
        verb("Produce", overtaken_by=2, topic=topic) as fault,
        raw(cluster) as held,
        broker_client(cluster.bootstrap) as client,
    ):
        held.sendall(produce_bytes(topic, 7))
        held.settimeout(SHORT_SECONDS)
        with pytest.raises(TimeoutError):
            held.recv(1)
        client.produce(other, ONE_RECORD)
        with pytest.raises(TimeoutError):
            held.recv(1)
        assert not fault.took_effect
        assert appended(cluster, topic) == int(is_done)
        client.produce(other, ONE_RECORD)
        held.settimeout(10)
        assert read_frame(held)[:4] == (7).to_bytes(4)
        assert fault.effects == 1


def test_request_that_is_not_overtaken_in_time_passes_without_effect(
    cluster: kraftsim.Cluster, topic: str
) -> None:
    with (
        cluster.reorder_request("Produce", wait_ms=100, topic=topic) as fault,
        broker_client(cluster.bootstrap) as client,
    ):
        began = time.monotonic()
        assert client.produce(topic, ONE_RECORD).error_code == 0
        assert time.monotonic() - began >= 0.1 - EARLY
        assert (fault.matched, fault.effects) == (1, 0)


def test_end_of_a_fault_releases_what_waits(cluster: kraftsim.Cluster, topic: str) -> None:
    with raw(cluster) as held:
        with cluster.reorder_request("Produce", topic=topic) as fault:
            held.sendall(produce_bytes(topic, 7))
            held.settimeout(SHORT_SECONDS)
            with pytest.raises(TimeoutError):
                held.recv(1)
        held.settimeout(10)
        assert read_frame(held)[:4] == (7).to_bytes(4)
    assert not fault.took_effect


def test_throttled_client_is_answered_at_once_and_then_not_read(
    cluster: kraftsim.Cluster,
) -> None:
    """As after a quota (KIP-219)."""
    with (
        cluster.throttle("ApiVersions", 400) as fault,
        Peer.at(cluster.bootstrap) as peer,
    ):
        began = time.monotonic()
        answer = peer.ask(ApiVersionsRequest(), 3, ApiVersionsResponse)
        assert answer.throttle_time_ms == 400
        assert time.monotonic() - began < 0.4
        assert peer.ask(ApiVersionsRequest(), 3, ApiVersionsResponse).throttle_time_ms == 0
        assert time.monotonic() - began >= 0.4 - EARLY
        assert fault.effects == 1


def test_answer_without_a_throttle_time_is_not_matched(cluster: kraftsim.Cluster) -> None:
    with (
        cluster.throttle("ApiVersions", 400, version_max=0) as fault,
        Peer.at(cluster.bootstrap) as peer,
    ):
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert (fault.matched, fault.effects) == (0, 0)


@pytest.mark.parametrize("is_done", [False, True])
def test_bytes_take_as_long_as_at_a_rate(
    cluster: kraftsim.Cluster, topic: str, is_done: bool
) -> None:
    size = answer_bytes(cluster, topic) if is_done else len(produce_bytes(topic, 7))
    with (
        cluster.slow_down("Produce", size * 5, done=is_done, topic=topic) as fault,
        raw(cluster) as opened,
    ):
        began = time.monotonic()
        opened.sendall(produce_bytes(topic, 7))
        read_frame(opened)
        assert 0.2 - EARLY <= time.monotonic() - began < 5
        assert fault.effects == 1


def fetch_bytes(topic: str, client_id: str, wait_ms: int) -> bytes:
    """A Fetch that waits for a record, as a frame."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    body = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    return request_bytes(body, 12, 3, client_id)


def test_black_hole_holds_connections_of_a_client_and_no_others(
    cluster: kraftsim.Cluster, topic: str
) -> None:
    """A connection that waits for an answer, one that is idle, and a new one."""
    other = cluster.create_topic()
    with raw(cluster) as waiting, raw(cluster) as idle, raw(cluster) as new:
        idle.sendall(produce_bytes(other, 1, "hole-1"))
        read_frame(idle)
        waiting.sendall(fetch_bytes(topic, "hole-2", 5000))
        time.sleep(0.1)
        with cluster.blackhole(client_id="hole-*") as fault:
            idle.sendall(produce_bytes(other, 2, "hole-1"))
            new.sendall(produce_bytes(other, 3, "hole-3"))
            with broker_client(cluster.bootstrap) as client:
                client.produce(topic, ONE_RECORD)  # which the Fetch waits for
            for each in (waiting, idle, new):
                each.settimeout(SHORT_SECONDS)
                with pytest.raises(TimeoutError):
                    each.recv(1)
            fault.wait(3)
            assert appended(cluster, other) == 1
        for each, correlation_id in ((waiting, 3), (idle, 2), (new, 3)):
            each.settimeout(10)
            assert read_frame(each)[:4] == correlation_id.to_bytes(4)
    until_appended(cluster, other, 3)


def test_black_hole_that_names_an_api_catches_who_sends_it(
    cluster: kraftsim.Cluster, topic: str
) -> None:
    with (
        cluster.inject("Produce blackhole client_id=caught nth=2") as fault,
        raw(cluster) as first,
        raw(cluster) as second,
    ):
        first.sendall(produce_bytes(topic, 1, "caught"))
        read_frame(first)
        first.sendall(produce_bytes(topic, 2, "caught"))
        fault.wait(1)
        second.sendall(request_bytes(ApiVersionsRequest(), 0, 3, "caught"))
        fault.wait(2)
        second.settimeout(SHORT_SECONDS)
        with pytest.raises(TimeoutError):
            second.recv(1)
        assert appended(cluster, topic) == 1
        with broker_client(cluster.bootstrap) as client:
            assert client.produce(topic, ONE_RECORD).base_offset == 1


def test_share_of_requests_gets_a_fault(cluster: kraftsim.Cluster, topic: str) -> None:
    with (
        cluster.inject_error("Produce", 56, topic=topic, share=0.3, times=None) as fault,
        broker_client(cluster.bootstrap) as client,
    ):
        codes = [client.produce(topic, ONE_RECORD).error_code for _ in range(40)]
        assert fault.matched == 40
        assert 0 < codes.count(56) == fault.effects < 40


def test_fault_ends_by_itself(cluster: kraftsim.Cluster, topic: str) -> None:
    with broker_client(cluster.bootstrap) as client:
        began = time.monotonic()
        cluster.inject_error("Produce", 56, topic=topic, times=None, duration_ms=300)
        while client.produce(topic, ONE_RECORD).error_code == 56:
            assert time.monotonic() - began < 5
        assert time.monotonic() - began >= 0.3 - EARLY


def test_black_hole_ends_by_itself(cluster: kraftsim.Cluster, topic: str) -> None:
    with raw(cluster) as opened:
        began = time.monotonic()
        cluster.blackhole(client_id="for-a-while", duration_ms=300)
        opened.sendall(produce_bytes(topic, 1, "for-a-while"))
        read_frame(opened)
        assert time.monotonic() - began >= 0.3 - EARLY


def test_versions_of_requests_are_a_match(cluster: kraftsim.Cluster) -> None:
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    with (
        cluster.inject("ApiVersions error=UNKNOWN_SERVER_ERROR version=1..2 times=all") as fault,
        Peer.at(cluster.bootstrap) as peer,
    ):
        codes = [peer.ask(asked, version, ApiVersionsResponse).error_code for version in range(4)]
        assert codes == [0, -1, -1, 0]
        assert fault.matched == 2


def test_topic_that_is_created_later_is_found_by_its_id_inside_a_node() -> None:
    """The broker knows the names of ids; behind a proxy the topic must exist."""
    with kraftsim.Cluster() as cluster:
        fault = cluster.inject("Produce error=56 topic=later")
        cluster.create_topic("later")
        with Peer.at(cluster.bootstrap) as peer:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="later")])
            topic_id = peer.ask(asked, 12, MetadataResponse).topics[0].topic_id
            rows = [PartitionProduceData(index=0, records=ONE_RECORD)]
            data = TopicProduceData(topic_id=topic_id, partition_data=rows)
            body = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
            answer = peer.ask(body, 13, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 56
        assert fault.effects == 1


def test_text_that_says_no_fault_is_refused(cluster: kraftsim.Cluster) -> None:
    with pytest.raises(ValueError, match="did you mean Produce"):
        cluster.inject("Prodce drop")


@pytest.mark.parametrize("is_reset", [False, True])
def test_what_a_client_sent_before_it_closed_comes_out_of_a_black_hole(
    cluster: kraftsim.Cluster, topic: str, is_reset: bool
) -> None:
    """As TCP would send it again; a reset discards it."""
    with cluster.blackhole(client_id="gone") as fault:
        with raw(cluster) as opened:
            opened.sendall(produce_bytes(topic, 1, "gone"))
            fault.wait()
            if is_reset:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.1)
        assert appended(cluster, topic) == 0
    until_appended(cluster, topic, int(not is_reset))
    with broker_client(cluster.bootstrap) as client:
        assert client.produce(topic, ONE_RECORD).base_offset == int(not is_reset)


def test_many_clients_at_once_get_each_fault_once(cluster: kraftsim.Cluster, topic: str) -> None:
    codes: list[int] = []

    def work() -> None:
        with broker_client(cluster.bootstrap) as client:
            codes.extend(client.produce(topic, ONE_RECORD).error_code for _ in range(10))

    with cluster.inject_error("Produce", 56, topic=topic, nth=11, times=7) as fault:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert codes.count(56) == fault.effects == 7


async def test_new_verbs_are_coroutines_as_well(cluster: kraftsim.Cluster) -> None:
    aio = cluster.aio
    for made in (
        await aio.reorder_request("Produce"),
        await aio.reorder_reply("Produce"),
        await aio.truncate_request("Produce", 20),
        await aio.truncate_reply("Produce", 20),
        await aio.throttle("Produce", 5),
        await aio.slow_down("Produce", 5),
        await aio.blackhole(client_id="no-client"),
        await aio.inject("Produce drop"),
    ):
        made.end()
        assert not made.took_effect


def test_what_was_counted_is_known_after_the_end() -> None:
    with kraftsim.Cluster() as cluster, broker_client(cluster.bootstrap) as client:
        topic = cluster.create_topic()
        fault = cluster.inject("Produce error=56 times=2 topic=" + topic)
        client.produce(topic, ONE_RECORD)
        assert fault.matched == 1
    with suppress(TimeoutError):
        fault.wait(2, seconds=0.01)
    assert (fault.matched, fault.effects) == (1, 1)
