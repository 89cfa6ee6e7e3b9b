"""A real Apache Kafka on this machine: one combined KRaft node on loopback, started in about three
seconds, and Kafka's command-line tools.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kraftsim.cluster.apache_kafka.jars import KafkaJars, while_alone
from kraftsim.cluster.apache_kafka.storage import format_copy, formatted_template
from kraftsim.cluster.spec import DEFAULT_CLUSTER_ID
from tests.apache_kafka.class_path import (
    DEFAULT_RELEASE,
    class_path,
    has_class,
    has_tools,
    jars_of,
    java,
    shell_class_path,
)

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
"""For tests: a fast start, slow afterwards."""
ARCHIVES = "ArchiveClassesAtExit"
SERVER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Xmx1G",
    "-Xms1G",
)
"""For benchmarks: the flags of kafka-server-start.sh."""
CLUSTER_ID = DEFAULT_CLUSTER_ID
ROLES = "broker,controller"
NODE_ID = "1"
START_SECONDS = 120.0
STOP_SECONDS = 30.0
TOOL_SECONDS = 120.0
SHELL_SECONDS, SHELL_PAUSE_SECONDS = 90.0, 1.0
"""Seconds that the metadata shell usually needs to read a small snapshot."""

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "producer-performance": "org.apache.kafka.tools.ProducerPerformance",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "dump-log": "kafka.tools.DumpLogSegments",
    "storage": "kafka.tools.StorageTool",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
}
MOVED = {
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
"""Main classes of later releases: each moved in a different release."""
TOOLS_OF_4 = "4.1.2"
"""The release whose tools replace those of a 4.x release without tools."""
OF_THE_SERVER = ("storage",)
"""Tools that are in the jar of the server."""


def run_java(
    release: str, main_class: str, *arguments: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a main class of a release until it exits."""
    command = java_command(release, main_class, *arguments, jvm=QUICK_JVM)
    return subprocess.run(
        command,
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )


def run_tool(release: str, tool: str, *arguments: str, stdin: str | None = None) -> str:
    """Run one of Kafka's command-line tools and return its output.

    A failing tool is a failed assertion with its output.
    """
    lender = release if tool in OF_THE_SERVER or has_tools(release) else TOOLS_OF_4
    moved = MOVED.get(tool)
    main_class = moved if moved is not None and has_class(lender, moved) else TOOLS[tool]
    done = run_java(lender, main_class, *arguments, stdin=stdin)
    assert done.returncode == 0, (
        f"{tool} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


def dump_log(*files: Path, release: str = DEFAULT_RELEASE, metadata: bool = False) -> str:
    """Return the output of Kafka's DumpLogSegments for log, index or snapshot files."""
    decoder = (
        ["--cluster-metadata-decoder"] if metadata else ["--print-data-log", "--deep-iteration"]
    )
    return run_tool(release, "dump-log", *decoder, "--files", ",".join(str(file) for file in files))


def metadata_shell(
    snapshot: Path, *commands: str, wanted: set[str], release: str = DEFAULT_RELEASE
) -> set[str]:
    """Return the words that Kafka's metadata shell prints for commands on its standard input.

    It accepts commands before it has loaded everything: they are repeated until it has printed what
    is wanted, for SHELL_SECONDS at most.
    """
    jars = ":".join(str(jar) for jar in shell_class_path(release))
    command = [
        str(java()),
        *QUICK_JVM,
        "-cp",
        jars,
        "org.apache.kafka.shell.MetadataShell",
        "--snapshot",
        str(snapshot),
    ]
    words: set[str] = set()
    with (
        tempfile.NamedTemporaryFile() as printed,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=printed, stderr=subprocess.DEVNULL, text=True
        ) as shell,
    ):
        give_up_at = time.monotonic() + SHELL_SECONDS
        while not wanted <= words and time.monotonic() < give_up_at and shell.poll() is None:
            assert shell.stdin is not None, "a pipe"
            shell.stdin.write("".join(f"{line}\n" for line in commands))
            shell.stdin.flush()
            time.sleep(SHELL_PAUSE_SECONDS)
            words = set(Path(printed.name).read_text().split())
        shell.communicate("exit\n", timeout=TOOL_SECONDS)
    assert shell.returncode == 0, sorted(words)
    return words


def java_command(
    release: str, main_class: str, *arguments: str, jvm: tuple[str, ...] = QUICK_JVM
) -> list[str]:
    """Return the command that runs a main class of a release; with the quick flags it reads the
    archive of classes, if there is one.
    """
    jars = jars_of(release)
    archive = _class_archive(jars)
    if archive.exists() and QUICK_JVM[0] in jvm and not any(ARCHIVES in each for each in jvm):
        jvm = (*jvm, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off")
    return jars.command(main_class, *arguments, jvm=jvm)


def archive_classes(release: str) -> None:
    """Write the archive of the classes that a node of a release loads, once on a machine: Java that
    reads it starts a node with a third less CPU time.

    Java ignores an archive that another Java or class path has written. Source: JEP 350.
    """
    archive = _class_archive(jars_of(release))
    with while_alone(archive.parent):
        if not archive.exists():
            written = archive.with_suffix(".new")
            node = ApacheKafka(release, jvm=(*QUICK_JVM, f"-XX:{ARCHIVES}={written}"))
            try:
                node.start()
                node.stop()
            finally:
                node.remove()
            if written.exists():
                written.replace(archive)


def _class_archive(jars: KafkaJars) -> Path:
    return jars.directory / "classes.jsa"


@dataclass(slots=True)
class ApacheKafka:
    """One combined broker and controller, or the roles in `process.roles`.

    Use as a context manager.

    `settings` are Kafka properties that override those derived here. A new cluster starts at
    `metadata_version`, by default that of the release.
    """

    release: str = DEFAULT_RELEASE
    settings: dict[str, str] = field(default_factory=dict)
    jvm: tuple[str, ...] = QUICK_JVM
    port: int = 0
    controller_port: int = 0
    metadata_version: str = ""
    directory: Path = Path()
    started_seconds: float = 0.0
    _launched: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _is_own: bool = False
    """Whether the harness writes the directory and the property file; otherwise they exist
    already.
    """
    _written: str = ""
    """What was last written to the property file: a test may change the file, or the settings here,
    between two starts.
    """

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def controller(self) -> str:
        """The address of the controller listener, where brokers register."""
        return f"127.0.0.1:{self.controller_port}"

    @property
    def data(self) -> Path:
        """The node's log directory."""
        return self.directory / "data"

    @property
    def directory_id(self) -> str:
        """The id of the log directory, from meta.properties."""
        lines = (self.data / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))

    @property
    def pid(self) -> int:
        """The process id of the node."""
        assert self._process is not None, "the node was started"
        return self._process.pid

    def __enter__(self) -> "ApacheKafka":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Kill the node and delete its data."""
        self.stop(cleanly=False)
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        """Return whether the node was started and has neither been stopped nor exited."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the node on free ports and return when it responds.

        Raises Missing without Java or Maven.
        """
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the node; call `wait` before anything else.

        Controllers that need each other are all launched before the first `wait`.
        """
        class_path(self.release)
        if self.directory == Path():
            self.directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
            format_copy(
                jars_of(self.release),
                self.data,
                node_id=int(self.settings.get("node.id", NODE_ID)),
                cluster_id=CLUSTER_ID,
                version=self.metadata_version,
                is_controller="controller" in self.settings.get("process.roles", ROLES),
            )
            free = _free_ports(2)
            self.port, self.controller_port = self.port or free[0], self.controller_port or free[1]
            self._is_own = True
        properties = (
            _properties(self.data, self.port, self.controller_port, self.settings)
            if self._is_own
            else self._written
        )
        if properties != self._written:
            (self.directory / "server.properties").write_text(properties)
            self._written = properties
        self._launched = time.monotonic()
        with open(self.directory / "server.log", "ab") as log:
            command = java_command(
                self.release, "kafka.Kafka", str(self.directory / "server.properties"), jvm=self.jvm
            )
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        """Return when the node responds."""
        assert self._process is not None, "the node was launched"
        while not _answers(
            self.port
            if "broker" in self.settings.get("process.roles", ROLES)
            else self.controller_port
        ):
            words = (self.directory / "server.log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, (
                f"Apache Kafka ended with {self._process.returncode}:\n{words}"
            )
            assert time.monotonic() - self._launched < START_SECONDS, (
                f"Apache Kafka does not answer:\n{words}"
            )
            time.sleep(0.05)
        self.started_seconds = time.monotonic() - self._launched

    def stop(self, *, cleanly: bool = True) -> None:
        """Stop the node with SIGTERM or SIGKILL.

        It can be restarted with the same directory and port.
        """
        if self._process is None:
            return
        if cleanly:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        else:
            self._process.kill()
        self._process.wait()
        self._process = None

    def tool(self, tool: str, *arguments: str, stdin: str | None = None) -> str:
        """Run a tool of this release against this node and return its output."""
        server = (
            "--broker-list"
            if tool == "verifiable-producer" and self.release.startswith("3.")
            else "--bootstrap-server"
        )
        return run_tool(self.release, tool, server, self.bootstrap, *arguments, stdin=stdin)


def _properties(data: Path, port: int, controller_port: int, settings: dict[str, str]) -> str:
    own_controller = f"CONTROLLER://127.0.0.1:{controller_port}"
    own_clients = f"PLAINTEXT://127.0.0.1:{port}"
    role_properties = {
        ROLES: {
            "listeners": f"{own_clients},{own_controller}",
            "advertised.listeners": own_clients,
        },
        "broker": {"listeners": own_clients},
        "controller": {"listeners": own_controller},
    }
    properties = {
        "process.roles": ROLES,
        "node.id": NODE_ID,
        **role_properties[settings.get("process.roles", ROLES)],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        **settings,
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _formatted(release: str, metadata_version: str = "") -> Path:
    """Return a formatted directory to copy: the storage tool starts another Java, so it runs once
    per release and version.
    """
    return formatted_template(jars_of(release), metadata_version)


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _answers(port: int) -> bool:
    """Send ApiVersions version 0 as literal bytes: the harness must not depend on the codec under
    test.
    """
    question = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(question)
            return len(connection.recv(4)) == 4
    except OSError:
        return False
