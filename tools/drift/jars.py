"""Locates Apache Kafka's definitions: in the jars of the local Maven repository, which `mvn` can
fill.

Nothing here runs on import, and only `download` uses the network.
"""

import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.drift.definitions import Definition, parse_definition

RELEASES = ("2.8.2", "3.9.1", "4.1.2", "4.4.0")
"""The oldest release with KRaft's predecessors, the default profile, and two of the 4.x line; a
declaration must agree with all of them.
"""

ARTIFACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka-clients": RELEASES,
    "kafka_2.13": RELEASES[:1],  # where the coordinators' records were then
    "kafka-metadata": RELEASES,
    "kafka-raft": RELEASES,
    "kafka-storage": RELEASES[1:],
    "kafka-group-coordinator": RELEASES[1:],
    "kafka-transaction-coordinator": RELEASES[1:],
    "kafka-share-coordinator": RELEASES[2:],
}
"""Jars with definitions, and the releases that have them."""
REPOSITORY = Path.home() / ".m2" / "repository" / "org" / "apache" / "kafka"
DEFINITION = re.compile(r"(common/)?(message|metadata)/\w+\.json")
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"


def jar_path(artifact: str, release: str) -> Path:
    """Return where the local repository keeps a jar."""
    return REPOSITORY / artifact / release / f"{artifact}-{release}.jar"


def missing_jars() -> list[tuple[str, str]]:
    """Return (artifact, release) of every missing jar."""
    wanted = [
        (artifact, release) for artifact, releases in ARTIFACTS.items() for release in releases
    ]
    return [
        (artifact, release)
        for artifact, release in wanted
        if not jar_path(artifact, release).exists()
    ]


def download() -> None:
    """Download missing jars with Maven.

    Raises FileNotFoundError without `mvn`, CalledProcessError if it fails.
    """
    for artifact, release in missing_jars():
        maven = shutil.which("mvn")
        if maven is None:
            raise FileNotFoundError("mvn is needed to fetch Apache Kafka's jars")
        arguments = [
            "-q",
            "-B",
            MAVEN_PLUGIN,
            f"-Dartifact=org.apache.kafka:{artifact}:{release}",
            "-Dtransitive=false",
        ]
        subprocess.run([maven, *arguments], check=True, capture_output=True)


def definitions_of(release: str) -> Mapping[str, Definition]:
    """Return every message that the jars of a release define, by name."""
    found: dict[str, Definition] = {}
    for artifact, releases in ARTIFACTS.items():
        if release in releases:
            found |= read_definitions(jar_path(artifact, release))
    return found


def read_definitions(source: Path) -> dict[str, Definition]:
    """Return the messages of a jar, of a folder of JSON files, or of one such file."""
    if source.is_dir():
        texts = [file.read_text() for file in sorted(source.glob("*.json"))]
    elif source.suffix == ".jar":
        with zipfile.ZipFile(source) as jar:
            texts = [
                jar.read(name).decode()
                for name in sorted(jar.namelist())
                if DEFINITION.fullmatch(name)
            ]
    else:
        texts = [source.read_text()]
    definitions = (parse_definition(text) for text in texts)
    return {definition.name: definition for definition in definitions if definition is not None}
