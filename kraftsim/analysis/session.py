"""Starts Spark for one analysis in this process: two threads, loopback only, no web UI, little
logging.

The flags make a short-lived Java start faster: the C1 compiler and the serial collector. With C1
alone Java reserves 48 MiB for compiled code; the queries over a run of 170,000 events need more,
and a full code cache disables the compiler.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.analysis.java import LOG_VARIABLE, JavaMissing, find, spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THREADS: Final = 2
"""Where the number of cores is unknown."""
LOOPBACK: Final = "127.0.0.1"
JAVA_FLAGS_OF_LARGE_RUNS: Final = (
    "-XX:+UseParallelGC -XX:ReservedCodeCacheSize=512m -XX:+DisplayVMOutputToStderr"
)
JAVA_FLAGS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC "
    "-XX:+DisplayVMOutputToStderr"
)
"""Memory of the code cache is reserved, and committed as it fills.

Warnings of the JVM go to standard error: see LOG_VARIABLE.
"""
LAST_LINES: Final = 5
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit`, which has started the JVM."""
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


class SparkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where Spark runs: `--master`, `--remote` (Spark Connect), and `--conf KEY=VALUE`."""

    master: str = ""
    remote: str = ""
    conf: Mapping[str, str] = {}

    @property
    def is_asked(self) -> bool:
        """Return whether a Spark was asked for: by an option, or by `spark-submit`."""
        return bool(self.master or self.remote or self.conf) or SUBMITTED in os.environ


@contextmanager
def spark_session(
    options: SparkOptions | None = None, *, is_large: bool = False
) -> Iterator["SparkSession"]:
    """Yield a Spark session: the one that is running in this process, or a new one that is stopped
    afterwards. With `is_large` its Java is set up for minutes of work instead of a quick start.

    Raises JavaMissing.
    """
    from pyspark.sql import SparkSession

    options = options or SparkOptions()
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    if options.remote:
        session = _connected(options)
        try:
            yield session
        finally:
            session.stop()
        return
    with tempfile.TemporaryDirectory(prefix="kraftsim-spark-") as scratch:
        session = start_session(Path(scratch), options, is_large=is_large)
        try:
            yield session
        finally:
            session.stop()


def _connected(options: SparkOptions) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(options.remote)
    for key, value in options.conf.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def start_session(
    scratch: Path, options: SparkOptions | None = None, *, is_large: bool = False
) -> "SparkSession":
    """Start Spark with its files in `scratch`; the caller stops it.

    Under `spark-submit` the master and the settings of the command hold. A master on another
    machine must be able to connect back. Raises JavaMissing.
    """
    options = options or SparkOptions()
    if SUBMITTED in os.environ:
        return _submitted(options)
    master = options.master or f"local[{os.cpu_count() or THREADS}]"
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
            f"{JAVA_FLAGS_OF_LARGE_RUNS if is_large else JAVA_FLAGS} "
            f"-Dlog4j2.configurationFile={quiet.as_uri()}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(THREADS),
        **options.conf,
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


def _submitted(options: SparkOptions) -> "SparkSession":
    """Return the session of a job of `spark-submit`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kraftsim").config("spark.sql.session.timeZone", "UTC")
    if options.master:
        builder = builder.master(options.master)
    for key, value in options.conf.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session
