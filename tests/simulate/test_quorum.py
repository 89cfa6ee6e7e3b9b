"""A quorum of controllers in virtual time under kills, power losses, partitions and pauses: one
leader, one log, no producer id twice.
"""

import pytest

from kraftsim.metadata.events import MetadataReverted
from kraftsim.raft.events import MetadataTruncated, SnapshotLoaded, SnapshotWritten, VotersChanged
from kraftsim.world.simulated import Simulation
from protocol.errors import ErrorCode
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from protocol.records.batches import split_batches
from protocol.storage.file_names import RECOVERY_POINTS
from protocol.storage.text_files import parse_offset_checkpoint
from tests.simulate.quorum_runs import QuorumRun

LISTENER = Listener(name="CONTROLLER", host="controller-109", port=9192)

SMALL_LOGS = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "metadata.max.retention.bytes": "1200",
    "metadata.log.segment.bytes": "400",
}


def completed_run(
    seed: int,
    *,
    controllers: int = 3,
    first_voters: int = 0,
    settings: dict[str, str] | None = None,
) -> QuorumRun:
    """Run once; any violation fails the test."""
    with Simulation(seed) as simulation:
        run = QuorumRun(
            simulation, seed, controllers=controllers, first_voters=first_voters, settings=settings
        )
        run.run()
        assert simulation.violations == []
        return run


@pytest.mark.parametrize("seed", [3, 8])
def test_three_controllers_keep_every_guarantee(seed: int) -> None:
    """Voters in the configuration, the whole log kept: Kafka's default."""
    run = completed_run(seed)
    assert len(run.elected) >= 3, "the fault hit the leader"


def test_records_of_an_isolated_leader_are_reverted_and_truncated() -> None:
    """Its requests are rejected. Partitioned from the others, a leader continues to write until it
    notices; no client is answered, and its log follows the next leader's (KIP-595).
    """
    with Simulation(1) as simulation:
        run = QuorumRun(simulation, 1)
        run.cluster.start()
        requester = run.begin_to_ask(20_000)
        simulation.run_until(lambda: len(run.blocks) >= 3, limit_s=30)
        leader = run.leader
        assert leader is not None
        others = [name for name in run.names if name != leader]
        for other in others:
            run.partition(leader, other)
        answered = len(run.blocks)
        node = run.controller(leader)
        simulation.run_until(lambda: not node.is_active, limit_s=10)
        assert node.raft.log_end_offset > (node.raft.high_watermark or 0), (
            "it wrote uncommitted records"
        )
        assert (
            node.metadata_writer.state.producer_ids.next_producer_id
            == run.blocks[answered - 1].next_producer_id
        )
        simulation.run_until(lambda: run.leader in others, limit_s=20)
        run.heal_all()
        simulation.run_until(requester, limit_s=120)
        simulation.run_until(run.is_settled, limit_s=60)
        assert [event.to_offset for event in run.emitted(MetadataReverted)] and run.emitted(
            MetadataTruncated
        )
        assert len(set(requester.result())) == 20_000
        simulation.run_until(run.know_the_same, limit_s=30)
        run.check_logs()
        assert (simulation.troubles, simulation.violations) == ([], [])


@pytest.mark.parametrize("seed", [4, 11])
def test_lagging_controllers_load_a_snapshot(seed: int) -> None:
    """If logs are cleaned continuously, a controller that was down for long finds that the leader's
    log begins behind its own end (KIP-630).
    """
    run = completed_run(seed, settings=SMALL_LOGS)
    assert run.emitted(SnapshotWritten)
    assert run.emitted(SnapshotLoaded)


@pytest.mark.parametrize("seed", [2, 7])
def test_voters_in_the_log_elect_as_well(seed: int) -> None:
    """kraft.version 1: the first voters come from the snapshot written by formatting, and go into
    the log with the first epoch (KIP-853).
    """
    run = completed_run(seed, first_voters=3, settings=SMALL_LOGS)
    assert all(
        event.voters == "101,102,103" and event.kraft_version == 1
        for event in run.emitted(VotersChanged)
    )
    assert run.emitted(VotersChanged)


def test_controllers_join_and_leave_a_running_quorum() -> None:
    """One controller formats the quorum alone; two more observe, become voters, and the first one
    leaves while it leads (KIP-853).
    """
    with Simulation(3) as simulation:
        run = QuorumRun(simulation, 3, first_voters=1)
        run.cluster.start()
        requester = run.begin_to_ask(12_000)
        simulation.run_until(lambda: run.leader == "controller-101", limit_s=30)
        for name in ("controller-102", "controller-103"):
            assert run.ask_leader(run.joining(name)).error_code == ErrorCode.NONE
        assert run.ask_leader(run.joining("controller-103")).error_code == ErrorCode.DUPLICATE_VOTER
        first = run.key_of("controller-101")
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=first.id, voter_directory_id=first.directory_id
        )
        assert run.ask_leader(request).error_code == ErrorCode.NONE
        simulation.run_until(lambda: run.leader in ("controller-102", "controller-103"), limit_s=30)
        simulation.kill("controller-101")
        simulation.run_until(requester, limit_s=120)
        assert len(set(requester.result())) == 12_000
        assert [event.voters for event in run.emitted(VotersChanged)][-1] == "102,103"
        assert (simulation.troubles, simulation.violations, run.cluster.failures) == ([], [], [])


def test_static_voters_cannot_be_changed() -> None:
    """kraft.version 0: UNSUPPORTED_VERSION."""
    with Simulation(2) as simulation:
        run = QuorumRun(simulation, 2)
        run.cluster.start()
        simulation.run_until(lambda: run.leader is not None, limit_s=30)
        answer = run.ask_leader(
            AddRaftVoterRequest(
                cluster_id=None,
                voter_id=9,
                voter_directory_id=bytes([9] * 16),
                timeout_ms=1000,
                listeners=[LISTENER],
            )
        )
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_five_controllers_survive_two_failures() -> None:
    """A majority of five."""
    completed_run(1, controllers=5)


def test_quorum_run_is_reproducible_byte_for_byte() -> None:
    """The same seed gives the same events: election timeouts come from the seed."""

    def history() -> bytes:
        with Simulation(5) as simulation:
            QuorumRun(simulation, 5).run(seconds=8, ids=4000)
            return simulation.event_bytes()

    assert history() == history()


@pytest.mark.parametrize("moment_ms", range(0, 20, 4))
def test_clean_stop_of_a_controller_records_a_fully_flushed_log(moment_ms: int) -> None:
    """Records arrive while it stops; otherwise damage to the last of them would be treated as an
    unflushed tail.
    """
    with Simulation(moment_ms) as simulation:
        run = QuorumRun(simulation, 4, settings={"metadata.max.idle.interval.ms": "5"})
        run.cluster.start()
        run.begin_to_ask(1_000_000)
        simulation.run_until(lambda: len(run.blocks) >= 3, limit_s=30)
        follower = next(name for name in run.names if name != run.leader)
        durable = simulation.hosts[follower].durable
        durable.flush_ns = (3_000_000, 4_000_000)
        simulation.run_for(0.1 + moment_ms / 1000)
        simulation.run_until(
            simulation.spawn(follower, run.controller(follower).stop()), limit_s=30
        )
        checkpoint = parse_offset_checkpoint(
            bytes(durable.names[RECOVERY_POINTS].cache), RECOVERY_POINTS
        )
        end_offset = next(split_batches(run.log_of(follower)[-1])).next_offset
        assert checkpoint == {("__cluster_metadata", 0): end_offset}
        assert (simulation.troubles, simulation.violations, run.cluster.failures) == ([], [], [])
