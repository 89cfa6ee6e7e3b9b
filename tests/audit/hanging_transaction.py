"""A hanging transaction in Apache Kafka, from its beginning to its end: the worked example of
docs/after-an-incident.md.

The second producer's last batch arrives after its transaction was committed, as after a lost
response and a late retry. The broker does not verify transactions, as before 3.6 (KIP-890), so the
batch begins a transaction that no coordinator will end.
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from kraftsim.cli.main import main
from kraftsim.cluster.ports import free_port_range
from kraftsim.conformance.marker_client import TransactionAt
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.conformance.transaction_client import find_transaction_coordinator
from protocol.errors import ErrorCode
from tests.apache_kafka.class_path import has_tools
from tests.apache_kafka.harness import TOOLS_OF_4, ApacheKafka, run_java

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
TOPIC, GROUP = "payments", "ledger"
FIRST, SECOND = "payments-1", "payments-2"
COMMITTED_BEFORE, COMMITTED_BEHIND = 18, 20
"""Records of committed transactions before and behind the hanging one."""
READ_MS = "5000"
READER = (
    *("--topic", TOPIC, "--group", GROUP, "--isolation-level", "read_committed"),
    *("--from-beginning", "--timeout-ms", READ_MS),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command as an operator types it, what it printed, and how it ended."""

    command: str
    output: str
    exit_code: int


@dataclass(slots=True)
class Incident:
    """The steps so far, in a directory of their own."""

    directory: Path
    kafka: ApacheKafka
    steps: list[Step] = field(default_factory=list)

    def java(self, main_class: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a tool of the release, or of one whose tools the registry has."""
        release = self.kafka.release
        return run_java(release if has_tools(release) else TOOLS_OF_4, main_class, *words)

    def tool(self, script: str, main_class: str, *arguments: str) -> Step:
        """Run one of Kafka's tools."""
        words = ("--bootstrap-server", self.kafka.bootstrap, *arguments)
        done = self.java(main_class, *words)
        said = done.stdout.strip() or done.stderr.strip()
        return self._add(" ".join((script, *words)), said, done.returncode)

    def shell(self, line: str) -> Step:
        """Run a line that an audit has printed for the operator."""
        script, *words = line.replace("HOST:PORT", self.kafka.bootstrap).split()
        assert script == "kafka-transactions.sh", "the only tool that an audit names"
        done = self.java(TRANSACTIONS, *words)
        return self._add(" ".join((script, *words)), done.stdout.strip(), done.returncode)

    def audit(self, *arguments: str) -> Step:
        """Run `kraftsim audit` in the directory."""
        written = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["kraftsim", "audit", *arguments]),
            contextlib.redirect_stdout(written),
            _inside(self.directory),
        ):
            try:
                main()
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
        return self._add(f"kraftsim audit {' '.join(arguments)}", written.getvalue(), code)

    def copy(self, name: str) -> None:
        """Stop the broker cleanly, copy its log directory, and start it again."""
        self.kafka.stop()
        shutil.copytree(self.kafka.data, self.directory / name)
        self.kafka.start()

    def _add(self, command: str, output: str, exit_code: int) -> Step:
        self.steps.append(Step(command, output.rstrip(), exit_code))
        return self.steps[-1]


@contextmanager
def incident(directory: Path, release: str) -> Iterator[Incident]:
    """Yield a broker on which a transaction hangs."""
    port = free_port_range(2)
    with ApacheKafka(
        release=release, settings=UNVERIFIED, port=port, controller_port=port + 1
    ) as kafka:
        target = Target(kafka.bootstrap)
        topic = target.topic(name=TOPIC)
        first, second = _producer(target, topic, FIRST), _producer(target, topic, SECOND)
        for number in range(4):
            first.wrote(number * 5, 5)
            first.ended(commits=number % 4 != 3)
        second.wrote(0, 3)
        second.ended(commits=True)
        late = second.write(3, 2)
        assert late.error_code == ErrorCode.NONE, "the broker takes the late batch"
        for number in range(4, 8):
            first.wrote(number * 5, 5)
            first.ended(commits=True)
        yield Incident(directory, kafka)


def _producer(target: Target, topic: TargetTopic, name: str) -> TransactionAt:
    """Return a producer with this transactional id."""
    found = TransactionAt(target, topic)
    found.id.name = name
    found.id.address = find_transaction_coordinator(target, name)
    found.producer = found.id.producer()
    return found


def consumed(found: Incident) -> int:
    """Let the group read what a read_committed consumer can read; return the number of records."""
    done = found.java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", found.kafka.bootstrap),
        *READER,
    )
    return len(done.stdout.splitlines())


def lag(found: Incident) -> Step:
    """Show how far the group is."""
    return found.tool(
        "kafka-consumer-groups.sh",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--describe", "--group", GROUP),
    )


@contextmanager
def _inside(directory: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def shown(steps: Sequence[Step]) -> str:
    """Return the steps as they are in the page."""
    return "\n\n".join(f"$ {each.command}\n{each.output}" for each in steps)
