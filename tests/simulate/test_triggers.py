"""Faults fire at a trigger: before or after writes, flushes, frames and events; each is counted."""

import asyncio
import struct
from collections.abc import Iterable, Iterator

import pytest

from kraftsim.lab.faults.arm import arm, tally
from kraftsim.lab.faults.fault import (
    FAULTS,
    AtTime,
    Fault,
    OnDisk,
    OnEvent,
    OnFrame,
    Trigger,
    Value,
    directions,
    from_json,
    to_json,
)
from kraftsim.server.events import LogRecovered, NodeReady, NodeStopped
from kraftsim.world.simulated import FileClass, SimulatedWorld, Simulation
from kraftsim.world.simulated.transport import SimulatedTransport

PORT = 9092
LOG = "t-0/0.log"


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        simulation.add_host("a"), simulation.add_host("b")
        yield simulation


async def write_ten_times(world: SimulatedWorld) -> None:
    file = world.disk.open(LOG)
    for i in range(10):
        file.append([b"%d" % i])
        await file.flush()
        world.emit(NodeStopped(reason=str(i)))


@pytest.mark.parametrize(
    "trigger, content, emitted",
    [
        (OnDisk(operation="write", nth=4, moment="before"), b"012", 3),
        (
            OnDisk(operation="write", nth=4, moment="after", file_class=FileClass.PARTITION_LOG),
            b"0123",
            3,
        ),
        (OnDisk(operation="flush", nth=4, moment="before"), b"0123", 3),
        (OnDisk(operation="flush", nth=4, moment="after", host="a"), b"0123", 3),
        (OnEvent(kind="NodeStopped", nth=4), b"0123", 4),
        (OnEvent(kind="NodeStopped", fields={"reason": "7"}), b"01234567", 8),
        (OnDisk(operation="write", host="b"), b"0123456789", 10),
        (OnDisk(operation="write", file_class=FileClass.METADATA_LOG), b"0123456789", 10),
    ],
)
def test_process_dies_at_the_exact_trigger_point(
    sim: Simulation, trigger: Trigger, content: bytes, emitted: int
) -> None:
    injection = arm(Fault(kind="kill", trigger=trigger), sim)
    sim.spawn("a", write_ten_times(sim.world_of("a")))
    sim.run_for(10)
    assert injection.has_fired == injection.is_effective == (emitted < 10)
    assert sim.host("a").is_alive == (emitted == 10)
    if emitted < 10:
        sim.restart("a")
    assert sim.world_of("a").disk.read(LOG) == content
    assert sim.event_bytes().count(b'"kind":"NodeStopped"') == emitted


def test_power_loss_between_write_and_flush_loses_the_write() -> None:
    lost = 0
    for seed in range(10):
        with Simulation(seed) as sim:
            sim.add_host("a")
            injection = arm(
                Fault(kind="power-loss", trigger=OnDisk(operation="flush", nth=5, moment="before")),
                sim,
            )
            sim.spawn("a", write_ten_times(sim.world_of("a")))
            sim.run_for(1)
            lost += injection.is_effective
    assert lost >= 5


def request(correlation_id: int, api_key: int = 22, body: bytes = b"body") -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api_key, 1, correlation_id) + body


def response(correlation_id: int, body: bytes = b"answer") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


class FrameServer(asyncio.Protocol):
    """Answers frames in two writes each, so that headers are torn."""

    def __init__(self, seen: list[int]) -> None:
        self.seen, self.buffer = seen, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) >= 4 + (
            size := int.from_bytes(self.buffer[:4], "big")
        ):
            correlation_id = int.from_bytes(self.buffer[8:12], "big")
            self.buffer = self.buffer[4 + size :]
            self.seen.append(correlation_id)
            answer = response(correlation_id)
            self.transport.write(answer[:6])
            self.transport.write(answer[6:])


class FrameClient(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.lost: str | None = None

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = type(exc).__name__


def converse(sim: Simulation, writes: Iterable[bytes]) -> tuple[list[int], FrameClient]:
    """Connect a to a server on b, write, and return (correlation ids that the server received, the
    client).
    """
    seen: list[int] = []

    async def serve() -> None:
        await asyncio.get_running_loop().create_server(lambda: FrameServer(seen), "b", PORT)

    async def dial() -> FrameClient:
        transport, protocol = await asyncio.get_running_loop().create_connection(
            FrameClient, "b", PORT
        )
        for data in writes:
            transport.write(data)
            await asyncio.sleep(0.01)
        return protocol

    sim.run_until(sim.spawn("b", serve()))
    client = sim.run_until(sim.spawn("a", dial()))
    sim.run_for(1)
    return seen, client


FOUR = [
    request(1, 3),
    request(2),
    request(3) + request(4, 3),
    request(5)[:5],
    request(5)[5:],
    request(6),
]


@pytest.mark.parametrize(
    "trigger, after_bytes, seen, answered",
    [
        (OnFrame(api_key=22, nth=2), 0, [1, 2], 2),
        (OnFrame(api_key=22, nth=2), 7, [1, 2], 2),
        (OnFrame(api_key=22, nth=2), -1, [1, 2, 3], 2),
        (OnFrame(api_key=3, nth=2), 0, [1, 2, 3], 2),
        (OnFrame(api_key=22, nth=4, client="a", server="b"), 0, [1, 2, 3, 4, 5], 5),
        (OnFrame(api_key=22, is_response=True, nth=2), 0, [1, 2, 3], 2),
        (OnFrame(api_key=22, is_response=True, nth=3), 0, [1, 2, 3, 4, 5], 4),
        (OnFrame(api_key=22, nth=1, client="b"), 0, [1, 2, 3, 4, 5, 6], 6),
        (OnFrame(api_key=99, nth=1), 0, [1, 2, 3, 4, 5, 6], 6),
    ],
)
def test_connection_is_cut_at_a_byte_of_a_frame(
    sim: Simulation, trigger: OnFrame, after_bytes: int, seen: list[int], answered: int
) -> None:
    injection = arm(
        Fault(kind="cut-connection", trigger=trigger, params={"after_bytes": after_bytes}), sim
    )
    requests, client = converse(sim, FOUR)
    assert injection.is_effective == (len(seen) < 6)
    assert client.lost == ("ConnectionResetError" if injection.is_effective else None)
    if trigger.is_response:
        assert len(client.received) // 14 == answered, (
            "the response with the torn header is incomplete"
        )
    else:
        assert len(requests) == len(seen)
    assert requests[: len(seen)] == seen


def test_frames_are_recognised_on_existing_connections(sim: Simulation) -> None:
    loop_seen, client = converse(sim, [request(1)])
    injections = [
        arm(
            Fault(
                kind="kill",
                trigger=OnFrame(api_key=22, is_response=True, moment="after"),
                target="b",
            ),
            sim,
        )
    ]
    near, _ = next(iter(sim.network.connections.values()))
    sim.loop.schedule(sim.host("a").process, sim.now_ns, lambda: near.write(request(2)))
    sim.run_for(1)
    assert injections[0].has_fired and loop_seen == [1, 2] and client.lost == "ConnectionResetError"


def test_every_kind_is_armed_fires_and_takes_effect() -> None:
    """A kind that never changes an outcome tests nothing."""
    kinds: dict[str, dict[str, Value]] = {
        "kill": {},
        "power-loss": {},
        "restart": {"after_ms": 500, "power_loss": True},
        "pause": {"duration_ms": 500},
        "partition": {"duration_ms": 500},
        "slow-link": {"duration_ms": 500},
        "cut-connection": {},
        "flush-error": {"times": 1, "file_class": "partition-log"},
        "disk-full": {"duration_ms": 500},
        "slow-disk": {"duration_ms": 500},
    }
    assert set(kinds) <= set(FAULTS.names())
    for kind, params in kinds.items():
        with Simulation(5) as sim:
            sim.add_host("a"), sim.add_host("b")
            trigger = OnFrame(api_key=22) if kind == "cut-connection" else AtTime(at_ms=5)
            injection = arm(Fault(kind=kind, trigger=trigger, target="b", params=params), sim)

            async def work(world: SimulatedWorld) -> None:
                file = world.disk.open(LOG)
                while True:
                    try:
                        file.append([b"x"])
                        await file.flush()
                    except OSError:
                        await asyncio.sleep(0.1)

            sim.spawn("b", work(sim.world_of("b")))
            converse(sim, [request(i) for i in range(20)])
            sim.run_for(2)
            counted = tally([injection])[kind]
            assert (counted.armed, counted.fired, counted.bit) == (1, 1, 1), kind
            emitted = sim.event_bytes()
            for event in (b"FaultArmed", b"FaultInjected", b"FaultTookEffect"):
                assert emitted.count(event) == 1, (kind, event)
            assert emitted.count(b"FaultEnded") == ("duration_ms" in params or kind == "restart"), (
                kind
            )


def test_ended_fault_no_longer_fires_and_its_lasting_effect_is_undone(sim: Simulation) -> None:
    future = arm(Fault(kind="kill", trigger=AtTime(at_ms=1000), target="a"), sim)
    lasting = arm(
        Fault(kind="partition", trigger=AtTime(at_ms=1), target="a", params={"duration_ms": 0}), sim
    )
    sim.run_for(0.5)
    assert sim.network.link("a", "b").is_blocked and sim.network.link("b", "a").is_blocked
    for injection in (future, lasting):
        injection.end()
    sim.run_for(5)
    assert sim.host("a").is_alive and not future.has_fired
    assert not sim.network.link("a", "b").is_blocked


def test_faults_can_be_serialized_and_replayed() -> None:
    faults = [
        Fault(
            kind="restart",
            trigger=OnDisk(file_class=FileClass.METADATA_LOG, nth=3),
            params={"after_ms": 10, "power_loss": True},
        ),
        Fault(
            kind="partition", trigger=OnEvent(kind="NodeReady", fields={"x": None}), target="a>b"
        ),
        Fault(kind="cut-connection", trigger=OnFrame(api_key=22, is_response=True)),
        Fault(kind="kill", trigger=AtTime(at_ms=5), target="a"),
    ]
    assert from_json(to_json(faults)) == faults
    assert [str(fault) for fault in faults[:2]] == [
        "restart of * (after_ms 10, power_loss True) after write 3 of metadata-log on any host",
        "partition of a>b after NodeReady 1 with x None on any host",
    ]


def test_invalid_fault_is_rejected_when_armed(sim: Simulation) -> None:
    with pytest.raises(KeyError, match="kill"):
        arm(Fault(kind="kil", trigger=AtTime(at_ms=1)), sim)
    with pytest.raises(ValueError, match="duration_ms"):
        arm(Fault(kind="partition", trigger=AtTime(at_ms=1), params={"duration": 1}), sim)


@pytest.mark.parametrize(
    "target, pairs",
    [
        ("a>b", [("a", "b")]),
        ("a<>b", [("a", "b"), ("b", "a")]),
        ("a", [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")]),
    ],
)
def test_targets_name_links(target: str, pairs: list[tuple[str, str]]) -> None:
    assert directions(target, ["a", "b", "c"]) == pairs
    with pytest.raises(KeyError):
        directions(target.replace("a", "x"), ["a", "b", "c"])


def test_event_trigger_checks_the_fields_of_the_event(sim: Simulation) -> None:
    hosts = []
    sim.triggers.on_event(
        lambda trigger_context: hosts.append(trigger_context.host),
        kind="LogRecovered",
        nth=2,
        fields={"topic": "x", "clean": True},
    )
    for host in ("a", "b"):
        for topic in ("x", "y"):
            sim.world_of(host).emit(
                LogRecovered(topic=topic, partition=0, next_offset=0, truncated_bytes=0, clean=True)
            )
        sim.world_of(host).emit(NodeReady())
    assert hosts == ["b"]
