"""The rules about coordinators, metadata and tiers give on Spark what they give on DuckDB."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraftsim.audit.judging import judge_with_duckdb, judge_with_spark
from tests.audit.metadata_cases import CASES, built

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = list(dict.fromkeys(rule.name for _, rule, *_ in CASES))


def case_of(rule_name: str) -> int:
    """Return a case with a defect of a rule."""
    return next(
        number
        for number, (_, rule, _, message, is_defect, _) in enumerate(CASES)
        if rule.name == rule_name and message is not None and is_defect
    )


@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.parametrize("rule_name", RULES)
def test_engines_agree(rule_name: str, spark: "SparkSession", tmp_path: Path) -> None:
    """A defect has the same witnesses and the same text."""
    case = built(case_of(rule_name))
    case.disks.finish()
    case.disks.write(tmp_path)
    result = judge_with_spark(spark, tmp_path, [case.rule])
    assert result == judge_with_duckdb(tmp_path, [case.rule])
    assert result[0].defect_count > 0
