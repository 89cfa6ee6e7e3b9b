"""Spark and DuckDB find the same: all rules about logs, over sound and damaged tables."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraftsim.audit.judging import RULES, judge_in_tasks, judge_with_duckdb, judge_with_spark
from tests.audit.sound_logs import TRANSACTIONAL, cluster, write_log
from tests.audit.tables_of import Disks, producer_row
from tests.audit.test_checks_logs import log_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.spark]


def damaged(*, is_clean: bool) -> Disks:
    """Return three replicas with a defect for nearly every rule."""
    disks, logs = cluster(is_clean=is_clean)
    one, two, three = logs
    one.batches[1].update(crc_valid=False, records=1, crc=1)
    one.problem("torn", is_tail=True)
    one.problem("index", file=one.file(0, "txnindex"), position=24)
    one.replica.update(high_watermark=20, recovery_point=20, log_start_offset=0)
    two.batches[0].update(base_sequence=1, last_sequence=3)
    two.produce(5, 0, 3, 2)
    two.marker("ABORT", TRANSACTIONAL, 1)
    two.batch(leader_epoch=3)
    two.batch(leader_epoch=2)
    two.replica["topic_id"] = "id-of-payments"
    del three.batches[2]
    three.snapshot(producer_row(77, 1, last_offset=3), offset=10)
    three.transact(TRANSACTIONAL, 2, 0)
    three.epochs((0, 4), (7, 2))
    with_coordinator = disks.broker(4, is_clean=is_clean)
    with_coordinator.log("__transaction_state").batch()
    other = write_log(with_coordinator, "payments")
    other.batches[-1]["control_type"] = "ABORT"
    del other.batches[1]
    short = disks.broker(5, is_clean=is_clean).log("payments")
    short.batch()
    short.batch(base_offset=0)
    disks.topic("payments", isr="[4,5]")
    disks.topic("__transaction_state", isr="[4]")
    return disks


SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""For a few rows: to compile a query takes longer than to run it."""


def test_rules_as_tasks_of_spark_find_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    damaged(is_clean=False).write(tmp_path)
    rules = RULES.all()
    calls: list[tuple[int, int]] = []
    found = judge_in_tasks(spark, tmp_path, rules, lambda done, total: calls.append((done, total)))
    assert found == judge_with_duckdb(tmp_path, rules)
    assert calls[-1] == (len(rules), len(rules))


def test_both_engines_find_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    damaged(is_clean=True).write(tmp_path)
    session = spark.newSession()
    for key, value in SMALL.items():
        session.conf.set(key, value)
    rules = log_rules()
    by_duckdb = judge_with_duckdb(tmp_path, rules)
    assert judge_with_spark(session, tmp_path, rules) == by_duckdb
    assert {each.rule for each in by_duckdb if each.defect_count} == {each.name for each in rules}
    assert any(each.undecided_count for each in by_duckdb)
