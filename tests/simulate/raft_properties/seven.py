"""The seven properties, each a function of a seed that says how many voters and observers there are, and everything else.

Source: the properties of org.apache.kafka.raft.RaftEventSimulationTest, by the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kraftsim.cluster.spec import ClusterSpec
from kraftsim.node.parts import Parts
from kraftsim.releases.catalogue import release
from kraftsim.world.simulated import Simulation
from tests.simulate.raft_properties.quorum import Quorum, network_settings

RELEASE = "3.9"
LOSES_COMMITTED = ("monotonic_epoch", "majority_reached_high_watermark")
"""What the loss of one disk may break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """What is played, and with how many; all ends are inside."""

    play: Callable[[Quorum, Random], None]
    voters: tuple[int, int] = (1, 5)
    observers: tuple[int, int] = (0, 5)
    router_jitter_ms: int = 1
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of one seed, if nothing was broken."""

    voters: int
    observers: int
    looks: int
    """How often all invariants were looked at."""
    epochs: int
    """The highest epoch that somebody led."""
    end_offset: int
    virtual_ms: int


def can_elect_initial_leader(quorum: Quorum, chance: Random) -> None:
    """Somebody is elected, all know who, and all learn what is committed."""
    quorum.run_until(quorum.has_consistent_leader)
    quorum.run_until(lambda: quorum.all_reached(10))


def can_elect_new_leader_after_old_leader_failure(quorum: Quorum, chance: Random) -> None:
    """The leader goes, in good order or not; the others elect another one and go on; then it comes back and catches up."""
    leader = led(quorum)
    if chance.random() < 0.5:
        quorum.shut_down(leader)
    else:
        quorum.kill(leader)
    quorum.run_until(lambda: quorum.all_reached(20))
    committed = quorum.max_high_watermark()
    quorum.start(leader)
    quorum.run_until(lambda: quorum.all_reached(committed + 10))


def can_recover_after_all_nodes_killed(quorum: Quorum, chance: Random) -> None:
    """All lose their power at once; a majority that comes back goes on from what was committed."""
    led(quorum)
    committed = quorum.max_high_watermark()
    for name in quorum.names:
        quorum.kill(name)
    for name in quorum.names[: quorum.majority]:
        quorum.start(name)
    quorum.run_until(lambda: quorum.all_reached(committed + 10))


def can_elect_new_leader_after_old_leader_partitioned_away(quorum: Quorum, chance: Random) -> None:
    """The leader is cut off; the others go on without it."""
    leader = led(quorum)
    quorum.part_from_all(leader)
    others = [name for name in quorum.names if name != leader]
    quorum.run_until(lambda: quorum.all_reached(20, others))


def can_make_progress_if_majority_is_reachable(quorum: Quorum, chance: Random) -> None:
    """Two voters and three do not reach each other: the three go on, and once they do, all catch up."""
    led(quorum)
    minority, majority = quorum.voters[:2], quorum.voters[2:]
    quorum.part(minority, majority)
    quorum.run_until(lambda: quorum.any_reached(20))
    quorum.run_until(lambda: quorum.max_high_watermark(majority) > quorum.max_high_watermark(minority))
    quorum.mend()
    quorum.run_until(lambda: quorum.all_reached(30))


def can_make_progress_after_back_to_back_leader_failures(quorum: Quorum, chance: Random) -> None:
    """The leader is cut off; as soon as there is another one, that one is, and the first can be reached again."""
    leader = led(quorum)
    quorum.part_from_all(leader)
    quorum.run_until(lambda: quorum.latest_leader() not in (None, leader))
    following = quorum.latest_leader()
    assert following is not None, "so it was a moment ago"
    quorum.mend()
    quorum.part_from_all(following)
    target = quorum.max_high_watermark() + 10
    quorum.run_until(lambda: quorum.any_reached(target))


def can_recover_from_single_node_committed_data_loss(quorum: Quorum, chance: Random) -> None:
    """Somebody loses its disk; once another leads, it comes back with an empty one and catches up."""
    quorum.run_until(lambda: quorum.any_reached(10))
    name = chance.choice([each for each in quorum.names if quorum.running(each) is not None])
    quorum.kill_and_delete(name)
    quorum.run_until(lambda: quorum.latest_leader() != name and quorum.has_consistent_leader())
    committed = quorum.max_high_watermark()
    quorum.start(name)
    quorum.run_until(lambda: quorum.all_reached(committed + 10))


def led(quorum: Quorum) -> str:
    """Return who leads, as soon as all know it and something is committed."""
    quorum.run_until(quorum.has_consistent_leader)
    quorum.run_until(lambda: quorum.any_reached(10))
    leader = quorum.latest_leader()
    assert leader is not None, "somebody leads"
    return leader


PROPERTIES = {
    each.play.__name__: each
    for each in (
        Property(play=can_elect_initial_leader),
        Property(play=can_elect_new_leader_after_old_leader_failure, voters=(3, 5)),
        Property(play=can_recover_after_all_nodes_killed),
        Property(play=can_elect_new_leader_after_old_leader_partitioned_away, voters=(3, 5), router_jitter_ms=2),
        Property(play=can_make_progress_if_majority_is_reachable, voters=(5, 5), observers=(0, 3), router_jitter_ms=2),
        Property(play=can_make_progress_after_back_to_back_leader_failures, voters=(3, 5), router_jitter_ms=5),
        Property(
            play=can_recover_from_single_node_committed_data_loss, voters=(3, 5), observers=(0, 2), router_jitter_ms=5, left_out=LOSES_COMMITTED
        ),
    )
}


def play(name: str, seed: int, swap: Callable[[Parts], Parts] | None = None) -> Played:
    """Play a property, if need be with other parts.

    Raises SimulationStopped where an invariant is broken or a member dies of a mistake, SimulationTimeLimit where nothing goes on any more.
    Half the seeds vote as releases since 4.0 do, with a question before each election (KIP-996).
    """
    found = PROPERTIES[name]
    chance = Random(f"{name}/{seed}")
    voters, observers = chance.randint(*found.voters), chance.randint(*found.observers)
    parts = Parts.for_release(release(RELEASE)).replacing(has_pre_vote=chance.random() < 0.5)
    parts = parts if swap is None else swap(parts)
    spec = ClusterSpec(controllers=voters, brokers=max(1, observers), release=RELEASE, seed=seed)
    with Simulation(seed, network=network_settings(found.router_jitter_ms)) as simulation:
        quorum = Quorum(simulation, spec, parts, observers=observers, left_out=found.left_out)
        found.play(quorum, chance)
        assert not simulation.violations, simulation.violations
        return Played(
            voters=voters,
            observers=observers,
            looks=quorum.invariants.looks,
            epochs=max(member.raft.leader_epoch for member in quorum.all_running()),
            end_offset=max(member.raft.log_end_offset for member in quorum.all_running()),
            virtual_ms=simulation.now_ns // 1_000_000,
        )
