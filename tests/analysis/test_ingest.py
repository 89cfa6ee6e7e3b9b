"""Ingest loses nothing silently: it reports what it skips, and keeps unknown kinds and fields."""

import json
from pathlib import Path

import pytest

from kraftsim.analysis.columns import event_schema, view_name
from kraftsim.analysis.dataset import Dataset, LineGap
from kraftsim.analysis.ingest import NoEvents, ingest_run, ingested
from kraftsim.analysis.store import read_events
from kraftsim.events.catalogue import KINDS
from kraftsim.producer_ids.events import ProducerIdReturned
from kraftsim.server.events import NodeReady
from tests.analysis.history import History


def returned(producer_id: int, client_id: str | None = None) -> ProducerIdReturned:
    return ProducerIdReturned(
        producer_id=producer_id, producer_epoch=0, fresh=True, client_id=client_id
    )


def rows(run: Path, *columns: str) -> list[tuple[object, ...]]:
    table = read_events(Dataset(run / "events.parquet").directory(run.name), columns=columns)
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def a_line(n: int, kind: str = "NodeReady", **fields: object) -> str:
    return (
        json.dumps(
            {
                "run": "r",
                "node": "broker-1",
                "incarnation": 1,
                "n": n,
                "t_ns": n * 10,
                "wall_ms": 0,
                "kind": kind,
                **fields,
            }
        )
        + "\n"
    )


def written(run: Path, text: str, name: str = "broker-1.1.jsonl") -> Path:
    (run / "events").mkdir(exist_ok=True)
    (run / "events" / name).write_text(text, encoding="utf-8")
    return run


def test_every_event_kind_has_a_view_and_its_columns() -> None:
    """A view exists for every kind, with or without events, so kinds need distinct names and a
    field name has one type.
    """
    assert len({view_name(kind) for kind in KINDS}) == len(KINDS)
    assert view_name("ProducerIdBlockAllocated") == "producer_id_block_allocated"
    assert {"topic", "producer_id", "position", "extra", "t_ns"} <= set(event_schema().names)


def test_events_are_sorted_by_time_then_node_then_line(tmp_path: Path) -> None:
    """The order must not depend on the number or the names of the files."""
    history = History()
    for node, after_ns in (("b", 5), ("a", 0), ("b", 0), ("a", 7), ("b", 1)):
        history.emit(node, NodeReady(), after_ns=after_ns)
    history.emit("a", NodeReady(), incarnation=2, after_ns=0)
    history.write(tmp_path)
    result = ingest_run(tmp_path)
    assert result.event_count == 6 and result.node_count == 2
    assert rows(tmp_path, "position", "t_ns", "node", "incarnation", "n") == [
        (0, 5, "a", 1, 0),
        (1, 5, "b", 1, 0),
        (2, 5, "b", 1, 1),
        (3, 12, "a", 1, 1),
        (4, 13, "a", 2, 0),
        (5, 13, "b", 1, 2),
    ]


def test_large_numbers_nulls_and_hostile_strings_survive_ingest(tmp_path: Path) -> None:
    """Clients choose their client ids; producer ids go up to 2^63 - 1."""
    client_ids = ['</script><b>"\\', "\u0000\u2028\U0001f980", "", None]
    history = History()
    for number, client_id in enumerate(client_ids):
        history.emit("broker-1", returned((1 << 63) - 1 - number, client_id))
    history.write(tmp_path)
    ingest_run(tmp_path)
    assert rows(tmp_path, "producer_id", "client_id", "fresh", "topic") == [
        ((1 << 63) - 1 - n, each, True, None) for n, each in enumerate(client_ids)
    ]


@pytest.mark.parametrize("lost_bytes", [1, 2, 30, 90])
def test_a_torn_last_line_is_skipped_and_reported(tmp_path: Path, lost_bytes: int) -> None:
    """kill -9 tears at most the last line; responses that depended on it were never sent."""
    whole = a_line(0) + a_line(1)
    result = ingest_run(written(tmp_path, whole[:-lost_bytes]))
    lost = lost_bytes > 1
    assert result.event_count == 2 - lost
    assert [file.torn_bytes for file in result.files] == [
        len(a_line(1)) - lost_bytes if lost else 0
    ]
    assert not result.lost_lines() and not result.gaps
    assert any("torn last line" in line for line in result.lines()) == lost


def test_a_file_with_only_a_torn_line_has_no_events(tmp_path: Path) -> None:
    """A node may be killed during its first write."""
    written(tmp_path, a_line(0)[:20], "broker-2.1.jsonl")
    written(tmp_path, "", "broker-3.1.jsonl")
    assert ingest_run(written(tmp_path, a_line(0))).event_count == 1


def test_gaps_and_repetitions_of_line_numbers_are_reported(tmp_path: Path) -> None:
    """Line numbers are dense per node and incarnation: a gap is a lost event."""
    history = History()
    history.lose("a")
    for _ in range(2):
        history.emit("a", NodeReady())
    history.emit("b", NodeReady())
    history.lose("b", 1)
    history.lose("b", 1)
    history.emit("b", NodeReady())
    history.emit("b", NodeReady(), incarnation=2)
    history.events.append(history.events[-1])
    history.write(tmp_path)
    result = ingest_run(tmp_path)
    assert result.gaps == (
        LineGap(node="a", incarnation=1, first_missing_n=0, missing_count=1),
        LineGap(node="b", incarnation=1, first_missing_n=1, missing_count=2),
        LineGap(node="b", incarnation=2, first_missing_n=1, missing_count=0, repeated_count=1),
    )
    assert result.lost_lines() == "3 lines are missing, 1 lines are there more than once"


def test_unknown_event_kinds_and_fields_are_kept(tmp_path: Path) -> None:
    """A log of a newer kraftsim can be read by an older one."""
    lines = [
        a_line(0),
        a_line(1, "BlockBorrowed", producer_id=5, lender={"broker": 2}),
        a_line(2, "ProducerIdReturned", producer_id=6, producer_epoch=0, fresh=True, colour="red"),
        a_line(3, "BlockBorrowed", producer_id=7),
    ]
    result = ingest_run(written(tmp_path, "".join(lines)))
    assert result.unknown_kinds == {"BlockBorrowed": 2}
    assert rows(tmp_path, "kind", "producer_id", "extra") == [
        ("NodeReady", None, None),
        ("BlockBorrowed", None, '{"lender":{"broker":2},"producer_id":5}'),
        ("ProducerIdReturned", 6, '{"colour":"red"}'),
        ("BlockBorrowed", None, '{"producer_id":7}'),
    ]


@pytest.mark.parametrize(
    "bad_line",
    [
        "not json\n",
        "[1]\n",
        '{"a"\n',
        '{"kind":"NodeReady"}\n',
        a_line(1).replace('"incarnation": 1', '"incarnation": "1"'),
        "\x00\x00\n",
        "\ufffd{}\n",
    ],
)
def test_an_invalid_line_is_counted_and_the_rest_is_read(tmp_path: Path, bad_line: str) -> None:
    """One invalid line must not hide a run."""
    result = ingest_run(written(tmp_path, a_line(0) + bad_line + a_line(1)))
    assert result.event_count == 2
    assert "1 lines are unreadable" in result.lost_lines()


def test_a_field_of_an_unexpected_type_does_not_fail_the_file(tmp_path: Path) -> None:
    """A known name with an unexpected type is treated as an unknown field."""
    lines = [
        a_line(0, "ProducerIdReturned", producer_id="five", producer_epoch=1 << 64, client_id="t"),
        a_line(1, "ProducerIdReturned", producer_id=7, fresh=1),
    ]
    ingest_run(written(tmp_path, "".join(lines)))
    assert rows(tmp_path, "client_id", "producer_id", "extra") == [
        ("t", None, '{"producer_epoch":18446744073709551616,"producer_id":"five"}'),
        (None, 7, '{"fresh":1}'),
    ]


def test_a_run_is_ingested_again_only_if_its_logs_changed(tmp_path: Path) -> None:
    """Parsing is the most expensive step of every command."""
    written(tmp_path, a_line(0))
    ingest_run(tmp_path)
    (manifest,) = (tmp_path / "events.parquet" / "_runs").iterdir()
    first = manifest.stat().st_mtime_ns
    assert ingested(tmp_path).event_count == 1
    assert manifest.stat().st_mtime_ns == first
    written(tmp_path, a_line(0) + a_line(1))
    assert ingested(tmp_path).event_count == 2
    for path in (tmp_path / "events").iterdir():
        path.unlink()
    assert ingested(tmp_path).event_count == 2, "a dataset without its logs is still a run"


def test_a_directory_without_event_logs_is_reported(tmp_path: Path) -> None:
    """A wrong directory is the most common error."""
    with pytest.raises(NoEvents, match=str(tmp_path)):
        ingest_run(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        a_line(1).rstrip("}\n") + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "\x00",
        "null",
        '{"a":',
    ],
)
def test_an_invalid_line_is_counted_and_does_not_abort_ingest(tmp_path: Path, line: str) -> None:
    """For example a line that is nested deeper than the parser allows."""
    result = ingest_run(written(tmp_path, a_line(0) + line + "\n" + a_line(2)))
    assert [file.unreadable_lines for file in result.files] == [1]
    assert rows(tmp_path, "n") == [(0,), (2,)]
