"""Exports of a run, read back by parsers that are independent of their writers, and compared with
the events that were logged.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TypedDict, cast

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from kraftsim.analysis import document
from kraftsim.analysis.analysis import Analysis, RunFacts
from kraftsim.analysis.export import scope as scopes
from kraftsim.analysis.export.edn import Edn as Written
from kraftsim.analysis.export.edn import Keyword, edn
from kraftsim.analysis.export.formats import Exported, ExportWindow, export_events
from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.store import read_events
from kraftsim.analysis.witnesses import fetch_witnesses
from kraftsim.cli.main import kraftsim
from kraftsim.clients.events import RecordAcknowledged, RecordFailed, RecordRead, RecordSent
from kraftsim.clients.events_transactions import TransactionBegun, TransactionEnded
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.events.event import Event
from kraftsim.invariants.verdict import Outcome, Verdict, Violation
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.server.events import NodeReady
from tests.analysis.edn_reader import Edn, read_edn
from tests.analysis.generated_run import generated_run
from tests.analysis.history import History

HOSTILE = 'a "b"\\\n\u2028;#<script>\x00{}[]:end'
WHOLE = ExportWindow()

Row = dict[str, object]
Entry = dict[str, object]


class Run:
    """An ingested run, and all its events as rows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.parquet = Path(ingest_run(directory).parquet)
        table = read_events(self.parquet)
        self.rows: list[Row] = [
            {name: value for name, value in row.items() if value is not None}
            for row in table.to_pylist()
        ]

    def export(self, format_name: str, window: ExportWindow = WHOLE) -> tuple[str, Exported]:
        """Return what a format writes."""
        out = BytesIO()
        analysis_file = self.directory / "analysis.json"
        exported = export_events(
            self.parquet, format_name, out, window, analysis_file=analysis_file
        )
        return out.getvalue().decode(), exported

    def of_kinds(self, *kinds: str) -> list[Row]:
        """Return the events of some kinds, in the order of time."""
        return [row for row in self.rows if row["kind"] in kinds]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Faults, incarnations, frames and three clients."""
    directory = tmp_path_factory.mktemp("generated")
    generated_run(seconds=1.5).write(directory)
    return Run(directory)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Transactions and read_committed readers, under faults."""
    directory = tmp_path_factory.mktemp("simulated") / "run"
    request = RunRequest(scenario=scenario("exactly_once_under_faults"), mode=Mode.SIM, seed=3)
    run_request(request, directory)
    return Run(directory)


@pytest.fixture(params=["generated", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """Each of both."""
    return cast("Run", request.getfixturevalue(request.param))


def ingested(directory: Path, *events: tuple[str, Event]) -> Run:
    history = History()
    for node, event in events:
        history.emit(node, event)
    history.write(directory)
    return Run(directory)


def event(kind: type[Event], some: Mapping[str, object], **others: object) -> Event:
    """Return an event; the types of its fields are checked."""
    return msgspec.convert({**some, **others}, kind)


# --------------------------------------------------------------------------------------------------
# Perfetto

REQUIRED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "i": {"name", "pid", "tid", "ts", "s"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "b": {"name", "cat", "id", "pid", "ts"},
    "e": {"name", "cat", "id", "pid", "ts"},
    "C": {"name", "pid", "ts", "args"},
}
"""The keys that the trace event format requires, by phase."""


class Trace:
    """The trace events of a file, by phase."""

    def __init__(self, text: str) -> None:
        document = json.loads(text)
        self.entries: list[Entry] = document["traceEvents"]
        self.node_of = {
            each["pid"]: cast("dict[str, str]", each["args"])["name"]
            for each in self.of("M")
            if each["name"] == "process_name"
        }

    def of(self, *phases: str) -> list[Entry]:
        """Return the events of some phases."""
        return [each for each in self.entries if each["ph"] in phases]

    def marks(self) -> dict[str, Entry]:
        """Return the events of the run, by their ids."""
        return {
            str(args["event"]): each
            for each in self.of("X", "i")
            if "event" in (args := cast("dict[str, object]", each.get("args", {})))
        }


def event_id(row: Row) -> str:
    return f"{row['node']}.{row['incarnation']}.{row['n']}"


def test_a_perfetto_trace_has_every_event_at_its_node_and_time(run: Run) -> None:
    trace = Trace(run.export("perfetto")[0])
    for each in trace.entries:
        assert set(each) >= REQUIRED[str(each["ph"])], each
    marks = trace.marks()
    assert len(marks) == len(run.rows)
    for row in run.rows:
        mark = marks[event_id(row)]
        assert mark["name"] == row["kind"] and trace.node_of[mark["pid"]] == row["node"]
        assert round(cast("float", mark["ts"]) * 1000) == row["t_ns"]


def test_perfetto_arrows_lead_from_each_cause_to_its_effect(run: Run) -> None:
    """An arrow binds to the innermost slice that is open on its track: in the file, the last one
    before it.
    """
    trace = Trace(run.export("perfetto")[0])
    bound: dict[str, dict[object, str]] = {"s": {}, "f": {}}
    last_of_track: dict[object, Entry] = {}
    for each in trace.entries:
        if each["ph"] == "X":
            last_of_track[each["tid"]] = each
        elif each["ph"] in bound:
            around = last_of_track[each["tid"]]
            assert around["ts"] == each["ts"] and cast("float", around["dur"]) > 0
            args = cast("dict[str, str]", around["args"])
            assert bound[str(each["ph"])].setdefault(each["id"], args["event"]) == args["event"]
    arrows = {(cause, bound["f"][number]) for number, cause in bound["s"].items()}
    assert set(bound["s"]) == set(bound["f"])
    assert arrows == {
        (event_id(run.rows[cast("int", row["cause_position"])]), event_id(row))
        for row in run.rows
        if "cause_position" in row
    }
    assert len(arrows) > 100


def test_slices_of_a_perfetto_track_are_nested(run: Run) -> None:
    """Chrome and Perfetto drop a slice that ends after the one around it."""
    tracks: dict[object, list[tuple[int, int]]] = {}
    for each in Trace(run.export("perfetto")[0]).of("X"):
        begin = round(cast("float", each["ts"]) * 1000)
        end = begin + round(cast("float", each["dur"]) * 1000)
        tracks.setdefault(each["tid"], []).append((begin, end))
    for spans in tracks.values():
        ends: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while ends and ends[-1] <= begin:
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)


def test_perfetto_has_incarnations_faults_phases_and_offsets(generated: Run) -> None:
    trace = Trace(generated.export("perfetto")[0])
    incarnations = Counter(
        (trace.node_of[each["pid"]], each["name"])
        for each in trace.of("X")
        if each.get("cat") == "incarnation"
    )
    assert incarnations == {
        (str(node), f"incarnation {incarnation}"): 1
        for node, incarnation in {(row["node"], row["incarnation"]) for row in generated.rows}
    }
    begun = {(each["id"], trace.node_of[each["pid"]]): each["ts"] for each in trace.of("b")}
    ended = {(each["id"], trace.node_of[each["pid"]]): each["ts"] for each in trace.of("e")}
    assert begun.keys() == ended.keys()
    assert sorted(node for _, node in begun) == ["broker-2", "controller-101"]
    assert all(cast("float", ended[key]) > cast("float", begun[key]) for key in begun)
    assert [each["name"] for each in trace.of("i") if each["s"] == "g"] == [
        "phase faults",
        "phase liveness",
    ]
    (broker,) = (pid for pid, node in trace.node_of.items() if node == "broker-1")
    log_ends = [
        cast("dict[str, int]", each["args"])["offset"]
        for each in trace.of("C")
        if each["pid"] == broker and each["name"] == "ledger-0-0 log end"
    ]
    appends = [row for row in generated.of_kinds("BatchAppended") if row["topic"] == "ledger-0"]
    assert log_ends == [cast("int", row["last_offset"]) + 1 for row in appends] != []


def test_perfetto_counts_high_watermarks_and_last_stable_offsets(simulated: Run) -> None:
    counters = Counter(str(each["name"]) for each in Trace(simulated.export("perfetto")[0]).of("C"))
    for kind, name in (
        ("PartitionHighWatermarkMoved", "high watermark"),
        ("LastStableOffsetMoved", "last stable offset"),
    ):
        expected = Counter(
            f"{row['topic']}-{row['partition']} {name}" for row in simulated.of_kinds(kind)
        )
        assert expected and {each: counters[each] for each in expected} == expected


# --------------------------------------------------------------------------------------------------
# ShiViz


class Placed(TypedDict):
    """An event as ShiViz parses it."""

    host: str
    clock: dict[str, int]
    event: str


def shiviz_events(text: str) -> list[Placed]:
    """Parse a file as ShiViz does: the first line is the expression, the second the delimiter."""
    expression, delimiter, log = text.split("\n", 2)
    assert not delimiter
    pattern = re.compile("^" + expression.replace("(?<", "(?P<") + "$", re.MULTILINE)
    return [
        Placed(host=found["host"], clock=json.loads(found["clock"]), event=found["event"])
        for found in pattern.finditer(log)
    ]


def happened_before(rows: Sequence[Row]) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
    """Return for each pair of events whether the first can have caused the second: by the order on
    a node, and by causes.
    """
    before = np.zeros((len(rows), len(rows)), np.bool_)
    last_of_node: dict[object, int] = {}
    first = cast("int", rows[0]["position"])
    for number, row in enumerate(rows):
        parents = [
            last_of_node.get(row["node"]),
            cast("int", row.get("cause_position", -1)) - first,
        ]
        for parent in parents:
            if parent is not None and parent >= 0:
                before[:, number] |= before[:, parent]
                before[parent, number] = True
        last_of_node[row["node"]] = number
    return before


@pytest.mark.parametrize("window", [WHOLE, ExportWindow(from_ms=300, limit=700)])
def test_shiviz_clocks_order_events_as_causes_do(run: Run, window: ExportWindow) -> None:
    """One clock is smaller than another exactly if its event happened before."""
    window = msgspec.structs.replace(window, limit=window.limit or 900)
    text, exported = run.export("shiviz", window)
    events = shiviz_events(text)
    first = next(
        number
        for number, row in enumerate(run.rows)
        if cast("int", row["t_ns"]) >= (window.from_ms or 0) * 1e6
    )
    rows = run.rows[first : first + len(events)]
    assert len(events) == exported.event_count == window.limit
    assert [each["event"].split()[0] for each in events] == [row["kind"] for row in rows]
    hosts = sorted({each["host"] for each in events})
    clocks = np.array([[each["clock"].get(host, 0) for host in hosts] for each in events])
    smaller = np.ones((len(events), len(events)), np.bool_)
    for column in clocks.T:
        smaller &= column[:, None] <= column[None, :]
    np.fill_diagonal(smaller, False)
    before = happened_before(rows)
    assert np.array_equal(smaller, before)
    across = [row for row in rows if cast("int", row.get("cause_position", -1)) >= first]
    assert len(across) > 20, "events of different nodes are ordered"


def test_shiviz_clocks_of_a_host_count_from_one(run: Run) -> None:
    """ShiViz refuses a log without this, and one whose clocks name an event that is not there."""
    events = shiviz_events(run.export("shiviz", ExportWindow(from_ms=400, until_ms=700))[0])
    counted: Counter[str] = Counter()
    for each in events:
        counted[each["host"]] += 1
        assert each["clock"][each["host"]] == counted[each["host"]]
        assert all(1 <= time <= counted[host] for host, time in each["clock"].items())
    assert len(counted) > 3


def test_hostile_names_do_not_break_a_shiviz_log(tmp_path: Path) -> None:
    sent = RecordSent(client_id=HOSTILE, topic=HOSTILE, partition=0, record_key=HOSTILE)
    run = ingested(tmp_path, ("a b", sent), ("a%20b", sent), ("a b", NodeReady()))
    events = shiviz_events(run.export("shiviz")[0])
    assert [each["event"].split()[0] for each in events] == [
        "RecordSent",
        "RecordSent",
        "NodeReady",
    ]
    assert [each["clock"][each["host"]] for each in events] == [1, 1, 2]


# --------------------------------------------------------------------------------------------------
# Jepsen


class Completed(TypedDict):
    """An invocation and its completion."""

    invoked: dict[str, Edn]
    completed: dict[str, Edn]


def operations(text: str) -> list[Completed]:
    """Pair invocations with completions as Jepsen does: a process has one operation at a time."""
    running: dict[Edn, dict[str, Edn]] = {}
    crashed: set[Edn] = set()
    pairs: list[Completed] = []
    time = 0
    for index, line in enumerate(text.splitlines()):
        op = cast("dict[str, Edn]", read_edn(line))
        assert op[":index"] == index and isinstance(op[":time"], int) and op[":time"] >= time
        time = op[":time"]
        process = op[":process"]
        if op[":type"] == ":invoke":
            assert process not in running and process not in crashed
            running[process] = op
            continue
        assert op[":type"] in (":ok", ":fail", ":info")
        invoked = running.pop(process)
        assert (invoked[":f"], invoked[":client"]) == (op[":f"], op[":client"])
        if op[":type"] == ":info":
            crashed.add(process)
        pairs.append(Completed(invoked=invoked, completed=op))
    assert not running, "each operation has a completion"
    return pairs


def micro(op: Mapping[str, Edn]) -> list[tuple[str, str, Edn]]:
    """Return the micro-operations of an operation."""
    return [
        (cast("str", each[0]), cast("str", each[1]), each[2])
        for each in cast("tuple[tuple[Edn, ...], ...]", op[":value"])
    ]


def appends(ops: Sequence[Completed], *types: str) -> list[tuple[str, Edn]]:
    """Return what operations of some outcomes appended: pairs of key and value."""
    return [
        (key, value)
        for each in ops
        if each["completed"][":type"] in types
        for what, key, value in micro(each["completed"])
        if what == ":append"
    ]


def key(row: Row) -> str:
    return f"'{row['topic']}-{row['partition']}"


def key_of(value: Edn) -> str:
    """Return the key of a record: one that is sent again has a number after it."""
    return cast("str", value).partition("#")[0]


def test_a_jepsen_history_has_every_record_once(run: Run) -> None:
    ops = operations(run.export("jepsen")[0])
    sent = Counter((key(row), f"'{row['record_key']}") for row in run.of_kinds("RecordSent"))
    appended = appends(ops, ":ok", ":fail", ":info")
    assert Counter((name, key_of(value)) for name, value in appended) == sent
    assert len(set(appended)) == len(appended), "Elle refuses a value that is appended twice"
    aborted = {row["transaction"] for row in run.of_kinds("TransactionEnded")} - {
        row["transaction"]
        for row in run.of_kinds("TransactionEnded")
        if row["outcome"] == "committed"
    }
    acknowledged = {
        (key(row), f"'{row['record_key']}") for row in run.of_kinds("RecordAcknowledged")
    }
    rolled_back = {
        (key(row), f"'{row['record_key']}")
        for row in run.of_kinds("RecordSent")
        if row["transaction"] in aborted
    }
    rolled_back -= {  # sent again, in another transaction
        (key(row), f"'{row['record_key']}")
        for row in run.of_kinds("RecordSent")
        if row["transaction"] not in aborted
    }
    assert {(name, key_of(value)) for name, value in appends(ops, ":ok")} == (
        acknowledged - rolled_back
    )


def test_jepsen_reads_are_prefixes_of_one_order(simulated: Run) -> None:
    """What Elle infers the order of versions from: all reads of a list agree, and everything read
    was appended by an operation that did not fail.
    """
    ops = operations(simulated.export("jepsen")[0])
    reads: dict[str, list[tuple[Edn, ...]]] = {}
    for each in ops:
        if each["invoked"][":f"] == ":read":
            assert [value for _, _, value in micro(each["invoked"])] == [None]
            for what, name, value in micro(each["completed"]):
                assert what == ":r"
                reads.setdefault(name, []).append(cast("tuple[Edn, ...]", value))
    possible = set(appends(ops, ":ok", ":info"))
    for name, values in reads.items():
        longest = max(values, key=len)
        assert all(value == longest[: len(value)] for value in values)
        assert len(set(longest)) == len(longest)
        assert {(name, value) for value in longest} <= possible
    read = sum(len(value) for values in reads.values() for value in values)
    polled = sum(
        len(cast("tuple[Edn, ...]", pairs))
        for each in ops
        if each["invoked"][":f"] == ":poll"
        for _, pairs in cast("tuple[tuple[Edn, Edn], ...]", each["completed"][":polled"])
    )
    assert len(reads) == 8 and read + polled == len(simulated.of_kinds("RecordRead"))


def test_jepsen_transactions_end_as_their_producer_knows(simulated: Run) -> None:
    ops = operations(simulated.export("jepsen")[0])
    transactions = [each for each in ops if each["invoked"][":f"] == ":txn"]
    begun = {row["transaction"]: row for row in simulated.of_kinds("TransactionBegun")}
    ended = Counter(str(row["outcome"]) for row in simulated.of_kinds("TransactionEnded"))
    types = Counter(str(each["completed"][":type"]) for each in transactions)
    assert types[":ok"] == ended["committed"] > 0 and types[":fail"] == ended["aborted"]
    assert len(transactions) == len(begun)
    assert all(each["invoked"][":value"] == each["completed"][":value"] for each in transactions)


def test_jepsen_outcomes_of_records_and_transactions(tmp_path: Path) -> None:
    """A failed record may be in the log: info, and its process is not used again. A record that is
    sent again has another value, which reads show by its offset.
    """
    place = {"client_id": "w", "topic": "t", "partition": 0}
    reads = {"client_id": "r", "topic": "t", "partition": 0, "record_key": "a"}
    own = {"client_id": "w", "transactional_id": "x", "transaction": "w/1"}
    ids = {"producer_id": 1, "producer_epoch": 0}
    run = ingested(
        tmp_path,
        ("w", event(RecordSent, place, record_key="a")),
        ("w", event(RecordFailed, place, record_key="a", error_code=7, reason=HOSTILE)),
        ("w", event(RecordSent, place, record_key="a")),
        ("w", event(RecordAcknowledged, place, record_key="a", offset=5)),
        ("w", event(TransactionBegun, own, **ids)),
        ("w", event(RecordSent, place, record_key="b", transaction="w/1")),
        ("w", event(RecordAcknowledged, place, record_key="b", offset=6)),
        ("w", event(TransactionEnded, own, **ids, outcome="aborted", error_code=0)),
        ("w", event(RecordSent, place, record_key="c")),
        ("r", event(RecordRead, reads, offset=4, is_read_committed=True)),
        ("r", event(RecordRead, reads, offset=5, is_read_committed=True)),
        ("r", event(RecordRead, reads, offset=5, is_read_committed=True)),
    )
    ops = operations(run.export("jepsen")[0])
    found = {
        (str(each["invoked"][":f"]), str(each["completed"][":type"])): each["completed"]
        for each in ops
    }
    assert micro(found[":append", ":info"]) in (
        [(":append", "'t-0", "'a")],
        [(":append", "'t-0", "'c")],
    )
    assert micro(found[":append", ":ok"]) == [(":append", "'t-0", "'a#2")]
    assert found[":append", ":ok"][":offset"] == 5
    assert micro(found[":txn", ":fail"]) == [(":append", "'t-0", "'b")]
    assert micro(found[":read", ":ok"]) == [(":r", "'t-0", ("'a", "'a#2"))]
    assert found[":poll", ":ok"][":polled"] == (("'t-0", ((5, "'a#2"),)),)
    errors = [each["completed"][":error"] for each in ops if ":error" in each["completed"]]
    assert (":error-code", 7, f"'{HOSTILE}") in errors and ":no-completion" in errors


def test_edn_texts_survive_a_reader() -> None:
    value: dict[Keyword, Written] = {
        Keyword("a"): [None, True, False, -(1 << 63), HOSTILE, Keyword("b"), []]
    }
    assert read_edn(edn(value)) == {":a": (None, True, False, -(1 << 63), f"'{HOSTILE}", ":b", ())}


# --------------------------------------------------------------------------------------------------
# mermaid

STATEMENT = re.compile(
    r"participant n\d+ as [^;#<>]*(#\d+;[^;#<>]*)*"
    r"|Note over n\d+(,n\d+)?: [^;#<>]*(#\d+;[^;#<>]*)*"
    r"|n\d+-?->>n\d+: [^;#<>]*(#\d+;[^;#<>]*)*"
    r"|rect rgb\(\d+, \d+, \d+\)|end"
)
"""The statements of mermaid's sequence diagrams that the export uses."""


def statements(text: str) -> list[str]:
    lines = text.splitlines()
    assert lines[0] == "sequenceDiagram"
    assert all(STATEMENT.fullmatch(line.strip()) for line in lines[1:])
    names = {line.split()[1] for line in lines if line.strip().startswith("participant")}
    used = {name for line in lines for name in re.findall(r"\bn\d+\b", line.partition(":")[0])}
    assert used == names
    assert lines.count("    end") == sum(line.strip().startswith("rect") for line in lines)
    return [line.strip() for line in lines[1:]]


def violated(run: Run, *positions: int) -> None:
    """Store an analysis whose only violation is shown by the events at some positions."""
    witnesses = tuple(fetch_witnesses(run.parquet, positions).values())
    violation = Violation(
        invariant="rule",
        key="k",
        message=HOSTILE,
        witnesses=tuple(each.event_id for each in witnesses),
    )
    verdict = Verdict(
        invariant="rule",
        outcome=Outcome.VIOLATED,
        examined=1,
        violation_count=1,
        violations=(violation,),
        reason="",
        rule="",
        source="",
        must_exercise=False,
    )
    analysis = Analysis(
        verdict=Outcome.VIOLATED,
        facts=RunFacts(),
        ingest=ingest_run(run.directory),
        verdicts=(verdict,),
        evidence={violation: witnesses},
    )
    (run.directory / "analysis.json").write_bytes(document.encode(analysis))


def test_a_sequence_diagram_draws_an_arrow_per_cause(generated: Run) -> None:
    text, exported = generated.export(
        "mermaid", ExportWindow(from_ms=100, until_ms=130, limit=1000)
    )
    lines = statements(text)
    rows = [row for row in generated.rows if 100e6 <= cast("int", row["t_ns"]) <= 130e6]
    inside = {row["position"] for row in rows}
    effects = [row for row in rows if row.get("cause_position") in inside]
    assert len(rows) == exported.event_count and not exported.remarks
    assert sum(bool(re.match(r"n\d+-", line)) for line in lines) == len(effects) > 5
    requests = [row for row in effects if row["kind"] == "FrameReceived" and not row["is_response"]]
    assert sum(bool(re.match(r"n\d+->>", line)) for line in lines) == len(requests) > 1


@pytest.mark.parametrize("kind", ["ProducerIdBlockAllocated", "FrameSent"])
def test_a_sequence_diagram_of_a_violation_keeps_its_events(generated: Run, kind: str) -> None:
    """However far apart they are, whatever lies between them, and of whatever kind they are."""
    shown = [generated.of_kinds(kind)[0], generated.of_kinds(kind)[-1]]
    violated(generated, *(cast("int", row["position"]) for row in shown))
    text, exported = generated.export("mermaid", ExportWindow(violation=1, limit=40))
    lines = statements(text)
    marked = [line for before, line in pairwise(lines) if before.startswith("rect")]
    assert len(marked) == 2
    for line, row in zip(marked, shown, strict=True):
        assert f": {cast('int', row['t_ns']) / 1e9:.6f} s " in line
    assert sum("FaultInjected" in line for line in lines) == 2
    assert len([line for line in lines if re.match(r"n\d+-|Note", line)]) <= 40 + 2
    left_out = exported.event_count - 40
    assert left_out > 0 and lines[-1].endswith(f": {left_out} events are not shown")
    assert exported.remarks[0].startswith(f"{left_out:,} of {exported.event_count:,} events")


@pytest.mark.parametrize(
    ("window", "complaint"),
    [
        (ExportWindow(), "give --violation N, or --from and --until"),
        (ExportWindow(violation=2), "the stored analysis has 1 violations with events: 1 rule"),
        (ExportWindow(from_ms=1e9), "no event lies in this window: the run has"),
    ],
)
def test_a_window_that_cannot_be_drawn_is_refused(
    generated: Run, window: ExportWindow, complaint: str
) -> None:
    violated(generated, 5)
    with pytest.raises(ValueError, match=re.escape(complaint)):
        generated.export("mermaid", window)


def test_a_violation_needs_a_stored_analysis(tmp_path: Path) -> None:
    run = ingested(tmp_path, ("a", NodeReady()))
    with pytest.raises(ValueError, match=r"run `kraftsim analyze .*` first"):
        run.export("mermaid", ExportWindow(violation=1))
    (tmp_path / "analysis.json").write_text("{}")
    with pytest.raises(ValueError, match=r"run `kraftsim analyze .*` again"):
        run.export("mermaid", ExportWindow(violation=1))


# --------------------------------------------------------------------------------------------------
# OTLP


class Span(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A span as OTLP/JSON has it, with the fields that the export uses."""

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: int
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: list[dict[str, object]]
    status: dict[str, object]
    node: str = ""

    @property
    def values(self) -> dict[str, object]:
        """The attributes as a mapping."""
        return {
            str(each["key"]): next(iter(cast("dict[str, object]", each["value"]).values()))
            for each in self.attributes
        }


def spans_of(text: str) -> Iterator[Span]:
    """Parse lines of export requests."""
    for line in text.splitlines():
        (resource,) = json.loads(line)["resourceSpans"]
        names = {
            each["key"]: each["value"]["stringValue"] for each in resource["resource"]["attributes"]
        }
        (scope,) = resource["scopeSpans"]
        assert scope["scope"]["name"] == "kraftsim" and len(scope["spans"]) <= 256
        for each in scope["spans"]:
            span = msgspec.convert(each, Span)
            span.node = names["service.name"]
            yield span


def test_otlp_spans_of_a_request_are_linked_across_nodes(run: Run) -> None:
    spans = list(spans_of(run.export("otlp")[0]))
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    for span in spans:
        assert re.fullmatch(r"[0-9a-f]{32}", span.trace_id) and int(span.trace_id, 16)
        assert re.fullmatch(r"[0-9a-f]{16}", span.span_id) and int(span.span_id, 16)
        assert int(span.start_time_unix_nano) <= int(span.end_time_unix_nano)
        if span.parent_span_id:
            above = by_id[span.parent_span_id]
            assert above.trace_id == span.trace_id
            assert int(above.start_time_unix_nano) <= int(span.start_time_unix_nano)
            assert span.kind != 2 or above.kind == 3
    sent = {row["position"]: row for row in run.of_kinds("FrameSent") if not row["is_response"]}
    received = [row for row in run.of_kinds("FrameReceived") if not row["is_response"]]
    assert Counter(span.kind for span in spans if span.kind != 1) == {
        3: len(sent),
        2: len(received),
    }
    linked = {
        (event_id(sent[row["cause_position"]]), event_id(row))
        for row in received
        if row.get("cause_position") in sent
    }
    assert linked == {
        (by_id[span.parent_span_id].values["kraftsim.event"], span.values["kraftsim.event"])
        for span in spans
        if span.kind == 2 and span.parent_span_id
    }
    assert len(linked) > 100


def test_otlp_transactions_contain_requests_of_their_producer(simulated: Run) -> None:
    spans = list(spans_of(simulated.export("otlp")[0]))
    transactions = {span.span_id: span for span in spans if span.kind == 1}
    assert len(transactions) == len(simulated.of_kinds("TransactionBegun"))
    ended = Counter(row["outcome"] for row in simulated.of_kinds("TransactionEnded"))
    outcomes = Counter(span.values.get("kraftsim.outcome") for span in transactions.values())
    assert {name: outcomes[name] for name in ended} == ended
    below = [span for span in spans if span.parent_span_id in transactions]
    assert {"Produce", "EndTxn"} <= {span.name for span in below}
    assert all(span.node == transactions[span.parent_span_id].node for span in below)


def test_otlp_ends_are_those_of_the_response(generated: Run) -> None:
    """A span of a client ends when the response arrives, one without a response at its begin."""
    spans = {
        str(span.values["kraftsim.event"]): span
        for span in spans_of(generated.export("otlp")[0])
        if span.kind == 3
    }
    answered = {
        (row["node"], row["incarnation"], row["correlation_id"]): row
        for row in generated.of_kinds("FrameReceived")
        if row["is_response"]
    }
    unanswered = 0
    for row in generated.of_kinds("FrameSent"):
        if row["is_response"]:
            continue
        span = spans[event_id(row)]
        response = answered.get((row["node"], row["incarnation"], row["correlation_id"]), row)
        duration = int(span.end_time_unix_nano) - int(span.start_time_unix_nano)
        assert duration == cast("int", response["t_ns"]) - cast("int", row["t_ns"])
        assert span.values.get("kraftsim.unfinished", False) == (response is row)
        unanswered += response is row
    assert 0 < unanswered < len(spans)


# --------------------------------------------------------------------------------------------------
# The command, and memory


def command(*arguments: object) -> Result:
    return CliRunner().invoke(kraftsim, ["export", *map(str, arguments)])


@pytest.mark.parametrize("format_name", ["perfetto", "shiviz", "jepsen", "mermaid", "otlp"])
def test_the_command_writes_the_same_to_a_file_and_to_standard_output(
    generated: Run, tmp_path: Path, format_name: str
) -> None:
    place = tmp_path / "out"
    options = ("--format", format_name, "--from", "200", "--until", "300", "--to")
    done = command(generated.directory, *options, place)
    assert done.exit_code == 0, done.output
    assert re.search(rf"^{format_name}: \d+ events, 2\d\d ms to [23]\d\d ms -> ", done.stderr, re.M)
    assert command(generated.directory, *options, "-").stdout == place.read_text() != ""
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_failed_export_leaves_no_file(generated: Run, tmp_path: Path) -> None:
    place = tmp_path / "out"
    late = command(generated.directory, "--format", "otlp", "--from", "1e9", "--to", place)
    assert late.exit_code == 3 and "change --from, --until or --limit" in late.stderr
    endless = command(generated.directory, "--format", "otlp", "--until", "inf", "--to", place)
    assert endless.exit_code != 0 and "inf is not in the range" in endless.stderr
    nowhere = command(generated.directory, "--format", "otlp", "--to", place / "out")
    assert nowhere.exit_code == 3 and f"--to {place / 'out'}: No such file" in nowhere.stderr
    other = command(generated.directory, "--format", "otlp", "--violation", 1, "--to", place)
    assert other.exit_code == 3 and "--violation is for --format mermaid" in other.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_name", ["perfetto", "shiviz", "jepsen", "otlp"])
def test_an_export_reads_events_in_batches(
    generated: Run, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch size changes nothing but memory: no event is lost between batches."""
    whole = generated.export(format_name)[0]
    monkeypatch.setattr(scopes, "BATCH_ROWS", 7)
    monkeypatch.setattr(scopes, "SLICE_ROWS", 100)
    assert generated.export(format_name)[0] == whole


def test_events_of_unknown_kinds_are_exported(tmp_path: Path) -> None:
    """A log of a newer kraftsim."""
    (tmp_path / "events").mkdir()
    line = {"run": "r", "node": "b", "incarnation": 1, "n": 0, "t_ns": 5, "wall_ms": 0}
    text = json.dumps({**line, "kind": "Novel", "producer_id": 1 << 60, "colour": "red"})
    (tmp_path / "events" / "b.1.jsonl").write_text(text + "\n")
    run = Run(tmp_path)
    (mark,) = Trace(run.export("perfetto")[0]).marks().values()
    assert mark["name"] == "Novel"
    assert mark["args"] == {
        "event": "b.1.0",
        "extra": '{"colour":"red","producer_id":1152921504606846976}',
    }, "a text, because JavaScript would round the number"
    assert shiviz_events(run.export("shiviz")[0])[0]["event"].startswith("Novel extra=")
