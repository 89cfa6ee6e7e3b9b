"""Clients take numbers from a znode by compare-and-set while their ZooKeeper loses power, is killed
and partitioned: none is taken twice.

Brokers allocate blocks of producer ids this way in ZooKeeper mode (KIP-98,
ZkData.ProducerIdBlockZNode).
"""

from contextlib import suppress
from random import Random

import pytest

from kraftsim.events.event import Event
from kraftsim.migration.rules_driver import Claim
from kraftsim.migration.zookeeper_side import ZookeeperSide
from kraftsim.producer_ids.rules_allocation import ProducerIdBlock
from kraftsim.producer_ids.zookeeper import ControllerBlocks
from kraftsim.world.interface import World
from kraftsim.world.simulated import Simulation
from kraftsim.world.simulated.durable_disk import Wreck
from kraftsim.world.simulated.inode import Fate
from kraftsim.world.simulated.link import NetworkSettings
from kraftsim.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.events import ZookeeperSessionBegan
from kraftsim.zookeeper.server import ZookeeperServer
from kraftsim.zookeeper.settings import ZookeeperSettings
from kraftsim.zookeeper.znode_writer import FencedWrites
from protocol.zookeeper.kafka_znodes import (
    CONTROLLER_EPOCH,
    MIGRATION,
    PRODUCER_ID_BLOCK,
    MigrationZnode,
)
from protocol.zookeeper.op_codes import CreateMode, EventType, ZookeeperError

PORT = 2181
CLIENTS = 3
EACH = 30
SERVER = "zookeeper-1"
TIMEOUT_MS = 2000
NOT_DONE = (ZookeeperError.BAD_VERSION, ZookeeperError.CONNECTION_LOSS)


async def serve(world: World) -> None:
    server = ZookeeperServer(
        world, ZookeeperSettings(host=SERVER, port=PORT, tick_ms=500, changes_between_snapshots=40)
    )
    await server.start()
    raise await server.failed()


class Taker:
    """A client that takes numbers.

    Confirmed ones go to `taken`, those with a lost response to `unknown`.
    """

    def __init__(self, world: World) -> None:
        self.taken: list[int] = []
        self.unknown = 0
        self.expired = 0
        self._world = world

    async def take(self, count: int) -> None:
        client = self._client()
        while len(self.taken) < count:
            if client.state is SessionState.EXPIRED:
                self.expired += 1
                client = self._client()
            try:
                data, stat = await client.get("/number")
                number = int(data or b"0")
            except ZookeeperRefused:
                continue
            try:
                await client.set("/number", str(number + 1).encode(), stat.version)
                self.taken.append(number)
            except ZookeeperRefused as refused:
                assert refused.error in (*NOT_DONE, ZookeeperError.SESSION_EXPIRED), refused
                self.unknown += refused.error != ZookeeperError.BAD_VERSION
        await client.close()

    def _client(self) -> ZookeeperClient:
        client = ZookeeperClient(self._world, [(SERVER, PORT)], session_timeout_ms=TIMEOUT_MS)
        client.start()
        return client


@pytest.mark.parametrize("seed", range(8))
def test_no_number_is_taken_twice_or_lost(seed: int) -> None:
    rng = Random(seed)
    with Simulation(seed) as simulation:
        simulation.on_restart = lambda host: (
            serve(simulation.world_of(host)) if host.name == SERVER else None
        )
        server = simulation.add_host(SERVER)
        simulation.spawn(server, serve(simulation.world_of(server)))
        first = simulation.add_host("first")
        maker = ZookeeperClient(simulation.world_of(first), [(SERVER, PORT)])
        simulation.spawn(first, begin(maker))
        simulation.run_until(maker.create("/number", b"0"))
        takers = []
        tasks = []
        for number in range(CLIENTS):
            host = simulation.add_host(f"taker-{number}")
            takers.append(Taker(simulation.world_of(host)))
            tasks.append(simulation.spawn(host, takers[-1].take(EACH)))
        while not all(task.done() for task in tasks):
            simulation.run_for(rng.uniform(0.005, 0.6))
            match rng.randrange(3):
                case 0:
                    simulation.kill(server, power_loss=rng.random() < 0.7)
                    simulation.run_for(rng.uniform(0, 3))
                    simulation.restart(server)
                case 1:
                    simulation.network.cut(SERVER)
                case 2:
                    simulation.network.cut(SERVER, f"taker-{rng.randrange(CLIENTS)}")
        last = simulation.run_until(read(maker))
        taken = sorted(number for taker in takers for number in taker.taken)
        assert len(set(taken)) == len(taken) >= CLIENTS * EACH
        assert (
            len(taken) <= int(last or b"0") <= len(taken) + sum(taker.unknown for taker in takers)
        )
        assert simulation.troubles == []


def test_controller_allocates_a_block_again_after_a_lost_connection() -> None:
    """Only the end of its session ends that (KafkaZkClient.retryRequestUntilConnected)."""
    with Simulation(1) as simulation:
        simulation.on_restart = lambda host: (
            serve(simulation.world_of(host)) if host.name == SERVER else None
        )
        server, host = simulation.add_host(SERVER), simulation.add_host("broker-1")
        simulation.spawn(server, serve(simulation.world_of(server)))
        client = ZookeeperClient(
            simulation.world_of(host), [(SERVER, PORT)], session_timeout_ms=8000
        )
        simulation.spawn(host, begin(client))
        for path in (CONTROLLER_EPOCH, PRODUCER_ID_BLOCK):
            simulation.run_until(client.create(path, b""))
        blocks = ControllerBlocks(client, FencedWrites(client, epoch_version=0))
        emitted: list[Event] = []
        taking = simulation.spawn(host, blocks.take(1, emitted.append))
        simulation.kill(server)
        simulation.run_for(0.5)
        assert not taking.done()
        simulation.restart(server)
        block = simulation.run_until(taking, limit_s=10)
        assert isinstance(block, ProducerIdBlock) and block.size == 1000
        assert len(emitted) == 1
        simulation.kill(server)
        taking = simulation.spawn(host, blocks.take(1, emitted.append))
        simulation.run_for(0.5)
        client.abort(SessionState.EXPIRED)
        with pytest.raises(ZookeeperRefused, match=r"SESSION_EXPIRED|CONNECTION_LOSS"):
            simulation.run_until(taking, limit_s=10)


class OneSession(ZookeeperSide):
    """The side of a migrating controller, with a session from outside."""

    def __init__(self, client: ZookeeperClient) -> None:
        self._client = client


def test_migrating_controller_reads_its_state_again_after_a_lost_connection() -> None:
    """A new leader reads it once: if that failed, no controller would go on with the migration."""
    with Simulation(1) as simulation:
        simulation.on_restart = lambda host: (
            serve(simulation.world_of(host)) if host.name == SERVER else None
        )
        server, host = simulation.add_host(SERVER), simulation.add_host("controller-101")
        simulation.spawn(server, serve(simulation.world_of(server)))
        client = ZookeeperClient(
            simulation.world_of(host), [(SERVER, PORT)], session_timeout_ms=8000
        )
        simulation.spawn(host, begin(client))
        simulation.run_until(client.create(MIGRATION, MigrationZnode().build()))
        recovering = simulation.spawn(host, OneSession(client).recover(Claim()))
        simulation.kill(server)
        simulation.run_for(0.5)
        assert not recovering.done()
        simulation.restart(server)
        claim = simulation.run_until(recovering, limit_s=10)
        assert claim.migration_version == 0


def unnoticed(effect: object) -> None:
    """The effects of a network partition are not counted here."""


async def read(client: ZookeeperClient) -> bytes | None:
    while True:
        try:
            return (await client.get("/number"))[0]
        except ZookeeperRefused as refused:
            assert refused.error == ZookeeperError.CONNECTION_LOSS


async def begin(client: ZookeeperClient) -> None:
    client.start()


def test_watches_and_ephemerals_survive_a_reconnect_and_end_with_the_session() -> None:
    notified: list[tuple[EventType, str]] = []
    states: list[SessionState] = []
    with Simulation(1) as simulation:
        simulation.on_restart = lambda host: (
            serve(simulation.world_of(host)) if host.name == SERVER else None
        )
        server = simulation.add_host(SERVER)
        simulation.spawn(server, serve(simulation.world_of(server)))
        watching, owning = simulation.add_host("watching"), simulation.add_host("owning")
        watcher = ZookeeperClient(
            simulation.world_of(watching),
            [(SERVER, PORT)],
            session_timeout_ms=8000,
            on_event=lambda kind, path: notified.append((kind, path)),
        )
        owner = ZookeeperClient(
            simulation.world_of(owning),
            [(SERVER, PORT)],
            session_timeout_ms=TIMEOUT_MS,
            on_state=states.append,
        )
        simulation.spawn(watching, begin(watcher))
        simulation.spawn(owning, begin(owner))
        simulation.run_until(owner.create("/controller", b"1", CreateMode.EPHEMERAL))
        assert simulation.run_until(watcher.exists("/controller", watch=True)) is not None
        simulation.kill(server, power_loss=True)
        simulation.run_for(0.3)
        simulation.restart(server)
        simulation.run_for(3)
        assert (
            states == [SessionState.CONNECTED, SessionState.CONNECTING, SessionState.CONNECTED]
            and notified == []
        )
        simulation.network.block("owning", SERVER, unnoticed)
        simulation.run_for(2 * TIMEOUT_MS / 1000)
        assert notified == [(EventType.NODE_DELETED, "/controller")], (
            "of the watch that was set before the power loss"
        )
        simulation.network.unblock("owning", SERVER, unnoticed)
        simulation.run_for(10)
        assert states[-1] is SessionState.EXPIRED
        with pytest.raises(ZookeeperRefused, match="SESSION_EXPIRED"):
            simulation.run_until(owner.get("/controller"))


@pytest.mark.parametrize("seed", range(6))
def test_response_in_pieces_opens_the_session(seed: int) -> None:
    with Simulation(seed, network=NetworkSettings(torn_writes=1.0)) as simulation:
        server, host = simulation.add_host(SERVER), simulation.add_host("client")
        simulation.spawn(server, serve(simulation.world_of(server)))
        simulation.run_for(0.5)
        begun = []
        simulation.observe(
            lambda node, incarnation, n, t_ns, event: (
                begun.append(event) if isinstance(event, ZookeeperSessionBegan) else None
            )
        )
        client = ZookeeperClient(
            simulation.world_of(host), [(SERVER, PORT)], session_timeout_ms=TIMEOUT_MS
        )
        simulation.spawn(host, begin(client))
        assert simulation.run_until(client_finds(client, "/"))
        assert len(begun) == 1, "half a response is not treated as a closed connection"


def test_killed_servers_page_cache_is_durable_before_clients_see_it() -> None:
    with Simulation(1, flush_ns=(50_000_000, 50_000_000)) as simulation:
        simulation.on_restart = lambda host: (
            serve(simulation.world_of(host)) if host.name == SERVER else None
        )
        server, host = simulation.add_host(SERVER), simulation.add_host("client")
        simulation.spawn(server, serve(simulation.world_of(server)))
        client = ZookeeperClient(
            simulation.world_of(host), [(SERVER, PORT)], session_timeout_ms=20 * TIMEOUT_MS
        )
        simulation.spawn(host, begin(client))
        assert simulation.run_until(client_finds(client, "/"))
        simulation.spawn(host, asked_in_vain(client))
        simulation.run_for(0.02)
        simulation.kill(server)
        simulation.restart(server)
        assert simulation.run_until(client_finds(client, "/unflushed")), "it is in the page cache"
        simulation.run_until(client.create("/after-it"))
        simulation.power_off(server, Wreck(fate=Fate.LOST))
        simulation.restart(server)
        assert simulation.run_until(client_finds(client, "/after-it"))
        assert simulation.run_until(client_finds(client, "/unflushed")), "a client has seen it"


async def asked_in_vain(client: ZookeeperClient) -> None:
    with suppress(ZookeeperRefused):
        await client.create("/unflushed")


async def client_finds(client: ZookeeperClient, path: str) -> bool:
    while True:
        try:
            return await client.exists(path) is not None
        except ZookeeperRefused as refused:
            assert refused.error == ZookeeperError.CONNECTION_LOSS
