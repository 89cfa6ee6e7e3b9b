"""The comparison of designs adds up the same with Spark: here, where Spark already runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraftsim.lab.campaign.comparison import (
    compare,
    rows_by_spark,
    rows_of,
    write_outcomes,
    write_report,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_computes_the_same_sums(spark: "SparkSession", tmp_path: Path) -> None:
    result = compare([1, 2], ["lease-pid", "kafka-since-2.5"])
    assert rows_by_spark(write_outcomes(result, tmp_path), "local[2]") == rows_of(result.outcomes)
    assert write_report(rows_of(result.outcomes), {"x": 1.0}, "again", tmp_path)[0].exists()
