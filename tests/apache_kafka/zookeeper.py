"""A real Apache ZooKeeper on this machine: the release that Apache Kafka 3.9 depends on, one server
on loopback, started in about a second.
"""

import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from kraftsim.cluster.apache_kafka.jars import LOG4J
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path, java

START_SECONDS = 60.0
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx256m",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
)


class ApacheZookeeper:
    """Use as a context manager.

    It listens at `port`; `directory` has its files, which may already exist.
    """

    def __init__(self, directory: Path | None = None, *, tick_ms: int = 2000) -> None:
        self._own = (
            tempfile.TemporaryDirectory(prefix="kraftsim-zookeeper-") if directory is None else None
        )
        self.directory = Path(self._own.name) if self._own is not None else directory or Path()
        self._words = tempfile.TemporaryDirectory(prefix="kraftsim-zookeeper-")
        self._tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]

    def __enter__(self) -> "ApacheZookeeper":
        return self

    def start(self) -> None:
        """Start the server. Raises Missing."""
        logging = Path(self._words.name) / "log4j.properties"
        logging.write_text(LOG4J)
        command = [
            str(java()),
            *JVM,
            f"-Dlog4j.configuration={logging.as_uri()}",
            "-cp",
            ":".join(map(str, class_path(DEFAULT_RELEASE))),
            MAIN,
            str(self.port),
            str(self.directory),
            str(self._tick_ms),
        ]
        words = Path(self._words.name) / "words"
        with words.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        give_up_at = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                said = words.read_text(errors="replace")[-3000:]
                self.stop()
                raise AssertionError(f"Apache ZooKeeper does not come up:\n{said}")
            time.sleep(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._own is not None:
            self._own.cleanup()

    def stop(self) -> None:
        """Kill the server: acknowledged writes are in its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._words.cleanup()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Zxid" in connection.recv(
                    1 << 16
                )  # ruok is answered before sessions are accepted
        except OSError:
            return False
