"""What each fault of the network does to streams of bytes; that it bites only where it changed something; that nothing of it is left afterwards."""

from itertools import pairwise
from typing import Any

import pytest

from kraftsim.events.raft import RaftRoleChanged
from kraftsim.faults.arm import arm
from kraftsim.faults.fault import FAULTS, Fault
from kraftsim.faults.ring_partition import silenced
from kraftsim.faults.trigger import AtTime
from kraftsim.world.simulated import NetworkSettings, Simulation
from tests.simulate.streams import PORT, Pair

NOW = AtTime(at_ms=0)
STEADY = NetworkSettings(torn_writes=0)
MILLISECOND = 1_000_000
KINDS: dict[str, dict[str, Any]] = {
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
    "connect-time-out": {"target": "a>b"},
    "torn-reads": {"target": "a<>b", "piece_bytes": 1},
    "reset-storm": {"target": "a<>b", "interval_ms": 50},
}
"""Every kind of the family, with a target and what else it needs to bite where a talks to b and connects again and again."""


@pytest.fixture
def sim():
    with Simulation(5, network=STEADY) as simulation:
        yield simulation


def strike_with(sim, kind, **given):
    """Arm a fault that strikes at once, until it is ended."""
    target = given.pop("target", "*")
    params = {"duration_ms": 0, **given} if "duration_ms" in FAULTS.named(kind).params else given
    strike = arm(Fault(kind=kind, trigger=AtTime(at_ms=sim.now_ns // MILLISECOND), target=target, params=params), sim)
    sim.run_for(0)
    assert strike.has_fired
    return strike


def lead(sim, host, epoch=1, role="Leader"):
    sim.world_of(host).note(RaftRoleChanged(role=role, leader_epoch=epoch, leader_id=1, voted_id=-1, is_voter=True))


def told(end):
    return [what for what, _ in end.told]


# ---- all of them


def test_the_table_has_every_kind_of_the_family():
    assert sorted(KINDS) == sorted(kind.name for kind in FAULTS.all() if kind.family == "network")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_bites_when_something_is_in_its_way(sim, kind):
    pair = Pair(sim)
    sim.add_host("c")
    lead(sim, "a")
    if kind == "cut-connection":
        pair.client.transport.write(b"x")
    strike = strike_with(sim, kind, **KINDS[kind])
    for turn in range(20):
        pair.client.transport.write(b"ping %d" % turn)
        pair.server.transport.write(b"pong %d" % turn)
        if turn % 5 == 0:
            sim.spawn("a", sim.loop.create_connection(lambda: pair.make(sim), "b", PORT)).add_done_callback(lambda task: task.exception())
        sim.run_for(0.02)
    assert strike.has_bitten
    strike.end()
    assert sim.event_bytes().count(b'"FaultBit"') == 1, "however often it bites, it says so once"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_meets_nothing_does_not_bite_and_leaves_nothing_behind(sim, kind):
    pair = Pair(sim)
    sim.add_host("c")
    lead(sim, "a")
    strike = strike_with(sim, kind, **KINDS[kind])
    sim.run_for(0.0 if kind in ("reset-storm", "half-open") else 5)
    if kind not in ("reset-storm", "half-open", "cut-connection"):
        assert pair.client.told == [("made", 0)], "an idle connection notices nothing"
        assert not strike.has_bitten
    strike.end()
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


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "duration_ms" in FAULTS.named(kind).params])
def test_a_duration_ends_a_kind_by_itself(sim, kind):
    Pair(sim)
    sim.add_host("c")
    lead(sim, "a")
    given = {**KINDS[kind], "duration_ms": 300}
    strike = strike_with(sim, kind, **given)
    sim.run_for(0.29)
    assert not strike.is_over
    sim.run_for(1)
    assert strike.is_over and b'"FaultEnded"' in sim.event_bytes()


def test_leaving_one_fault_out_shifts_no_draw_of_another():
    """Every fault draws from a stream of its own: what is left of a schedule does what it did before."""

    def drawn(others):
        with Simulation(9, network=STEADY) as sim:
            Pair(sim)
            strikes = [strike_with(sim, "slow-link", target="a>b", latency_ms=1, jitter_ms=number) for number in others]
            strike = strike_with(sim, "heavy-tail", target="a<>b", permille=500)
            for _ in range(20):
                sim.network.link("a", "b").delay_ns(1)
            assert all(each.has_bitten for each in strikes)
            return strike.random.random()

    assert drawn([]) == drawn([3]) == drawn([3, 4])


# ---- one by one


def test_a_heavy_tail_delays_few_bytes_and_those_very_much(sim):
    sim.add_host("a"), sim.add_host("b")
    strike_with(sim, "heavy-tail", target="a>b", permille=50, scale_ms=20, longest_ms=3000)
    delays = sorted(sim.network.link("a", "b").delay_ns(1) for _ in range(4000))
    late = [delay for delay in delays if delay > 20 * MILLISECOND]
    assert 150 <= len(late) <= 250, "five in a hundred"
    assert late[len(late) // 2] < 60 * MILLISECOND and 500 * MILLISECOND < late[-1] <= 3001 * MILLISECOND
    assert all(sim.network.link("b", "a").delay_ns(1) < MILLISECOND for _ in range(100)), "the other direction is as fast as ever"


def test_bytes_queue_up_behind_each_other_in_a_narrow_link(sim):
    pair = Pair(sim)
    strike = strike_with(sim, "bandwidth-cap", target="a>b", bytes_per_second=1000)
    pair.client.transport.write(bytes(3000))
    assert not strike.has_bitten, "a first write waits for nobody"
    pair.client.transport.write(b"small")
    pair.server.transport.write(b"quick")
    sim.run_for(2.9)
    assert strike.has_bitten
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
def test_what_was_delayed_does_not_outlive_the_delay(sim, kind, given):
    """Once a slow link is quick again, nothing of before is still on its way seconds later: neither bytes nor connects."""
    pair = Pair(sim)
    strike = strike_with(sim, kind, target="a<>b", **given)
    for number in range(10):
        pair.client.transport.write(b"%d" % number * 100)
    sim.run_for(1)
    sim.triggers.at(sim.now_ns + 2_000 * MILLISECOND, lambda occasion: strike.end())
    began = sim.now_ns
    pair.connect()
    assert pair.server.received == b"".join(b"%d" % number * 100 for number in range(10)) and strike.has_bitten
    assert sim.now_ns - began < 2_150 * MILLISECOND
    pair.client.transport.write(b"!")
    sim.run_for(0.002)
    assert pair.server.received.endswith(b"9!")


def test_a_connect_that_takes_too_long_times_out(sim):
    pair = Pair(sim)
    strike_with(sim, "slow-link", target="a>b", latency_ms=40_000, jitter_ms=0)
    began = sim.now_ns
    with pytest.raises(TimeoutError):
        pair.connect()
    assert sim.now_ns - began == pytest.approx(30_000 * MILLISECOND, abs=MILLISECOND)


def test_a_clog_holds_bytes_and_lets_all_of_them_in_at_once_and_in_order(sim):
    pair = Pair(sim)
    pair.client.transport.write(b"0")
    strike = strike_with(sim, "clog", target="a>b")
    for number in range(1, 9):
        pair.client.transport.write(b"%d" % number)
        sim.run_for(10)
    pair.client.transport.close()
    pair.server.transport.write(b"the other direction works")
    sim.run_for(60)
    assert strike.has_bitten and told(pair.server) == ["made"] and pair.server.received == b""
    assert told(pair.client) == ["made", "closed"], "nothing times out"
    strike.end()
    sim.run_for(0.0001)
    assert pair.server.received == b"012345678" and "eof" in told(pair.server)


def test_a_connect_waits_for_a_clog_to_go(sim):
    pair = Pair(sim)
    strike = strike_with(sim, "clog", target="b>a")
    began = sim.now_ns
    sim.triggers.at(began + 10_500 * MILLISECOND, lambda occasion: strike.end())
    pair.connect()
    assert sim.now_ns - began == pytest.approx(10_600 * MILLISECOND, abs=3 * MILLISECOND), "at once, not with the next attempt"
    assert strike.has_bitten


def test_a_connect_into_a_clog_times_out_like_any_other(sim):
    pair = Pair(sim)
    strike_with(sim, "clog", target="a<>b")
    began = sim.now_ns
    with pytest.raises(TimeoutError):
        pair.connect()
    assert sim.now_ns - began == pytest.approx(30_000 * MILLISECOND, abs=20 * MILLISECOND)


def test_a_partition_within_a_clog_is_over_when_both_are(sim):
    pair = Pair(sim)
    clog, partition = strike_with(sim, "clog", target="a>b"), strike_with(sim, "partition", target="a>b")
    pair.client.transport.write(b"x")
    sim.run_for(1)
    partition.end()
    sim.run_for(1)
    assert pair.server.received == b""
    clog.end()
    sim.run_for(1)
    assert pair.server.received == b"x"


def test_swizzled_hosts_are_clogged_one_by_one_and_unclogged_in_another_order():
    hosts = [f"h{number}" for number in range(6)]
    orders = []
    for seed in range(6):
        with Simulation(seed) as sim:
            for host in hosts:
                sim.add_host(host)
            strike = strike_with(sim, "swizzle-clog", percent=60, spread_ms=1000, duration_ms=500)
            was, clogged, unclogged = set(), [], []
            for _ in range(2600):
                sim.run_for(0.001)
                now = {host for host in hosts if all(sim.network.link(host, other).is_clogged for other in hosts if other != host)}
                clogged += sorted(now - was)
                unclogged += sorted(was - now)
                was = now
            assert strike.is_over and not was
            assert sorted(clogged) == sorted(unclogged) and clogged, "everybody is let go"
            orders.append((clogged, unclogged))
    assert any(clogged != unclogged for clogged, unclogged in orders)
    assert any(len(clogged) < len(hosts) for clogged, _ in orders) and len({len(clogged) for clogged, _ in orders}) > 1


@pytest.mark.parametrize("size", range(3, 10))
def test_on_a_ring_everybody_hears_a_majority_and_no_two_the_same(size):
    ring = [f"h{number}" for number in range(size)]
    pairs = silenced(ring)
    heard = {listener: frozenset(ring) - {source for source, target in pairs if target == listener} for listener in ring}
    assert all(listener in hears and len(hears) == size // 2 + 1 for listener, hears in heard.items())
    assert len(set(heard.values())) == size
    assert len(pairs) == len(set(pairs)) and all(source != target for source, target in pairs)


def test_a_ring_can_be_made_of_some_hosts_only(sim):
    for name in ("a", "b", "c", "x"):
        sim.add_host(name)
    strike_with(sim, "ring-partition", target="a,b,c")
    shut = {(one, other) for one in "abcx" for other in "abcx" if one != other and sim.network.link(one, other).is_blocked}
    assert len(shut) == 3 and not any("x" in pair for pair in shut)


@pytest.mark.parametrize("ways, hears, is_heard", [("both", False, False), ("in", False, True), ("out", True, False)])
def test_who_leads_now_is_cut_off(sim, ways, hears, is_heard):
    pair = Pair(sim)
    sim.add_host("c")
    lead(sim, "b", epoch=3)
    lead(sim, "a", epoch=7)
    strike = strike_with(sim, "isolate-leader", ways=ways)
    pair.client.transport.write(b"from the leader")
    pair.server.transport.write(b"to the leader")
    sim.run_for(1)
    assert bool(pair.client.received) == hears and bool(pair.server.received) == is_heard and strike.has_bitten
    assert not sim.network.link("b", "c").is_blocked


def test_a_fault_for_a_leader_waits_until_there_is_one(sim):
    pair = Pair(sim)
    lead(sim, "a", epoch=7)
    sim.kill("a")
    waiting = arm(Fault(kind="kill", trigger=NOW, target="leader"), sim)
    isolating = strike_with(sim, "isolate-leader")
    lead(sim, "b", epoch=8, role="Candidate")
    sim.run_for(1)
    assert not waiting.has_fired and pair.b.is_alive and not sim.network.link("b", "a").is_blocked
    lead(sim, "b", epoch=8)
    assert waiting.has_fired and waiting.target == "b" and not pair.b.is_alive
    assert sim.network.link("b", "a").is_blocked
    isolating.end()
    assert not sim.network.link("b", "a").is_blocked


@pytest.mark.parametrize("believer", ["connected", "accepted"])
def test_one_end_of_a_half_open_connection_believes_until_it_is_answered_again(sim, believer):
    pair = Pair(sim, keep_open=True)
    strike = strike_with(sim, "half-open", target="a<>b", believer=believer)
    believing, gone = (pair.client, pair.server) if believer == "connected" else (pair.server, pair.client)
    sim.run_for(5)
    assert told(gone) == ["made", "TimeoutError"] and told(believing) == ["made"] and not strike.has_bitten
    believing.transport.write(b"is anybody there")
    sim.run_for(5)
    assert gone.received == b"" and told(believing) == ["made"] and strike.has_bitten
    strike.end()
    sim.run_for(1)
    assert told(believing) == ["made", "ConnectionResetError"]


@pytest.mark.parametrize("believer", ["connected", "accepted"])
def test_a_believer_that_only_listens_is_told_when_the_fault_is_over(sim, believer):
    pair = Pair(sim)
    strike = strike_with(sim, "half-open", target="a<>b", believer=believer)
    believing = pair.client if believer == "connected" else pair.server
    sim.run_for(5)
    strike.end()
    sim.run_for(1)
    assert told(believing) == ["made", "ConnectionResetError"] and not strike.has_bitten


def test_a_half_open_connection_that_says_nothing_more_is_given_up_by_tcp(sim):
    pair = Pair(sim)
    strike_with(sim, "half-open", target="b", believer="connected")
    pair.client.transport.write(b"x")
    sim.run_for(100)
    assert pair.client.told[-1] == ("TimeoutError", 60)


def test_refused_connects_leave_open_connections_alone(sim):
    pair = Pair(sim)
    strike = strike_with(sim, "refused-connections", target="a>b")
    pair.client.transport.write(b"x")
    sim.run_for(1)
    assert pair.server.received == b"x" and not strike.has_bitten
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    assert strike.has_bitten
    strike.end()
    assert told(pair.connect()) == ["made"]


@pytest.mark.parametrize("ends_after_s, outcome", [(10, "made"), (40, "TimeoutError")])
def test_connects_that_nobody_answers_are_tried_until_they_time_out(sim, ends_after_s, outcome):
    pair = Pair(sim)
    began = sim.now_ns
    strike = strike_with(sim, "connect-time-out", target="a>b")
    sim.triggers.at(began + ends_after_s * 1000 * MILLISECOND, lambda occasion: strike.end())
    pair.client.transport.write(b"x")
    if outcome == "made":
        assert told(pair.connect()) == ["made"]
        assert 10_000 * MILLISECOND < sim.now_ns - began < 20_000 * MILLISECOND
    else:
        with pytest.raises(TimeoutError):
            pair.connect()
    assert pair.server.received == b"x" and strike.has_bitten


def test_reads_are_torn_byte_by_byte(sim):
    pair = Pair(sim)
    strike = strike_with(sim, "torn-reads", target="a>b", piece_bytes=1, pieces_max=4)
    pair.client.transport.write(b"x")
    sim.run_for(0.1)
    assert not strike.has_bitten, "one byte cannot be torn"
    pair.client.transport.write(b"abcdefg")
    sim.run_for(0.1)
    assert pair.server.chunks == [b"x", b"a", b"b", b"c", b"defg"] and strike.has_bitten


def test_reads_are_torn_at_every_boundary_in_turn(sim):
    pair = Pair(sim)
    strike_with(sim, "torn-reads", target="a>b", piece_bytes=0)
    for _ in range(5):
        pair.client.transport.write(b"abcd")
        sim.run_for(0.1)
    assert [len(chunk) for chunk in pair.server.chunks] == [4, 1, 3, 2, 2, 3, 1, 4]


def test_pieces_come_one_after_the_other(sim):
    pair = Pair(sim)
    strike_with(sim, "torn-reads", target="a>b", piece_bytes=1, gap_us=100_000)
    pair.client.transport.write(bytes(50))
    sim.run_for(0.5)
    assert 0 < len(pair.server.received) < 30, "fifty milliseconds apart on average"
    sim.run_for(5)
    assert pair.server.received == bytes(50)


def test_pieces_that_are_far_apart_keep_their_order_with_what_follows(sim):
    pair = Pair(sim)
    strike = strike_with(sim, "torn-reads", target="a>b", piece_bytes=3, gap_us=500_000)
    pair.client.transport.write(b"abcdefgh")
    strike.end()
    pair.client.transport.write(b"!")
    sim.run_for(5)
    assert b"".join(pair.server.chunks) == b"abcdefgh!" and pair.server.chunks[0] == b"abc"


def test_a_storm_resets_whoever_connects_anew(sim):
    pair = Pair(sim)
    strike = strike_with(sim, "reset-storm", target="a<>b", interval_ms=100)
    resets = 0
    for _ in range(100):
        client = pair.connect()
        sim.run_for(0.1)
        resets += "ConnectionResetError" in told(client)
    assert resets > 20 and strike.has_bitten
    strike.end()
    client = pair.connect()
    sim.run_for(10)
    assert told(client) == ["made"]


def test_a_storm_waits_at_random(sim):
    pair = Pair(sim)
    strike_with(sim, "reset-storm", target="a<>b", interval_ms=50)
    times = []
    for _ in range(3000):
        sim.run_for(0.001)
        if sim.network.cut_count > len(times):
            times.append(sim.now_ns // MILLISECOND)
            sim.spawn("a", sim.loop.create_connection(lambda: pair.make(sim), "b", PORT))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(set(gaps)) > 10 and 20 < sum(gaps) / len(gaps) < 100
