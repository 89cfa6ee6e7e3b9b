"""The seven properties, each a function of a seed that determines the number of voters and
observers, and everything else.

Source: the properties of org.apache.kafka.raft.RaftEventSimulationTest, by the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kraftsim.cluster.spec import ClusterSpec
from kraftsim.releases.release import release
from kraftsim.server.parts import Parts
from kraftsim.world.simulated import Simulation
from tests.simulate.raft_properties.quorum import Quorum, network_settings

RELEASE = "3.9"
LOSES_COMMITTED = ("monotonic_epoch", "majority_reached_high_watermark")
"""Invariants that the loss of one disk may violate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """The function, and its numbers of nodes; all bounds are inclusive."""

    run: Callable[[Quorum, Random], None]
    voters: tuple[int, int] = (1, 5)
    observers: tuple[int, int] = (0, 5)
    router_jitter_ms: int = 1
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyResult:
    """The result of one seed without a violation."""

    voters: int
    observers: int
    looks: int
    """How often all invariants were checked."""
    epochs: int
    """The highest epoch with a leader."""
    end_offset: int
    virtual_ms: int


def can_elect_initial_leader(quorum: Quorum, rng: Random) -> None:
    """A leader is elected, all members know it, and all learn what is committed."""
    quorum.run_until(quorum.has_consistent_leader)
    quorum.run_until(lambda: quorum.all_reached(10))


def can_elect_new_leader_after_old_leader_failure(quorum: Quorum, rng: Random) -> None:
    """The leader leaves, cleanly or not; the others elect another one and continue; then it returns
    and catches up.
    """
    leader = led(quorum)
    if rng.random() < 0.5:
        quorum.shut_down(leader)
    else:
        quorum.kill(leader)
    quorum.run_until(lambda: quorum.all_reached(20))
    committed = quorum.max_high_watermark()
    quorum.start(leader)
    quorum.run_until(lambda: quorum.all_reached(committed + 10))


def can_recover_after_all_nodes_killed(quorum: Quorum, rng: Random) -> None:
    """All lose power at once; a restarted majority continues from the committed records."""
    led(quorum)
    committed = quorum.max_high_watermark()
    for name in quorum.names:
        quorum.kill(name)
    for name in quorum.names[: quorum.majority]:
        quorum.start(name)
    quorum.run_until(lambda: quorum.all_reached(committed + 10))


def can_elect_new_leader_after_old_leader_partitioned_away(quorum: Quorum, rng: Random) -> None:
    """The leader is partitioned; the others continue without it."""
    leader = led(quorum)
    quorum.part_from_all(leader)
    others = [name for name in quorum.names if name != leader]
    quorum.run_until(lambda: quorum.all_reached(20, others))


def can_make_progress_if_majority_is_reachable(quorum: Quorum, rng: Random) -> None:
    """Two voters and three are partitioned: the three continue, and after healing all catch up."""
    led(quorum)
    minority, majority = quorum.voters[:2], quorum.voters[2:]
    quorum.part(minority, majority)
    quorum.run_until(lambda: quorum.any_reached(20))
    quorum.run_until(
        lambda: quorum.max_high_watermark(majority) > quorum.max_high_watermark(minority)
    )
    quorum.heal()
    quorum.run_until(lambda: quorum.all_reached(30))


def can_make_progress_after_back_to_back_leader_failures(quorum: Quorum, rng: Random) -> None:
    """The leader is partitioned; as soon as there is another one, that one is partitioned, and the
    first is healed.
    """
    leader = led(quorum)
    quorum.part_from_all(leader)
    quorum.run_until(lambda: quorum.latest_leader() not in (None, leader))
    following = quorum.latest_leader()
    assert following is not None, "the condition held just before"
    quorum.heal()
    quorum.part_from_all(following)
    target = quorum.max_high_watermark() + 10
    quorum.run_until(lambda: quorum.any_reached(target))


def can_recover_from_single_node_committed_data_loss(quorum: Quorum, rng: Random) -> None:
    """A member loses its disk; once there is another leader, it restarts with an empty one and
    catches up.
    """
    quorum.run_until(lambda: quorum.any_reached(10))
    name = rng.choice([each for each in quorum.names if quorum.running(each) is not None])
    quorum.kill_and_delete(name)
    quorum.run_until(lambda: quorum.latest_leader() != name and quorum.has_consistent_leader())
    committed = quorum.max_high_watermark()
    quorum.start(name)
    quorum.run_until(lambda: quorum.all_reached(committed + 10))


def led(quorum: Quorum) -> str:
    """Return the leader, once all members know it and a record is committed."""
    quorum.run_until(quorum.has_consistent_leader)
    quorum.run_until(lambda: quorum.any_reached(10))
    leader = quorum.latest_leader()
    assert leader is not None, "there is a leader"
    return leader


PROPERTIES = {
    each.run.__name__: each
    for each in (
        Property(run=can_elect_initial_leader),
        Property(run=can_elect_new_leader_after_old_leader_failure, voters=(3, 5)),
        Property(run=can_recover_after_all_nodes_killed),
        Property(
            run=can_elect_new_leader_after_old_leader_partitioned_away,
            voters=(3, 5),
            router_jitter_ms=2,
        ),
        Property(
            run=can_make_progress_if_majority_is_reachable,
            voters=(5, 5),
            observers=(0, 3),
            router_jitter_ms=2,
        ),
        Property(
            run=can_make_progress_after_back_to_back_leader_failures,
            voters=(3, 5),
            router_jitter_ms=5,
        ),
        Property(
            run=can_recover_from_single_node_committed_data_loss,
            voters=(3, 5),
            observers=(0, 2),
            router_jitter_ms=5,
            left_out=LOSES_COMMITTED,
        ),
    )
}


def run(name: str, seed: int, swap: Callable[[Parts], Parts] | None = None) -> PropertyResult:
    """Run a property, optionally with other parts.

    Raises SimulationStopped if an invariant is violated or a member fails by a bug,
    SimulationTimeLimit if there is no progress. Half of the seeds use pre-vote, as releases since
    4.0 do (KIP-996).
    """
    found = PROPERTIES[name]
    rng = Random(f"{name}/{seed}")
    voters, observers = rng.randint(*found.voters), rng.randint(*found.observers)
    parts = Parts.for_release(release(RELEASE)).replacing(has_pre_vote=rng.random() < 0.5)
    parts = parts if swap is None else swap(parts)
    spec = ClusterSpec(controllers=voters, brokers=max(1, observers), release=RELEASE, seed=seed)
    with Simulation(seed, network=network_settings(found.router_jitter_ms)) as simulation:
        quorum = Quorum(simulation, spec, parts, observers=observers, left_out=found.left_out)
        found.run(quorum, rng)
        assert not simulation.violations, simulation.violations
        return PropertyResult(
            voters=voters,
            observers=observers,
            looks=quorum.invariants.looks,
            epochs=max(member.raft.leader_epoch for member in quorum.all_running()),
            end_offset=max(member.raft.log_end_offset for member in quorum.all_running()),
            virtual_ms=simulation.now_ns // 1_000_000,
        )
