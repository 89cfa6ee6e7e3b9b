"""The trace of a run: one column per node, faults across, and a short description for every event
kind.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kraftsim.cli.failure import Failure
from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.events.catalogue import KINDS
from kraftsim.lab.explore.divergence import compare
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.explore.trace import (
    ACROSS,
    QUIET,
    SPECIAL,
    WORDS,
    Entry,
    columns_of,
    fitting,
    laid_out,
    read_trace,
    rows_of,
    select,
    short,
)
from kraftsim.lab.faults.fault import AtTime, Fault

WORK = {
    "writers": 0,
    "records_per_writer": 0,
    "requesters": 1,
    "ids_per_requester": 5,
    "work_ms": 2500,
}
CRASH = Fault(
    kind="restart",
    target="broker-1",
    trigger=AtTime(at_ms=200),
    params={"power_loss": False, "after_ms": 500},
)
PAUSE = Fault(
    kind="pause", target="broker-2", trigger=AtTime(at_ms=300), params={"duration_ms": 400}
)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker dies and restarts, another one is paused."""
    root = tmp_path_factory.mktemp("traced") / "run"
    request = RunRequest(
        scenario=scenario("producer_ids_survive_failover"),
        mode=Mode.SIM,
        seed=2,
        faults=(CRASH, PAUSE),
        workload=WORK,
        brokers=2,
    )
    run_request(request, root)
    return root


def lines_of(run_dir: Path, *options: str) -> list[str]:
    done = CliRunner().invoke(kraftsim, ["trace", str(run_dir), *options], standalone_mode=False)
    assert done.return_value == 0, done.output
    return done.output.splitlines()


def column(lines: Sequence[str], name: str) -> list[str]:
    """Extract one column from formatted lines."""
    start = lines[0].index(name)
    end = min(
        [lines[0].index(other) for other in lines[0].split() if lines[0].index(other) > start],
        default=None,
    )
    return [
        line[start:end].strip() for line in lines[1:] if not line[9:].startswith(("--", "   ---"))
    ]


def test_each_node_has_a_column_and_faults_span_all(run_dir: Path) -> None:
    """Killed, dotted while it is down, restarted; the harness has no column."""
    lines = lines_of(run_dir, "--compact", "--width", "100", "--step", "20")
    assert lines[0].split() == [
        "seconds",
        "controller-101",
        "broker-1",
        "broker-2",
        "asker-1",
        "reader-1",
    ]
    assert all(len(line) <= 100 for line in lines)
    fault = next(
        number for number, line in enumerate(lines) if "FAULT restart of broker-1, at " in line
    )
    words = column(lines, "broker-1")
    killed, restarted = words.index("KILLED"), words.index("RESTARTED #2")
    assert (
        killed < restarted
        and "." in words[killed:restarted]
        and "." not in words[:killed] + words[restarted:]
    )
    assert "KILLED" in lines[fault + 1] + lines[fault + 2]
    assert {"PAUSED", "RESUMED"} <= set(column(lines, "broker-2"))
    assert any(line.startswith("0.0") and "starts" in line for line in lines)
    assert "\x1b" not in "".join(lines), "no colours without a terminal"


def test_narrow_terminal_shows_the_nodes_that_fit_and_names_the_others(run_dir: Path) -> None:
    """Controllers first, clients last."""
    lines = lines_of(run_dir, "--compact", "--width", "50")
    assert lines[0].split() == ["seconds", "controller-101", "broker-1"]
    assert (
        lines[-1]
        == "not shown for lack of width: broker-2, asker-1, reader-1; use --node or --width"
    )
    assert fitting(["a"] * 9, 10) == 1


def test_filters_by_time_node_and_kind(run_dir: Path) -> None:
    """In columns and in lines."""
    lines = lines_of(run_dir, "--node", "broker-1", "--kind", "NodeStarted", "--kind", "Node[SR]*")
    assert [line.split()[1] for line in lines] == [
        "broker-1.1:",
        "broker-1.1:",
        "broker-1.2:",
        "broker-1.2:",
        "broker-1.2:",
    ]
    entries = read_trace(run_dir)
    late = select(entries, from_ms=300, to_ms=900, everything=True)
    assert late and all(300e6 <= entry.at_ns <= 900e6 for entry in late)
    assert columns_of(select(entries, nodes=("broker-*",))) == ["broker-1", "broker-2"]
    assert len(lines_of(run_dir, "--compact", "--all")) > len(lines_of(run_dir, "--compact")) > 10


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_event_kind_has_a_description(kind: str) -> None:
    """Built from existing fields; the descriptions in the table are of existing kinds."""
    fields = {
        each.name: "x" if each.type is str else 7 for each in msgspec.structs.fields(KINDS[kind])
    }
    word = short(kind, fields)
    assert word and "{" not in word
    assert ACROSS[kind].format(**fields) if kind in ACROSS else word


def test_tables_name_only_existing_event_kinds() -> None:
    """A renamed kind would silently disappear."""
    assert (WORDS.keys() | SPECIAL.keys() | ACROSS.keys() | QUIET) <= KINDS.keys()
    assert (
        short("ResponseDiscarder", {"offset": 4}) == "ResponseDiscarder 4"
        and short("ResponseDiscarder", {}) == "ResponseDiscarder"
    )


def test_frames_name_the_other_end(run_dir: Path) -> None:
    """By the name that both ends use for their link; the address alone would be 10.0.0.3:49152."""
    lines = lines_of(
        run_dir, "--compact", "--kind", "Frame*", "--step", "1", "--from", "0", "--to", "1000"
    )
    assert any("BrokerHeartbeat<-broker-1" in line for line in lines) and any(
        "BrokerHeartbeat->101" in line for line in lines
    )
    assert not any("BrokerHeartbeat<-10." in line for line in lines)


def logs(tmp_path: Path, *lines: tuple[str, float, str, Mapping[str, object]]) -> list[Entry]:
    (tmp_path / "events").mkdir()
    for n, (node, at_ms, kind, fields) in enumerate(lines):
        line = {
            "run": "r",
            "node": node,
            "incarnation": 1,
            "n": n,
            "t_ns": int(at_ms * 1e6),
            "wall_ms": 0,
            "kind": kind,
            **fields,
        }
        with (tmp_path / "events" / f"{node}.1.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    return read_trace(tmp_path)


def test_adjacent_events_of_one_kind_are_merged(tmp_path: Path) -> None:
    """Continued appends, increasing high watermarks; repetitions are counted; another node or step
    has its own cell.
    """
    append = {"leader_epoch": 1, "record_kinds": "X"}
    entries = logs(
        tmp_path,
        (
            "controller-101",
            1,
            "MetadataAppended",
            {**append, "first_offset": 17, "last_offset": 18},
        ),
        (
            "controller-101",
            2,
            "MetadataAppended",
            {**append, "first_offset": 19, "last_offset": 19},
        ),
        ("controller-101", 3, "HighWatermarkMoved", {"leader_epoch": 1, "high_watermark": 18}),
        ("controller-101", 4, "HighWatermarkMoved", {"leader_epoch": 1, "high_watermark": 20}),
        ("controller-102", 5, "NodeReady", {}),
        ("controller-102", 6, "NodeReady", {}),
        (
            "controller-101",
            11,
            "MetadataAppended",
            {**append, "first_offset": 20, "last_offset": 20},
        ),
    )
    rows = rows_of(entries, step_ms=10)
    assert [row.cells for row in rows] == [
        {"controller-101": ("appended 17..19", "hw 20"), "controller-102": ("ready x2",)},
        {"controller-101": ("appended 20..20",)},
    ]
    text = [
        "".join(piece for piece, _ in line).split()
        for line in laid_out(rows, ["controller-101", "controller-102"], 80)
    ]
    assert text[1] == ["0.001", "appended", "17..19", "ready", "x2"]


def copied(run_dir: Path, root: Path, tail: bytes) -> Path:
    """Return a copy of a run whose broker's log ends with more bytes."""
    copy = root / "copy"
    shutil.copytree(run_dir, copy)
    with open(copy / "events" / "broker-1.1.jsonl", "ab") as log:
        log.write(tail)
    return copy


@pytest.mark.parametrize("tail", [b'{"n":7,"ki', b'{"n":1', b"\x00\x00", b"["])
def test_torn_line_of_a_killed_node_is_dropped(run_dir: Path, tmp_path: Path, tail: bytes) -> None:
    copy = copied(run_dir, tmp_path, tail)
    assert lines_of(copy, "--compact") == lines_of(run_dir, "--compact")
    assert compare(copy, run_dir).is_empty


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b"garbage",
        b"{}",
        b'{"kind":"X","t_ns":"x","n":1}',
        b"\xff\xfe",
        b"[1]",
    ],
)
@pytest.mark.parametrize("verb", ["trace", "diff"])
def test_invalid_event_line_is_reported_in_one_line(
    run_dir: Path, tmp_path: Path, verb: str, line: bytes
) -> None:
    copy = copied(run_dir, tmp_path, line + b"\n")
    number = (copy / "events" / "broker-1.1.jsonl").read_bytes().count(b"\n")
    command = [verb, str(copy), *([str(run_dir)] if verb == "diff" else [])]
    with pytest.raises(
        Failure, match=rf"^broker-1\.1\.jsonl: line {number} is no event: .+$"
    ) as failed:
        CliRunner().invoke(kraftsim, command, standalone_mode=False, catch_exceptions=False)
    assert len(failed.value.message) < 200
