"""A campaign on Spark: tasks simulate in child processes, SQL checks every run, and the results
must equal those of the online checks.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kraftsim.analysis.access import open_dataset
from kraftsim.analysis.dataset import Dataset
from kraftsim.cli.main import kraftsim
from kraftsim.lab.campaign import spark as campaign_spark
from kraftsim.lab.campaign.spark import sweep_on_spark
from kraftsim.lab.campaign.sweep import sweep
from kraftsim.lab.campaign.worker_pool import Terms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME, CHEAP, BUG = "producer_ids_survive_failover", "idempotent_producers_under_kill", "KAFKA-10533"
SEEDS = range(1, 3)


@pytest.mark.spark
@pytest.mark.interop
def test_seeds_run_in_spark_tasks_and_sql_agrees_with_python_checks(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The same findings as on one machine, events of each run in its partition, and no differing
    result.
    """
    words = [
        "sweep",
        NAME,
        CHEAP,
        "--seeds",
        str(len(SEEDS)),
        "--bug",
        BUG,
        "--spark",
        "local[2]",
        "--out",
        str(tmp_path),
        "--json",
        str(tmp_path / "found.json"),
    ]
    done = CliRunner().invoke(kraftsim, words, standalone_mode=False)
    assert done.return_value == 1, done.output
    found = json.loads((tmp_path / "found.json").read_text())
    here = sweep(NAME, seeds=SEEDS, terms=Terms(bugs=(BUG,)), keep_going=True, workers=1)
    there = next(each for each in found["sweeps"] if each["scenario"] == NAME)
    assert [
        (run["seed"], run["events_sha256"], tuple(run["violations"])) for run in there["found"]
    ] == [(run.seed, run.events_sha256, run.violations) for run in here.found]
    assert found["judged"] and all(
        each["online"] == each["offline"] == "violated" for each in found["judged"]
    )
    assert found["verdicts"] > 2 * len(SEEDS) * len(found["judged"]) / len(there["found"]) > 0, (
        "clean results were compared too"
    )
    assert all(
        f"  {each['seed']:>8}  {each['invariant']}" in done.output for each in found["judged"]
    )
    counts = [
        Dataset(tmp_path / "events").manifest(f"{name}-{seed}-{BUG}").ingest.event_count
        for name in (NAME, CHEAP)
        for seed in SEEDS
    ]
    assert sum(counts) == found["events"] and min(counts) > 0
    steps = open_dataset(tmp_path).sql("SELECT DISTINCT from_state, to_state FROM steps")
    assert ("Candidate", "Leader") in {tuple(row.values()) for row in steps.to_pylist()}
    assert (Path(there["found"][0]["out"]) / "replay.json").exists()


OF_ONE_NAME = {"SegmentList.settings"}
"""A property and its setter: the run executes one of them."""


@pytest.mark.spark
@pytest.mark.interop
def test_code_paths_are_a_table_and_the_event_logs_stay_the_same(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """`code` has functions that a run executes, `unexecuted` what none does; a line is in one of
    them.
    """
    plain = sweep(CHEAP, seeds=[1], keep_going=True, workers=1)
    result = sweep_on_spark(
        (CHEAP,),
        seeds=[1, 2],
        master="local[2]",
        terms=Terms(code_paths=True),
        out=tmp_path,
        spark=spark,
    )
    assert result.events and not (tmp_path / "code").exists() and not plain.found
    tables = open_dataset(tmp_path)
    both = tables.sql(
        "SELECT c.file, c.function, sum(c.statements) FILTER (c.run LIKE '%-1') AS statements,"
        " max(c.executed) AS executed, count(DISTINCT u.line) AS missing"
        " FROM code c LEFT JOIN unexecuted u"
        " ON u.file = c.file AND u.function = c.function AND u.kind = 'line' GROUP BY ALL"
    ).to_pylist()
    found = {row["function"]: row for row in both}
    assert found["ProducerStateManager.check"]["executed"] > 0
    assert all(
        row["executed"] + row["missing"] <= row["statements"]
        for row in both
        if row["statements"] is not None and row["function"] not in OF_ONE_NAME
    )
    assert any(not row["missing"] for row in both) and any(row["missing"] for row in both)
    never = tables.sql("SELECT DISTINCT file FROM unexecuted WHERE kind = 'line'").to_pylist()
    assert {"file": "kraftsim/lease_pid/rules_broker.py"} in never, "the scenario has no leases"
    page = (tmp_path / "campaign.html").read_text()
    assert "Rules that no run executes" in page


@pytest.mark.spark
def test_differing_results_of_the_two_forms_are_a_finding(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the SQL found nothing, a comparing campaign must report it; the Spark worker itself is
    unchanged, since runs are in child processes.
    """
    monkeypatch.setattr(campaign_spark, "find_rows", lambda *asked: [])
    seeds: list[int] = []
    result = sweep_on_spark(
        (CHEAP,),
        seeds=[1],
        master="local[2]",
        out=tmp_path,
        spark=spark,
        report=lambda progress: seeds.append(progress.seeds),
    )
    assert seeds == [1] and not (tmp_path / "done").exists()
    assert result.has_violations and not any(each.is_agreed for each in result.judged)
    assert {(each.online, each.offline) for each in result.judged} >= {("ok", "vacuous")}
    assert spark.sparkContext.parallelize([1]).map(_uses_what_simulations_forbid).collect() == [
        True
    ]


def _uses_what_simulations_forbid(number: int) -> bool:
    import threading
    import time

    thread = threading.Thread(target=time.sleep, args=(0.001,))
    thread.start()
    thread.join()
    return time.time() > 1_000_000_000


def test_remote_workers_need_a_shared_directory() -> None:
    """Otherwise the events of a run would be in a directory that the driver does not read."""
    with pytest.raises(ValueError, match="use --out"):
        sweep_on_spark((CHEAP,), seeds=[1], master="spark://nowhere:7077")
