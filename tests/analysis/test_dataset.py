"""The dataset of runs: where chunks and slices are cut changes nothing, and compaction, replacement
and removal lose no row of another run.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from kraftsim.analysis import assembly, ingest, reading, staging
from kraftsim.analysis.compaction import compact, expire
from kraftsim.analysis.dataset import Dataset, NoRun, dataset_of
from kraftsim.analysis.ingest import ingest_run, ingest_runs
from kraftsim.analysis.places import place_of
from kraftsim.analysis.queries import DuckdbQueries, Query
from kraftsim.analysis.reading import Chunk, chunks_of, read_chunk
from kraftsim.analysis.store import count_kinds, read_events
from kraftsim.analysis.views import all_runs
from kraftsim.analysis.workers import HereWorkers, ProcessWorkers
from tests.analysis.generated_run import generated_run

ALL = Query(
    "SELECT run, count(*), min(position), max(position) FROM frame_sent GROUP BY run",
    ("FrameSent",),
)


def same_events(one: pa.Table, other: pa.Table) -> bool:
    """Return whether two runs have the same events, but for their names."""
    return bool(one.drop_columns(["run"]).equals(other.drop_columns(["run"])))


def test_a_piece_is_loaded_when_its_first_row_is_in_a_slice(tmp_path: Path) -> None:
    """The final logs have one time: all of them in memory would be a quarter of a run."""
    in_memory = most = 0

    def source(number: int) -> assembly.PieceSource:
        n = pa.array(range(10 * number, 10 * number + 10))
        table = pa.table({"n": n, "t_ns": [7] * 10, "wall_ms": [0] * 10, "extra": [None] * 10})

        def load() -> reading.EventPiece:
            nonlocal in_memory, most
            in_memory += 1
            most = max(most, in_memory)
            return reading.EventPiece("final", 1, "Unknown", table)

        return assembly.PieceSource("final", 1, "Unknown", 10, ((7, 10 * number),), 7, load)

    def written(events: int) -> None:
        nonlocal in_memory
        in_memory -= events // 10

    sources = [source(number) for number in reversed(range(8))]
    done = assembly.assemble(
        sources, "run", place_of(tmp_path), "run=run", slice_rows=10, report=written
    )
    assert (done.events, most) == (80, 1)


@pytest.mark.parametrize(("slice_rows", "sample_rows", "chunk_bytes"), [(97, 7, 4096), (1, 1, 999)])
def test_the_result_does_not_depend_on_chunks_and_slices(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slice_rows: int,
    sample_rows: int,
    chunk_bytes: int,
) -> None:
    """Positions, causes and clocks are those of a run that is sorted as a whole."""
    generated_run(seconds=0.3).write(tmp_path)
    whole = ingest_run(tmp_path)
    expected = read_events(whole.parquet)
    assert expected.column("position").to_pylist() == list(range(whole.event_count))
    assert expected.column("cause_position").null_count < whole.event_count
    monkeypatch.setattr(ingest, "IN_MEMORY_BYTES_MAX", -1)
    monkeypatch.setattr(ingest, "ProcessWorkers", HereWorkers)
    monkeypatch.setattr(reading, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(staging, "SAMPLE_ROWS", sample_rows)
    monkeypatch.setattr(assembly, "SAMPLE_ROWS", sample_rows)
    monkeypatch.setattr(assembly, "SLICE_ROWS", slice_rows)
    cut = ingest_run(tmp_path)
    _, manifest = dataset_of(cut.parquet)
    assert len({Path(file.path).name for file in manifest.files}) > 5, "there were many slices"
    assert same_events(read_events(cut.parquet), expected)
    assert cut == whole
    assert not (tmp_path / "events.parquet" / "_staging").exists()


def test_millions_of_events_at_one_time_are_cut_by_line_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The final logs of a simulated run all have its last time."""
    history = generated_run(seconds=0.2)
    end = history.events[-1][0].t_ns
    assert sum(envelope.t_ns == end for envelope, _ in history.events) < 100
    for _, event in list(history.events[-40:]) * 5:
        history.emit("final", event, after_ns=0)
    history.write(tmp_path)
    expected = read_events(ingest_run(tmp_path).parquet)
    monkeypatch.setattr(ingest, "IN_MEMORY_BYTES_MAX", -1)
    monkeypatch.setattr(ingest, "ProcessWorkers", HereWorkers)
    monkeypatch.setattr(staging, "SAMPLE_ROWS", 3)
    monkeypatch.setattr(assembly, "SAMPLE_ROWS", 3)
    monkeypatch.setattr(assembly, "SLICE_ROWS", 20)
    cut = ingest_run(tmp_path)
    _, manifest = dataset_of(cut.parquet)
    assert max(file.rows for file in manifest.files) <= 30
    assert same_events(read_events(cut.parquet), expected)


@pytest.mark.parametrize("seed", range(5))
def test_every_line_is_in_exactly_one_chunk(tmp_path: Path, seed: int) -> None:
    """Also with empty lines, lines of several chunks, and a torn last line."""
    random = Random(seed)
    lines = [
        b'{"run":"r","node":"b","incarnation":1,"n":%d,"t_ns":%d,"wall_ms":0,"kind":"Odd","x":"%b"}'
        % (n, n, b"y" * random.choice((0, 3, 500)))
        for n in range(60)
    ]
    data = b"".join(line + random.choice((b"\n", b"\n\n", b"\r\n")) for line in lines) + b'{"run":'
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    cuts = sorted({0, len(data), *(random.randrange(1, len(data)) for _ in range(20))})
    contents = [
        read_chunk(Chunk(str(path), begin, end, end == len(data))) for begin, end in pairwise(cuts)
    ]
    found = [n for each in contents for p in each.pieces for n in p.table.column("n").to_pylist()]
    assert found == list(range(60))
    assert sum(each.torn_bytes for each in contents) == len(b'{"run":')
    assert not sum(each.unreadable_lines for each in contents)
    assert [chunk.end for chunk in chunks_of(path)] == [len(data)]


def test_a_line_that_is_too_long_is_counted_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is: a foreign file must not fill the memory."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 300)
    monkeypatch.setattr(reading, "LINE_BYTES_MAX", 1000)
    monkeypatch.setattr(reading, "BLOCK_BYTES", 128)
    line = b'{"run":"r","node":"b","incarnation":1,"n":%d,"t_ns":1,"wall_ms":0,"kind":"Odd"}\n'
    path = tmp_path / "log.jsonl"
    path.write_bytes(line % 0 + b'{"x":"' + b"y" * 5000 + b'"}\n' + line % 1)
    contents = [read_chunk(chunk) for chunk in chunks_of(path)]
    found = [n for each in contents for p in each.pieces for n in p.table.column("n").to_pylist()]
    assert found == [0, 1] and sum(each.unreadable_lines for each in contents) == 1


def test_worker_processes_give_the_same_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large runs are parsed by processes, which share nothing with this one."""
    generated_run(seconds=0.3).write(tmp_path)
    expected = read_events(ingest_run(tmp_path).parquet)
    monkeypatch.setattr(ingest, "IN_MEMORY_BYTES_MAX", -1)
    stages: list[tuple[str, int, int]] = []
    found = ingest_run(tmp_path, report=lambda *stage: stages.append(stage))
    assert same_events(read_events(found.parquet), expected)
    assert stages[-1] == ("sort", found.event_count, found.event_count)
    assert [stage for stage in stages if stage[0] == "parse"][-1][1] == sum(
        file.size_bytes for file in found.files
    )


def test_a_worker_that_fails_is_an_error_with_its_exit_code() -> None:
    """Never a hang, and never a part of a result."""
    with pytest.raises(RuntimeError, match="exit code 1"):
        ProcessWorkers(2).run("kraftsim.analysis.ingest:parse_task", [b"{}"] * 4, print)


def three_runs(place: Path) -> Dataset:
    """Return a dataset of three runs."""
    runs = []
    for number in range(3):
        run = place / f"run-{number}"
        generated_run(seed=number, seconds=0.1 + number / 20).write(run)
        runs.append(run)
    ingest_runs(runs, place / "all")
    return Dataset(place / "all")


def test_compaction_changes_no_row(tmp_path: Path) -> None:
    """Each run reads as before, alone and with the others."""
    dataset = three_runs(tmp_path)
    before = {name: read_events(dataset.directory(name)) for name in dataset.names()}
    counted = sorted(DuckdbQueries(all_runs(dataset.root)).ask([ALL]))
    assert len(counted) == 3
    result = compact(dataset)
    assert result.runs == 3 and result.files_after < result.files_before / 2
    assert {name: read_events(dataset.directory(name)) for name in dataset.names()} == before
    assert sorted(DuckdbQueries(all_runs(dataset.root)).ask([ALL])) == counted
    again = compact(dataset)
    assert again.files_before == again.files_after == result.files_after
    some = all_runs(dataset.root, ["run-1"])
    assert DuckdbQueries(some).ask([ALL]) == counted[1:2]


def test_a_run_is_replaced_and_removed_without_the_others(tmp_path: Path) -> None:
    """Also when its rows are in files that it shares."""
    dataset = three_runs(tmp_path)
    compact(dataset)
    kept = {name: read_events(dataset.directory(name)) for name in ("run-0", "run-2")}
    generated_run(seed=9, seconds=0.2).write(tmp_path / "run-1")
    (replaced,) = ingest_runs([tmp_path / "run-1"], dataset.root)
    assert read_events(replaced.parquet).num_rows == replaced.event_count
    assert sum(count_kinds(replaced.parquet).values()) == replaced.event_count
    dataset.remove("run-1")
    assert dataset.names() == ["run-0", "run-2"]
    for name, events in kept.items():
        assert read_events(dataset.directory(name)) == events
    rows = DuckdbQueries(all_runs(dataset.root)).ask([ALL])
    assert sorted(row[0] for row in rows) == ["run-0", "run-2"]
    result = compact(dataset)
    assert result.runs == 2
    for name, events in kept.items():
        assert read_events(dataset.directory(name)) == events
    with pytest.raises(NoRun, match="has no run run-1"):
        dataset.manifest("run-1")


def test_old_runs_expire(tmp_path: Path) -> None:
    """By number or by age; files that no run needs are deleted."""
    dataset = three_runs(tmp_path)
    now = datetime.now(UTC)
    assert expire(dataset, before=now - timedelta(hours=1)) == []
    assert expire(dataset, keep=2) == ["run-0"]
    assert dataset.names() == ["run-1", "run-2"] and not dataset.directory("run-0").is_directory()
    assert expire(dataset, before=now + timedelta(hours=1)) == ["run-1", "run-2"]
    assert not dataset.root.files(".parquet")


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    """One would replace the other."""
    for place in ("a", "b"):
        generated_run(seconds=0.05).write(tmp_path / place / "run")
    with pytest.raises(ValueError, match="two runs are called run"):
        ingest_runs([tmp_path / "a" / "run", tmp_path / "b" / "run"], tmp_path / "all")


@pytest.mark.parametrize("name", ["..", ".", "a/b", "run=x", "a b", "", "ä"])
def test_the_name_of_a_run_stays_inside_the_dataset(tmp_path: Path, name: str) -> None:
    """Names of runs are names of directories, which a user chose."""
    generated_run(seconds=0.05).write(tmp_path / "run")
    (result,) = ingest_runs([tmp_path / "run"], tmp_path / "all", names=[name])
    assert Path(result.parquet).resolve().parent == (tmp_path / "all").resolve()
    assert read_events(result.parquet).column("run").to_pylist()[0] == name
    assert Dataset(tmp_path / "all").names() == [name]
