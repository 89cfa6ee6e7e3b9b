"""The effects of each ZooKeeper fault on its clients, what it leaves unchanged, and that nothing
remains afterwards.
"""

from collections.abc import Iterator

import pytest

from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, Value
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.zookeeper_servers import make_known
from kraftsim.world.interface import World
from kraftsim.world.simulated import Host, Simulation
from kraftsim.zookeeper.client import SessionState, ZookeeperClient
from kraftsim.zookeeper.server import ZookeeperServer
from kraftsim.zookeeper.settings import ZookeeperSettings
from protocol.codec.message_codec import compiled
from protocol.zookeeper.kafka_znodes import CONTROLLER
from protocol.zookeeper.op_codes import CreateMode, EventType, OpCode
from protocol.zookeeper.znodes import PathOnly

SERVER, PORT, TICK_MS = "zookeeper-1", 2181, 500
KINDS = ("session-loss", "slow-zookeeper", "stale-znodes")
AT_MS = 3000


class Harness:
    """A server, and clients on their own hosts."""

    def __init__(self) -> None:
        self.simulation = Simulation(3)
        self.host = self.simulation.add_host(SERVER)
        self.servers: list[ZookeeperServer] = []
        self.watch_events: list[tuple[float, EventType, str]] = []
        make_known(self.simulation, lambda: (self.host, self.servers[-1]) if self.servers else None)
        self.simulation.on_restart = lambda host: self._serve(self.simulation.world_of(host))
        self.simulation.spawn(self.host, self._serve(self.simulation.world_of(self.host)))

    @property
    def now_s(self) -> float:
        return self.simulation.now_ns / 1e9

    def client(self, name: str, timeout_ms: int = 8000) -> ZookeeperClient:
        """Return a client with an established session."""
        host = self.simulation.add_host(name)
        client = ZookeeperClient(
            self.simulation.world_of(host),
            [(SERVER, PORT)],
            session_timeout_ms=timeout_ms,
            on_event=lambda kind, path: self.watch_events.append((self.now_s, kind, path)),
        )
        self.simulation.run_until(self.simulation.spawn(host, _begin(client)))
        return client

    def armed(self, kind: str, **params: Value) -> Injection:
        """Arm a fault that fires at a fixed time."""
        return arm(
            Fault(kind=kind, trigger=AtTime(at_ms=AT_MS), params=dict(params)), self.simulation
        )

    def until_ms(self, at_ms: int) -> None:
        self.simulation.run_for(at_ms / 1000 - self.now_s)

    async def _serve(self, world: World) -> None:
        server = ZookeeperServer(world, ZookeeperSettings(host=SERVER, port=PORT, tick_ms=TICK_MS))
        self.servers.append(server)
        await server.start()
        raise await server.failed()


async def _begin(client: ZookeeperClient) -> None:
    client.start()
    await client.exists("/")


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    with harness.simulation:
        yield harness


def test_table_has_every_kind_of_the_family() -> None:
    assert sorted(kind.name for kind in FAULTS.all() if kind.family == "zookeeper") == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_server_nothing_takes_effect(kind: str) -> None:
    with Simulation(1) as simulation:
        injection = arm(Fault(kind=kind, trigger=AtTime(at_ms=1)), simulation)
        simulation.run_for(1)
        injection.end()
        assert injection.has_fired and not injection.is_effective


def test_session_of_a_live_controller_expires(harness: Harness) -> None:
    """Its znode is deleted; watchers are notified; the client is notified and unusable.

    The other client continues.
    """
    owner, other = harness.client("owner"), harness.client("other")
    run = harness.simulation.run_until
    run(owner.create(CONTROLLER, b"1", CreateMode.EPHEMERAL))
    run(other.create("/of-another", b"", CreateMode.EPHEMERAL))
    run(other.exists(CONTROLLER, watch=True))
    injection = harness.armed("session-loss", whose="controller")
    harness.until_ms(AT_MS + 2000)
    assert injection.is_effective
    assert [(kind, path) for _, kind, path in harness.watch_events] == [
        (EventType.NODE_DELETED, CONTROLLER)
    ]
    assert (owner.state, other.state) == (SessionState.EXPIRED, SessionState.CONNECTED)
    assert run(other.exists("/of-another")) is not None


def test_slow_server_answers_late_in_order_and_recovers(harness: Harness) -> None:
    client = harness.client("client")
    injection = harness.armed("slow-zookeeper", delay_ms=700, duration_ms=2000)
    harness.until_ms(AT_MS + 10)

    async def three() -> list[str]:
        first, second = client.create("/a"), client.create("/b")
        return [await first, await second, *(await client.children("/"))[0]]

    began = harness.now_s
    assert harness.simulation.run_until(three()) == ["/a", "/b", "a", "b", "zookeeper"]
    assert harness.now_s - began > 1.4 and injection.is_effective
    harness.until_ms(AT_MS + 3000)
    began = harness.now_s
    harness.simulation.run_until(client.exists("/a"))
    assert (
        injection.is_over
        and harness.now_s - began < 0.2
        and harness.servers[-1].front is harness.servers[-1]
    )


def test_client_of_a_lagging_follower_sees_old_state_and_its_own_changes(harness: Harness) -> None:
    """The other client reads current state; `sync` waits; a watch fires late, and a later read is
    not older than it.
    """
    behind, run = harness.client("behind"), harness.simulation.run_until
    run(behind.create("/x", b"old"))
    injection = harness.armed("stale-znodes", lag_ms=1500, permille=1000, duration_ms=6000)
    harness.until_ms(AT_MS + 10)
    ahead = harness.client("ahead")
    run(behind.get("/x", watch=True))
    assert not injection.is_effective, "nothing has changed yet"
    run(ahead.set("/x", b"new"))
    changed_at = harness.now_s
    assert run(ahead.get("/x"))[0] == b"new"
    assert run(behind.get("/x"))[0] == b"old" and injection.is_effective
    own = run(behind.create("/own", b""))
    assert (
        harness.now_s - changed_at > 1.4
        and run(behind.exists(own)) is not None
        and run(behind.get("/x"))[0] == b"new"
    )
    assert [(kind, path) for _, kind, path in harness.watch_events] == [
        (EventType.NODE_DATA_CHANGED, "/x")
    ] and harness.watch_events[0][0] - changed_at > 1.4
    run(ahead.set("/x", b"newest"))
    assert run(behind.get("/x"))[0] == b"new"
    run(behind._ask(OpCode.SYNC, compiled(PathOnly, 0).encode(PathOnly(path="/x")), "/x"))
    assert run(behind.get("/x"))[0] == b"newest"


def test_after_the_fault_all_clients_read_the_same_and_watches_hold(harness: Harness) -> None:
    behind, run = harness.client("behind"), harness.simulation.run_until
    run(behind.create("/x", b"old"))
    injection = harness.armed("stale-znodes", lag_ms=5000, permille=1000, duration_ms=0)
    harness.until_ms(AT_MS + 10)
    ahead = harness.client("ahead")
    run(ahead.set("/x", b"new"))
    run(behind.get("/x", watch=True))
    waiting = harness.simulation.spawn("behind", behind.create("/y", b""))
    harness.simulation.run_for(0.1)
    assert not waiting.done(), "the follower has not applied it yet"
    injection.end()
    harness.simulation.run_for(0.2)
    assert waiting.done() and run(behind.get("/x", watch=True))[0] == b"new"
    assert harness.servers[-1].front is harness.servers[-1]
    harness.watch_events.clear()
    run(ahead.set("/x", b"newest"))
    harness.simulation.run_for(0.1)
    assert [(kind, path) for _, kind, path in harness.watch_events] == [
        (EventType.NODE_DATA_CHANGED, "/x")
    ]


def test_server_that_dies_meanwhile_restarts_without_the_fault(harness: Harness) -> None:
    client, run = harness.client("client"), harness.simulation.run_until
    injection = harness.armed("stale-znodes", lag_ms=1000, permille=1000, duration_ms=0)
    harness.until_ms(AT_MS + 10)
    host: Host = harness.host
    harness.simulation.kill(host)
    harness.simulation.restart(host)
    harness.simulation.run_for(2)
    injection.end()
    began = harness.now_s
    run(client.create("/x"))
    assert harness.now_s - began < 0.5 and harness.simulation.troubles == []
