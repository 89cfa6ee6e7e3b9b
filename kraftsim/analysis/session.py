"""Starts Spark for one analysis, on this machine and for nobody else: two threads, loopback only, no web page, no chatter.

The flags make a Java that lives for seconds start faster: the quick compiler and the simple collector.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftsim.analysis.java import find, spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THREADS: Final = 2
LOOPBACK: Final = "127.0.0.1"
_QUIET_LOG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n
"""


@contextmanager
def spark_session(master: str = f"local[{THREADS}]") -> Iterator["SparkSession"]:
    """Give a Spark session: the one that is running in this process, or a new one that ends afterwards. Raises JavaMissing."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with tempfile.TemporaryDirectory(prefix="kraftsim-spark-") as scratch:
        session = start_session(Path(scratch), master)
        try:
            yield session
        finally:
            session.stop()


def start_session(scratch: Path, master: str = f"local[{THREADS}]") -> "SparkSession":
    """Start Spark with its files in `scratch`; the caller stops it. A master that is not on this machine must reach it. Raises JavaMissing."""
    import pyspark
    from pyspark.sql import SparkSession

    java = find()
    os.environ["JAVA_HOME"] = str(spark_java_home(java))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    is_here = master.startswith("local")
    if is_here:
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    quiet = scratch / "log4j2.properties"
    quiet.write_text(_QUIET_LOG, encoding="utf-8")
    builder = SparkSession.builder.master(master).appName("kraftsim")
    settings = {
        **({"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK} if is_here else {}),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile={quiet.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(THREADS),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
