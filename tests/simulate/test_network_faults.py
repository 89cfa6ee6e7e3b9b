"""The effects of each network fault on byte streams; it takes effect only if it changed something,
and nothing of it remains afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pytest

from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, Value
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.kinds.links import silenced
from kraftsim.raft.events import RaftRoleChanged
from kraftsim.world.simulated import NetworkSettings, Simulation
from tests.simulate.streams import PORT, Pair, Recorder

NOW = AtTime(at_ms=0)
STEADY = NetworkSettings(torn_writes=0)
MILLISECOND = 1_000_000
KINDS: dict[str, dict[str, Value]] = {
    "partition": {"target": "a>b"},
    "slow-link": {"target": "a>b", "latency_ms": 50},
    "cut-connection": {"target": "a<>b"},
    "heavy-tail": {"target": "a", "permille": 300},
    "bandwidth-cap": {"target": "a>b", "bytes_per_second": 300},
    "clog": {"target": "a>b"},
    "swizzle-clog": {"percent": 100, "spread_ms": 100},
    "ring-partition": {},
    "isolate-leader": {"ways": "out"},
    "half-open": {"target": "b", "believer": "connected"},
    "refused-connections": {"target": "a>b"},
    "connect-timeout": {"target": "a>b"},
    "torn-reads": {"target": "a<>b", "piece_bytes": 1},
    "reset-storm": {"target": "a<>b", "interval_ms": 50},
}
"""Every kind of the family, with a target and the parameters it needs to take effect where a
connects to b repeatedly.
"""


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5, network=STEADY) as simulation:
        yield simulation


def inject(sim: Simulation, kind: str, **given: Value) -> Injection:
    """Arm a fault that fires immediately, until it is ended."""
    target = given.pop("target", "*")
    assert isinstance(target, str)
    params = {"duration_ms": 0, **given} if "duration_ms" in FAULTS.named(kind).params else given
    injection = arm(
        Fault(
            kind=kind, trigger=AtTime(at_ms=sim.now_ns // MILLISECOND), target=target, params=params
        ),
        sim,
    )
    sim.run_for(0)
    assert injection.has_fired
    return injection


def lead(sim: Simulation, host: str, epoch: int = 1, role: str = "Leader") -> None:
    sim.world_of(host).emit(
        RaftRoleChanged(role=role, leader_epoch=epoch, leader_id=1, voted_id=-1, is_voter=True)
    )


def callbacks(end: Recorder) -> list[str]:
    return [what for what, _ in end.callbacks]


# ---- all of them


def test_table_has_every_kind_of_the_family() -> None:
    assert sorted(KINDS) == sorted(kind.name for kind in FAULTS.all() if kind.family == "network")


@pytest.mark.parametrize("kind", KINDS)
def test_kind_takes_effect_when_it_affects_traffic(sim: Simulation, kind: str) -> None:
    pair = Pair(sim)
    sim.add_host("c")
    lead(sim, "a")
    if kind == "cut-connection":
        pair.client.transport.write(b"x")
    injection = inject(sim, kind, **KINDS[kind])
    for turn in range(20):
        pair.client.transport.write(b"ping %d" % turn)
        pair.server.transport.write(b"pong %d" % turn)
        if turn % 5 == 0:
            sim.spawn(
                "a", sim.loop.create_connection(lambda: pair.make(sim), "b", PORT)
            ).add_done_callback(lambda task: task.exception())
        sim.run_for(0.02)
    assert injection.is_effective
    injection.end()
    assert sim.event_bytes().count(b'"FaultTookEffect"') == 1, "repeated effects are reported once"


@pytest.mark.parametrize("kind", KINDS)
def test_kind_without_traffic_has_no_effect_and_leaves_nothing_behind(
    sim: Simulation, kind: str
) -> None:
    pair = Pair(sim)
    sim.add_host("c")
    lead(sim, "a")
    injection = inject(sim, kind, **KINDS[kind])
    sim.run_for(0.0 if kind in ("reset-storm", "half-open") else 5)
    if kind not in ("reset-storm", "half-open", "cut-connection"):
        assert pair.client.callbacks == [("made", 0)], "an idle connection is not affected"
        assert not injection.is_effective
    injection.end()
    sim.run_for(0.5)
    client = pair.connect()
    server = pair.servers[-1]
    began = sim.now_ns
    for number in range(50):
        client.transport.write(b"%d;" % number)
        server.transport.write(b"%d;" % number)
        sim.run_for(0.002)
    everything = b"".join(b"%d;" % number for number in range(50))
    assert server.received == client.received == everything
    assert sim.now_ns - began < 101 * MILLISECOND
    assert all(chunk.endswith(b";") for chunk in server.chunks), "whole again"


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if "duration_ms" in FAULTS.named(kind).params]
)
def test_duration_ends_a_kind_by_itself(sim: Simulation, kind: str) -> None:
    Pair(sim)
    sim.add_host("c")
    lead(sim, "a")
    given = {**KINDS[kind], "duration_ms": 300}
    injection = inject(sim, kind, **given)
    sim.run_for(0.29)
    assert not injection.is_over
    sim.run_for(1)
    assert injection.is_over and b'"FaultEnded"' in sim.event_bytes()


def test_removing_one_fault_shifts_no_draw_of_another() -> None:
    """Every fault draws from its own random stream: the rest of a schedule behaves as before."""

    def drawn(others: Sequence[int]) -> float:
        with Simulation(9, network=STEADY) as sim:
            Pair(sim)
            injections = [
                inject(sim, "slow-link", target="a>b", latency_ms=1, jitter_ms=number)
                for number in others
            ]
            injection = inject(sim, "heavy-tail", target="a<>b", permille=500)
            for _ in range(20):
                sim.network.link("a", "b").delay_ns(1)
            assert all(each.is_effective for each in injections)
            return injection.random.random()

    assert drawn([]) == drawn([3]) == drawn([3, 4])


# ---- one by one


def test_heavy_tail_delays_few_bytes_very_much(sim: Simulation) -> None:
    sim.add_host("a"), sim.add_host("b")
    inject(sim, "heavy-tail", target="a>b", permille=50, scale_ms=20, longest_ms=3000)
    delays = sorted(sim.network.link("a", "b").delay_ns(1) for _ in range(4000))
    late = [delay for delay in delays if delay > 20 * MILLISECOND]
    assert 150 <= len(late) <= 250, "five in a hundred"
    assert (
        late[len(late) // 2] < 60 * MILLISECOND
        and 500 * MILLISECOND < late[-1] <= 3001 * MILLISECOND
    )
    assert all(sim.network.link("b", "a").delay_ns(1) < MILLISECOND for _ in range(100)), (
        "the other direction is not slowed"
    )


def test_bytes_queue_behind_each_other_on_a_narrow_link(sim: Simulation) -> None:
    pair = Pair(sim)
    injection = inject(sim, "bandwidth-cap", target="a>b", bytes_per_second=1000)
    pair.client.transport.write(bytes(3000))
    assert not injection.is_effective, "a first write waits for nothing"
    pair.client.transport.write(b"small")
    pair.server.transport.write(b"quick")
    sim.run_for(2.9)
    assert injection.is_effective
    assert pair.client.received == b"quick" and pair.server.received == b""
    sim.run_for(0.2)
    assert pair.server.received == bytes(3000) + b"small"


@pytest.mark.parametrize(
    "kind, given",
    [
        ("slow-link", {"latency_ms": 50_000}),
        ("bandwidth-cap", {"bytes_per_second": 10}),
        ("heavy-tail", {"permille": 1000, "scale_ms": 40_000, "longest_ms": 50_000}),
    ],
)
def test_delayed_bytes_do_not_outlive_the_delay(
    sim: Simulation, kind: str, given: Mapping[str, Value]
) -> None:
    """Once a slow link is fast again, neither bytes nor connects are still delayed for seconds."""
    pair = Pair(sim)
    injection = inject(sim, kind, target="a<>b", **given)
    for number in range(10):
        pair.client.transport.write(b"%d" % number * 100)
    sim.run_for(1)
    sim.triggers.at(sim.now_ns + 2_000 * MILLISECOND, lambda trigger_context: injection.end())
    began = sim.now_ns
    pair.connect()
    assert (
        pair.server.received == b"".join(b"%d" % number * 100 for number in range(10))
        and injection.is_effective
    )
    assert sim.now_ns - began < 2_150 * MILLISECOND
    pair.client.transport.write(b"!")
    sim.run_for(0.002)
    assert pair.server.received.endswith(b"9!")


def test_connect_that_takes_too_long_times_out(sim: Simulation) -> None:
    pair = Pair(sim)
    inject(sim, "slow-link", target="a>b", latency_ms=40_000, jitter_ms=0)
    began = sim.now_ns
    with pytest.raises(TimeoutError):
        pair.connect()
    assert sim.now_ns - began == pytest.approx(30_000 * MILLISECOND, abs=MILLISECOND)


def test_clog_holds_bytes_and_releases_them_at_once_in_order(sim: Simulation) -> None:
    pair = Pair(sim)
    pair.client.transport.write(b"0")
    injection = inject(sim, "clog", target="a>b")
    for number in range(1, 9):
        pair.client.transport.write(b"%d" % number)
        sim.run_for(10)
    pair.client.transport.close()
    pair.server.transport.write(b"the other direction works")
    sim.run_for(60)
    assert (
        injection.is_effective
        and callbacks(pair.server) == ["made"]
        and pair.server.received == b""
    )
    assert callbacks(pair.client) == ["made", "closed"], "nothing times out"
    injection.end()
    sim.run_for(0.0001)
    assert pair.server.received == b"012345678" and "eof" in callbacks(pair.server)


def test_connect_waits_for_a_clog_to_end(sim: Simulation) -> None:
    pair = Pair(sim)
    injection = inject(sim, "clog", target="b>a")
    began = sim.now_ns
    sim.triggers.at(began + 10_500 * MILLISECOND, lambda trigger_context: injection.end())
    pair.connect()
    assert sim.now_ns - began == pytest.approx(10_600 * MILLISECOND, abs=3 * MILLISECOND), (
        "at once, not with the next attempt"
    )
    assert injection.is_effective


def test_connect_into_a_clog_times_out_like_any_other(sim: Simulation) -> None:
    pair = Pair(sim)
    inject(sim, "clog", target="a<>b")
    began = sim.now_ns
    with pytest.raises(TimeoutError):
        pair.connect()
    assert sim.now_ns - began == pytest.approx(30_000 * MILLISECOND, abs=20 * MILLISECOND)


def test_partition_within_a_clog_ends_when_both_have_ended(sim: Simulation) -> None:
    pair = Pair(sim)
    clog, partition = inject(sim, "clog", target="a>b"), inject(sim, "partition", target="a>b")
    pair.client.transport.write(b"x")
    sim.run_for(1)
    partition.end()
    sim.run_for(1)
    assert pair.server.received == b""
    clog.end()
    sim.run_for(1)
    assert pair.server.received == b"x"


def test_swizzled_hosts_are_clogged_one_by_one_and_unclogged_in_another_order() -> None:
    hosts = [f"h{number}" for number in range(6)]
    orders = []
    for seed in range(6):
        with Simulation(seed) as sim:
            for host in hosts:
                sim.add_host(host)
            injection = inject(sim, "swizzle-clog", percent=60, spread_ms=1000, duration_ms=500)
            was: set[str] = set()
            clogged: list[str] = []
            unclogged: list[str] = []
            for _ in range(2600):
                sim.run_for(0.001)
                now = {
                    host
                    for host in hosts
                    if all(
                        sim.network.link(host, other).is_clogged for other in hosts if other != host
                    )
                }
                clogged += sorted(now - was)
                unclogged += sorted(was - now)
                was = now
            assert injection.is_over and not was
            assert sorted(clogged) == sorted(unclogged) and clogged, "all hosts are unclogged"
            orders.append((clogged, unclogged))
    assert any(clogged != unclogged for clogged, unclogged in orders)
    assert (
        any(len(clogged) < len(hosts) for clogged, _ in orders)
        and len({len(clogged) for clogged, _ in orders}) > 1
    )


@pytest.mark.parametrize("size", range(3, 10))
def test_on_a_ring_each_host_reaches_a_majority_and_no_two_the_same(size: int) -> None:
    ring = [f"h{number}" for number in range(size)]
    pairs = silenced(ring)
    received = {
        listener: frozenset(ring) - {source for source, target in pairs if target == listener}
        for listener in ring
    }
    assert all(
        listener in receives and len(receives) == size // 2 + 1
        for listener, receives in received.items()
    )
    assert len(set(received.values())) == size
    assert len(pairs) == len(set(pairs)) and all(source != target for source, target in pairs)


def test_ring_can_be_limited_to_some_hosts(sim: Simulation) -> None:
    for name in ("a", "b", "c", "x"):
        sim.add_host(name)
    inject(sim, "ring-partition", target="a,b,c")
    shut = {
        (one, other)
        for one in "abcx"
        for other in "abcx"
        if one != other and sim.network.link(one, other).is_blocked
    }
    assert len(shut) == 3 and not any("x" in pair for pair in shut)


@pytest.mark.parametrize(
    "ways, receives, is_received",
    [("both", False, False), ("in", False, True), ("out", True, False)],
)
def test_current_leader_is_partitioned(
    sim: Simulation, ways: str, receives: bool, is_received: bool
) -> None:
    pair = Pair(sim)
    sim.add_host("c")
    lead(sim, "b", epoch=3)
    lead(sim, "a", epoch=7)
    injection = inject(sim, "isolate-leader", ways=ways)
    pair.client.transport.write(b"from the leader")
    pair.server.transport.write(b"to the leader")
    sim.run_for(1)
    assert (
        bool(pair.client.received) == receives
        and bool(pair.server.received) == is_received
        and injection.is_effective
    )
    assert not sim.network.link("b", "c").is_blocked


def test_fault_for_a_leader_waits_until_there_is_one(sim: Simulation) -> None:
    pair = Pair(sim)
    lead(sim, "a", epoch=7)
    sim.kill("a")
    waiting = arm(Fault(kind="kill", trigger=NOW, target="leader"), sim)
    isolating = inject(sim, "isolate-leader")
    lead(sim, "b", epoch=8, role="Candidate")
    sim.run_for(1)
    assert not waiting.has_fired and pair.b.is_alive and not sim.network.link("b", "a").is_blocked
    lead(sim, "b", epoch=8)
    assert waiting.has_fired and waiting.target == "b" and not pair.b.is_alive
    assert sim.network.link("b", "a").is_blocked
    isolating.end()
    assert not sim.network.link("b", "a").is_blocked


@pytest.mark.parametrize("believer", ["connected", "accepted"])
def test_half_open_end_keeps_its_connection_until_it_gets_an_answer(
    sim: Simulation, believer: str
) -> None:
    pair = Pair(sim, keep_open=True)
    injection = inject(sim, "half-open", target="a<>b", believer=believer)
    believing, gone = (
        (pair.client, pair.server) if believer == "connected" else (pair.server, pair.client)
    )
    sim.run_for(5)
    assert (
        callbacks(gone) == ["made", "TimeoutError"]
        and callbacks(believing) == ["made"]
        and not injection.is_effective
    )
    believing.transport.write(b"request for echo")
    sim.run_for(5)
    assert gone.received == b"" and callbacks(believing) == ["made"] and injection.is_effective
    injection.end()
    sim.run_for(1)
    assert callbacks(believing) == ["made", "ConnectionResetError"]


@pytest.mark.parametrize("believer", ["connected", "accepted"])
def test_listening_half_open_end_is_reset_when_the_fault_ends(
    sim: Simulation, believer: str
) -> None:
    pair = Pair(sim)
    injection = inject(sim, "half-open", target="a<>b", believer=believer)
    believing = pair.client if believer == "connected" else pair.server
    sim.run_for(5)
    injection.end()
    sim.run_for(1)
    assert callbacks(believing) == ["made", "ConnectionResetError"] and not injection.is_effective


def test_silent_half_open_connection_is_closed_by_tcp(sim: Simulation) -> None:
    pair = Pair(sim)
    inject(sim, "half-open", target="b", believer="connected")
    pair.client.transport.write(b"x")
    sim.run_for(100)
    assert pair.client.callbacks[-1] == ("TimeoutError", 60)


def test_refused_connects_do_not_affect_open_connections(sim: Simulation) -> None:
    pair = Pair(sim)
    injection = inject(sim, "refused-connections", target="a>b")
    pair.client.transport.write(b"x")
    sim.run_for(1)
    assert pair.server.received == b"x" and not injection.is_effective
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    assert injection.is_effective
    injection.end()
    assert callbacks(pair.connect()) == ["made"]


@pytest.mark.parametrize("ends_after_s, outcome", [(10, "made"), (40, "TimeoutError")])
def test_unanswered_connects_are_retried_until_they_time_out(
    sim: Simulation, ends_after_s: int, outcome: str
) -> None:
    pair = Pair(sim)
    began = sim.now_ns
    injection = inject(sim, "connect-timeout", target="a>b")
    sim.triggers.at(
        began + ends_after_s * 1000 * MILLISECOND, lambda trigger_context: injection.end()
    )
    pair.client.transport.write(b"x")
    if outcome == "made":
        assert callbacks(pair.connect()) == ["made"]
        assert 10_000 * MILLISECOND < sim.now_ns - began < 20_000 * MILLISECOND
    else:
        with pytest.raises(TimeoutError):
            pair.connect()
    assert pair.server.received == b"x" and injection.is_effective


def test_reads_are_torn_byte_by_byte(sim: Simulation) -> None:
    pair = Pair(sim)
    injection = inject(sim, "torn-reads", target="a>b", piece_bytes=1, pieces_max=4)
    pair.client.transport.write(b"x")
    sim.run_for(0.1)
    assert not injection.is_effective, "one byte cannot be torn"
    pair.client.transport.write(b"abcdefg")
    sim.run_for(0.1)
    assert pair.server.chunks == [b"x", b"a", b"b", b"c", b"defg"] and injection.is_effective


def test_reads_are_torn_at_every_boundary_in_turn(sim: Simulation) -> None:
    pair = Pair(sim)
    inject(sim, "torn-reads", target="a>b", piece_bytes=0)
    for _ in range(5):
        pair.client.transport.write(b"abcd")
        sim.run_for(0.1)
    assert [len(chunk) for chunk in pair.server.chunks] == [4, 1, 3, 2, 2, 3, 1, 4]


def test_pieces_arrive_one_after_the_other(sim: Simulation) -> None:
    pair = Pair(sim)
    inject(sim, "torn-reads", target="a>b", piece_bytes=1, gap_us=100_000)
    pair.client.transport.write(bytes(50))
    sim.run_for(0.5)
    assert 0 < len(pair.server.received) < 30, "fifty milliseconds apart on average"
    sim.run_for(5)
    assert pair.server.received == bytes(50)


def test_delayed_pieces_keep_their_order_with_later_bytes(sim: Simulation) -> None:
    pair = Pair(sim)
    injection = inject(sim, "torn-reads", target="a>b", piece_bytes=3, gap_us=500_000)
    pair.client.transport.write(b"abcdefgh")
    injection.end()
    pair.client.transport.write(b"!")
    sim.run_for(5)
    assert b"".join(pair.server.chunks) == b"abcdefgh!" and pair.server.chunks[0] == b"abc"


def test_reset_storm_resets_new_connections(sim: Simulation) -> None:
    pair = Pair(sim)
    injection = inject(sim, "reset-storm", target="a<>b", interval_ms=100)
    resets = 0
    for _ in range(100):
        client = pair.connect()
        sim.run_for(0.1)
        resets += "ConnectionResetError" in callbacks(client)
    assert resets > 20 and injection.is_effective
    injection.end()
    client = pair.connect()
    sim.run_for(10)
    assert callbacks(client) == ["made"]


def test_reset_storm_waits_at_random(sim: Simulation) -> None:
    pair = Pair(sim)
    inject(sim, "reset-storm", target="a<>b", interval_ms=50)
    times: list[int] = []
    for _ in range(3000):
        sim.run_for(0.001)
        if sim.network.cut_count > len(times):
            times.append(sim.now_ns // MILLISECOND)
            sim.spawn("a", sim.loop.create_connection(lambda: pair.make(sim), "b", PORT))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(set(gaps)) > 10 and 20 < sum(gaps) / len(gaps) < 100
