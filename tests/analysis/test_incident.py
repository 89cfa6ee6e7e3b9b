"""A violation described in order: its witnesses, what lies between them, and the replicas at that
moment, over small histories that are folded by hand.
"""

from pathlib import Path

import pytest

from kraftsim.analysis import incident as incident_module
from kraftsim.analysis.incident import BETWEEN_MAX, Incident, find_incidents, subject_of
from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.replica_states import METADATA_TOPIC, ReplicaState, replica_states
from kraftsim.analysis.witnesses import Witness, fetch_witnesses
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultInjected
from kraftsim.invariants.verdict import Outcome, Verdict, Violation
from kraftsim.metadata.events import MetadataAppended, MetadataCommitted
from kraftsim.partitions.events import (
    BatchReplicated,
    LeaderElected,
    LeaderFollowed,
    PartitionHighWatermarkMoved,
    PartitionTruncated,
)
from kraftsim.raft.events import MetadataFlushed, MetadataReplicated, RaftRoleChanged
from kraftsim.server.events import LogRecovered, NodeStarted, NodeStopped
from kraftsim.transactions.events import TransactionStateChanged
from tests.analysis.event_factories import (
    acknowledged,
    appended,
    final_log,
    final_record,
    flushed,
    returned,
    sent,
    truncated_to,
    written,
)
from tests.analysis.history import History


def parquet_of(run: Path, history: History) -> Path:
    history.write(run)
    return Path(ingest_run(run).parquet)


def position_of(history: History, event_id: str) -> int:
    """The place of an event in the order of time."""
    order = sorted(history.events, key=lambda each: each[0].t_ns)
    return [envelope.event_id for envelope, _ in order].index(event_id)


def incident_of(run: Path, history: History, *event_ids: str) -> Incident:
    """The incident of a violation with these witnesses."""
    parquet = parquet_of(run, history)
    known = fetch_witnesses(parquet, [position_of(history, each) for each in event_ids])
    violation = Violation(invariant="rule-x", key="k", message="it broke", witnesses=event_ids)
    verdict = Verdict(
        invariant="rule-x",
        outcome=Outcome.VIOLATED,
        examined=1,
        violation_count=1,
        violations=(violation,),
        rule="X holds.",
        source="KIP-1",
    )
    (incident,) = find_incidents(parquet, [verdict], {violation: tuple(known.values())})
    return incident


def replica(
    node: str, role: str, epoch: int | None, end: int | None, flush: int | None, high: int | None
) -> ReplicaState:
    return ReplicaState(
        node=node,
        role=role,
        leader_epoch=epoch,
        log_end_offset=end,
        flushed_offset=flush,
        high_watermark=high,
    )


def started(role: str) -> NodeStarted:
    return NodeStarted(role=role, node_id=1, release="3.9", cluster_id="c")


def recovered(next_offset: int, topic: str = "t") -> LogRecovered:
    return LogRecovered(
        topic=topic, partition=0, next_offset=next_offset, truncated_bytes=0, clean=True
    )


def leads(epoch: int, next_offset: int, topic: str = "t") -> LeaderElected:
    return LeaderElected(topic=topic, partition=0, leader_epoch=epoch, next_offset=next_offset)


def follows(epoch: int, end: int) -> LeaderFollowed:
    return LeaderFollowed(
        topic="t", partition=0, leader_id=1, leader_epoch=epoch, log_end_offset=end
    )


def replicated(first_offset: int, last_offset: int) -> BatchReplicated:
    return BatchReplicated(
        topic="t",
        partition=0,
        leader_epoch=1,
        first_offset=first_offset,
        last_offset=last_offset,
        crc=0,
    )


def high(high_watermark: int, epoch: int = 1, *, is_leader: bool = True) -> Event:
    return PartitionHighWatermarkMoved(
        topic="t",
        partition=0,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        is_leader=is_leader,
    )


def role(name: str, epoch: int) -> RaftRoleChanged:
    return RaftRoleChanged(role=name, leader_epoch=epoch, leader_id=1, voted_id=-1, is_voter=True)


# --------------------------------------------------------------------------------------------------
# Replicas


def test_replicas_of_a_partition_are_folded_up_to_the_event(tmp_path: Path) -> None:
    """b1 leads and appends 0..9 with the high watermark at 8; b2 has 0..7, truncates to 5; b3 was
    stopped; events after the moment and of other partitions do not count.
    """
    history = History()
    for node in ("b1", "b2", "b3"):
        history.emit(node, started("broker"))
        history.emit(node, recovered(0))
    history.emit("b1", leads(1, 0))
    history.emit("b2", follows(1, 0))
    history.emit("b3", follows(1, 0))
    history.emit("b1", appended(0, 9))
    history.emit("b1", appended(0, 99, topic="other"))
    history.emit("b2", replicated(0, 7))
    history.emit("b3", replicated(0, 2))
    history.emit("b3", NodeStopped(reason="asked"))
    history.emit("b1", high(8))
    cut = PartitionTruncated(
        topic="t",
        partition=0,
        leader_epoch=2,
        former_end_offset=8,
        log_end_offset=5,
        high_watermark=4,
    )
    history.emit("b2", high(4, is_leader=False))
    moment = history.emit("b2", cut)
    history.emit("b1", appended(10, 20))
    states = replica_states(parquet_of(tmp_path, history), "t", 0, position_of(history, moment))
    assert states == (
        replica("b1", "leader", 1, 10, None, 8),
        replica("b2", "follower", 1, 5, None, 4),
        replica("b3", "stopped", 1, 3, None, None),
    )


def test_a_restarted_broker_knows_only_what_it_recovered(tmp_path: Path) -> None:
    """The high watermark and the epoch of its former incarnation are not shown as its own."""
    history = History()
    history.emit("b1", leads(3, 0))
    history.emit("b1", appended(0, 9))
    history.emit("b1", high(10, 3))
    history.emit("harness", FaultInjected(fault="kill", target="b1", trigger=""))
    killed = position_of(history, "harness.1.0")
    history.emit("b1", started("broker"), incarnation=2)
    moment = history.emit("b1", recovered(6), incarnation=2)
    parquet = parquet_of(tmp_path, history)
    assert replica_states(parquet, "t", 0, killed) == (replica("b1", "killed", 3, 10, None, 10),)
    assert replica_states(parquet, "t", 0, position_of(history, moment)) == (
        replica("b1", "", None, 6, None, None),
    )


def test_replicas_of_the_metadata_log_have_a_flushed_offset(tmp_path: Path) -> None:
    """The leader has written 0..6 and flushed 5; a follower truncates below what it had flushed;
    brokers, which only observe, are left out.
    """
    history = History()
    history.emit("broker-1", started("broker"))
    history.emit("broker-1", MetadataFlushed(end_offset=2, is_voter=False))
    for node in ("c1", "c2"):
        history.emit(node, started("controller"))
        history.emit(node, recovered(0, METADATA_TOPIC))
        history.emit(node, recovered(77))
    history.emit("c1", role("Leader", 4))
    history.emit("c2", role("Follower", 4))
    history.emit("c1", written(4, 0, last_offset=6))
    history.emit("c1", flushed(5))
    history.emit("c1", MetadataCommitted(leader_epoch=4, high_watermark=3))
    history.emit("c2", MetadataReplicated(leader_epoch=4, first_offset=0, last_offset=4))
    history.emit("c2", flushed(5))
    moment = history.emit("c2", truncated_to(2))
    parquet = parquet_of(tmp_path, history)
    assert replica_states(parquet, METADATA_TOPIC, 0, position_of(history, moment)) == (
        replica("c1", "leader", 4, 7, 5, 3),
        replica("c2", "follower", 4, 2, 2, None),
    )


def test_a_run_without_events_of_the_log_has_no_replicas(tmp_path: Path) -> None:
    history = History()
    history.emit("b1", started("broker"))
    assert replica_states(parquet_of(tmp_path, history), "t", 0, 5) == ()


# --------------------------------------------------------------------------------------------------
# What lies between the witnesses


def test_what_lies_between_two_appends_is_of_the_same_partition(tmp_path: Path) -> None:
    """An append to another partition is left out, a fault is not; what precedes the last witness
    on its node is marked, what another node does independently is not.
    """
    history = History()
    first = history.emit("b1", appended(0, 0, (7, 0, 0)))
    other = history.emit("b1", appended(0, 0, topic="u"))
    fault = history.emit("harness", FaultInjected(fault="kill", target="b2", trigger=""))
    elected = history.emit("b2", leads(2, 1))
    independent = history.emit("b3", replicated(0, 0))
    again = history.emit("b2", appended(1, 1, (7, 0, 0)))
    history.emit("b2", appended(2, 2))
    incident = incident_of(tmp_path, history, first, again)
    assert incident.subject == "partition t-0"
    assert [(each.event.event_id, each.place, each.leads) for each in incident.around] == [
        (fault, "between", False),
        (elected, "between", True),
        (independent, "between", False),
    ]
    assert other not in {each.event.event_id for each in incident.around}
    assert (incident.rule, incident.source, incident.message) == ("X holds.", "KIP-1", "it broke")
    assert [each.sentence for each in incident.witnesses] == [
        (
            f"{node} appended 1 record as leader in epoch 0: offset {offset} of t-0, "
            "producer id 7, epoch 0, sequence 0"
        )
        for node, offset in (("b1", 0), ("b2", 1))
    ]
    assert incident.log == "t-0" and [each.node for each in incident.replicas] == ["b1", "b2", "b3"]


def test_causes_are_followed_over_messages_between_nodes(tmp_path: Path) -> None:
    """The leader's append caused the acknowledgement (the offset identifies it), so it leads to it;
    what the leader does after the append does not.
    """
    history = History()
    request = history.emit("client", sent("k"))
    append = history.emit("b1", appended(0, 0, (7, 0, 0)))
    later = history.emit("b1", high(1))
    answer = history.emit("client", acknowledged(0, "k"))
    incident = incident_of(tmp_path, history, request, answer)
    assert {each.event.event_id: each.leads for each in incident.around} == {
        append: True,
        later: False,
    }


def test_a_lost_record_shows_what_happened_around_its_acknowledgement(tmp_path: Path) -> None:
    """One witness: the append before it, and the truncation after it; not the final log."""
    history = History()
    append = history.emit("b1", appended(0, 4))
    answer = history.emit("client", acknowledged(4, "k"))
    cut = history.emit(
        "b2",
        PartitionTruncated(
            topic="t",
            partition=0,
            leader_epoch=2,
            former_end_offset=5,
            log_end_offset=3,
            high_watermark=3,
        ),
    )
    history.emit("final", final_log(3, 3))
    history.emit("final", final_record(0, "x"))
    incident = incident_of(tmp_path, history, answer)
    assert [(each.event.event_id, each.place) for each in incident.around] == [
        (append, "before"),
        (cut, "after"),
    ]


def test_two_records_of_the_final_log_show_how_they_came_there(tmp_path: Path) -> None:
    """Nothing happens between them: the sends and appends before both are shown."""
    history = History()
    request = history.emit("client", sent("k"))
    appends = [history.emit("b1", appended(offset, offset)) for offset in (0, 1)]
    history.emit("final", final_log(2, 2))
    records = [history.emit("final", final_record(offset, "k")) for offset in (0, 1)]
    history.emit("b1", high(2))
    incident = incident_of(tmp_path, history, *records)
    assert [each.event.event_id for each in incident.around] == [request, *appends]
    assert {each.place for each in incident.around} == {"before"}


def test_many_events_between_are_capped_and_the_telling_ones_stay(tmp_path: Path) -> None:
    """The batch of the same offset and the election stay among hundreds of high watermarks."""
    history = History()
    first = history.emit("b1", appended(500, 500))
    for number in range(300):
        history.emit("b1", high(number))
    same = history.emit("b2", replicated(499, 501))
    election = history.emit("b2", leads(5, 502))
    for number in range(300):
        history.emit("b1", high(1000 + number))
    last = history.emit("b2", appended(500, 500))
    incident = incident_of(tmp_path, history, first, last)
    assert incident.around_count == 602 and len(incident.around) == BETWEEN_MAX
    assert {same, election} <= {each.event.event_id for each in incident.around}
    positions = [each.event.position for each in incident.around]
    assert positions == sorted(positions)


def test_two_metadata_batches_show_the_metadata_log_and_its_controllers(tmp_path: Path) -> None:
    history = History()
    history.emit("c1", started("controller"))
    first = history.emit("c1", written(1, 5, crc=1))
    change = history.emit("c2", role("Leader", 2))
    history.emit("b1", appended(0, 0))
    second = history.emit("c2", written(2, 5, crc=2))
    incident = incident_of(tmp_path, history, first, second)
    assert (incident.subject, incident.log) == ("the metadata log", "the metadata log")
    assert [each.event.event_id for each in incident.around] == [change]
    assert [(each.node, each.log_end_offset) for each in incident.replicas] == [
        ("c1", 6),
        ("c2", 6),
    ]


def test_producer_ids_belong_to_the_metadata_log(tmp_path: Path) -> None:
    history = History()
    first = history.emit("broker-1", returned(5))
    append = history.emit(
        "c1",
        MetadataAppended(
            leader_epoch=1, first_offset=3, last_offset=3, record_kinds="ProducerIdsRecord"
        ),
    )
    second = history.emit("broker-2", returned(5))
    incident = incident_of(tmp_path, history, first, second)
    assert incident.subject == "the metadata log"
    assert [each.event.event_id for each in incident.around] == [append]
    assert incident.replicas == (replica("c1", "", None, 4, None, None),)


def test_states_of_a_transactional_id_show_the_coordinators_partition(tmp_path: Path) -> None:
    def state(name: str, transactional_id: str = "tx") -> TransactionStateChanged:
        return TransactionStateChanged(
            transactional_id=transactional_id,
            producer_id=9,
            producer_epoch=0,
            state=name,
            partitions="",
            coordinator_epoch=1,
            partition=3,
            offset=0,
        )

    history = History()
    first = history.emit("b1", state("PrepareCommit"))
    history.emit("b1", state("Ongoing", "another"))
    between = history.emit("b1", state("CompleteCommit"))
    second = history.emit("b2", state("PrepareAbort"))
    incident = incident_of(tmp_path, history, first, second)
    assert (incident.subject, incident.log) == ("transactional id tx", "__transaction_state-3")
    assert [each.event.event_id for each in incident.around] == [between]


def test_witnesses_without_anything_in_common_show_their_nodes() -> None:
    witnesses = [
        Witness(
            event_id=f"{node}.1.0",
            position=position,
            node=node,
            incarnation=1,
            t_ns=0,
            kind=kind,
            fields={},
        )
        for position, (node, kind) in enumerate((("a", "NodeReady"), ("b", "OfTheFuture")))
    ]
    assert subject_of(witnesses).text == "the same nodes"


def test_of_several_violations_the_earliest_is_described(tmp_path: Path) -> None:
    """Violations of an invariant are in the order of their keys."""
    history = History()
    early = history.emit("b1", appended(0, 0))
    late = history.emit("b1", appended(1, 1))
    parquet = parquet_of(tmp_path, history)
    evidence = {
        Violation(invariant="i", key=key, message=key, witnesses=(event_id,)): tuple(
            fetch_witnesses(parquet, [position_of(history, event_id)]).values()
        )
        for key, event_id in (("a", late), ("b", early))
    }
    verdict = Verdict(
        invariant="i",
        outcome=Outcome.VIOLATED,
        examined=2,
        violation_count=2,
        violations=tuple(evidence),
    )
    (incident,) = find_incidents(parquet, [verdict], evidence)
    assert incident.message == "b"


def test_incidents_are_described_in_the_order_in_which_they_happened(tmp_path: Path) -> None:
    history = History()
    early = history.emit("b1", appended(0, 0))
    late = history.emit("b1", appended(1, 1))
    parquet = parquet_of(tmp_path, history)
    verdicts, evidence = [], {}
    for name, event_id in (("later", late), ("sooner", early)):
        violation = Violation(invariant=name, key="k", message="m", witnesses=(event_id,))
        position = position_of(history, event_id)
        evidence[violation] = tuple(fetch_witnesses(parquet, [position]).values())
        verdicts.append(
            Verdict(
                invariant=name,
                outcome=Outcome.VIOLATED,
                examined=1,
                violation_count=1,
                violations=(violation,),
            )
        )
    found = find_incidents(parquet, verdicts, evidence)
    assert [each.invariant for each in found] == ["sooner", "later"]


def test_what_precedes_on_a_node_leads_from_any_distance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are followed back over a few events only, the order on a node over all."""
    monkeypatch.setattr(incident_module, "WINDOW_MAX", 3)
    history = History()
    first = history.emit("b1", appended(0, 0))
    far = history.emit("b2", replicated(0, 0))
    for number in range(5):
        history.emit("b3", high(number))
    last = history.emit("b2", appended(1, 1))
    incident = incident_of(tmp_path, history, first, last)
    assert {each.event.event_id for each in incident.around if each.leads} == {far}
