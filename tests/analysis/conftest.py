"""One Spark session for all tests of the analysis: its Java takes longer to start than all tests
together.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraftsim.analysis.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Yield the session; tests that use it have the mark `spark`."""
    scratch: Path = tmp_path_factory.mktemp("spark")
    session = start_session(scratch)
    yield session
    session.stop()
