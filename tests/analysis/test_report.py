"""The report is one safe file: it has every event, loads no external resource, and escapes
everything that a client chose.
"""

import base64
import gzip
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kraftsim.analysis import report
from kraftsim.analysis.analyze import analyze_run
from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.lanes import scenery
from kraftsim.analysis.report import script_json, write_report
from kraftsim.analysis.store import read_events
from kraftsim.clients.events import (
    ApplicationEnded,
    ApplicationStarted,
    FactStated,
    RecordAcknowledged,
    RecordSent,
)
from kraftsim.events.runs import FaultEnded, FaultInjected, PhaseBegan
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.partitions.events import BatchAppended, FinalRecord, LeaderElected
from kraftsim.server.events import NodeFailed, NodeReady, NodeStarted, NodeStopped
from tests.analysis.event_factories import acknowledged, appended, final_log, returned
from tests.analysis.generated_run import generated_run
from tests.analysis.history import History

if TYPE_CHECKING:
    pass


"""Never used: DuckDB runs the queries."""
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"'><svg onload=alert(3)>",
    "{{DATA}}{{STYLE}}",
    "\u2028\u2029\x00\x1b[31m",
    "&lt;b&gt;&amp;",
    "]]><!--",
    "`${alert(4)}`",
]


def judged(run: Path, history: History, **facts: object) -> Path:
    history.write(run)
    (run / "run.json").write_text(
        json.dumps({"scenario": "tale", "mode": "sim", "seed": 7, **facts}), encoding="utf-8"
    )
    analyze_run(run)
    return run


class Page(HTMLParser):
    """What a browser would parse from the page: elements, and the content of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.words = ""
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs).get("id") or "code"

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.words += data


class Unpacked:
    """The payload of a page, decoded as the page decodes it."""

    def __init__(self, page: Page) -> None:
        self.meta = json.loads(page.scripts["meta"])
        layout = self.meta["layout"]
        self._bytes = gzip.decompress(base64.b64decode(page.scripts["data"]))
        self._at = 0
        self.common = {column["name"]: self._column(column) for column in layout["common"]}
        kinds = [
            (each["kind"], [(column, self._column(column)) for column in each["columns"]])
            for each in layout["kinds"]
        ]
        self.texts = json.loads(self._bytes[self._at : self._at + layout["texts_bytes"]])
        assert self._at + layout["texts_bytes"] == len(self._bytes)
        self.kinds = [
            (kind, {column["name"]: self._values(column, values) for column, values in columns})
            for kind, columns in kinds
        ]

    def events(self) -> list[tuple[str, str, dict[str, object]]]:
        """Return id, kind and fields of every event."""
        next_n: dict[tuple[int, int], int] = {}
        next_row = [0] * len(self.kinds)
        found = []
        for lane, kind, incarnation, skipped in zip(
            *(self.common[name] for name in ("lane", "kind", "incarnation", "skipped")), strict=True
        ):
            n = next_n.get((lane, incarnation), 0) + skipped
            next_n[lane, incarnation] = n + 1
            name, columns = self.kinds[kind]
            row = next_row[kind]
            next_row[kind] += 1
            fields = {
                field: values[row] for field, values in columns.items() if values[row] is not None
            }
            found.append(
                (f"{self.meta['facts']['lanes'][lane]['name']}.{incarnation}.{n}", name, fields)
            )
        return found

    def _column(self, column: dict[str, object]) -> list[int]:
        data_type = {"d1": "<i1", "u1": "<u1", "d4": "<i4", "f8": "<f8"}[str(column["coding"])]
        values = np.frombuffer(self._bytes, data_type, int(str(column["count"])), self._at)
        self._at += values.nbytes
        decoded: list[int] = (
            np.cumsum(values, dtype=np.int64).tolist()
            if str(column["coding"]).startswith("d")
            else values.astype(np.int64).tolist()
        )
        return decoded

    def _values(self, column: dict[str, object], values: list[int]) -> list[object]:
        if column["meaning"] == "text":
            return [None if value < 0 else self.texts[value] for value in values]
        if column["meaning"] == "flag":
            return [None if value == 2 else value == 1 for value in values]
        return list(values)


def spaced_words(text: str) -> str:
    """The words of a page, with a space for each tag."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def page_of(run: Path) -> Page:
    return Page(write_report(run).read().decode())


def test_the_report_holds_every_event_with_every_field(tmp_path: Path) -> None:
    """The packed columns decode to the logged events; the final logs are not drawn."""
    history = generated_run(seconds=0.6)
    unpacked = Unpacked(page_of(judged(tmp_path, history)))
    order = sorted(
        history.events,
        key=lambda each: (each[0].t_ns, each[0].node, each[0].incarnation, each[0].n),
    )
    expected = []
    for envelope, event in order:
        if not type(event).__name__.startswith("Final"):
            fields = {
                name: getattr(event, name)
                for name in event.__struct_fields__
                if getattr(event, name) is not None
            }
            expected.append((envelope.event_id, type(event).__name__, fields))
    assert unpacked.events() == expected
    assert unpacked.common["t"] == [
        envelope.t_ns for envelope, event in order if not type(event).__name__.startswith("Final")
    ]


def test_arrows_connect_sent_and_received_frames(tmp_path: Path) -> None:
    """Causes survive packing."""
    unpacked = Unpacked(page_of(judged(tmp_path, generated_run(seconds=0.4))))
    events = unpacked.events()
    arrows = [(row - back, row) for row, back in enumerate(unpacked.common["back"]) if back]
    assert len(arrows) > 50
    frames = [
        (events[cause], events[effect])
        for cause, effect in arrows
        if events[effect][1] == "FrameReceived"
    ]
    assert frames and all(
        cause[1] == "FrameSent" and cause[2]["correlation_id"] == effect[2]["correlation_id"]
        for cause, effect in frames
    )


def test_nulls_large_numbers_and_unknown_kinds_are_packed_correctly(tmp_path: Path) -> None:
    """A number beyond 2^53 is packed as text, a lost line keeps its number, a kind of a newer
    release keeps its fields.
    """
    history = History()
    history.emit("b", returned(1 << 60))
    history.lose("b")
    history.emit("b", returned(5))
    history.emit("a", NodeReady(), after_ns=5_000_000_000_000)
    history.write(tmp_path)
    line = {
        "run": "run",
        "node": "a",
        "incarnation": 1,
        "n": 1,
        "t_ns": 9,
        "wall_ms": 0,
        "kind": "Odd",
        "topic": "t",
        "x": [1],
    }
    with (tmp_path / "events" / "a.1.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    analyze_run(tmp_path)
    page = page_of(tmp_path)
    assert [event for event in Unpacked(page).events() if event[1] != "NodeReady"] == [
        ("a.1.1", "Odd", {"extra": '{"topic":"t","x":[1]}'}),
        (
            "b.1.0",
            "ProducerIdReturned",
            {"producer_id": str(1 << 60), "producer_epoch": 0, "fresh": True},
        ),
        ("b.1.2", "ProducerIdReturned", {"producer_id": "5", "producer_epoch": 0, "fresh": True}),
    ]
    assert "1 lines are missing" in page.words


def test_evidence_events_of_the_final_log_are_drawn(tmp_path: Path) -> None:
    """Only those that a result refers to."""
    history = History()
    history.emit("client", acknowledged(0, "x"))
    history.emit("final", final_log(0, 0))
    meta = Unpacked(page_of(judged(tmp_path, history))).meta
    (lost,) = [invariant for invariant in meta["invariants"] if invariant["breaches"]]
    assert lost["name"] == "acknowledged-records-in-final-log" and lost["breaches"][0][
        "events"
    ] == [0]


def test_client_chosen_names_are_escaped(tmp_path: Path) -> None:
    """Topics, keys, client ids, reasons, node names, even the scenario: none may appear unescaped
    or become an element.
    """
    history = History()
    for name in HOSTILE:
        history.emit("client", RecordSent(client_id=name, topic=name, partition=0, record_key=name))
        history.emit(
            "client",
            RecordAcknowledged(client_id=name, topic=name, partition=0, record_key=name, offset=0),
        )
        history.emit("harness", FaultInjected(fault=name, target=name, trigger=name))
        history.emit("final", final_log(0, 0, topic=name))
        history.emit("broker", NodeFailed(reason=name))
    harmless = page_of(judged(tmp_path / "a", generated_run(seconds=0.2)))
    run = judged(
        tmp_path / "b",
        history,
        scenario=HOSTILE[0],
        mode=HOSTILE[1],
        bugs=HOSTILE,
        command=HOSTILE[2],
        started=HOSTILE[3],
    )
    text = write_report(run).read().decode()
    page = Page(text)
    for name in HOSTILE:
        assert name not in text or name in ("{{DATA}}{{STYLE}}", "`${alert(4)}`"), (
            f"{name!r} appears raw"
        )
    tags = [tag for tag, _ in page.elements]
    assert not {"img", "b"} & set(tags) and tags.count("svg") == 2, "two plots, and no others"
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.scripts["code"] == harmless.scripts["code"], (
        "the script of the page does not depend on the run"
    )
    assert "{{DATA}}{{STYLE}}" in page.words, "a text that looks like a placeholder is not replaced"
    keys = {
        fields["record_key"] for _, kind, fields in Unpacked(page).events() if kind == "RecordSent"
    }
    assert keys == set(HOSTILE)


def test_the_report_loads_no_external_resource(tmp_path: Path) -> None:
    """One file that can be mailed: no URL, no library, and a content security policy that forbids
    both.
    """
    text = write_report(judged(tmp_path, generated_run(seconds=0.2))).read().decode()
    page = Page(text)
    assert not any(
        {"src", "href", "action", "data-src"} & set(attributes) for _, attributes in page.elements
    )
    assert not re.search(
        r"https?:|//cdn|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|innerHTML|"
        r"insertAdjacentHTML|document\.write|eval\(",
        text,
    )
    (policy,) = [
        attributes["content"]
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv")
    ]
    assert policy is not None and policy.startswith("default-src 'none'")


def test_results_are_readable_without_javascript(tmp_path: Path) -> None:
    """The table of invariants is plain HTML, and so is the replay command."""
    page = page_of(
        judged(tmp_path, generated_run(seconds=3.0), command="kraftsim scenario tale --seed 7")
    )
    rows = [
        attributes
        for tag, attributes in page.elements
        if tag == "tr" and "data-invariant" in attributes
    ]
    assert len(rows) == len(INVARIANTS.all()) and rows[0]["class"] == "violated"
    assert (
        f"3 of {len(INVARIANTS.all())} invariants violated" in page.words
        and "kraftsim scenario tale --seed 7" in page.words
    )


def test_what_broke_comes_before_the_invariants(tmp_path: Path) -> None:
    """The rule, both witnesses as sentences, the replicas, and the next commands, all of it plain
    HTML; what does not apply is folded.
    """
    history = History()
    history.emit("b1", LeaderElected(topic="t", partition=0, leader_epoch=3, next_offset=0))
    history.emit("b1", appended(0, 1, (7, 0, 0)))
    history.emit("harness", FaultInjected(fault="pause", target="b1", trigger=""))
    history.emit("b1", appended(2, 3, (7, 0, 0)))
    (tmp_path / "replay.json").write_text(
        json.dumps({"mode": "sim", "faults": [{"kind": "kill", "target": HOSTILE[1]}]}),
        encoding="utf-8",
    )
    run = judged(tmp_path, history, command="kraftsim scenario tale --seed 7")
    text = write_report(run).read().decode()
    words = spaced_words(text)
    assert text.index('id="broke"') < text.index('id="invariants"')
    section = words[words.index("What broke") : words.index("To reproduce it")]
    for expected in (
        INVARIANTS.named("one-append-per-sequence").rule,
        "b1 appended 2 records as leader in epoch 0: offsets 0 to 1 of t-0",
        "b1 appended 2 records as leader in epoch 0: offsets 2 to 3 of t-0",
        "the fault pause was injected at b1",
        "Replicas of t-0 at that moment",
        "b1 leader 3 4 \u2013 \u2013",
    ):
        assert expected in section, expected
    assert f"kill of {HOSTILE[1]}" in words and HOSTILE[1] not in text
    assert "kraftsim shrink" in words and "invariants do not apply to this run" in words
    buttons = [
        attributes["data-row"] for _, attributes in Page(text).elements if "data-row" in attributes
    ]
    assert {"1", "2", "3"} <= set(buttons), "each witness leads to its place in the picture"


def test_a_clean_run_has_its_sentence_and_nothing_that_broke(tmp_path: Path) -> None:
    history = History()
    history.emit("client", RecordSent(client_id="c", topic="t", partition=0, record_key="a"))
    history.emit("client", acknowledged(0, "a"), after_ns=1_500_000_000)
    history.emit("final", final_log(1, 1))
    history.emit("final", FinalRecord(topic="t", partition=0, offset=0, record_key="a", broker="b"))
    page = page_of(judged(tmp_path, history))
    assert "1 record acknowledged, 0 lost, 0 doubled, longest wait 1.5 s" in page.words
    assert "What broke" not in page.words


def test_latency_and_throughput_are_plots_with_tables(tmp_path: Path) -> None:
    """Two pictures with a text for screen readers, and the same figures as tables."""
    history = History()
    history.emit("harness", PhaseBegan(phase="<faults>"))
    for number in range(20):
        history.emit(
            "client", RecordSent(client_id="c", topic="t", partition=0, record_key=str(number))
        )
        history.emit("client", acknowledged(number, str(number)), after_ns=100_000_000)
    text = write_report(judged(tmp_path, history)).read().decode()
    page = Page(text)
    plots = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(plots) == 2
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert str(plots[0]["aria-label"]).startswith(
        "The wait for an acknowledgement over time: at most 100 ms."
    )
    row = "<faults> 0.00 s 2.00 s 100 ms 100 ms 100 ms 100 ms 20 10.0"
    assert row in spaced_words(text)
    bars = [attributes for tag, attributes in page.elements if tag == "rect"]
    assert len(bars) == 20, "one for each interval with an acknowledgement"
    curves = [attributes["class"] for tag, attributes in page.elements if tag == "path"]
    assert {"curve p50", "curve p95", "curve p99", "curve max"} <= set(curves)


def test_a_report_shows_what_shrink_and_diff_left_since_the_analysis(tmp_path: Path) -> None:
    history = History()
    history.emit("b1", appended(0, 1, (7, 0, 0)))
    history.emit("b1", appended(2, 3, (7, 0, 0)))
    (tmp_path / "run").mkdir()
    run = judged(tmp_path / "run", history, command="kraftsim scenario tale")
    assert "The smallest known run" not in page_of(run).words
    small = tmp_path / "run-small"
    small.mkdir()
    (small / "replay.json").write_text('{"faults": [{"kind": "kill"}]}', encoding="utf-8")
    assert "kill; trigger: none" in page_of(run).words


def test_an_analysis_of_an_earlier_release_gets_its_details(tmp_path: Path) -> None:
    """They need no Spark."""
    history = History()
    history.emit("b1", appended(0, 1, (7, 0, 0)))
    history.emit("b1", appended(2, 3, (7, 0, 0)))
    run = judged(tmp_path, history)
    kept = json.loads((run / "analysis.json").read_bytes())
    del kept["details"]
    (run / "analysis.json").write_text(json.dumps(kept), encoding="utf-8")
    assert "What broke" in page_of(run).words


def test_kinds_that_are_not_drawn_are_still_there_as_witnesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a very large run the most numerous kind is left out, and counted; of it the witnesses are
    drawn, with all fields.
    """
    monkeypatch.setattr(report, "EVENTS_DRAWN_MAX", 6)
    history = History()
    for number in range(8):
        history.emit("b1", appended(number, number, (7, 0, 0 if number in (2, 5) else 10 + number)))
    history.emit("b1", NodeReady())
    page = page_of(judged(tmp_path, history))
    events = Unpacked(page).events()
    drawn = [name for name, kind, _ in events if kind == "BatchAppended"]
    assert {"b1.1.2", "b1.1.5"} <= set(drawn)
    assert all(fields["producer_id"] == 7 for _, kind, fields in events if kind == "BatchAppended")
    assert "8 events of the kind BatchAppended are not drawn" in page.words


def test_json_cannot_close_its_script_element() -> None:
    """`<` is written as a JSON escape, which decodes to the same value."""
    value = {"x": "</script>&\u2028"}
    text = script_json(value)
    assert not set("<>&\u2028") & set(text) and json.loads(text) == value


def test_incarnations_and_faults_end_at_their_end_events(tmp_path: Path) -> None:
    """Ended by a kill fault, by a stop event, or by the end of the run; a fault without an end
    event lasts until the node restarts.
    """
    history = History()

    def started() -> NodeStarted:
        return NodeStarted(role="broker", node_id=1, release="3.9", cluster_id="x")

    history.emit("broker-10", started(), after_ns=10)
    history.emit("broker-2", started(), after_ns=10)
    history.emit(
        "harness", FaultInjected(fault="kill", target="broker-2", trigger=""), after_ns=30
    )  # at 50
    history.emit("broker-2", started(), incarnation=2, after_ns=50)  # at 100
    history.emit(
        "harness", FaultInjected(fault="cut", target="broker-2<>broker-10", trigger=""), after_ns=10
    )  # at 110
    history.emit(
        "harness", FaultEnded(fault="cut", target="broker-2<>broker-10"), after_ns=10
    )  # at 120
    history.emit("broker-10", NodeStopped(reason="asked"), after_ns=10)  # at 130
    history.emit(
        "harness", FaultInjected(fault="skew", target="", trigger=""), after_ns=10
    )  # at 140
    history.write(tmp_path)
    found = scenery(read_events(ingest_run(tmp_path).parquet))
    assert [lane.name for lane in found.lanes] == ["harness", "broker-2", "broker-10"]
    incarnations = {
        (found.lanes[span.lane].name, span.incarnation): (span.begin_ns, span.end_ns, span.end)
        for span in found.incarnations
    }
    assert incarnations == {
        ("harness", 1): (50, 140, "lasting"),
        ("broker-2", 1): (20, 50, "killed"),
        ("broker-2", 2): (100, 140, "lasting"),
        ("broker-10", 1): (10, 130, "stopped"),
    }
    assert [(band.fault, band.begin_ns, band.end_ns, band.lanes) for band in found.bands] == [
        ("kill", 50, 100, (1,)),
        ("cut", 110, 120, (1, 2)),
        ("skew", 140, 140, ()),
    ]


def test_an_application_has_the_swimlane_of_a_client_and_ends(tmp_path: Path) -> None:
    """A crash ends one incarnation; the next one lasts to the end of the run."""
    history = History()
    for incarnation, name in ((1, "charged"), (2, "refunded")):
        history.emit(
            "app-1",
            ApplicationStarted(application="app-1", function="shop"),
            incarnation=incarnation,
        )
        history.emit(
            "app-1",
            FactStated(application="app-1", name=name, key="order-1", value="5"),
            incarnation=incarnation,
        )
        if incarnation == 1:
            history.emit("app-1", ApplicationEnded(application="app-1", reason="KeyError: 'price'"))
    history.write(tmp_path)
    found = scenery(read_events(ingest_run(tmp_path).parquet))
    assert [(lane.name, lane.role) for lane in found.lanes] == [("app-1", "client")]
    assert [span.end for span in found.incarnations] == ["stopped", "lasting"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the script of the page")
def test_the_page_script_decodes_the_same_events(tmp_path: Path) -> None:
    """The decoder of the page, run outside a browser on the elements of the page."""
    page = page_of(judged(tmp_path, generated_run(seconds=0.4)))
    (tmp_path / "page.json").write_text(
        json.dumps({"meta": page.scripts["meta"], "data": page.scripts["data"]}), encoding="utf-8"
    )
    code = page.scripts["code"]
    decoder = code[code.index("const meta") : code.index("const whole")]
    program = f"""
const elements = JSON.parse(require("fs").readFileSync("{tmp_path}/page.json", "utf8"));
const document = {{ getElementById: (id) => ({{ textContent: elements[id] }}) }};
{decoder}
unpack().then(() => {{
  const events = [];
  for (let i = 0; i < count; i++) {{
    events.push([idOf(i), kindOf(i).name, labelOf(i), fieldsOf(i).length, data.cause[i]]);
  }}
  console.log(JSON.stringify(events));
}});
"""
    answer = subprocess.run(
        ["node", "-e", program], capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(answer.stdout)
    unpacked = Unpacked(page)
    assert [(event_id, kind, fields) for event_id, kind, _, fields, _ in found] == [
        (event_id, kind, len(own)) for event_id, kind, own in unpacked.events()
    ]
    assert [
        row - cause if cause >= 0 else 0 for row, (*_, cause) in enumerate(found)
    ] == unpacked.common["back"]
    appends = [label for _, kind, label, _, _ in found if kind == BatchAppended.__name__]
    assert appends and all(re.fullmatch(r"append ledger-\d-0 @\d+", label) for label in appends)
