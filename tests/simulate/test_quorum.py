"""A quorum of controllers in virtual time under kills, losses of power, cuts and pauses: one leader, one log, no producer id twice."""

import pytest

from kraftsim.events.metadata import MetadataReverted
from kraftsim.events.raft import MetadataTruncated, SnapshotLoaded, SnapshotWritten, VotersChanged
from kraftsim.world.simulated import Simulation
from tests.simulate.quorum_runs import QuorumRun

SMALL_LOGS = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "metadata.max.retention.bytes": "1200",
    "metadata.log.segment.bytes": "400",
}


def play(seed: int, **options: object) -> QuorumRun:
    """Play one run; whatever is violated fails it."""
    with Simulation(seed) as simulation:
        run = QuorumRun(simulation, seed, **options)  # type: ignore[arg-type]
        run.play()
        assert simulation.violations == []
        return run


@pytest.mark.parametrize("seed", [3, 8])
def test_three_controllers_keep_every_promise(seed: int) -> None:
    """Voters in the configuration, the whole log kept: Kafka's default."""
    run = play(seed)
    assert len(run.elected) >= 3, "the leader was struck"


def test_what_a_leader_wrote_alone_is_undone_refused_and_cut() -> None:
    """Cut off from the others, a leader goes on writing until it notices; nobody is answered, and the log follows the next leader's (KIP-595)."""
    with Simulation(1) as simulation:
        run = QuorumRun(simulation, 1)
        run.cluster.start()
        asker = run.begin_to_ask(20_000)
        simulation.run_until(lambda: len(run.blocks) >= 3, limit_s=30)
        leader = run.leader
        others = [name for name in run.names if name != leader]
        for other in others:
            run.cut(leader, other)
        answered = len(run.blocks)
        node = run.cluster.nodes[leader]
        simulation.run_until(lambda: not node.is_active, limit_s=10)
        assert node.raft.log_end_offset > node.raft.high_watermark, "it wrote what was not committed"
        assert node.ledger.state.producer_ids.next_producer_id == run.blocks[answered - 1].next_producer_id
        simulation.run_until(lambda: run.leader in others, limit_s=20)
        run.mend_all()
        simulation.run_until(asker, limit_s=120)
        simulation.run_until(run.is_settled, limit_s=60)
        assert [event.to_offset for event in run.noted(MetadataReverted)] and run.noted(MetadataTruncated)
        assert len(set(asker.result())) == 20_000
        simulation.run_until(run.know_the_same, limit_s=30)
        run.check_logs()
        assert (simulation.troubles, simulation.violations) == ([], [])


@pytest.mark.parametrize("seed", [4, 11])
def test_lagging_controllers_begin_with_a_snapshot(seed: int) -> None:
    """With logs that are cleaned all the time, whoever was away for long finds the leader's log beginning behind its own end (KIP-630)."""
    run = play(seed, settings=SMALL_LOGS)
    assert run.noted(SnapshotWritten) and run.noted(SnapshotLoaded)


@pytest.mark.parametrize("seed", [2, 7])
def test_voters_that_stand_in_the_log_elect_as_well(seed: int) -> None:
    """kraft.version 1: the first voters come from the snapshot of the formatting, and go into the log with the first epoch (KIP-853)."""
    run = play(seed, first_voters=3, settings=SMALL_LOGS)
    assert all(event.voters == "101,102,103" and event.kraft_version == 1 for event in run.noted(VotersChanged))
    assert run.noted(VotersChanged)


def test_five_controllers_survive_two() -> None:
    """A majority of five."""
    play(1, controllers=5)


def test_a_quorum_repeats_itself_byte_for_byte() -> None:
    """The same seed gives the same events: elections are drawn, never guessed."""

    def history() -> bytes:
        with Simulation(5) as simulation:
            QuorumRun(simulation, 5).play(seconds=8, ids=4000)
            return simulation.event_bytes()

    assert history() == history()
