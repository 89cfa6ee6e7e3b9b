"""The exactly-once scenario: any client consumes, transforms and produces a topic while members,
brokers and coordinators are killed.

Input records are written throughout. Members are processes that are restarted when they exit, as a
service manager would do; each keeps its name, so a restarted member has the same transactional id.
At the end every input has exactly one committed output, and the committed offsets of the group are
at the ends of the input.
Source: KIP-98, KIP-129, KIP-447.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.clients.transform_app.clusters import (
    PARTITIONS,
    QUIET,
    SECONDS,
    Brokers,
    coordinator_of,
    create_topics,
    elect_preferred_leaders,
    name_for,
    wait_until_in_sync,
)
from tests.clients.transform_app.readers import Reader

PER_SECOND = 400
COMMITTED_TOPICS = ("__transaction_state", "__consumer_offsets")
Command = Callable[["TransformApp", str], Sequence[str]]
"""Maps a scenario and the name of a member to the command that runs it."""


class Writer(threading.Thread):
    """Writes inputs at a constant rate until it is stopped; each has a unique key: its partition
    and number.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
            }
        )
        self._topic = topic
        self._is_over = threading.Event()
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        """Key -> partition and offset."""
        self.failures: list[KafkaError] = []

    def run(self) -> None:
        """Write."""
        number = 0
        while not self._is_over.wait(20 / PER_SECOND):
            for _ in range(20):
                key = b"%d.%d" % (number % PARTITIONS, number)
                self._producer.produce(
                    self._topic,
                    b"value of %s" % key,
                    key,
                    number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0)
        self.left = self._producer.flush(SECONDS)

    def finish(self) -> None:
        """Stop writing, and wait until everything is acknowledged."""
        self._is_over.set()
        self.join(2 * SECONDS)
        assert (self.left, self.failures) == (0, []), "every input is acknowledged"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            key, partition, offset = message.key(), message.partition(), message.offset()
            assert key is not None and partition is not None and offset is not None, (
                "a delivered record has a position"
            )
            self.acknowledged[key] = (partition, offset)


class TransformApp:
    """One group that processes one topic into another.

    Use as a context manager: on exit all members are stopped.
    """

    def __init__(
        self, brokers: Brokers, word: str, command: Command, reader: Callable[[str, str], Reader]
    ) -> None:
        self.brokers = brokers
        self.bootstrap = brokers.bootstrap
        self.word = word
        self.command = command
        self.input, self.output = f"{word}-in", f"{word}-out"
        create_topics(self.bootstrap, self.input, self.output)
        self.group = name_for(brokers, f"{word}-group", is_group=True)
        self.writer = Writer(self.bootstrap, self.input)
        self.reader = reader(self.bootstrap, self.output)
        self.found: Counter[bytes] = Counter()
        self.places: list[tuple[int, int, bytes]] = []
        self.starts: Counter[str] = Counter()
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._said: dict[str, IO[bytes]] = {}
        self._wanted: set[str] = set()
        self._directory = tempfile.TemporaryDirectory(prefix="copying-")

    def __enter__(self) -> "TransformApp":
        self.writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._members):
            self._end(name, signal.SIGKILL)
        self.writer._is_over.set()
        self.reader.close()
        if kind is not None:
            print(self.last_output())
        self._directory.cleanup()

    @property
    def directory(self) -> str:
        """A directory for the duration of the scenario."""
        return self._directory.name

    # Members
    # ----------------------------------------------------------------------------------------------

    def transactional_id(self, name: str) -> str:
        """Return the transactional id of a member."""
        return f"{self.word}-{name}"

    def begin(self, *names: str) -> None:
        """Start members."""
        for name in names:
            self._wanted.add(name)
            self._start(name)

    def kill_member(self, name: str) -> None:
        """Kill a member with SIGKILL; it is restarted at once."""
        self._members[name].kill()
        self._members[name].wait()
        self._start(name)

    def pause_member(self, name: str, seconds: float) -> None:
        """Pause a member until the group has rebalanced without it, then resume it with its open
        transaction.
        """
        self._members[name].send_signal(signal.SIGSTOP)
        try:
            self.read_for(seconds)
        finally:
            self._members[name].send_signal(signal.SIGCONT)

    def _start(self, name: str) -> None:
        self.starts[name] += 1
        # SIM115: closed when the member ends
        said = open(Path(self._directory.name) / f"{name}.log", "ab")  # noqa: SIM115
        self._said[name] = said
        self._members[name] = subprocess.Popen(
            list(self.command(self, name)), stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )

    def _end(self, name: str, number: signal.Signals) -> None:
        member = self._members.pop(name)
        self._said.pop(name).close()
        if member.poll() is None:
            member.send_signal(number)
            try:
                member.wait(10)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()

    def _look_after(self) -> None:
        for name in sorted(self._wanted):
            if self._members[name].poll() is not None:
                assert self.starts[name] < 40, f"{name} keeps exiting:\n{self.last_output()}"
                self._start(name)

    def last_output(self) -> str:
        """Return the last output of the members."""
        files = sorted(Path(self._directory.name).glob("*.log"))
        return "\n".join(
            (
                f"--- {file.stem} ({self.starts[file.stem]} times started)\n"
                f"{file.read_text(errors='replace')[-1500:]}"
            )
            for file in files
        )

    # Brokers
    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def without(self, broker_id: int) -> Iterator[None]:
        """Kill a broker for the block, then restart it and wait until it has caught up."""
        self.brokers.kill(broker_id)
        try:
            yield
        finally:
            self.brokers.restart(broker_id)
        wait_until_in_sync(self.bootstrap, self.input, self.output, *COMMITTED_TOPICS)

    def coordinator(self) -> int:
        """Return the coordinator of the group, after waiting until it is again a broker that may be
        killed.
        """
        give_up_at = time.monotonic() + SECONDS
        while (
            found := coordinator_of(self.bootstrap, self.group, is_group=True)
        ) not in self.brokers.killable:
            assert time.monotonic() < give_up_at, (
                f"broker {found} is the coordinator of {self.group}, and must not be killed"
            )
            elect_preferred_leaders(self.bootstrap)
        return found

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the transaction coordinator of a member, or another broker if that one must not be
        killed.
        """
        found = coordinator_of(self.bootstrap, transactional_id, is_group=False)
        return found if found in self.brokers.killable else self.brokers.killable[-1]

    # Outputs
    # ----------------------------------------------------------------------------------------------

    def read_for(self, seconds: float) -> None:
        """Read committed records for some time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._look_after()
            self._take(min(left, 0.2))

    def read_more(self, count: int) -> None:
        """Read until this many more outputs are committed."""
        wanted, give_up_at = self.found.total() + count, time.monotonic() + SECONDS
        while self.found.total() < wanted:
            assert time.monotonic() < give_up_at, (
                f"{self.found.total()} outputs, {wanted} are wanted:\n{self.last_output()}"
            )
            self._look_after()
            self._take(0.2)

    def finish(self) -> None:
        """Stop writing, wait until everything is processed, stop the members, and check that every
        input has exactly one committed output.
        """
        self.writer.finish()
        inputs = set(self.writer.acknowledged)
        before, give_up_at = len(self.found), time.monotonic() + SECONDS
        while len(self.found) < len(inputs):
            missing = sorted(inputs - set(self.found))
            if len(self.found) > before:
                before, give_up_at = len(self.found), time.monotonic() + SECONDS
            assert time.monotonic() < give_up_at, (
                f"{len(missing)} of {len(inputs)} have no output: {missing[:5]}\n"
                f"{self.last_output()}"
            )
            self._look_after()
            self._take(0.2)
        ends = self._until_group_is_at_the_end()
        self._wanted.clear()
        for name in list(self._members):
            self._end(name, signal.SIGTERM)
        self._take(0.5)
        doubled = {key: count for key, count in self.found.items() if count > 1}
        assert not doubled and set(self.found) == inputs, (
            f"doubled: {doubled}, strange: {set(self.found) - inputs}\n{self.last_output()}"
        )
        assert sum(ends) == len(inputs), (
            "the committed offsets of the group are the ends of the input"
        )

    def _take(self, seconds: float) -> None:
        for partition, offset, key in self.reader.read(seconds):
            self.found[key] += 1
            self.places.append((partition, offset, key))

    def _until_group_is_at_the_end(self) -> list[int]:
        admin = AdminClient({**QUIET, "bootstrap.servers": self.bootstrap})
        places = [TopicPartition(self.input, number) for number in range(PARTITIONS)]
        at_the_end = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # confluent_kafka does not annotate OffsetSpec
        asked = admin.list_offsets(
            dict.fromkeys(places, at_the_end), isolation_level=IsolationLevel.READ_COMMITTED
        )
        ends = [future.result(SECONDS).offset for future in asked.values()]
        give_up_at = time.monotonic() + SECONDS
        committed: list[int] = []
        while committed != ends:
            assert time.monotonic() < give_up_at, (
                f"committed {committed}, ends {ends}\n{self.last_output()}"
            )
            try:
                (future,) = admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(self.group, places)], require_stable=True
                ).values()
                committed = [
                    each.offset
                    for each in sorted(
                        future.result(SECONDS).topic_partitions, key=lambda each: each.partition
                    )
                ]
            except KafkaException:
                self._take(0.1)
            self._look_after()
        return ends


def inject_every_fault(transform_app: TransformApp, *, continues_without: bool = True) -> None:
    """Kill a member, pause another until the group has rebalanced without it, kill the
    coordinators, and add a member.

    For a client that waits for the killed broker instead of continuing with the others, the broker
    is restarted after some time.
    """

    def during_restart() -> None:
        if continues_without:
            transform_app.read_more(80)
        else:
            transform_app.read_for(1.0)

    transform_app.begin("0", "1")
    transform_app.read_more(80)
    transform_app.kill_member("0")
    transform_app.read_more(80)
    with transform_app.without(
        transform_app.transaction_coordinator(transform_app.transactional_id("1"))
    ):
        during_restart()
    transform_app.begin("2")
    transform_app.pause_member("1", 3.2)
    transform_app.read_more(80)
    with transform_app.without(transform_app.coordinator()):
        during_restart()
    transform_app.kill_member("2")
    transform_app.read_more(80)
    transform_app.finish()


def python(program: str) -> Command:
    """Return the command of an app in Python, in the directory of this file."""

    def command(transform_app: TransformApp, name: str) -> Sequence[str]:
        file = str(Path(__file__).with_name(f"{program}.py"))
        return [
            sys.executable,
            file,
            transform_app.bootstrap,
            transform_app.group,
            transform_app.input,
            transform_app.output,
            transform_app.transactional_id(name),
        ]

    return command


assert os.name == "posix", "members are stopped and continued by signals"
