"""Apache Kafka's share consumers in one Java process (ShareConsumers.java), driven call by call."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.apache_kafka.class_path import class_path, java
from tests.apache_kafka.harness import QUICK_JVM

COMPILED_WITH = "4.2.2"
"""The first release whose clients renew; the program runs with any."""
PROCESS_SECONDS = 240
COMPILER_SECONDS = 120


class Shared(NamedTuple):
    """A record that a share consumer got."""

    partition: int
    offset: int
    delivery_count: int
    value: str

    @property
    def place(self) -> str:
        """How the program names it."""
        return f"{self.partition}-{self.offset}"


class ClientFailed(Exception):
    """A call of a share consumer threw: the name of the exception, and its message."""


class JavaConsumer:
    """A KafkaShareConsumer. Each call raises ClientFailed if it threw."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self._name = name

    def ask(self, *words: str) -> list[str]:
        """Run one call, and return the words of its result."""
        assert self._process.stdin is not None and self._process.stdout is not None, "pipes"
        self._process.stdin.write(" ".join((self._name, *words)) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("= !"):
                raise ClientFailed(line[3:].strip())
            if line.startswith("="):
                return line[1:].split()
        raise AssertionError(f"the client ended at: {' '.join(words)}")

    def poll(self, seconds: float = 1.0) -> list[Shared]:
        """Return what one poll returns."""
        found = []
        for word in self.ask("poll", str(round(seconds * 1000))):
            place, count, value = word.split(":")
            partition, offset = map(int, place.split("-"))
            found.append(Shared(partition, offset, int(count), value))
        return found

    def poll_some(self, polls: int = 20) -> list[Shared]:
        """Return what the first poll with a result returns."""
        for _ in range(polls):
            if found := self.poll():
                return found
        raise AssertionError(f"{polls} polls returned nothing")

    def acknowledge(self, record: Shared, how: str) -> None:
        """Acknowledge a record that this consumer got."""
        self.ask("acknowledge", record.place, how)

    def commit(self) -> dict[int, str]:
        """Return the exception of each partition, NONE if there is none."""
        return {
            int(partition): error
            for partition, error in (word.split(":") for word in self.ask("commit"))
        }

    def close(self) -> None:
        """Acknowledge what is pending, and leave the group."""
        self.ask("close")


class JavaConsumers:
    """All consumers of a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._opened = 0

    def open(self, group_id: str, topic: str, **settings: object) -> JavaConsumer:
        """Return a consumer that subscribes to a topic; underscores of settings are dots."""
        self._opened += 1
        consumer = JavaConsumer(self._process, str(self._opened))
        words = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        consumer.ask("open", group_id, topic, *words)
        return consumer


def compiled(folder: Path) -> Path:
    """Compile the program."""
    jars = ":".join(map(str, class_path(COMPILED_WITH)))
    source = Path(__file__).with_name("ShareConsumers.java")
    subprocess.run(
        ["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(source)],
        check=True,
        timeout=COMPILER_SECONDS,
    )
    return folder


@contextmanager
def java_consumers(release: str, classes: Path, bootstrap: str) -> Iterator[JavaConsumers]:
    """Run a process with the clients of a release."""
    jars = ":".join(map(str, (classes, *class_path(release))))
    command = [str(java()), *QUICK_JVM, "-cp", jars, "ShareConsumers", bootstrap]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        watchdog = threading.Timer(PROCESS_SECONDS, process.kill)
        watchdog.start()
        try:
            yield JavaConsumers(process)
        finally:
            watchdog.cancel()
            process.kill()
