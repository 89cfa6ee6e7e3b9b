"""A run that is analysed while it is written: the order of events, the lines of growing files, and
the verdicts of the finished run.
"""

import gc
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kraftsim.analysis.analysis import Analysis
from kraftsim.analysis.analyze import analyze_run
from kraftsim.analysis.engines import Engine
from kraftsim.analysis.live.display import lines_of
from kraftsim.analysis.live.line_numbers import LineNumbers
from kraftsim.analysis.live.live_run import LiveRun
from kraftsim.analysis.live.ordering import EventOrder, Line
from kraftsim.analysis.live.source import (
    CHUNK_BYTES,
    Extent,
    extents,
    next_positions,
    readable_sizes,
    rows_of,
)
from kraftsim.analysis.live.watch import RunWatch, rare_full_collections, watch_run
from kraftsim.cli.main import kraftsim
from kraftsim.events.event import LineEncoder
from kraftsim.events.runs import RunStarted
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.invariants.verdict import VIOLATIONS_KEPT_MAX, Outcome, Verdict
from kraftsim.lab.explore.run import run_scenario
from tests.analysis.cases import CASES
from tests.analysis.event_factories import allocated, received, returned
from tests.analysis.growing_run import (
    NS,
    append,
    contents_of,
    pieces,
    pieces_in_time,
    read_batch,
    write_in_real_time,
)
from tests.analysis.history import History
from tests.analysis.test_invariants import random_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pieces = Callable[[Mapping[str, bytes], Random, int], Iterator[tuple[str, bytes]]]
START_NS = 1_000 * NS
RUNS = (
    ("quorum_under_faults", "KAFKA-10527", 1),
    ("transaction_timeout", "KAFKA-14402", 3),
    ("idempotent_producers_under_kill", "", 1),
)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Simulated runs, two of them with a bug."""
    runs = {}
    for name, bug, seed in RUNS:
        out = tmp_path_factory.mktemp("runs") / name
        run_scenario(name, seed=seed, bugs=(bug,) if bug else (), out=out)
        runs[name] = out
    return runs


Comparable = tuple[str, int, int, str, bool, tuple[tuple[str, str, tuple[str, ...]], ...]]


def comparable(verdicts: tuple[Verdict, ...]) -> dict[str, Comparable]:
    """Return what both analyses must agree on. Of more violations than a verdict keeps, each keeps
    the first that it finds.
    """
    return {
        each.invariant: (
            each.outcome.value,
            each.examined,
            each.violation_count,
            each.reason,
            each.must_exercise,
            tuple((one.key, one.message, one.witnesses) for one in each.violations)
            if each.violation_count <= VIOLATIONS_KEPT_MAX
            else (),
        )
        for each in verdicts
    }


def watched(
    run: Path, written: Iterator[tuple[str, bytes]], random: Random
) -> tuple[LiveRun, tuple[Verdict, ...]]:
    """Return the verdicts of a watch that reads now and then while the pieces are written."""
    live = LiveRun(run, INVARIANTS.all())
    now_ns = 1_000 * NS
    for file, content in written:
        append(run, file, content)
        now_ns += random.randrange(2 * NS)
        if random.random() < 0.6:
            live.scan(now_ns)
            read_batch(live, now_ns, random.choice((1_000, 1 << 20)))
            if live.advance(now_ns):
                live.rechecked(random.randrange(NS), now_ns)
    live.read_rest(now_ns)
    _, verdicts = live.finish()
    return live, verdicts


def copied_facts(run: Path, target: Path) -> Path:
    """Make a directory with the facts of a run and no events yet."""
    (target / "events").mkdir(parents=True)
    if (run / "run.json").exists():
        shutil.copy(run / "run.json", target / "run.json")
    return target


# --------------------------------------------------------------------------------------------------
# The same verdicts


@pytest.mark.parametrize(
    "written", [pieces, pytest.param(pieces_in_time, marks=pytest.mark.interop)]
)
@pytest.mark.parametrize("name", [name for name, _, _ in RUNS])
def test_a_watched_simulation_has_the_verdicts_of_its_analysis(
    name: str,
    written: Pieces,
    simulated: Mapping[str, Path],
    tmp_path: Path,
) -> None:
    """With and without a bug, wherever the files are cut while they grow."""
    run = simulated[name]
    whole = analyze_run(run, engine=Engine.DUCKDB)
    random = Random(name)
    growing = copied_facts(run, tmp_path / "growing")
    _, verdicts = watched(growing, written(contents_of(run), random, 60), random)
    assert contents_of(growing) == contents_of(run)
    assert comparable(verdicts) == comparable(whole.verdicts)
    if name != RUNS[-1][0]:
        assert whole.verdict is Outcome.VIOLATED


@pytest.mark.parametrize("name", [RUNS[0][0], RUNS[2][0]])
def test_a_run_watched_in_real_time_is_checked_once_and_at_once(
    name: str, simulated: Mapping[str, Path], tmp_path: Path
) -> None:
    """No event is late, so that the verdicts are those of the first pass. Violations are shown
    within three seconds of their last event, but for those that only the end of the run shows.
    """
    run = simulated[name]
    whole = analyze_run(run, engine=Engine.DUCKDB)
    random = Random(name)
    growing = copied_facts(run, tmp_path / "growing")
    live = LiveRun(growing, INVARIANTS.all(), slack_ns=NS)
    live.scan(START_NS)
    now_ns, shown = START_NS, []
    for t_ns in write_in_real_time(growing, contents_of(run), random):
        now_ns = START_NS + t_ns
        live.scan(now_ns)
        if random.random() < 0.7:
            read_batch(live, now_ns, 1 << 20)
        assert not live.advance(now_ns)
        shown += [(t_ns, found) for found in live.take_news()]
    checked_count = live.checked_count
    live.read_rest(now_ns)
    _, verdicts = live.finish()
    assert comparable(verdicts) == comparable(whole.verdicts)
    assert (live.late_count, live.recheck_count) == (0, 0)
    assert checked_count > 0
    for t_ns, found in shown:
        assert t_ns - max(event.t_ns for event in found.events) < 3 * NS


@pytest.mark.parametrize("seed", range(9))
def test_a_watched_history_has_the_verdicts_of_its_analysis(seed: int, tmp_path: Path) -> None:
    """Random histories violate many invariants; some of their lines are lost or torn."""
    random = Random(seed)
    history = random_history(seed)
    history.write(tmp_path / "whole")
    contents = contents_of(tmp_path / "whole")
    if seed % 3 == 1:
        file = random.choice(sorted(contents))
        lines = contents[file].splitlines(keepends=True)
        del lines[random.randrange(len(lines))]
        contents[file] = b"".join(lines) + b'{"run":"run","no'
    if seed % 3 == 2:
        file = random.choice(sorted(contents))
        contents[file] = b"no event\n\n" + contents[file].rstrip(b"\n")
    written = (pieces, pieces_in_time)[seed % 2 if seed % 3 == 0 else 0](contents, random, 30)
    growing = copied_facts(tmp_path / "whole", tmp_path / "growing")
    live, verdicts = watched(growing, written, random)
    assert contents_of(growing) == contents
    whole = analyze_run(growing, engine=Engine.DUCKDB)
    assert comparable(verdicts) == comparable(whole.verdicts)
    assert live.lost_lines() == whole.ingest.lost_lines()
    assert live.torn_bytes == sum(file.torn_bytes for file in whole.ingest.files)
    assert live.event_count == whole.ingest.event_count


def test_every_case_of_every_invariant_has_the_same_outcome_live(tmp_path: Path) -> None:
    """Cases that hold, violate and cannot be decided, read in two halves."""
    for number, case in enumerate(CASES):
        history = case.history()
        run = tmp_path / str(number)
        history.write(run / "whole")
        growing = copied_facts(run, run / "growing")
        random = Random(number)
        _, verdicts = watched(growing, pieces(contents_of(run / "whole"), random, 2), random)
        verdict = next(each for each in verdicts if each.invariant == case.invariant)
        expected = (
            Outcome.NOT_APPLICABLE if case.outcome is Outcome.VACUOUS else case.outcome,
            case.examined,
        )
        assert (verdict.outcome, verdict.examined) == expected, case.name


# --------------------------------------------------------------------------------------------------
# Violations while the run goes on


def sound(history: History) -> History:
    history.emit("controller", allocated(1, 1000))
    history.emit("broker-1", received(1, 1000))
    history.emit("broker-1", returned(1))
    return history


def test_a_violation_is_found_while_the_run_goes_on(tmp_path: Path) -> None:
    """It needs no end: it is reported a slack after its last event, once, with both events."""
    history = sound(History())
    history.emit("broker-2", returned(1), after_ns=NS)
    history.write(tmp_path)
    live = LiveRun(tmp_path, INVARIANTS.all(), slack_ns=NS)
    live.scan(10 * NS, dict.fromkeys(contents_of(tmp_path), 0))
    read_batch(live, 10 * NS, 1 << 20)
    live.advance(10 * NS)
    assert live.take_news() == []
    live.scan(int(11.5 * NS))
    live.advance(int(11.5 * NS))
    unique = [each for each in live.take_news() if each.violation.invariant == "producer-id-unique"]
    (found,) = unique
    assert [event.event_id for event in found.events] == ["broker-1.1.1", "broker-2.1.0"]
    shown = list(lines_of(found))
    assert shown[0].startswith("VIOLATED producer-id-unique: ") and "producer_id=1" in shown[2]
    live.scan(20 * NS)
    live.advance(20 * NS)
    assert live.take_news() == []


def test_a_flood_of_violations_is_counted_and_not_shown(tmp_path: Path) -> None:
    """Between two status lines as many are shown as a verdict keeps."""
    history = History()
    for producer_id in range(50):
        history.emit("broker-1", returned(producer_id))
        history.emit("broker-2", returned(producer_id))
    history.write(tmp_path)
    live = LiveRun(tmp_path, [INVARIANTS.named("producer-id-unique")])
    live.read_rest(NS)
    _, (verdict,) = live.finish()
    assert verdict.violation_count == 50
    assert len(live.take_news()) == VIOLATIONS_KEPT_MAX
    assert live.status(NS).violation_count == 50


def test_violations_of_later_times_are_shown_after_many_earlier_ones(tmp_path: Path) -> None:
    """A status line makes room for the next ones."""
    history = History()
    for producer_id in range(30):
        history.emit("broker-1", returned(producer_id))
        history.emit("broker-2", returned(producer_id))
    history.write(tmp_path)
    live = LiveRun(tmp_path, [INVARIANTS.named("producer-id-unique")])
    live.read_rest(NS)
    live.finish()
    assert len(live.take_news()) == VIOLATIONS_KEPT_MAX
    live.status(NS)
    for node, n in (("broker-1", 30), ("broker-2", 30)):
        content = LineEncoder("run", node, 1).line(n, 2 * NS, 0, returned(99))
        append(tmp_path, f"events/{node}.1.jsonl", content)
    live.read_rest(3 * NS)
    live.finish()
    assert [each.violation.key for each in live.take_news()] == ["99"]


def test_a_violation_that_late_events_explain_is_withdrawn(tmp_path: Path) -> None:
    """A paused node writes that its log is durable after the leader counted it: checked again, in
    order, it is no violation.
    """
    history = next(each for each in CASES if each.name == "durable on two of three").history()
    history.write(tmp_path / "whole")
    contents = contents_of(tmp_path / "whole")
    early = "events/b.1.jsonl"
    run = copied_facts(tmp_path, tmp_path / "growing")
    live = LiveRun(run, INVARIANTS.all(), slack_ns=NS)
    live.scan(10 * NS)
    for file, content in contents.items():
        if file != early:
            append(run, file, content)
    live.scan(11 * NS)
    read_batch(live, 11 * NS, 1 << 20)
    live.scan(14 * NS)
    live.advance(14 * NS)
    before = {each.violation.invariant for each in live.take_news() if not each.is_withdrawn}
    append(run, early, contents[early])
    live.scan(15 * NS)
    read_batch(live, 15 * NS, 1 << 20)
    assert live.advance(15 * NS)
    after = live.take_news()
    assert before == {each.violation.invariant for each in after} == {"high-watermark-flushed"}
    assert all(each.is_withdrawn for each in after)
    assert live.late_count == 1 and live.recheck_count == 1
    live.read_rest(16 * NS)
    _, verdicts = live.finish()
    assert all(each.outcome is not Outcome.VIOLATED for each in verdicts)


def test_the_collector_pauses_a_watch_rarely_and_is_as_before_afterwards() -> None:
    """A look at all objects takes longer the longer the run is, and finds no garbage."""
    before = gc.get_threshold()
    with pytest.raises(KeyboardInterrupt), rare_full_collections():
        assert gc.get_threshold()[:2] == before[:2] and gc.get_threshold()[2] > 10 * before[2]
        raise KeyboardInterrupt
    assert gc.get_threshold() == before


def test_checking_again_pauses_between_two_times(tmp_path: Path) -> None:
    """Many late events do not keep the watch from everything else."""
    run = copied_facts(tmp_path, tmp_path / "growing")
    encoders = {node: LineEncoder("run", node, 1) for node in ("a", "b")}
    live = LiveRun(run, INVARIANTS.all(), slack_ns=NS)
    live.scan(NS)
    append(run, "events/a.1.jsonl", encoders["a"].line(0, 9 * NS, 0, returned(1)))
    live.scan(10 * NS)
    read_batch(live, 10 * NS, 1 << 20)
    live.scan(20 * NS)
    live.advance(20 * NS)
    for n, now_ns, is_due in ((0, 21 * NS, True), (1, 22 * NS, False), (2, 40 * NS, True)):
        line = encoders["b"].line(n, (n + 1) * NS, 0, returned(n + 2))
        append(run, "events/b.1.jsonl", line)
        live.scan(now_ns)
        read_batch(live, now_ns, 1 << 20)
        assert live.advance(now_ns) == is_due
        if is_due:
            live.rechecked(NS, now_ns)
    assert live.late_count == 3


# --------------------------------------------------------------------------------------------------
# The order of events


def line(t_ns: int, node: str, n: int = 0) -> Line:
    return Line(t_ns, node, 1, n, b"")


def test_events_of_a_node_wait_for_unread_events_of_another() -> None:
    """What is not read yet can be earlier, whatever the time is."""
    order = EventOrder(slack_ns=NS)
    order.scanned(100 * NS, {"a": 10, "b": 10})
    order.add("a", [line(90 * NS, "a")], position=10, last_t_ns=90 * NS, now_ns=100 * NS)
    order.add("b", [line(50 * NS, "b")], position=5, last_t_ns=50 * NS, now_ns=100 * NS)
    order.scanned(200 * NS, {"a": 10, "b": 10})
    assert order.ready() == []
    order.add("b", [line(60 * NS, "b", 1)], position=10, last_t_ns=60 * NS, now_ns=200 * NS)
    assert [each.t_ns // NS for each in order.ready()] == [50, 60, 90]


def test_a_silent_node_delays_the_others_by_the_slack_only() -> None:
    """Its file was read to its end at a moment: it lacks nothing from before."""
    order = EventOrder(slack_ns=NS)
    order.scanned(100 * NS, {"a": 0, "b": 0})
    order.scanned(100 * NS, {"a": 0, "b": 10})
    order.add("b", [line(40 * NS, "b")], position=10, last_t_ns=40 * NS, now_ns=100 * NS)
    assert order.ready() == []
    order.scanned(int(100.9 * NS), {"a": 0, "b": 10})
    assert order.ready() == []
    order.scanned(int(101.1 * NS), {"a": 0, "b": 10})
    assert [each.node for each in order.ready()] == ["b"]


def test_an_event_below_the_watermark_is_late_and_one_above_it_is_not() -> None:
    """Equal times are ordered by node: those of an earlier node are late."""
    order = EventOrder(slack_ns=0)
    order.scanned(100 * NS, {"b": 0})
    order.add("b", [line(40 * NS, "b")], position=10, last_t_ns=40 * NS, now_ns=100 * NS)
    order.scanned(101 * NS, {"b": 10})
    assert len(order.ready()) == 1
    order.add("c", [line(40 * NS, "c")], position=10, last_t_ns=40 * NS, now_ns=101 * NS)
    assert order.late_count == 0
    order.add("a", [line(40 * NS, "a")], position=10, last_t_ns=40 * NS, now_ns=101 * NS)
    assert order.late_count == 1


def test_old_incarnations_do_not_set_the_present() -> None:
    """The log of an earlier cluster has later times than a cluster that starts now."""
    order = EventOrder(slack_ns=NS)
    order.scanned(5_000 * NS, {"old": 10})
    order.add("old", [line(900 * NS, "o")], position=10, last_t_ns=900 * NS, now_ns=5_000 * NS)
    order.scanned(5_001 * NS, {"old": 10, "new": 10})
    order.add("new", [line(3 * NS, "n")], position=10, last_t_ns=3 * NS, now_ns=5_001 * NS)
    assert order.now_t_ns(5_001 * NS) == 3 * NS
    order.scanned(5_003 * NS, {"old": 10, "new": 10})
    assert [each.node for each in order.ready()] == ["n"]


@pytest.mark.parametrize("seed", range(20))
def test_line_numbers_are_counted_as_sets_count_them(seed: int) -> None:
    """Gaps and repeated numbers, in runs and one by one, in any order."""
    random = Random(seed)
    numbers = LineNumbers()
    seen: list[int] = []
    for _ in range(random.randrange(1, 30)):
        first = random.randrange(60)
        some = list(range(first, first + random.randrange(1, 10)))
        if random.random() < 0.3:
            random.shuffle(some)
        numbers.add_all(some)
        seen += some
        assert numbers.missing_count == max(seen) + 1 - len(set(seen))
        assert numbers.repeated_count == len(seen) - len(set(seen))


# --------------------------------------------------------------------------------------------------
# The lines of growing files


def test_a_torn_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    """Neither is it read, nor does it count as unread."""
    whole = LineEncoder("run", "a", 1).line(0, 5, 0, returned(1))
    append(tmp_path, "events/a.1.jsonl", whole[:30])
    assert next_positions(tmp_path, {}) == {"events/a.1.jsonl": 0}
    assert readable_sizes(tmp_path, {}) == {"events/a.1.jsonl": 0}
    append(tmp_path, "events/a.1.jsonl", whole[30:] + whole[:10])
    ends = next_positions(tmp_path, {"events/a.1.jsonl": 0})
    assert ends == {"events/a.1.jsonl": len(whole)}
    (extent,) = extents({}, ends)
    (row,) = rows_of(tmp_path, extent, frozenset({"ProducerIdReturned"}))
    assert (row.node, row.n, row.t_ns, row.end) == ("a", 0, 5, len(whole))
    assert row.line == whole.rstrip(b"\n")
    (other,) = rows_of(tmp_path, extent, frozenset({"BatchAppended"}))
    assert other.line is None and other.kind == "ProducerIdReturned"


def test_a_line_longer_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    """A chunk is where reading looks for the end of a line, not a limit."""
    event = RunStarted(scenario="x" * (2 * CHUNK_BYTES), mode="sim", seed=1)
    long = LineEncoder("run", "a", 1).line(0, 5, 0, event)
    append(tmp_path, "events/a.1.jsonl", long + long)
    ends = next_positions(tmp_path, {}, batch_bytes=1)
    assert ends == {"events/a.1.jsonl": len(long)}
    (row,) = rows_of(tmp_path, Extent("events/a.1.jsonl", 0, len(long)), frozenset())
    assert row.kind == "RunStarted"


def test_a_batch_takes_the_oldest_lines_of_all_files_first(tmp_path: Path) -> None:
    """So the lines that wait for those of another file are few."""
    for node, start in (("a", 0), ("b", 1_000_000)):
        encoder = LineEncoder("run", node, 1)
        lines = [encoder.line(n, start + n, 0, returned(n)) for n in range(5_000)]
        append(tmp_path, f"events/{node}.1.jsonl", b"".join(lines))
    ends = next_positions(tmp_path, {}, batch_bytes=CHUNK_BYTES)
    assert ends["events/b.1.jsonl"] == 0 < ends["events/a.1.jsonl"]
    positions: dict[str, int] = {}
    while (ends := next_positions(tmp_path, positions, batch_bytes=CHUNK_BYTES)) != positions:
        positions = ends
    assert positions == {file: len(content) for file, content in contents_of(tmp_path).items()}


# --------------------------------------------------------------------------------------------------
# With Spark


def clean_watch(run: Path, **options: Any) -> RunWatch:
    return RunWatch(
        run=run, clock_ns=time.monotonic_ns, is_cluster_running=lambda: False, **options
    )


class Recorded:
    """A display that keeps what it is shown, with the time."""

    def __init__(self) -> None:
        self.violations: list[tuple[float, str]] = []
        self.statuses: list[str] = []

    def found(self, found: Any) -> None:
        """Keep a violation."""
        self.violations.append((time.monotonic(), found.violation.invariant))

    def status(self, status: Any) -> None:
        """Keep a status."""
        self.statuses.append(status.line())

    def message(self, text: str) -> None:
        """Ignore it: late events are possible on a loaded machine."""


@pytest.mark.spark
@pytest.mark.interop
def test_spark_tails_growing_logs_and_gives_the_verdicts_of_the_analysis(
    spark: "SparkSession", simulated: Mapping[str, Path], tmp_path: Path
) -> None:
    """Files grow in pieces while the query runs, run.json comes last, and the watch ends by
    itself.
    """
    run = simulated[RUNS[0][0]]
    whole: Analysis = analyze_run(run, spark=spark)
    growing = tmp_path / "growing"
    (growing / "events").mkdir(parents=True)

    def write() -> None:
        random = Random(7)
        for file, content in pieces_in_time(contents_of(run), random, 40):
            append(growing, file, content)
            time.sleep(random.random() * 0.1)
        shutil.copy(run / "run.json", growing / "run.json")

    writer = threading.Thread(target=write)
    writer.start()
    shown = Recorded()
    result = watch_run(spark, clean_watch(growing, status_seconds=0.5), shown)
    writer.join()
    assert (result.ended_by, result.verdict, result.exit_code) == ("run", Outcome.VIOLATED, 1)
    assert result.event_count == whole.ingest.event_count and not result.is_from_analysis
    assert {
        each.invariant: (each.outcome, each.examined, each.violation_count)
        for each in result.judgements
    } == {
        each.invariant: (each.outcome, each.examined, each.violation_count)
        for each in whole.verdicts
    }
    shown_invariants = {invariant for _, invariant in shown.violations}
    violated = {each.invariant for each in whole.verdicts if each.outcome is Outcome.VIOLATED}
    assert violated <= shown_invariants and shown.statuses


@pytest.mark.spark
@pytest.mark.interop
def test_a_violation_is_shown_within_seconds_while_the_log_grows(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Two nodes write every tenth of a second; the second one returns an id that the first one had
    returned. The watch ends because nothing grows any more.
    """
    (tmp_path / "events").mkdir()
    violated_at: list[float] = []

    def write() -> None:
        nodes = {node: LineEncoder("run", node, 1) for node in ("broker-1", "broker-2")}
        for tick in range(90):
            for offset, (node, encoder) in enumerate(nodes.items()):
                number = 1_000 * offset + tick
                if tick == 30 and offset:
                    number = 20
                    violated_at.append(time.monotonic())
                content = encoder.line(tick, time.monotonic_ns(), 0, returned(number))
                append(tmp_path, f"events/{node}.1.jsonl", content)
            time.sleep(0.1)

    writer = threading.Thread(target=write)
    writer.start()
    shown = Recorded()
    result = watch_run(spark, clean_watch(tmp_path, invariants=("producer-id-unique",)), shown)
    writer.join()
    ((found_at, invariant),) = shown.violations
    assert invariant == "producer-id-unique" and result.verdict is Outcome.VIOLATED
    assert found_at - violated_at[0] < 5
    assert result.event_count == 180 and result.ended_by == "run"


@pytest.mark.spark
def test_lines_without_fields_of_their_kind_are_left_to_the_analysis(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The verdicts are those of `kraftsim analyze`, and the result says so."""
    sound(History()).write(tmp_path)
    bad = b'{"run":"run","node":"x","incarnation":1,"n":0,"t_ns":9,"wall_ms":0,"kind":"VoteSent"}\n'
    append(tmp_path, "events/x.1.jsonl", bad)
    result = watch_run(spark, clean_watch(tmp_path), Recorded())
    whole = analyze_run(tmp_path, spark=spark)
    assert result.is_from_analysis and result.verdict == whole.verdict
    assert [each.outcome for each in result.judgements] == [each.outcome for each in whole.verdicts]


@pytest.mark.spark
def test_the_command_exits_as_analyze_does(spark: "SparkSession", tmp_path: Path) -> None:
    """0 ok, 1 violated, 3 for an unknown invariant; `--json` has the violations with their
    events.
    """
    history = sound(History())
    history.write(tmp_path / "ok")
    history.emit("broker-2", returned(1))
    history.write(tmp_path / "bad")
    words = ["watch", str(tmp_path / "ok"), "--until-idle", "1"]
    assert CliRunner().invoke(kraftsim, words, standalone_mode=False).return_value == 0
    file = tmp_path / "found.json"
    words = ["watch", str(tmp_path / "bad"), "--json", str(file)]
    done = CliRunner().invoke(kraftsim, words, standalone_mode=False)
    assert done.return_value == 1 and "VIOLATED producer-id-unique" in done.output
    found = json.loads(file.read_text())
    unique = next(each for each in found["judgements"] if each["invariant"] == "producer-id-unique")
    assert [each["event_id"] for each in unique["breaches"][0]["witnesses"]] == [
        "broker-1.1.1",
        "broker-2.1.0",
    ]
    words = ["watch", str(tmp_path / "bad"), "--invariant", "no-such-one"]
    assert CliRunner().invoke(kraftsim, words).exit_code == 3
