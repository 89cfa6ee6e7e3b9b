"""Every fault kind that supports sockets: it fires, it is effective, and the cluster recovers
afterwards.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.socket_environment import FieldSchedule
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultArmed, FaultEnded, FaultInjected, FaultTookEffect
from kraftsim.lab.faults.fault import FAULTS, SIM, AtTime, Fault, OnFrame, Trigger, Value
from kraftsim.world.real.world import real_world
from protocol.api_keys import ApiKey
from tests.cluster.running import QUICK_SESSIONS

QUICK_QUORUM = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "800",
    "controller.quorum.request.timeout.ms": "700",
}
QUICK_ZOOKEEPER = {"zookeeper.session.timeout.ms": "1500"}
"""ZooKeeper clients without other requests send a ping within a third of this timeout."""
NOW = AtTime(at_ms=0)
HEARTBEAT, FETCH, INIT_PRODUCER_ID = (
    int(ApiKey.BROKER_HEARTBEAT),
    int(ApiKey.FETCH),
    int(ApiKey.INIT_PRODUCER_ID),
)
ANSWER = OnFrame(api_key=HEARTBEAT, is_response=True)
REQUEST = OnFrame(api_key=HEARTBEAT)
SECONDS = 20.0
CASES: dict[str, tuple[str, Trigger, dict[str, Value]]] = {
    "bandwidth-cap": ("controller-*", NOW, {"bytes_per_second": 2000, "duration_ms": 600}),
    "clog": ("broker-1", NOW, {"duration_ms": 500}),
    "connect-timeout": ("clients>broker-*", NOW, {"duration_ms": 600}),
    "crash-loop": ("broker-1", NOW, {"times": 2, "up_ms": 100, "down_ms": 20}),
    "cut-connection": ("*", ANSWER, {"after_bytes": 5}),
    "duplicate-request": (
        "*",
        OnFrame(api_key=INIT_PRODUCER_ID, client="asker"),
        {"after_ms": 10, "duration_ms": 2000},
    ),
    "half-open": ("broker-1<>controller-*", NOW, {"believer": "connected", "duration_ms": 800}),
    "half-open-restart": ("broker-1", NOW, {"after_ms": 50, "duration_ms": 700}),
    "heavy-tail": ("controller-*", NOW, {"permille": 500, "duration_ms": 500}),
    "isolate-leader": ("*", NOW, {"ways": "in", "duration_ms": 500}),
    "kill": ("broker-1", NOW, {}),
    "late-reply": ("*", OnFrame(api_key=FETCH, is_response=True), {"duration_ms": 5000}),
    "loop-stalls": ("controller-101", NOW, {"stall_ms": 50, "every_ms": 100, "duration_ms": 400}),
    "lost-reply": ("leader", NOW, {"duration_ms": 3000}),
    "other-release": ("controller-102", NOW, {"release": "4.4", "duration_ms": 300}),
    "overtaken-request": ("*", REQUEST, {"same_client": False, "duration_ms": 3000}),
    "partition": ("broker-1<>controller-*", NOW, {"duration_ms": 500}),
    "pause": ("broker-2", NOW, {"duration_ms": 300}),
    "refused-connections": ("clients<>broker-*", NOW, {"duration_ms": 600}),
    "request-fault": (
        "broker-*",
        NOW,
        {"fault": "InitProducerId error=14 client_id=asker times=all duration_ms=400"},
    ),
    "reset-storm": ("broker-1", NOW, {"interval_ms": 50, "duration_ms": 300}),
    "restart": ("controller-102", NOW, {"after_ms": 50}),
    "ring-partition": ("*", NOW, {"duration_ms": 500}),
    "slow-link": ("broker-2", NOW, {"latency_ms": 20, "jitter_ms": 20, "duration_ms": 500}),
    "stop": ("broker-2", NOW, {"after_ms": 50}),
    "swizzle-clog": ("*", NOW, {"percent": 80, "spread_ms": 200, "duration_ms": 200}),
    "torn-reads": ("controller-*", NOW, {"piece_bytes": 1, "duration_ms": 400}),
    "zombie": ("leader", NOW, {"duration_ms": 6000}),
}


ON_ZOOKEEPER: dict[str, tuple[str, Trigger, dict[str, Value]]] = {
    "slow-zookeeper": ("*", NOW, {"delay_ms": 50, "duration_ms": 1500}),
}


class Running:
    """A cluster behind a proxy on an event loop that all tests of this file share."""

    def __init__(self, directory: Path, *, zookeeper: bool = False) -> None:
        self.loop = asyncio.new_event_loop()
        self.world = real_world(
            run="r",
            node="asker",
            incarnation=1,
            data_dir=directory,
            events_dir=directory / "asker",
            seed=1,
        )
        controllers, brokers = (0, 1) if zookeeper else (3, 2)
        settings = QUICK_ZOOKEEPER if zookeeper else {**QUICK_SESSIONS, **QUICK_QUORUM}
        port = free_port_range(2, controllers=3)
        spec = ClusterSpec(
            controllers=controllers,
            brokers=brokers,
            zookeeper=zookeeper,
            port=port,
            behind_proxy=True,
            settings=settings,
        )
        self.cluster = ProcessCluster(
            spec, RunDirectory(directory), follows_frames=True, judges_requests=True
        )


@contextmanager
def started(directory: Path, *, zookeeper: bool = False) -> Iterator[Running]:
    running = Running(directory, zookeeper=zookeeper)
    running.loop.run_until_complete(running.cluster.start())
    yield running
    running.loop.run_until_complete(running.cluster.stop())
    running.loop.close()
    running.world.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with started(tmp_path_factory.mktemp("over_sockets")) as found:
        yield found


@asynccontextmanager
async def traffic(running: Running) -> AsyncIterator[None]:
    """Let a client request producer ids, on a new connection each time."""

    async def ask() -> None:
        addresses = [
            (node.host, node.port)
            for node in map(running.cluster.spec.node, running.cluster.spec.broker_names)
        ]
        while True:
            client = InitProducerIdClient(
                running.world, bootstrap=addresses, client_id="asker", retry_backoff_ms=20
            )
            with suppress(OSError):
                async with asyncio.timeout(0.3):
                    await client.ask(5)
            await client.close()
            await asyncio.sleep(0.02)

    broker_client = asyncio.ensure_future(ask())
    try:
        yield
    finally:
        broker_client.cancel()
        with suppress(asyncio.CancelledError):
            await broker_client


async def injected(running: Running, fault: Fault) -> list[Event]:
    """Inject one fault until its end, heal, and return the logged events."""
    events: list[Event] = []
    schedule = FieldSchedule(running.cluster, [fault], events.append)
    async with traffic(running):
        schedule.inject()
        async with asyncio.timeout(SECONDS):
            await schedule.finished()
            await schedule.heal()
            await running.cluster.answering(timeout_seconds=SECONDS)
    await schedule.close()
    return events


def test_every_fault_kind_supported_over_sockets_is_tested() -> None:
    assert sorted([*CASES, *ON_ZOOKEEPER]) == [
        kind.name for kind in FAULTS.all() if kind.modes != (SIM,)
    ]


def test_only_fault_kinds_supported_over_sockets_document_it() -> None:
    assert [
        kind.name
        for kind in FAULTS.all()
        if (kind.over_sockets is not None) != (kind.modes != (SIM,))
    ] == []


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_fault_kind_is_effective_over_sockets(running: Running, name: str) -> None:
    """All nodes respond again within seconds after it is healed."""
    assert_effective(running, name, *CASES[name])


@pytest.mark.interop
def test_a_fault_kind_is_effective_over_sockets_in_zookeeper_mode(tmp_path: Path) -> None:
    """The proxy is in front of ZooKeeper too, without parsing its protocol."""
    with started(tmp_path, zookeeper=True) as running:
        for name, case in ON_ZOOKEEPER.items():
            assert_effective(running, name, *case)


def assert_effective(
    running: Running, name: str, target: str, trigger: Trigger, params: dict[str, Value]
) -> None:
    events = running.loop.run_until_complete(
        injected(running, Fault(kind=name, target=target, trigger=trigger, params=params))
    )
    kinds = [type(event) for event in events]
    assert kinds[:2] == [FaultArmed, FaultInjected] and FaultTookEffect in kinds, events
    assert kinds[-1] == FaultEnded
