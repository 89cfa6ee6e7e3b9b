"""Queries by users: `kraftsim sql`, `kraftsim dataset`, and the same from Python."""

import json
from pathlib import Path

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result

import kraftsim
from kraftsim.analysis.campaign_tables import (
    CampaignRows,
    ExercisedRow,
    FaultRow,
    SeedRow,
    StepRow,
    VerdictRow,
    never_exercised,
    write_page,
    write_tables,
)
from kraftsim.analysis.dataset import NoRun
from kraftsim.analysis.ingest import ingest_runs
from kraftsim.cli.failure import Failure
from kraftsim.cli.main import kraftsim as command
from kraftsim.events.catalogue import KINDS
from tests.analysis.generated_run import generated_run

COUNT = "SELECT count(*) AS events FROM events"


def invoked(*words: str) -> Result:
    """Run a verb in this process."""
    return CliRunner().invoke(command, words, standalone_mode=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was not ingested yet."""
    place = tmp_path_factory.mktemp("tables") / "seven"
    generated_run(seconds=0.3).write(place)
    return place


def test_a_run_is_queried_by_kind_and_as_a_whole(run: Path) -> None:
    """Ingest happens on the first use."""
    lines = sum(len(path.read_bytes().splitlines()) for path in (run / "events").iterdir())
    opened = kraftsim.open_run(run)
    assert opened.sql(COUNT).to_pylist() == [{"events": lines}]
    assert {"events", "frame_sent", "record_acknowledged"} <= set(opened.names)
    assert "transaction_loaded" not in opened.names
    assert opened.sql("SELECT * FROM transaction_loaded").num_rows == 0, "a kind that is absent"
    frames = opened.arrow(kinds=["FrameSent"], columns=["t_ns", "api_key"])
    assert frames.num_rows == opened.sql("FROM frame_sent").num_rows > 0
    assert pc.all(pc.less_equal(frames["t_ns"][:-1], frames["t_ns"][1:])).as_py()
    assert opened.pandas(COUNT)["events"].tolist() == [lines]
    assert opened.analysis().ingest.event_count == lines
    with pytest.raises(ValueError, match="nonsense"):
        opened.sql("SELECT nonsense FROM events")


@pytest.mark.spark
def test_the_tables_are_views_of_a_spark_session(spark: object, run: Path) -> None:
    """For notebooks that have one."""
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    opened = kraftsim.open_run(run)
    opened.register(spark)
    for query in (COUNT, "SELECT count(*) AS events FROM frame_sent"):
        assert [row.asDict() for row in spark.sql(query).collect()] == opened.sql(query).to_pylist()


def test_sql_prints_tables_csv_and_json(run: Path) -> None:
    """An error of the query is one line."""
    query = "SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY kind"
    shown = invoked("sql", query, str(run))
    assert shown.exception is None and "FrameSent" in shown.output
    rows = [
        line.split(",")
        for line in invoked("sql", query, str(run), "--format", "csv").output.splitlines()
    ]
    assert rows[0] == ["kind", "events"] and len(rows) > 10
    lines = invoked("sql", query, str(run), "--format", "json").output
    assert [json.loads(lines)["kind"] for lines in lines.splitlines()] == [
        row[0] for row in rows[1:]
    ]
    short = invoked("sql", query, str(run), "--limit", "2")
    assert f"2 of {len(rows) - 1} rows" in short.output
    listed = invoked("sql", "--tables", str(run))
    assert "record_acknowledged(run, position" in listed.output
    for words, said in (
        (("sql", "SELECT 1 FROM nowhere", str(run)), "nowhere"),
        (("sql", query), "expected a query in quotes, and a place"),
        (("sql", query, str(run / "events")), "neither a run, nor a dataset"),
        (("sql", query, str(run / "absent")), "is no directory"),
    ):
        failed = invoked(*words)
        assert isinstance(failed.exception, Failure) and said in str(failed.exception)


def test_a_dataset_is_listed_compacted_and_emptied(tmp_path: Path) -> None:
    """By the command line."""
    for name in ("one", "two"):
        generated_run(seconds=0.1).write(tmp_path / name)
    place = str(tmp_path / "all")
    done = invoked("ingest", str(tmp_path / "one"), str(tmp_path / "two"), "--dataset", place)
    assert done.exception is None and done.output.count("events of") == 2
    listed = invoked("dataset", "list", place).output
    assert [line.split()[0] for line in listed.splitlines()] == ["one", "two"]
    assert "2 runs: " in invoked("dataset", "compact", place).output
    opened = kraftsim.open_dataset(place)
    counted = opened.sql("SELECT run, count(*) AS events FROM events GROUP BY run ORDER BY run")
    assert counted.column("run").to_pylist() == ["one", "two"]
    assert kraftsim.open_dataset(place, ["two"]).sql(COUNT).to_pylist() == [
        {"events": counted.column("events")[1].as_py()}
    ]
    assert "removed: one" in invoked("dataset", "remove", place, "one").output
    unknown = invoked("dataset", "remove", place, "one")
    assert isinstance(unknown.exception, Failure) and "has no run one" in str(unknown.exception)
    unclear = invoked("dataset", "expire", place)
    assert isinstance(unclear.exception, Failure) and "--keep" in str(unclear.exception)
    assert "removed 0 runs" in invoked("dataset", "expire", place, "--older-than", "1").output
    assert "removed 1 runs: two" in invoked("dataset", "expire", place, "--keep", "0").output
    with pytest.raises(NoRun, match="is no dataset of runs"):
        kraftsim.open_dataset(place)
    assert "no runs" in invoked("dataset", "list", place).output


def rows(commit: str, outcome: str) -> CampaignRows:
    """Return the rows of a campaign of one run."""
    place = {"commit": commit, "run": "one", "scenario": "tale"}
    return CampaignRows(
        seeds=(
            SeedRow(
                **place,
                started="2026-01-01T00:00:00+00:00",
                seed=1,
                release="3.9",
                bugs="<b>",
                outcome=outcome,
                events=5,
                virtual_s=1.5,
                cpu_s=0.25,
            ),
        ),
        faults=(FaultRow(**place, seed=1, fault="kill", armed=3, fired=2, effective=1),),
        verdicts=(
            VerdictRow(
                **place,
                seed=1,
                invariant="producer-id-unique",
                online=outcome,
                offline=outcome,
                examined=7,
                violations=1,
            ),
        ),
        exercised=(
            ExercisedRow(**place, kind="NodeReady", events=2),
            *never_exercised(["NodeReady"], commit),
        ),
        steps=(
            StepRow(**place, machine="transaction", from_state="", to_state="Ongoing", events=1),
        ),
    )


def test_campaigns_in_one_directory_are_compared(tmp_path: Path) -> None:
    """Each adds its rows."""
    generated_run(seconds=0.05).write(tmp_path / "one")
    ingest_runs([tmp_path / "one"], tmp_path / "out" / "events")
    for number, outcome in enumerate(("violated", "ok")):
        write_tables(tmp_path / "out", rows(f"c{number}", outcome), f"campaign-{number}")
    opened = kraftsim.open_dataset(tmp_path / "out")
    assert opened.sql("SELECT commit, outcome FROM seeds ORDER BY commit").to_pylist() == [
        {"commit": "c0", "outcome": "violated"},
        {"commit": "c1", "outcome": "ok"},
    ]
    found = opened.sql(
        "SELECT fault FROM faults JOIN seeds USING (run, commit) "
        "WHERE outcome = 'violated' AND effective > 0"
    )
    assert found.to_pylist() == [{"fault": "kill"}]
    steps = opened.sql("SELECT commit, machine, to_state FROM steps ORDER BY commit")
    assert [tuple(row.values()) for row in steps.to_pylist()] == [
        (commit, "transaction", "Ongoing") for commit in ("c0", "c1")
    ]
    unused = opened.sql("SELECT DISTINCT kind FROM exercised WHERE run = ''")
    assert sorted(unused.column("kind").to_pylist()) == [
        name for name in KINDS if name != "NodeReady"
    ]
    assert opened.sql("SELECT count(*) AS n FROM node_ready").to_pylist()[0]["n"] > 0
    page = write_page(tmp_path / "out", rows("<script>", "violated")).read_text()
    assert "Campaign of 1 runs" in page and "<script>" not in page
    assert page.count("<svg") == 8 and "producer-id-unique" in page
