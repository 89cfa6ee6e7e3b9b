"""Malformed input over real sockets: the connection is closed with a reason, the node continues.

Source: SocketServer, NetworkReceive.
"""

import socket
import struct
from collections.abc import Iterator
from random import Random

import psutil
import pytest

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.conformance.peer import Peer, framed
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.cluster.running import address_of, logged_events, running_processes

NODES = ("broker-1", "controller-101")
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with running_processes(tmp_path_factory.mktemp("bad_bytes") / "run") as running:
        yield running


def head(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1)


BAD = {
    "a negative size": struct.pack(">i", -1),
    "the minimum size": struct.pack(">i", -(2**31)),
    "a size of two gigabytes": struct.pack(">i", 2**31 - 1) + b"x" * 1000,
    "a size of one more than allowed": struct.pack(">i", 104857601),
    "an empty frame": framed(b""),
    "an unknown api key": framed(head(31999, 0) + b"body"),
    "an unsupported version": framed(head(1, 99) + b"body"),
    "a truncated header": framed(b"\x00\x12\x00"),
    "an array longer than any frame": framed(
        head(1, 4) + struct.pack(">iiiib", -1, 0, 0, 0, 0) + struct.pack(">i", 2**31 - 1)
    ),
    "an array of negative length": framed(
        head(1, 4) + struct.pack(">iiiib", -1, 0, 0, 0, 0) + struct.pack(">i", -2)
    ),
    "a greeting of another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(200),
}


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("what", BAD)
def test_malformed_input_closes_only_its_connection_with_a_reason(
    cluster: ProcessCluster, node: str, what: str
) -> None:
    before = len(closed_with_reason(cluster, node))
    with Peer.at(address_of(cluster, node)) as peer:
        peer.send_bytes(BAD[what])
        assert peer.is_closed_by_node(), f"{node} keeps the connection after {what}"
    still_answers(cluster, node)
    reasons = closed_with_reason(cluster, node)
    assert len(reasons) == before + 1 and reasons[-1], f"{node} says why"


@pytest.mark.parametrize("node", NODES)
def test_random_bytes_never_crash_a_node_or_grow_its_memory(
    cluster: ProcessCluster, node: str
) -> None:
    """Each input is random, entirely or as the body of a served API, and every third connection is
    reset instead of closed.
    """
    random = Random(3)
    process = psutil.Process(cluster.pid(node))
    before = process.memory_info().rss
    for number in range(120):
        with Peer.at(address_of(cluster, node)) as peer:
            size = random.choice((1, 3, 4, 5, 40, 4000))
            noise = random.randbytes(size)
            api = struct.pack(
                ">hhih",
                random.choice((0, 1, 2, 3, 18, 19, 22, 58, 62, 63, 67)),
                random.randrange(16),
                number,
                -1,
            )
            peer.send_bytes(noise if number % 2 else framed(api + noise))
            if number % 3 == 0:
                peer._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
    still_answers(cluster, node)
    assert process.memory_info().rss - before < 30 * MEGABYTE


@pytest.mark.parametrize("node", NODES)
def test_an_announced_frame_that_never_arrives_costs_no_memory(
    cluster: ProcessCluster, node: str
) -> None:
    """Twenty clients announce 100 MB each, send little and stay connected: the node allocates for
    received bytes, not for the announced size.
    """
    process = psutil.Process(cluster.pid(node))
    before = process.memory_info().rss
    peers = [Peer.at(address_of(cluster, node)) for _ in range(20)]
    for peer in peers:
        peer.send_bytes(struct.pack(">i", 104857600) + bytes(1000))
    still_answers(cluster, node)
    assert process.memory_info().rss - before < 30 * MEGABYTE
    for peer in peers:
        peer.close()
    still_answers(cluster, node)


@pytest.mark.parametrize("node", NODES)
def test_a_partial_request_is_discarded_when_the_client_disconnects(
    cluster: ProcessCluster, node: str
) -> None:
    whole = framed(head(18, 0))
    for size in range(1, len(whole)):
        with Peer.at(address_of(cluster, node)) as peer:
            peer.send_bytes(whole[:size])
            peer.finish_sending()
            assert peer.is_closed_by_node()
    still_answers(cluster, node)


def still_answers(cluster: ProcessCluster, node: str) -> None:
    cluster.require_running()
    with Peer.at(address_of(cluster, node)) as peer:
        assert peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


def closed_with_reason(cluster: ProcessCluster, node: str) -> list[str]:
    closed = logged_events(cluster.directory, "ConnectionClosed", node)
    return [
        event["reason"]
        for event in closed
        if event["listener"] != "outbound" and event["reason"] != "peer"
    ]
