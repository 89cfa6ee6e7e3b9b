"""Datasets and runs at addresses: the same rows as in a local directory, a run as a whole or not at
all wherever a process ends, and one line for a place that cannot be used.

The store is one in memory; `test_s3.py` has a real one.
"""

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

import kraftsim
from kraftsim.analysis import ingest, reading
from kraftsim.analysis.compaction import compact, expire
from kraftsim.analysis.dataset import Dataset, IngestResult
from kraftsim.analysis.ingest import ingest_run, ingest_runs, ingested
from kraftsim.analysis.places import LocalPlace, PlaceError, RemotePlace, place_of, use_settings
from kraftsim.analysis.queries import DuckdbQueries, Query
from kraftsim.analysis.store import read_events
from kraftsim.analysis.views import all_runs, duckdb_events
from kraftsim.analysis.workers import HereWorkers
from kraftsim.cli.failure import Failure
from kraftsim.cli.main import kraftsim as command
from kraftsim.server.events import NodeReady
from tests.analysis.event_factories import appended
from tests.analysis.generated_run import generated_run
from tests.analysis.history import History
from tests.analysis.object_store import ObjectStore, store

__all__ = ("store",)
BY_RUN = "SELECT run, count(*) AS events FROM events GROUP BY run ORDER BY run"
FRAMES = "SELECT run, count(*), min(position), max(position) FROM frame_sent GROUP BY run"
READY = "SELECT run, count(*), min(position), max(position) FROM node_ready GROUP BY run"


def invoked(*words: str) -> Result:
    """Run a verb in this process."""
    return CliRunner().invoke(command, words, standalone_mode=False)


def a_run(place: Path, seed: int = 7, seconds: float = 0.1) -> Path:
    """Write a run and return its directory."""
    generated_run(seed=seed, seconds=seconds).write(place)
    return place


def a_small_run(place: Path, events: int) -> Path:
    """Write a run with two families of events and return its directory."""
    history = History()
    for number in range(events):
        history.emit("a", NodeReady(), after_ns=number)
        history.emit("b", appended(number, number, (1, 0, number)))
    history.write(place)
    return place


def uploaded(run: Path, store: ObjectStore, name: str) -> str:
    """Put the files of a run into a store, and return its address there."""
    for path in sorted(run.rglob("*")):
        if path.is_file():
            store.put(f"{name}/{path.relative_to(run).as_posix()}", path.read_bytes())
    return f"{store.address}/{name}"


def _troubles(result: IngestResult) -> dict[str, tuple[int, int]]:
    """Return what could not be read of each file: bytes of a torn line, and lines."""
    return {file.name: (file.torn_bytes, file.unreadable_lines) for file in result.files}


def counts(place: str) -> dict[str, int]:
    """Return how many events of each run a query finds."""
    connection = duckdb.connect()
    duckdb_events(connection, all_runs(place))
    return dict(connection.sql(BY_RUN).fetchall())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("runs/seven", LocalPlace(Path("runs/seven"))),
        ("file:///a%20b/c", LocalPlace(Path("/a b/c"))),
        ("file://localhost/a", LocalPlace(Path("/a"))),
        ("s3://bucket", RemotePlace("s3://bucket", "")),
        ("S3A://bucket//a/./b/", RemotePlace("s3a://bucket", "a/b")),
        ("hdfs://name:8020/a", RemotePlace("hdfs://name:8020", "a")),
    ],
)
def test_an_address_names_a_place(address: str, expected: object) -> None:
    """Local paths stay what they are; Hadoop's name for S3 is known."""
    place = place_of(address)
    assert place == expected and place_of(place) is place
    assert place_of(str(place / "x/y")) == place / "x" / "y"
    assert (place / "x").parent == place and (place / "x/y").name == "y"


def test_spark_gets_its_own_scheme_for_s3() -> None:
    """Hadoop reads s3a; a local path is a path for both."""
    assert place_of("s3://bucket/a").hadoop == place_of("s3a://bucket/a").hadoop == "s3a://bucket/a"
    assert place_of("runs/a").hadoop == "runs/a"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ftp://host/a", "ftp:// is no known file system"),
        ("s3://key:sesame@bucket/a", "no credentials"),
        ("s3://sesame@bucket/a", "no credentials"),
        ("hdfs://me:sesame@name/a", "no credentials"),
        ("s3://bucket/a?secret_key=sesame", "no settings"),
        ("s3:///a", "needs the name of a bucket"),
        ("s3://bucket/a/../b", "cannot contain .."),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(address: str, said: str) -> None:
    """Addresses are stored and printed, so secrets have no place in them, nor in the message."""
    for words in (("dataset", "list", address), ("sql", "SELECT 1", address)):
        failed = invoked(*words)
        text = str(failed.exception)
        assert isinstance(failed.exception, Failure) and failed.exception.exit_code == 3
        assert said in text and "\n" not in text and "sesame" not in text
    with pytest.raises(PlaceError):
        kraftsim.open_run(address)


def test_settings_of_spark_decide_how_a_bucket_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of an analysis must use one endpoint and one key."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://old:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://old:2")
    use_settings({"spark.hadoop.fs.s3a.access.key": "new", "spark.executor.memory": "4g"})
    import os

    assert os.environ["AWS_ACCESS_KEY_ID"] == "new"
    assert os.environ["AWS_ENDPOINT_URL_S3"] == "http://old:2"
    use_settings(
        {
            "spark.hadoop.fs.s3a.endpoint": "127.0.0.1:9000",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
    )
    assert os.environ["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9000"
    assert "AWS_ENDPOINT_URL_S3" not in os.environ


def test_a_remote_dataset_has_the_rows_of_a_local_one(tmp_path: Path, store: ObjectStore) -> None:
    """Also compacted, by kind, by run, and after runs were replaced and removed."""
    runs = [a_run(tmp_path / f"run-{number}", number, 0.08 + number / 50) for number in range(3)]
    here, there = str(tmp_path / "all"), f"{store.address}/some/all"
    for place in (here, there):
        ingest_runs(runs, place)
    for _ in range(2):
        assert counts(there) == counts(here) and len(counts(here)) == 3
        for name in Dataset(here).names():
            local = read_events(Dataset(here).directory(name))
            assert read_events(Dataset(there).directory(name)) == local
        asked = [
            sorted(DuckdbQueries(all_runs(place)).ask([Query(FRAMES, ("FrameSent",))]))
            for place in (here, there)
        ]
        assert asked[0] == asked[1] and len(asked[0]) == 3
        assert compact(Dataset(there)).files_after == compact(Dataset(here)).files_after
    a_run(runs[1], 9, 0.2)
    for place in (here, there):
        ingest_runs(runs[1:2], place)
    assert counts(there) == counts(here)
    assert counts(here)["run-1"] == Dataset(here).manifest("run-1").ingest.event_count
    for place in (here, there):
        Dataset(place).remove("run-0")
        compact(Dataset(place))
    assert counts(there) == counts(here) and list(counts(here)) == ["run-1", "run-2"]
    assert expire(Dataset(there), keep=0) == ["run-1", "run-2"]
    assert not any(key.endswith(".parquet") for key in store.objects)


def test_remote_logs_are_read_as_local_ones(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torn, foreign, deeply nested and huge lines are counted and named, in chunks as well."""
    run = a_run(tmp_path / "run", seconds=0.2)
    logs = run / "events"
    line = b'{"run":"r","node":"odd","incarnation":1,"n":%d,"t_ns":1,"wall_ms":0,"kind":"Odd"}\n'
    nested = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    (logs / "odd.1.jsonl").write_bytes(line % 0 + nested + b"\xff\xfe\n{}\nnull\n" + line % 1)
    (logs / "huge.1.jsonl").write_bytes(b'{"x":"' + b"y" * 300_000 + b'"}\n' + line % 2)
    (logs / "torn.1.jsonl").write_bytes(line % 3 + line[:20])
    (logs / "foreign.jsonl").write_bytes(b"\x00PAR1" + bytes(range(256)) * 40)
    monkeypatch.setattr(reading, "LINE_BYTES_MAX", 250_000)
    address = uploaded(run, store, "runs/run")
    for chunk_bytes, is_small in ((32 << 20, True), (40_000, False)):
        monkeypatch.setattr(reading, "CHUNK_BYTES", chunk_bytes)
        monkeypatch.setattr(ingest, "IN_MEMORY_BYTES_MAX", 1 << 30 if is_small else -1)
        monkeypatch.setattr(ingest, "ProcessWorkers", HereWorkers)
        local, remote = ingest_run(run), ingest_run(address)
        assert local.unknown_kinds == {"Odd": 4}
        found, there = (_troubles(each) for each in (local, remote))
        assert found["events/odd.1.jsonl"] == (0, 4)
        assert found["events/huge.1.jsonl"][1] == (
            1 if not is_small else found["events/huge.1.jsonl"][1]
        )
        assert found["events/torn.1.jsonl"] == (20, 0)
        assert sum(found["events/foreign.jsonl"]) > 0
        assert remote.lines()[1:] == local.lines()[1:]
        assert remote.lost_lines() == local.lost_lines()
        assert there == found
        assert read_events(remote.parquet) == read_events(local.parquet)
    assert not [key for key in store.objects if "_staging" in key]


def test_a_remote_run_is_analysed_and_reported(tmp_path: Path, store: ObjectStore) -> None:
    """By its directory, or by that of a run of a dataset; an unchanged one is not read again."""
    run = a_run(tmp_path / "seven", seconds=0.3)
    (run / "run.json").write_text(json.dumps({"scenario": "tale", "seed": 7}))
    address = uploaded(run, store, "runs/seven")
    invoked("ingest", str(run), "--dataset", f"{store.address}/all")
    verdicts = []
    for number, place in enumerate((str(run), address, f"{store.address}/all/run=seven")):
        to = tmp_path / f"{number}.json"
        done = invoked("analyze", place, "--engine", "duckdb", "--json", str(to))
        assert done.exception is None and done.output.startswith("tale (seed 7): ok")
        verdicts.append(json.loads(to.read_text())["judgements"])
    assert verdicts[0] == verdicts[1] == verdicts[2]
    changes = store.changes
    assert kraftsim.open_run(address).analysis().verdict == "ok"
    assert ingested(address).event_count == ingested(run).event_count
    assert store.changes == changes
    assert f"report: {address}/report.html" in invoked("report", address).output
    page = store.objects["runs/seven/report.html"]
    assert page.lower().startswith(b"<!doctype html>")
    assert "1 runs" in invoked("dataset", "compact", f"{store.address}/all").output
    refused = invoked("analyze", f"{store.address}/all")
    assert f"name one of its runs, as {store.address}/all/run=NAME" in str(refused.exception)
    refused = invoked("export", address, "--format", "shiviz")
    assert "with --to" in str(refused.exception)
    written = tmp_path / "shiviz.log"
    assert invoked("export", address, "--format", "shiviz", "--to", str(written)).exception is None
    assert written.stat().st_size > 1000


def test_a_query_that_began_ends_with_the_rows_it_began_with(
    tmp_path: Path, store: ObjectStore
) -> None:
    """The files of a run stay until it is replaced once more; then they are gone."""
    place = f"{store.address}/all"
    run = a_small_run(tmp_path / "run", 4)
    first = ingest_runs([run], place)[0].event_count
    began = all_runs(place)
    second = ingest_runs([a_small_run(run, 5)], place)[0].event_count
    assert first != second
    asked = DuckdbQueries(began)
    assert asked.ask([Query("SELECT count(*) FROM node_ready", ("NodeReady",))]) == [(4,)]
    assert counts(place) == {"run": second}
    ingest_runs([a_small_run(run, 6)], place)
    files = {file.path for file in Dataset(place).root.files(".parquet")}
    named = {file.path for file in Dataset(place).manifest("run").files}
    assert named < files and len(files) == len(named) + len(named), "those of two ingests"
    with pytest.raises(OSError, match="no such file"):
        read_all(began)


def read_all(runs: object) -> None:
    """Read all events of runs whose files may be gone."""
    from kraftsim.analysis.dataset import file_groups
    from kraftsim.analysis.places import one_line
    from kraftsim.analysis.store import scan
    from kraftsim.analysis.views import Runs

    assert isinstance(runs, Runs)
    for groups in file_groups(runs.manifests).values():
        for group in groups:
            with one_line(runs.root):
                scan(runs.root, group.files).to_table()


def ends_everywhere(
    store: ObjectStore, work: Callable[[], object], look: Callable[[], None]
) -> int:
    """Let work end before each of its changes, look at the store each time, and return how many
    changes it makes.
    """
    before, ends = store.objects, 0
    while True:
        store.put_all(before)
        store.changes, store.ends_at = 0, ends
        try:
            work()
        except OSError:
            store.ends_at = None
            look()
            ends += 1
            continue
        store.ends_at = None
        look()
        return ends


@pytest.mark.parametrize("is_large", [False, True])
def test_a_run_is_replaced_as_a_whole_wherever_the_process_ends(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """Readers see all rows of the former ingest or of the new one; the next ingest cleans up."""
    if is_large:
        monkeypatch.setattr(ingest, "IN_MEMORY_BYTES_MAX", -1)
        monkeypatch.setattr(ingest, "ProcessWorkers", HereWorkers)
    place = f"{store.address}/all"
    one, other = a_small_run(tmp_path / "one", 5), a_small_run(tmp_path / "other", 4)
    ingest_runs([one, other], place)
    compact(Dataset(place))
    for events in (6, 8):
        ingest_runs([a_small_run(one, events)], place)
    former = counts(place)
    a_small_run(one, 7)
    new = {**former, "one": ingest_run(one).event_count}
    assert new != former
    seen = []

    def look() -> None:
        seen.append(counts(place))
        assert seen[-1] in (former, new)
        assert len(read_events(f"{place}/run=one")) == seen[-1]["one"]

    changes = ends_everywhere(store, lambda: ingest_runs([one], place), look)
    assert changes == 5 and seen[0] == former and seen.count(former) == 3
    ingest_runs([one], place)
    ingest_runs([one], place)
    compact(Dataset(place))
    files = {file.path for file in Dataset(place).root.files(".parquet")}
    assert files == {file.path for each in Dataset(place).manifests() for file in each.files}
    assert counts(place) == new


def test_compaction_and_removal_lose_no_row_wherever_the_process_ends(
    tmp_path: Path, store: ObjectStore
) -> None:
    """Also between two manifests: then one names the joined files, the other those of its run."""
    place = f"{store.address}/all"
    runs = [a_small_run(tmp_path / f"run-{number}", 3 + number) for number in range(3)]
    ingest_runs(runs, place)
    expected = counts(place)
    ready = sorted(DuckdbQueries(all_runs(place)).ask([Query(READY, ("NodeReady",))]))
    assert len(ready) == 3

    def whole() -> None:
        assert counts(place) == expected
        assert sorted(DuckdbQueries(all_runs(place)).ask([Query(READY, ("NodeReady",))])) == ready

    assert ends_everywhere(store, lambda: compact(Dataset(place)), whole) > 10

    def without() -> None:
        left = {name: count for name, count in expected.items() if name != "run-1"}
        assert counts(place) in (expected, left)

    assert ends_everywhere(store, lambda: Dataset(place).remove("run-1"), without) >= 1
    compact(Dataset(place))
    assert "run-1" not in counts(place)


def test_a_replaced_run_is_not_counted_twice_in_a_compacted_dataset(tmp_path: Path) -> None:
    """The joined files keep its former rows until the next compaction."""
    runs = [a_small_run(tmp_path / f"run-{number}", 5) for number in range(2)]
    ingest_runs(runs, tmp_path / "all")
    compact(Dataset(tmp_path / "all"))
    a_small_run(runs[1], 6)
    ingest_runs(runs[1:], tmp_path / "all")
    expected = {each.run: each.ingest.event_count for each in Dataset(tmp_path / "all").manifests()}
    assert counts(str(tmp_path / "all")) == expected


def test_a_place_that_is_missing_or_read_only_is_one_line(
    tmp_path: Path, store: ObjectStore
) -> None:
    """Exit code 3, and never a traceback."""
    run = str(a_run(tmp_path / "run"))
    address = uploaded(Path(run), store, "runs/run")
    store.is_writable = False
    file = tmp_path / "file"
    file.write_text("")
    for words, said in (
        (("ingest", run, "--dataset", "s3://absent/all"), "no such bucket"),
        (("dataset", "list", "s3://absent/all"), "no such bucket"),
        (("ingest", f"{store.address}/absent"), "nothing at"),
        (("sql", "SELECT 1", f"{store.address}/absent"), "is no directory"),
        (("ingest", run, "--dataset", f"{store.address}/all"), "access was denied"),
        (("ingest", address), "access was denied"),
        (("analyze", address), "access was denied"),
        (("ingest", run, "--dataset", f"{file}/all"), "Not a directory"),
    ):
        failed = invoked(*words)
        text = str(failed.exception)
        assert said in text and "\n" not in text, (words, text)
        assert getattr(failed.exception, "exit_code", None) in (2, 3)
