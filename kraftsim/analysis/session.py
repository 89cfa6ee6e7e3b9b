"""Starts Spark for one analysis in this process: two threads, loopback only, no web UI, little
logging.

The flags make a short-lived Java start faster: the C1 compiler and the serial collector. With C1
alone Java reserves 48 MiB for compiled code; the queries over a run of 170,000 events need more,
and a full code cache disables the compiler.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftsim.analysis.java import LOG_VARIABLE, JavaMissing, find, spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THREADS: Final = 2
LOOPBACK: Final = "127.0.0.1"
JAVA_FLAGS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC "
    "-XX:+DisplayVMOutputToStderr"
)
"""Memory of the code cache is reserved, and committed as it fills.

Warnings of the JVM go to standard error: see LOG_VARIABLE.
"""
LAST_LINES: Final = 5
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
    """Yield a Spark session: the one that is running in this process, or a new one that is stopped
    afterwards.

    Raises JavaMissing.
    """
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
    """Start Spark with its files in `scratch`; the caller stops it.

    A master on another machine must be able to connect back. Raises JavaMissing.
    """
    import pyspark
    from pyspark.errors import PySparkRuntimeError
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
    log = scratch / "java.log"
    os.environ[LOG_VARIABLE] = str(log)
    builder = SparkSession.builder.master(master).appName("kraftsim")
    settings = {
        **(
            {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK} if is_here else {}
        ),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": (
            f"{JAVA_FLAGS} -Dlog4j2.configurationFile={quiet.as_uri()}"
        ),
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
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as trouble:
        words = (
            log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
            if log.exists()
            else []
        )
        raise JavaMissing(
            f"Spark did not start with Java {java.version} at {java.home}: "
            f"{' / '.join(words) or trouble}"
        ) from trouble
    finally:
        del os.environ[LOG_VARIABLE]  # the file goes with `scratch`, and JAVA_HOME stays
