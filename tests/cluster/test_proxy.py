"""The proxy in front of a real cluster: it identifies both ends of a connection, delays data and
truncates frames; nodes and producers recover.
"""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.reader import ReaderClient
from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.cluster.administration import create_topic
from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver, NoProxy
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.proxy.control import ProxyClient
from kraftsim.cluster.readiness import wait_until_answering
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.cluster.socket_environment import (
    FieldSchedule,
    can_inject,
    follows_frames,
    wants_proxy,
)
from kraftsim.cluster.spec import HAS_OUTGOING_NETWORK, LOOPBACK, ClusterSpec
from kraftsim.events.runs import FaultTookEffect
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, OnDisk, OnFrame
from kraftsim.lab.faults.field import CLIENTS, Condition, links_of
from kraftsim.world.interface import stream
from kraftsim.world.real.world import real_world
from protocol.api_keys import ApiKey
from tests.cluster.running import QUICK_SESSIONS, logged_events

BROKER, CONTROLLER = "broker-1", "controller-101"
PRODUCE = int(ApiKey.PRODUCE)
SECONDS = 20.0


@asynccontextmanager
async def behind_proxy(
    directory: Path, *, brokers: int = 1, **options: int
) -> AsyncIterator[ProcessCluster]:
    spec = ClusterSpec(
        brokers=brokers,
        port=free_port_range(brokers),
        behind_proxy=True,
        settings=QUICK_SESSIONS,
        **options,  # type: ignore[arg-type]  # keyword arguments of several types
    )
    async with ProcessCluster(spec, RunDirectory(directory), follows_frames=True) as cluster:
        yield cluster


async def until_logged(cluster: ProcessCluster, kind: str, node: str, times: int) -> None:
    async with asyncio.timeout(SECONDS):
        while len(logged_events(cluster.directory, kind, node)) < times:
            await asyncio.sleep(0.02)


async def test_a_broker_whose_heartbeats_are_lost_is_fenced_and_unfenced(tmp_path: Path) -> None:
    """One direction of one link is enough; clients still reach the broker, and delayed bytes are
    counted (KIP-631).
    """
    async with behind_proxy(tmp_path) as cluster:
        field = ClusterFaultDriver(cluster)
        number = await field.impose([(BROKER, CONTROLLER)], Condition(holds=True))
        await until_logged(cluster, "BrokerFenced", CONTROLLER, 1)
        await wait_until_answering([(cluster.spec.host, cluster.spec.port)], brokers=0)
        effect = await field.lift(number)
        assert effect.touched_bytes > 0 and effect.connections >= 1
        await until_logged(cluster, "BrokerUnfenced", CONTROLLER, 2)
        assert len(logged_events(cluster.directory, "NodeStarted", BROKER)) == 1, (
            "it never went down"
        )
        await field.close()


async def test_a_paused_broker_is_fenced_and_continues(tmp_path: Path) -> None:
    async with behind_proxy(tmp_path) as cluster:
        field = ClusterFaultDriver(cluster)
        assert await field.pause(BROKER) and not await field.pause(BROKER)
        async with asyncio.timeout(SECONDS):
            while psutil.Process(cluster.pid(BROKER)).status() != psutil.STATUS_STOPPED:
                await asyncio.sleep(0.01)
        await until_logged(cluster, "BrokerFenced", CONTROLLER, 1)
        assert await field.resume(BROKER) and not await field.resume(BROKER)
        await until_logged(cluster, "BrokerUnfenced", CONTROLLER, 2)
        await field.close()
    assert len(logged_events(cluster.directory, "NodeStopped", BROKER)) == 1


async def test_a_cluster_with_a_paused_node_stops_cleanly(tmp_path: Path) -> None:
    """A stopped process does not handle SIGTERM."""
    async with behind_proxy(tmp_path) as cluster:
        await cluster.pause_node(BROKER)
    assert len(logged_events(cluster.directory, "NodeStopped", BROKER)) == 1


async def test_a_truncated_produce_response_causes_a_retry_and_no_duplicate(tmp_path: Path) -> None:
    """The batch is in the log; the producer gets its offset from the response to its retry
    (KIP-98).

    After the last byte there is no retry.
    """
    cuts = {3: 0, 6: 1, 9: 4, 12: 11, 15: 30, 18: -1}
    faults = [
        Fault(
            kind="cut-connection",
            trigger=OnFrame(api_key=PRODUCE, is_response=True, client="writer", nth=nth),
            params={"after_bytes": after_bytes},
        )
        for nth, after_bytes in cuts.items()
    ]
    effects: list[str] = []
    async with behind_proxy(tmp_path / "run") as cluster:
        bootstrap = [(cluster.spec.host, cluster.spec.port)]
        await create_topic(bootstrap, "t", 1)
        schedule = FieldSchedule(
            cluster,
            faults,
            lambda event: (
                effects.append(event.effect) if isinstance(event, FaultTookEffect) else None
            ),
        )
        schedule.inject()
        await asyncio.sleep(0.2)
        world = real_world(
            run="r",
            node="writer",
            incarnation=1,
            data_dir=tmp_path / "data",
            events_dir=tmp_path / "events",
            seed=1,
        )
        writer = ProducerClient(
            world,
            bootstrap=bootstrap,
            client_id="writer",
            settings=ProducerSettings(retry_backoff_ms=20),
        )
        await writer.start()
        for number in range(60):
            await writer.send("t", 0, f"key-{number}", b"%d" % number)
            assert await writer.flush(SECONDS) == 0
        await writer.close()
        async with asyncio.timeout(SECONDS):
            await schedule.finished()
        await schedule.close()
        reader = ReaderClient(world, bootstrap=bootstrap, client_id="reader")
        read = await reader.read_all("t", [0])
        await reader.close()
        world.close()
    assert [record.value for record in read] == [b"%d" % number for number in range(60)]
    assert len(effects) == len(cuts) and all(effect.startswith("a frame of") for effect in effects)
    assert len(logged_events(cluster.directory, "DuplicateAnswered", BROKER)) == sum(
        after_bytes >= 0 for after_bytes in cuts.values()
    )


async def test_clients_are_identified_by_client_id_and_nodes_by_address(tmp_path: Path) -> None:
    """A condition on one client does not affect others; one on all clients does not affect
    nodes.
    """
    async with behind_proxy(tmp_path) as cluster:
        assert cluster.proxy is not None
        control = await ProxyClient.at(cluster.proxy.door, cluster.proxy.secret)
        nodes = cluster.spec.node_names

        async def answered(client_id: str) -> bool:
            world = real_world(
                run="r",
                node=client_id,
                incarnation=1,
                data_dir=tmp_path,
                events_dir=tmp_path / client_id,
                seed=1,
            )
            reader = ReaderClient(
                world, bootstrap=[(cluster.spec.host, cluster.spec.port)], client_id=client_id
            )
            try:
                async with asyncio.timeout(1.0):
                    await reader.read_all("t", [0])
            except TimeoutError:
                return False
            finally:
                await reader.close()
                world.close()
            return True

        await create_topic([(cluster.spec.host, cluster.spec.port)], "t", 1)
        one = await control.impose(links_of("unlucky<>broker-1", nodes), Condition(holds=True))
        assert list(await asyncio.gather(answered("unlucky"), answered("lucky"))) == [False, True]
        assert (await control.lift(one)).connections >= 1
        all_clients = await control.impose([(CLIENTS, BROKER)], Condition(holds=True))
        assert not await answered("other")
        assert (await control.lift(all_clients)).touched_bytes > 0
        assert not logged_events(cluster.directory, "BrokerFenced", CONTROLLER)
        assert await control.lift_all() == 0
        await control.close()


async def test_nodes_without_own_addresses_are_identified_by_client_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on systems with 127.0.0.1 only: exactly one link is delayed."""
    monkeypatch.setattr("kraftsim.cluster.spec.HAS_OUTGOING_NETWORK", False)
    async with behind_proxy(tmp_path, brokers=2) as cluster:
        assert cluster.spec.node(BROKER).outgoing_host is None
        field = ClusterFaultDriver(cluster)
        number = await field.impose([(BROKER, CONTROLLER)], Condition(holds=True))
        await until_logged(cluster, "BrokerFenced", CONTROLLER, 1)
        assert (await field.lift(number)).touched_bytes > 0
        assert {
            event["broker_id"]
            for event in logged_events(cluster.directory, "BrokerFenced", CONTROLLER)
        } == {1}
        await field.close()


async def test_connections_reset_before_accept_do_not_crash_the_proxy(tmp_path: Path) -> None:
    """`kraftsim conformance` does so; uvloop then accepts a connection without an address."""
    async with behind_proxy(tmp_path) as cluster:
        address = (cluster.spec.host, cluster.spec.port)
        assert cluster.proxy is not None
        os.kill(cluster.proxy.pid, signal.SIGSTOP)
        for _ in range(50):
            with socket.create_connection(address) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.kill(cluster.proxy.pid, signal.SIGCONT)
        async with asyncio.timeout(SECONDS):
            await wait_until_answering([address], brokers=1)
        assert cluster.proxy.is_running


async def test_an_embedded_cluster_can_run_behind_a_proxy(tmp_path: Path) -> None:
    spec = ClusterSpec(
        brokers=1, port=free_port_range(1), behind_proxy=True, settings=QUICK_SESSIONS
    )
    async with EmbeddedCluster(spec, RunDirectory(tmp_path)) as cluster:
        field = ClusterFaultDriver(cluster)
        number = await field.impose(
            [(BROKER, CONTROLLER), (CONTROLLER, BROKER)], Condition(holds=True)
        )
        async with asyncio.timeout(SECONDS):
            while not logged_events(cluster.directory, "BrokerFenced", CONTROLLER):
                await asyncio.sleep(0.02)
        assert (await field.lift(number)).touched_bytes > 0
        await field.close()
        await cluster.answering()


async def test_without_a_proxy_network_faults_are_refused() -> None:
    cluster = ProcessCluster(ClusterSpec(), RunDirectory(Path()))
    with pytest.raises(NoProxy):
        await ClusterFaultDriver(cluster).impose([(BROKER, CONTROLLER)], Condition(holds=True))


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that starts a proxy for one broker and waits."""
    program = f"""
import asyncio, time
from pathlib import Path
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.proxy.process import ProxyProcess, proxy_plan
from kraftsim.cluster.spec import ClusterSpec
directory = RunDirectory(Path({str(tmp_path)!r}))
directory.create()
spec = ClusterSpec(brokers=1, port={free_port_range(1)}, behind_proxy=True)
asyncio.run(ProxyProcess(proxy_plan(spec, follows_frames=False), directory).start())
print("up", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def test_a_proxy_exits_with_its_parent_process(
    orphan: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert orphan.stdout is not None and orphan.stdout.readline() == b"up\n"
    (proxy,) = psutil.Process(orphan.pid).children()
    os.kill(orphan.pid, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while proxy.is_running() and proxy.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_nodes_behind_a_proxy_are_reached_at_their_advertised_ports() -> None:
    """Brokers advertise the proxy, voters are addressed through it, and on Linux each node connects
    from its own address.
    """
    plain, behind_relay = (ClusterSpec(port=20000, behind_proxy=each) for each in (False, True))
    assert behind_relay.bootstrap == plain.bootstrap
    for name in behind_relay.node_names:
        node = behind_relay.node(name)
        assert (node.host, node.port) == (plain.node(name).host, plain.node(name).port)
        assert (node.listens_host, node.listens_port) == (LOOPBACK, node.port + 200)
        assert node.properties["listeners"].endswith(f"{LOOPBACK}:{node.port + 200}")
        assert node.properties["advertised.listeners"].endswith(f"{node.host}:{node.port}")
        assert (
            node.properties["controller.quorum.voters"]
            == plain.node(name).properties["controller.quorum.voters"]
        )
    if HAS_OUTGOING_NETWORK:
        assert len(
            {
                behind_relay.node(name).properties["kraftsim.outgoing.host"]
                for name in behind_relay.node_names
            }
        ) == len(behind_relay.node_names)
    assert "kraftsim.outgoing.host" not in plain.node(BROKER).properties


TIMED = AtTime(at_ms=1)


@pytest.mark.parametrize(
    "fault, mode, verdict",
    [
        (
            Fault(kind="partition", target="broker-1", trigger=TIMED),
            "processes",
            (True, True, False),
        ),
        (
            Fault(kind="partition", target="broker-1", trigger=TIMED),
            "embedded",
            (True, True, False),
        ),
        (
            Fault(kind="restart", target="broker-1", trigger=TIMED),
            "processes",
            (True, False, False),
        ),
        (Fault(kind="restart", trigger=OnFrame(api_key=1)), "processes", (True, True, True)),
        (
            Fault(kind="lost-reply", target="broker-1", trigger=TIMED),
            "processes",
            (True, True, True),
        ),
        (
            Fault(kind="half-open-restart", target="broker-1", trigger=TIMED),
            "processes",
            (True, True, False),
        ),
        (Fault(kind="restart", trigger=OnDisk()), "processes", (False, False, False)),
        (Fault(kind="pause", target="broker-1", trigger=TIMED), "processes", (True, False, False)),
        (Fault(kind="pause", target="broker-1", trigger=TIMED), "embedded", (False, False, False)),
        (
            Fault(kind="disk-full", target="broker-1", trigger=TIMED),
            "processes",
            (False, False, False),
        ),
    ],
)
def test_requirements_of_fault_kinds_over_sockets(
    fault: Fault, mode: str, verdict: tuple[bool, bool, bool]
) -> None:
    """Whether it is supported at all; whether it needs a proxy; whether the proxy must parse
    frames.
    """
    assert (can_inject(fault, mode), wants_proxy([fault], mode), follows_frames([fault])) == verdict


@pytest.mark.parametrize("mode", [Mode.PROCESSES, Mode.EMBEDDED])
def test_quorum_under_faults_generates_network_faults_over_sockets(mode: Mode) -> None:
    """And no fault that is not supported there."""
    quorum_under_faults = scenario("quorum_under_faults")
    drawn = [
        fault
        for seed in range(60)
        for fault in quorum_under_faults.faults(stream(seed, "harness", 1, "faults"), mode)
    ]
    assert all(can_inject(fault, mode) for fault in drawn)
    kinds = {fault.kind for fault in drawn}
    assert kinds == {"restart", "partition", "cut-connection", "slow-link"} | (
        {"pause"} if mode is Mode.PROCESSES else set()
    )
    assert {FAULTS.named(kind).family.value for kind in kinds} == {"network", "process"}
