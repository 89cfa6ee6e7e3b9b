"""Connections above a limit or rate, in virtual time: which are delayed, for how long, and which
are closed (KIP-402, KIP-612).
"""

import asyncio

from kraftsim.server.events_connections import ConnectionClosed
from kraftsim.server.outbound import PeerConnection
from protocol.messages.k03_metadata import MetadataRequest
from tests.node.brokers import BROKER_PORT, Client, Cluster, running_cluster


def answered_after(cluster: Cluster, count: int, wait_s: float = 20) -> list[float | None]:
    """Open so many connections at once and send a request on each; return the seconds until each
    response, None for those that were closed or still wait.
    """

    async def ask() -> float | None:
        connection = PeerConnection("broker-1", BROKER_PORT, client_id="test")
        try:
            async with asyncio.timeout(wait_s):
                await connection.connect()
                await connection.request(MetadataRequest(topics=[]))
        except (OSError, TimeoutError):
            return None
        return (cluster.simulation.loop.now_ns - began_ns) / 1e9

    async def all_of_them() -> list[float | None]:
        return list(await asyncio.gather(*(ask() for _ in range(count))))

    began_ns = cluster.simulation.loop.now_ns
    found = cluster.simulation.run_until(
        cluster.simulation.spawn("client", all_of_them()), limit_s=100
    )
    assert found is not None
    return found


def test_connections_above_the_rate_are_delayed() -> None:
    """At two per second twenty are accepted at once; the next after half a second, and further ones
    one second apart.
    """
    with running_cluster(1, max_connection_creation_rate="2") as cluster:
        found = answered_after(cluster, 24)
        times = sorted(each for each in found if each is not None)
        assert len(times) == 24 and times[19] < 0.1
        assert [round(each, 1) for each in times[20:]] == [0.5, 1.0, 2.0, 3.0], times


def test_connection_above_the_limit_is_served_when_another_closes() -> None:
    """max.connections: the connection is established, and waits."""
    with running_cluster(1, max_connections="3") as cluster:

        async def fill(client: Client) -> None:
            others = [await cluster.connect() for _ in range(2)]
            for each in others:
                await each.ask(MetadataRequest(topics=[]))
            late = asyncio.ensure_future(late_one())
            await asyncio.sleep(5)
            assert not late.done()
            others[0].connection.close()
            await asyncio.wait_for(late, 1)

        async def late_one() -> None:
            client = await cluster.connect()
            await client.ask(MetadataRequest(topics=[]))

        cluster.run(fill)


def test_too_many_connections_of_one_address_are_closed() -> None:
    """Other addresses are not affected."""
    with running_cluster(1, max_connections_per_ip="2") as cluster:
        found = answered_after(cluster, 5)
        assert sum(each is not None for each in found) == 2
        assert [event.reason for event in cluster.emitted(ConnectionClosed, "broker-1")].count(
            "too many connections"
        ) == 3
