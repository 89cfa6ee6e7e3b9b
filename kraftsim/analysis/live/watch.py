"""Watches a run with Spark Structured Streaming: a query tails the event logs in small batches, and
the checks of the invariants run in this process, because their state is Python objects that live as
long as the run.

Spark reads the new bytes, finds the lines, parses their envelopes in parallel, and drops the text
of events that no invariant watches. What is left is a sequence that must be checked in one order.
"""

import gc
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.analysis.analysis import EXIT_CODES, WORST_FIRST, RunFacts
from kraftsim.analysis.live.display import Display
from kraftsim.analysis.live.figures import Status
from kraftsim.analysis.live.live_run import NANOSECONDS, LiveRun
from kraftsim.analysis.live.ordering import SLACK_NS
from kraftsim.analysis.live.source import SOURCE_NAME, EventLogSource
from kraftsim.analysis.live.witness_lines import SeenEvent
from kraftsim.analysis.sentences import printable
from kraftsim.analysis.session import THREADS
from kraftsim.invariants.invariant import INVARIANTS, Invariant
from kraftsim.invariants.verdict import Outcome, Verdict, worst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TICK_SECONDS: Final = 0.1
TRIGGER: Final = "200 milliseconds"
STATUS_SECONDS: Final = 5.0
IDLE_AFTER_END_SECONDS: Final = 1.0
"""A run is over when it says so, and its files do not grow for so long."""
WITHOUT_RUN_FILE_SECONDS: Final = 10.0
"""`run.json` follows the last event, but for runs that were killed in between."""
VIOLATIONS_SHOWN_MAX: Final = 3
YOUNG_COLLECTIONS_MAX: Final = 1000
"""Python's collector looks at all objects after so many looks at the younger ones. The state of the
checks only grows and is no garbage: at 400,000 events a look took 0.2 s, and all looks together
28 % of the CPU time of reading and checking.
"""
SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Spark only passes rows on: compiling code for that delays the first batch."""


class WatchFailed(RuntimeError):
    """The streaming query ended; the message says why."""


class SeenViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation with its events."""

    key: str
    message: str
    witnesses: tuple[SeenEvent, ...]


class SeenVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one invariant, with the fields that it has in `kraftsim analyze --json`."""

    invariant: str
    rule: str
    source: str
    must_exercise: bool
    outcome: Outcome
    examined: int
    violation_count: int
    breaches: tuple[SeenViolation, ...]
    reason: str


class WatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a watch. `ended_by`: 'run' (it is over), 'idle', or 'interrupt'.

    `late_count` events came after later ones had been checked, and everything was checked again
    `recheck_count` times. `is_from_analysis`: the verdicts are those of the analysis of the
    finished run, because some lines lack fields of their kind.
    """

    verdict: Outcome
    facts: RunFacts
    ended_by: str
    event_count: int
    late_count: int
    recheck_count: int
    torn_bytes: int
    lost_lines: str
    is_from_analysis: bool
    judgements: tuple[SeenVerdict, ...]

    @property
    def exit_code(self) -> int:
        """0 ok, 1 violated, 2 unknown or vacuous."""
        return EXIT_CODES[self.verdict]

    def lines(self) -> list[str]:
        """Return a summary, worst first; invariants that do not apply are counted only."""
        title = printable(self.facts.title)
        lines = [f"{title}: {self.verdict} ({self.event_count:,} events; ended by {self.ended_by})"]
        if self.late_count:
            lines.append(
                f"  {self.late_count:,} events came late; everything was checked again "
                f"{self.recheck_count} times, in order"
            )
        if self.torn_bytes:
            lines.append(f"  {self.torn_bytes} bytes of torn last lines were left out")
        if self.is_from_analysis:
            lines.append("  some lines lack fields of their kind: the finished run was analysed")
        shown = [each for each in self.judgements if each.outcome is not Outcome.NOT_APPLICABLE]
        for verdict in sorted(shown, key=lambda each: WORST_FIRST.index(each.outcome)):
            counted = f", {verdict.violation_count:,} violations" if verdict.violation_count else ""
            lines.append(
                f"  {verdict.outcome:<14}  {verdict.invariant:<34} {verdict.examined:>10,} "
                f"examined{counted}"
            )
            if verdict.reason:
                lines.append(f"      {verdict.reason}")
            for violation in verdict.breaches[:VIOLATIONS_SHOWN_MAX]:
                lines.append(f"      {printable(violation.message)}")
                lines += [f"          {event.line()}" for event in violation.witnesses]
        rest = len(self.judgements) - len(shown)
        if rest:
            lines.append(f"  {rest} invariants are not applicable")
        return lines


class RunWatch(msgspec.Struct, frozen=True, kw_only=True):
    """What to watch, and for how long.

    `clock_ns` is the machine's monotonic clock, on which nodes date their events.
    `is_cluster_running` says whether the cluster of a directory without scenario runs.
    `until_idle_seconds`: also end when no file has grown for so long.
    """

    run: Path
    clock_ns: Callable[[], int]
    is_cluster_running: Callable[[], bool]
    invariants: Sequence[str] = ()
    slack_ns: int = SLACK_NS
    until_idle_seconds: float | None = None
    status_seconds: float = STATUS_SECONDS


def watch_run(spark: "SparkSession", watch: RunWatch, display: Display) -> WatchResult:
    """Watch a run until it is over, or KeyboardInterrupt, and return the verdicts.

    Raises KeyError for an unknown invariant, WatchFailed, OSError, ValueError for a malformed
    run.json.
    """
    chosen = _chosen(watch.invariants)
    live = LiveRun(watch.run, chosen, slack_ns=watch.slack_ns)
    lock = threading.Lock()
    has_read = threading.Event()
    is_over = False

    def take(batch: "DataFrame", number: int) -> None:
        table = batch.toArrow()
        with lock:
            if not is_over:
                live.add(table, watch.clock_ns())
                has_read.set()  # the main thread checks it while Spark reads the next batch

    with (
        tempfile.TemporaryDirectory(prefix="kraftsim-watch-") as scratch,
        rare_full_collections(),
    ):
        query = _start(spark, watch.run, live.kinds, Path(scratch), take)
        try:
            ended_by = _follow(live, lock, has_read, query, watch, display)
        except KeyboardInterrupt:
            ended_by = "interrupt"
        finally:
            with lock:
                is_over = True
            query.stop()
    live.read_rest(watch.clock_ns())
    facts, verdicts = live.finish()
    if live.unfit_count:
        from kraftsim.analysis.analyze import analyze_run

        verdicts = analyze_run(watch.run, watch.invariants, spark=spark).verdicts
    for found in live.take_news():
        display.found(found)
    return WatchResult(
        verdict=worst(verdicts),
        facts=facts,
        ended_by=ended_by,
        event_count=live.event_count,
        late_count=live.late_count,
        recheck_count=live.recheck_count,
        torn_bytes=live.torn_bytes,
        lost_lines=live.lost_lines(),
        is_from_analysis=bool(live.unfit_count),
        judgements=tuple(_seen(verdict, live) for verdict in verdicts),
    )


@contextmanager
def rare_full_collections() -> Iterator[None]:
    """Let Python's collector look at all objects less often."""
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], YOUNG_COLLECTIONS_MAX)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _chosen(names: Sequence[str]) -> tuple[Invariant, ...]:
    return tuple(INVARIANTS.named(name) for name in names) or INVARIANTS.all()


def _start(
    spark: "SparkSession",
    run: Path,
    kinds: frozenset[str],
    scratch: Path,
    take: "Callable[[DataFrame, int], None]",
) -> "StreamingQuery":
    spark.dataSource.register(EventLogSource)
    options: Mapping[str, str] = {
        "path": str(run.absolute()),
        "kinds": ",".join(sorted(kinds)),
        "partitions": str(THREADS),
    }
    before = {key: spark.conf.get(key) for key in SETTINGS}
    try:
        for key, value in SETTINGS.items():
            spark.conf.set(key, value)
        return (  # the query has a copy of the settings from its start
            spark.readStream.format(SOURCE_NAME)
            .options(**options)
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", (scratch / "checkpoint").as_uri())
            .trigger(processingTime=TRIGGER)
            .start()
        )
    finally:
        for key, old in before.items():
            spark.conf.set(key, str(old))


def _advance(live: LiveRun, watch: RunWatch) -> None:
    before_ns = watch.clock_ns()
    if live.advance(before_ns):
        after_ns = watch.clock_ns()
        live.rechecked(after_ns - before_ns, after_ns)


def _follow(
    live: LiveRun,
    lock: threading.Lock,
    has_read: threading.Event,
    query: "StreamingQuery",
    watch: RunWatch,
    display: Display,
) -> str:
    """Show what is found until the run is over; return what ended it."""
    from kraftsim.analysis.live.source import readable_sizes

    next_status_ns = watch.clock_ns() + int(watch.status_seconds * NANOSECONDS)
    rechecks_shown = 0
    while True:
        if not query.isActive:
            trouble = query.exception()
            raise WatchFailed(f"the streaming query ended: {_first_line(trouble)}")
        has_read.clear()
        now_ns = watch.clock_ns()
        sizes = readable_sizes(watch.run, live.positions)
        status: Status | None = None
        with lock:
            live.scan(now_ns, sizes)
            _advance(live, watch)
            news = live.take_news()
            rechecks, late = live.recheck_count, live.late_count
            if watch.clock_ns() >= next_status_ns:
                status = live.status(watch.clock_ns())
                next_status_ns = watch.clock_ns() + int(watch.status_seconds * NANOSECONDS)
            ended_by = _ended_by(live, watch)
        if rechecks != rechecks_shown:
            rechecks_shown = rechecks
            display.message(f"{late:,} events came late: everything was checked again, in order")
        for found in news:
            display.found(found)
        if status is not None:
            display.status(status)
        if ended_by:
            return ended_by
        has_read.wait(TICK_SECONDS)


def _ended_by(live: LiveRun, watch: RunWatch) -> str:
    """Return what ended the run, or '' while it is going on."""
    idle = live.seconds_idle(watch.clock_ns())
    if idle < IDLE_AFTER_END_SECONDS:
        return ""
    if live.has_ended and ((watch.run / "run.json").exists() or idle >= WITHOUT_RUN_FILE_SECONDS):
        return "run"
    if live.event_count and not live.has_started and not watch.is_cluster_running():
        return "run"
    if watch.until_idle_seconds is not None and idle >= watch.until_idle_seconds:
        return "idle"
    return ""


def _first_line(trouble: object) -> str:
    return next((line for line in str(trouble).splitlines() if line.strip()), "no reason is known")


def _seen(verdict: Verdict, live: LiveRun) -> SeenVerdict:
    return SeenVerdict(
        invariant=verdict.invariant,
        rule=verdict.rule,
        source=verdict.source,
        must_exercise=verdict.must_exercise,
        outcome=verdict.outcome,
        examined=verdict.examined,
        violation_count=verdict.violation_count,
        breaches=tuple(
            SeenViolation(key=each.key, message=each.message, witnesses=live.events_of(each))
            for each in verdict.violations
        ),
        reason=verdict.reason,
    )
