"""A run in one sentence, over small histories whose figures are counted by hand."""

from pathlib import Path

import pytest

from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.pace import BEFORE_ALL, INTERVALS, find_pace, find_waits
from kraftsim.analysis.run_summary import RunSummary, duration, find_summary
from kraftsim.clients.events import RecordFailed
from kraftsim.events.runs import PhaseBegan, RunEnded
from kraftsim.server.events import NodeStarted, SegmentsCleaned
from tests.analysis.event_factories import acknowledged, final_log, final_record, sent
from tests.analysis.history import History

MS = 1_000_000


def parquet_of(run: Path, history: History) -> Path:
    history.write(run)
    return Path(ingest_run(run).parquet)


def summary_of(run: Path, history: History) -> RunSummary:
    parquet = parquet_of(run, history)
    return find_summary(parquet, find_waits(parquet).known)


def started(history: History, name: str, role: str, release: str, incarnation: int = 1) -> None:
    event = NodeStarted(role=role, node_id=1, release=release, cluster_id="c")
    history.emit(name, event, incarnation=incarnation)


def failed(record_key: str) -> RecordFailed:
    return RecordFailed(
        client_id="c", topic="t", partition=0, record_key=record_key, error_code=7, reason=""
    )


def written(history: History, offset: int, record_key: str, wait_ns: int = MS) -> None:
    history.emit("client", sent(record_key))
    history.emit("client", acknowledged(offset, record_key), after_ns=wait_ns)


def test_a_clean_run_is_one_sentence(tmp_path: Path) -> None:
    history = History()
    for number in (1, 2, 3):
        started(history, f"broker-{number}", "broker", "3.6")
        started(history, f"controller-{number}", "controller", "3.6")
    started(history, "broker-1", "broker", "3.10", incarnation=2)
    started(history, "broker-1", "broker", "4.1", incarnation=3)
    written(history, 0, "a")
    written(history, 1, "b", 3_300 * MS)
    history.emit("final", final_log(2, 2))
    history.emit("final", final_record(0, "a"))
    history.emit("final", final_record(1, "b"))
    summary = summary_of(tmp_path, history)
    assert summary.releases == ("3.6", "3.10", "4.1"), "in the order of versions, not of texts"
    assert summary.sentence == (
        "3 brokers and 3 controllers from 3.6 to 4.1: 2 records acknowledged, 0 lost, 0 doubled, "
        "longest wait 3.3 s"
    )


def test_lost_doubled_and_failed_records_are_counted(tmp_path: Path) -> None:
    """Lost: b (not there), c (at another offset). Doubled: a (sent once, twice in a log); d was
    sent twice, so that it may be there twice, and two replicas each have it.
    """
    history = History()
    for offset, key in enumerate("abcd"):
        written(history, offset, key)
    history.emit("client", sent("d"))
    history.emit("client", failed("d"))
    history.emit("final", final_log(9, 5))
    for offset, key in ((0, "a"), (4, "a"), (5, "c"), (3, "d"), (6, "d")):
        history.emit("final", final_record(offset, key))
        history.emit("final", final_record(offset, key, broker="b2"))
    summary = summary_of(tmp_path, history)
    assert (summary.sent, summary.acknowledged, summary.failed) == (5, 4, 1)
    assert (summary.lost, summary.deleted, summary.doubled) == (2, 0, 1)
    assert "4 records acknowledged, 2 lost, 1 doubled, 1 failed at the client" in summary.sentence


def test_records_that_retention_or_compaction_removed_are_not_lost(tmp_path: Path) -> None:
    """Offset 0 is below the log start, x has a later record in a compacted log; y has none, and z
    has an earlier one only.
    """
    history = History()
    for offset, key in ((0, "old"), (1, "x"), (2, "y"), (3, "x"), (4, "z"), (5, "z")):
        written(history, offset, key)
    cleaned = SegmentsCleaned(
        topic="t", partition=0, first_offset=1, next_offset=6, segment_count=1
    )
    history.emit("b", cleaned)
    history.emit("final", final_log(6, 2, log_start_offset=1))
    history.emit("final", final_record(3, "x"))
    history.emit("final", final_record(4, "z"))
    summary = summary_of(tmp_path, history)
    assert (summary.lost, summary.deleted, summary.doubled) == (2, 2, 0)


def test_partitions_of_different_topics_are_kept_apart(tmp_path: Path) -> None:
    """The same key at the same offset of another topic does not count as found."""
    history = History()
    history.emit("client", sent("k", topic="t"))
    history.emit("client", acknowledged(0, "k", topic="t"))
    history.emit("final", final_log(0, 0, topic="t"))
    history.emit("final", final_log(1, 1, topic="u"))
    history.emit("final", final_record(0, "k", topic="u"))
    assert summary_of(tmp_path, history).lost == 1


def test_an_acknowledgement_without_an_offset_may_be_anywhere(tmp_path: Path) -> None:
    history = History()
    written(history, -1, "a")
    written(history, -1, "b")
    history.emit("final", final_log(8, 1))
    history.emit("final", final_record(7, "a"))
    assert summary_of(tmp_path, history).lost == 1


def test_without_a_final_log_lost_records_are_unknown(tmp_path: Path) -> None:
    history = History()
    written(history, 0, "a")
    summary = summary_of(tmp_path, history)
    assert (summary.lost, summary.doubled) == (None, None)
    assert summary.sentence == (
        "clients: 1 record acknowledged, lost: unknown, a final log was not read, longest wait 1 ms"
    )


def test_a_run_without_records_names_its_nodes(tmp_path: Path) -> None:
    history = History()
    started(history, "controller-1", "controller", "4.0")
    assert summary_of(tmp_path, history).sentence == "1 controller on 4.0: no records sent"


@pytest.mark.parametrize(
    ("ns", "text"),
    [(3_312 * MS, "3.3 s"), (12 * MS, "12 ms"), (450_000, "0.45 ms"), (999 * MS, "999 ms")],
)
def test_durations_have_two_digits_or_more(ns: int, text: str) -> None:
    assert duration(ns) == text


# --------------------------------------------------------------------------------------------------
# Latency and throughput


def test_percentiles_and_rates_by_phase(tmp_path: Path) -> None:
    """A hundred waits of 1 to 100 ms in one phase of 20 s, a single one in the next, none in the
    third.
    """
    history = History()
    history.emit("harness", PhaseBegan(phase="warm"), after_ns=0)
    for number in range(1, 101):
        written(history, number, f"w{number}", number * MS)
    now_ns = sum(range(1, 101)) * MS + 100 * 1_000
    history.emit("harness", PhaseBegan(phase="faults"), after_ns=20_000 * MS - now_ns)
    written(history, 101, "f", 7 * MS)
    history.emit("harness", PhaseBegan(phase="end"), after_ns=MS)
    history.emit("harness", RunEnded(outcome="ok"), after_ns=1_000 * MS)
    parquet = parquet_of(tmp_path, history)
    pace = find_pace(parquet, find_waits(parquet))
    assert pace is not None
    warm, faults, end = pace.phases
    assert (warm.phase, warm.acknowledged, warm.per_second) == ("warm", 100, 5.0)
    assert warm.percentiles_ns == (50 * MS, 95 * MS, 99 * MS, 100 * MS)
    assert faults.percentiles_ns == (7 * MS,) * 4
    assert (end.acknowledged, end.percentiles_ns, end.per_second) == (0, (), 0.0)
    assert end.end_ns - end.begin_ns == 1_000 * MS
    assert len(pace.intervals) == INTERVALS
    assert sum(each.acknowledged for each in pace.intervals) == 101


def test_each_outcome_belongs_to_its_own_send(tmp_path: Path) -> None:
    """A record that failed and was sent again waits from its second send; records of two clients
    with one key are kept apart; an acknowledgement without a send counts without a wait.
    """
    history = History()
    history.emit("client", sent("a"), after_ns=1)  # at 1
    history.emit("other", sent("a"), after_ns=10)  # at 11
    history.emit("client", failed("a"), after_ns=100)  # at 111
    history.emit("client", sent("a"), after_ns=1_000)  # at 1111
    history.emit("client", acknowledged(0, "a"), after_ns=30)  # at 1141
    history.emit("other", acknowledged(1, "a"), after_ns=5)  # at 1146
    history.emit("client", acknowledged(2, "never sent"), after_ns=5)
    waits = find_waits(parquet_of(tmp_path, history))
    assert waits.wait_ns.tolist() == [30, 1135, -1]
    assert waits.known.tolist() == [30, 1135]


def test_events_before_the_first_phase_have_one_of_their_own(tmp_path: Path) -> None:
    history = History()
    written(history, 0, "a")
    history.emit("harness", PhaseBegan(phase="faults"))
    written(history, 1, "b")
    parquet = parquet_of(tmp_path, history)
    pace = find_pace(parquet, find_waits(parquet))
    assert pace is not None
    assert [(each.phase, each.acknowledged) for each in pace.phases] == [
        (BEFORE_ALL, 1),
        ("faults", 1),
    ]


def test_a_run_without_acknowledgements_has_no_pace(tmp_path: Path) -> None:
    history = History()
    history.emit("client", sent("a"))
    parquet = parquet_of(tmp_path, history)
    assert find_pace(parquet, find_waits(parquet)) is None
