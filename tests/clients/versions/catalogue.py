"""The catalogue of Kafka clients of many releases, and how each is installed and started.

Java clients are pinned by the hash of their jar, those of PyPI by the hashes in requirements/; they
are installed below build/clients.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.clients.versions import java_clients, wheels

JAVA, LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA = "java", "librdkafka", "kafka-python", "aiokafka"
NEWEST = "newest"
"""The version in requirements.lock."""


@dataclass(frozen=True, slots=True)
class Client:
    """One release of one library."""

    library: str
    version: str
    bring: Callable[[], Sequence[str]]
    """Install its dependencies, and return the command of its program without the connection
    arguments.

    Raises Missing.
    """

    @property
    def name(self) -> str:
        """Its name in tables and tests."""
        return f"{self.library} {self.version}"


def _java(version: str) -> Client:
    return Client(JAVA, version, lambda: java_clients.command(version))


def _librdkafka(version: str, tag: str = "") -> Client:
    return Client(
        LIBRDKAFKA, version, lambda: wheels.librdkafka_command(version if tag else "", tag)
    )


def _python(library: str, version: str) -> Client:
    program = f"by_{library.replace('-', '_')}"
    return Client(
        library,
        version,
        lambda: wheels.python_command(program, "" if version == NEWEST else f"{library}-{version}"),
    )


CLIENTS: tuple[Client, ...] = (
    _java("1.1.1"),
    _java("2.0.1"),
    _java("2.3.1"),
    _java("2.8.2"),
    _java("3.0.2"),
    _java("3.4.1"),
    _java("3.9.2"),
    _java("4.0.2"),
    _java("4.4.0"),
    _librdkafka("1.0.1", "cp37"),
    _librdkafka("1.4.2", "cp38"),
    _librdkafka("1.6.1", "cp38"),
    _librdkafka("1.9.2", "cp310"),
    _librdkafka("2.0.2", "cp311"),
    _librdkafka(NEWEST),
    *(
        (_python(KAFKA_PYTHON, "1.4.7"), _python(KAFKA_PYTHON, "2.0.2"))
        if sys.version_info < (3, 12)
        else ()
    ),
    _python(KAFKA_PYTHON, "2.2.21"),
    _python(KAFKA_PYTHON, NEWEST),
    *(
        (_python(AIOKAFKA, "0.8.1"), _python(AIOKAFKA, "0.10.0"))
        if sys.version_info[:2] == (3, 11)
        else ()
    ),
    _python(AIOKAFKA, NEWEST),
)


def client(name: str) -> Client:
    """Return the client of a name."""
    return next(each for each in CLIENTS if each.name == name)
