"""The Spark session of the tests of the audit: that of the process, if there is one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kraftsim.analysis.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Yield the session; tests that use it have the mark `spark`, or `interop`."""
    with spark_session() as session:
        yield session
