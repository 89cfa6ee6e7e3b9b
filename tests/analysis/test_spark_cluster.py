"""The pipeline on a Spark of its own: a standalone master with two workers, a job of spark-submit,
and a Spark Connect server. All of them on loopback.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner, Result

from kraftsim.analysis.analyze import analyze_run
from kraftsim.analysis.engines import Engine
from kraftsim.analysis.java import find, spark_java_home
from kraftsim.analysis.store import read_events
from kraftsim.cli.main import kraftsim
from kraftsim.cluster.ports import free_port_range
from tests.analysis.generated_run import generated_run

pytestmark = [pytest.mark.interop, pytest.mark.spark]

HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
START_SECONDS = 60.0
WORKERS = 2


def environment() -> dict[str, str]:
    """Return what a process of Spark needs."""
    return {
        **os.environ,
        "JAVA_HOME": str(spark_java_home(find())),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@contextmanager
def running(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of Spark as long as the block lasts."""
    with (
        open(log, "wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment()) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def wait_for(log: Path, words: str, process: "subprocess.Popen[bytes]") -> None:
    """Return when a process has logged these words."""
    give_up_at = time.monotonic() + START_SECONDS
    while words not in (text := log.read_text(errors="replace")):
        assert process.poll() is None and time.monotonic() < give_up_at, text[-3000:]
        time.sleep(0.1)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with two workers of one core each."""
    place = tmp_path_factory.mktemp("cluster")
    first = free_port_range(2 + 2 * WORKERS)
    url = f"spark://{LOOPBACK}:{first}"
    spark_class = str(HOME / "bin" / "spark-class")
    with ExitStack() as stack:
        process = stack.enter_context(
            running(
                place / "master.log",
                spark_class,
                "org.apache.spark.deploy.master.Master",
                *("--host", LOOPBACK, "--port", str(first), "--webui-port", str(first + 1)),
            )
        )
        wait_for(place / "master.log", "New state: ALIVE", process)
        for number in range(WORKERS):
            port = first + 2 + 2 * number
            log = place / f"worker-{number}.log"
            process = stack.enter_context(
                running(
                    log,
                    spark_class,
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", LOOPBACK, "--port", str(port), "--webui-port", str(port + 1)),
                    *("--cores", "1", "--memory", "1g", "--work-dir", str(place / "work")),
                    url,
                )
            )
            wait_for(log, "Successfully registered with master", process)
        yield url


def on_loopback() -> list[str]:
    """Return the settings with which a driver listens on loopback, below the ephemeral ports."""
    first = free_port_range(8)
    settings = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.port": first,
        "spark.blockManager.port": first + 1,
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
    }
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a violation."""
    generated_run(seconds=1.5).write(tmp_path / "run")
    return tmp_path / "run"


def expected(run: Path) -> dict[str, int]:
    """Return the violations of a run by DuckDB, after an ingest in this process."""
    verdicts = analyze_run(run, engine=Engine.DUCKDB).verdicts
    return {each.invariant: each.violation_count for each in verdicts if each.violation_count}


def invoked(*words: str) -> Result:
    """Run a verb in this process."""
    return CliRunner().invoke(kraftsim, words, standalone_mode=False)


def test_ingest_and_analyze_run_on_a_standalone_cluster(master: str, run: Path) -> None:
    """Every task runs on a worker, which has its own memory."""
    violations = expected(run)
    before = read_events(run / "events.parquet" / "run=run")
    (run / "analysis.json").unlink()
    done = invoked("ingest", str(run), "--master", master, *on_loopback())
    assert done.exception is None, done.output
    assert read_events(run / "events.parquet" / "run=run") == before
    for engine in ("spark", "spark-sql"):
        done = invoked("analyze", str(run), "--engine", engine, "--master", master, *on_loopback())
        assert done.exception is None and done.return_value == 1, done.output
        assert all(name in done.output for name in violations) and violations


def test_a_job_of_spark_submit_gives_the_same_verdicts(master: str, run: Path) -> None:
    """The session is that of the job."""
    violations = expected(run)
    (run / "analysis.json").unlink()
    job = subprocess.run(
        [sys.executable, "-m", "kraftsim.cli.spark_job"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(job).is_file()
    done = subprocess.run(
        [
            str(HOME / "bin" / "spark-submit"),
            *("--master", master, *on_loopback()),
            *(job, "analyze", str(run), "--json", str(run / "found.json")),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert all(name in done.stdout for name in violations) and violations
    assert (run / "found.json").exists()


def test_ingest_and_analyze_run_over_spark_connect(run: Path, tmp_path: Path) -> None:
    """The client has no JVM."""
    violations = expected(run)
    before = read_events(run / "events.parquet" / "run=run")
    (run / "analysis.json").unlink()
    port = free_port_range(1)
    log = tmp_path / "connect.log"
    with running(
        log,
        str(HOME / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", *on_loopback()),
        *("--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", f"spark.connect.grpc.binding.address={LOOPBACK}"),
        "spark-internal",
    ) as process:
        wait_for(log, "Spark Connect server started", process)
        remote = f"sc://{LOOPBACK}:{port}"
        words = ["-m", "kraftsim"]
        for verb in (["ingest", str(run)], ["analyze", str(run), "--engine", "spark"]):
            done = subprocess.run(
                [sys.executable, *words, *verb, "--remote", remote],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ,
            )
            assert done.returncode == (0 if verb[0] == "ingest" else 1), done.stdout + done.stderr
    assert read_events(run / "events.parquet" / "run=run") == before
    assert all(name in done.stdout for name in violations) and violations
