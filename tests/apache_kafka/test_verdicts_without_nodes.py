"""What can be said of a run whose nodes write no event logs, as those of Apache Kafka.

kraftsim's own runs show it: their nodes do emit events. Without these, the invariants that are
still evaluated must say the same, and what the disks are read for must be what the nodes said.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from kraftsim.analysis.analyze import analyze_run
from kraftsim.analysis.engines import Engine
from kraftsim.clients.events import RecordAcknowledged
from kraftsim.cluster.apache_kafka.disk_events import (
    disk_events,
    given_up_changes,
    metadata_events,
)
from kraftsim.cluster.directories import RunDirectory
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import INVARIANTS, Envelope
from kraftsim.invariants.verdict import Outcome, Verdict
from kraftsim.invariants.without_nodes import (
    is_of_node,
    not_evaluated,
    reason_without_nodes,
    verdict_not_evaluated,
)
from kraftsim.lab.explore.over_sockets import check_run, read_events, undecided
from kraftsim.lab.explore.run import run_scenario
from kraftsim.metadata.events import BrokerRegistered, PartitionChanged, TopicDeleted
from kraftsim.metadata.rules_image import MetadataImage, _digest
from kraftsim.partitions.events import FinalRecord, FinalTransaction
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.server.events import SegmentsCleaned
from kraftsim.transactions.events import TransactionChangeGivenUp
from protocol.metadata.registrations import BrokerFeature, RegisterBrokerRecord

Noted = tuple[Envelope, Event]
Kind = TypeVar("Kind", bound=Event)
NODES = ("broker-", "controller-")
RUNS = (
    ("producer_ids_survive_failover", 1),
    ("zombie_fenced_by_epoch", 1),
    ("compaction_under_load", 2),
    ("isr_shrink_and_expand", 1),
)


@dataclass(frozen=True)
class KeptRun:
    """A run of kraftsim's own nodes in virtual time."""

    root: Path
    entries: list[Noted]

    @property
    def brokers(self) -> list[str]:
        """The names of the brokers."""
        return sorted(
            each.name for each in (self.root / "data").iterdir() if each.name.startswith("broker-")
        )

    def of_nodes(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of a kind that nodes emitted."""
        return [
            event
            for envelope, event in self.entries
            if isinstance(event, kind) and envelope.node.startswith(NODES)
        ]

    def without_nodes(self) -> list[Noted]:
        """Return the history as a run on Apache Kafka has it: events of clients and the harness,
        and what the disks say.
        """
        outside = [each for each in self.entries if not each[0].node.startswith(NODES)]
        last = outside[-1][0]
        said = [
            (Envelope(node="disks", incarnation=1, n=n, t_ns=last.t_ns), event)
            for n, event in enumerate(self.said_by_disks())
        ]
        return [*outside, *said]

    def said_by_disks(self) -> list[Event]:
        """Return the events that are read from the disks."""
        directory = RunDirectory(self.root)
        return list(
            disk_events(
                {name: directory.data(name) for name in self.brokers},
                self.metadata,
                [event for _, event in self.entries],
            )
        )

    @property
    def metadata(self) -> Mapping[str, bytes]:
        """The files of the controllers' metadata logs."""
        return {
            f"{path.parts[-3]}/{path.parts[-2]}/{path.name}": path.read_bytes()
            for path in sorted((self.root / "data").glob("*/__cluster_metadata-0/*"))
        }


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., KeptRun]:
    """Runs a scenario in virtual time, once per module."""
    kept: dict[tuple[object, ...], KeptRun] = {}

    def run(name: str, seed: int, *bugs: str) -> KeptRun:
        key = (name, seed, *bugs)
        if key not in kept:
            root = tmp_path_factory.mktemp("runs") / "run"
            run_scenario(name, seed=seed, out=root, bugs=bugs)
            kept[key] = KeptRun(root, read_events(root / "events"))
        return kept[key]

    return run


def verdicts(entries: Iterable[Noted], *, without: bool) -> dict[str, Verdict]:
    """Return the verdicts over a history; `without` those that need no events of nodes."""
    found = check_run(list(entries), (), undecided("") if without else None)
    return {verdict.invariant: verdict for verdict in found}


# --------------------------------------------------------------------------------------------------
# Which invariants are evaluated


def test_some_invariants_need_no_nodes_and_the_others_say_what_they_need() -> None:
    reasons = not_evaluated(INVARIANTS.all())
    assert "transactions-atomic" not in reasons and "replicas-equal" not in reasons
    assert "no-hanging-transactions" not in reasons, "it watches no event of a node"
    assert reasons["one-vote-per-epoch"].endswith("only kraftsim's nodes emit: VoteSent")
    assert reasons["isr-joined-after-epoch-start"].endswith("PartitionTruncated and 4 more")


@pytest.mark.parametrize("name, seed", RUNS)
def test_kinds_that_nodes_emit_are_known_as_such(
    run_of: Callable[..., KeptRun], name: str, seed: int
) -> None:
    """A kind that is taken for one of clients would let an invariant be evaluated that lacks
    events.
    """
    run = run_of(name, seed)
    kinds = {type(event) for envelope, event in run.entries if envelope.node.startswith(NODES)}
    assert len(kinds) > 20
    assert not sorted(kind.__name__ for kind in kinds if not is_of_node(kind))


@pytest.mark.parametrize("name, seed", RUNS)
def test_without_nodes_the_evaluated_invariants_say_the_same(
    run_of: Callable[..., KeptRun], name: str, seed: int
) -> None:
    run = run_of(name, seed)
    whole, outside = (
        verdicts(run.entries, without=False),
        verdicts(run.without_nodes(), without=True),
    )
    evaluated = [each.name for each in INVARIANTS.all() if not reason_without_nodes(each)]
    assert len(evaluated) > 15
    assert {each: outside[each].outcome for each in evaluated if outside[each].violations} == {}
    examined = [each for each in evaluated if outside[each].examined]
    assert len(examined) >= 5, "the run exercises some of them"
    assert all(whole[each].outcome is Outcome.OK for each in examined)


def test_without_nodes_a_lost_record_is_still_found(run_of: Callable[..., KeptRun]) -> None:
    """The last record of a partition is missing in every replica's log."""
    entries = run_of("isr_shrink_and_expand", 1).without_nodes()
    acknowledged = [event for _, event in entries if isinstance(event, RecordAcknowledged)]
    lost = max(acknowledged, key=lambda event: event.offset)
    kept = [
        (envelope, event)
        for envelope, event in entries
        if not (isinstance(event, FinalRecord) and event.record_key == lost.record_key)
    ]
    verdict = verdicts(kept, without=True)["acknowledged-records-in-final-log"]
    assert verdict.outcome is Outcome.VIOLATED and verdict.violation_count == 1
    assert f"record {lost.record_key} was acknowledged" in verdict.violations[0].message


def test_what_is_not_evaluated_is_no_success_and_no_failure() -> None:
    invariant = INVARIANTS.named("one-vote-per-epoch")
    verdict = verdict_not_evaluated(invariant, "the reason")
    assert verdict.outcome is Outcome.NOT_APPLICABLE and verdict.reason == "the reason"
    assert verdict.rule == invariant.rule and not verdict.must_exercise


def test_disks_that_cannot_be_read_leave_their_invariants_undecided() -> None:
    """What would excuse a loss is unknown then."""
    unread = undecided("the disks cannot be read: torn")
    assert unread["acknowledged-records-in-final-log"] == "the disks cannot be read: torn"
    assert "each-input-processed-once" not in unread, "it needs the clients alone"


def test_an_analysis_evaluates_the_same_invariants_as_the_run(
    run_of: Callable[..., KeptRun], tmp_path: Path
) -> None:
    """run.json says which: the SQL would find violations that events of nodes excuse."""
    run = run_of("zombie_fenced_by_epoch", 1)
    root = tmp_path / "run"
    (root / "events").mkdir(parents=True)
    for log in (run.root / "events").glob("*.jsonl"):
        if not log.name.startswith(NODES):
            (root / "events" / log.name).write_bytes(log.read_bytes())
    name = "coordinator-transactions-equal-log"
    found = analyze_run(root, engine=Engine.DUCKDB)
    assert {each.invariant for each in found.verdicts if each.violations} == {name}
    (root / "run.json").write_text(
        f'{{"on": "apache:4.1.2", "not_evaluated": {{"{name}": "why"}}}}'
    )
    found = analyze_run(root, engine=Engine.DUCKDB)
    assert not [each for each in found.verdicts if each.violations]
    assert next(each for each in found.verdicts if each.invariant == name).reason == "why"
    assert "apache:4.1.2" in found.facts.title


# --------------------------------------------------------------------------------------------------
# What the disks say is what the nodes said


@pytest.mark.parametrize("name, seed", RUNS)
def test_the_metadata_log_has_what_controllers_emitted(
    run_of: Callable[..., KeptRun], name: str, seed: int
) -> None:
    """Registrations, blocks of producer ids, deletions, and every state of every partition."""
    run = run_of(name, seed)
    found = list(metadata_events(run.metadata))

    def of_disk(kind: type[Kind]) -> list[Kind]:
        return [event for event in found if isinstance(event, kind)]

    assert of_disk(BrokerRegistered)
    for kind in (BrokerRegistered, ProducerIdBlockAllocated, TopicDeleted):
        emitted = {repr(event) for event in run.of_nodes(kind)}
        assert {repr(event) for event in of_disk(kind)} >= emitted, kind.__name__
    changes = {repr(event) for event in of_disk(PartitionChanged)}
    assert changes >= {repr(event) for event in run.of_nodes(PartitionChanged)}


def test_the_checkpoint_of_the_cleaner_has_what_was_cleaned(
    run_of: Callable[..., KeptRun],
) -> None:
    run = run_of("compaction_under_load", 2)
    emitted, found = (
        run.of_nodes(SegmentsCleaned),
        [event for event in run.said_by_disks() if isinstance(event, SegmentsCleaned)],
    )
    assert emitted and found

    def until(events: Iterable[SegmentsCleaned]) -> dict[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {}
        for event in events:
            log = (event.topic, event.partition)
            ends[log] = max(event.next_offset, ends.get(log, 0))
        return ends

    on_disk = until(found)
    assert all(on_disk[log] >= offset for log, offset in until(emitted).items())


def test_a_snapshot_may_list_the_features_of_a_broker_in_another_order() -> None:
    """Apache Kafka keeps them in maps."""
    digests = []
    for names in (("group.version", "share.version"), ("share.version", "group.version")):
        image = MetadataImage()
        features = [
            BrokerFeature(name=name, min_supported_version=0, max_supported_version=1)
            for name in names
        ]
        image.load(RegisterBrokerRecord(broker_id=1, incarnation_id=bytes(16), features=features))
        digests.append(_digest(image, 0))
    assert digests[0] == digests[1]


def final_transaction(offset: int, producer_id: int, producer_epoch: int) -> FinalTransaction:
    """Return a record of a transactional id."""
    return FinalTransaction(
        partition=0,
        offset=offset,
        transactional_id="t",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        status=0,
        partitions="",
        broker="broker-1",
    )


def test_an_epoch_that_decreases_counts_as_a_change_that_was_given_up() -> None:
    """Another producer id starts at 0 again: nothing was given up there."""
    records = [(0, 7, 1), (1, 7, 2), (2, 7, 1), (3, 8, 0)]
    found = list(given_up_changes(final_transaction(*record) for record in records))
    assert [(each.offset, type(each)) for each in found] == [(1, TransactionChangeGivenUp)]


def test_a_run_need_not_exercise_what_it_cannot_evaluate() -> None:
    found = check_run([], ("one-vote-per-epoch", "transactions-atomic"), undecided(""))
    outcome = {verdict.invariant: verdict.outcome for verdict in found}
    assert outcome["one-vote-per-epoch"] is Outcome.NOT_APPLICABLE
    assert outcome["transactions-atomic"] is Outcome.VACUOUS
    assert list(outcome) == sorted(INVARIANTS.names())
