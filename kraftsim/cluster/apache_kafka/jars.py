"""The jars of an Apache Kafka release: Maven downloads them once, or an installation has them.

kraftsim contains no code of Apache Kafka. A directory of the user's cache remembers, for each
release, which jars Maven resolved.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

MAVEN_SECONDS: Final = 900
JAVA_MIN: Final = 17
"""The oldest Java that brokers of Apache Kafka 4 and Spark 4 run on; earlier releases run on it."""
CLASS_PATH_FILE: Final = "class_path.txt"
NOT_IN_REGISTRY: Final = re.compile(
    r"(?:Could not find artifact|was not found in) [^\n]*", re.IGNORECASE
)
OF_A_SERVER: Final = re.compile(r"kafka_2\.\d+-(\d+\.\d+\.\d+(?:-\w+)*)\.jar")

POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kraftsim</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_{scala}</artifactId><version>{release}</version>{server_exclusions}
    </dependency>{tools}
    <dependency><groupId>org.slf4j</groupId><artifactId>{log_binding}</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
TOOLS: Final = """
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{release}</version>
      <exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId></exclusion></exclusions>
    </dependency>"""
OLD_LINE: Final = "2.3."
"""It was not built for Scala 2.13, and its ZooKeeper client 3.4 parses host names from a text that
Java formats differently since 14.
"""
NEWER_ZOOKEEPER: Final = """
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.5.9</version></dependency>"""
NO_TOOLS: Final = """
      <exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion></exclusions>"""
LOG4J: Final = """log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
SMALL_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""A fast start and little memory: several nodes share a machine."""


class ApacheKafkaMissing(RuntimeError):
    """Apache Kafka cannot run on this machine; one line that says what to do."""


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """The jars of one release with all their dependencies.

    `directory` is where files that depend on the release alone may be kept.
    """

    release: str
    jars: tuple[Path, ...]
    directory: Path

    def command(
        self, main_class: str, *arguments: str, jvm: tuple[str, ...] = SMALL_JVM
    ) -> list[str]:
        """Return the command that runs a main class. Raises ApacheKafkaMissing without Java."""
        log4j = self.directory / "log4j.properties"
        if not log4j.exists():
            log4j.write_text(LOG4J)
        return [
            str(java()),
            *jvm,
            f"-Dlog4j.configuration=file:{log4j}",
            "-Dorg.apache.logging.log4j.level=WARN",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Djava.awt.headless=true",
            "-cp",
            os.pathsep.join(str(jar) for jar in self.jars),
            main_class,
            *arguments,
        ]


def cache_directory() -> Path:
    """Return the directory that remembers jars: `kraftsim/apache_kafka` of the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").joinpath("kraftsim", "apache_kafka")


def java_program() -> tuple[Path, int] | None:
    """Return the Java of this machine and its major version, if it is new enough: JAVA_HOME first,
    then PATH.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    for program in candidates:
        try:
            written_ns = program.stat().st_mtime_ns
        except OSError:
            continue
        found = re.search(r'version "(?:1\.)?(\d+)', _version_text(program, written_ns))
        if found and int(found[1]) >= JAVA_MIN:
            return program, int(found[1])
    return None


@lru_cache(maxsize=8)
def _version_text(program: Path, written_ns: int) -> str:
    """Return what a program says of its version, once for each program that is there."""
    try:
        done = subprocess.run(
            [str(program), "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def java() -> Path:
    """Return the Java to run Apache Kafka with. Raises ApacheKafkaMissing."""
    found = java_program()
    if found is None:
        raise ApacheKafkaMissing(
            f"Apache Kafka needs Java {JAVA_MIN} or newer, and none is in JAVA_HOME or on the "
            "search path"
        )
    return found[0]


def maven() -> str:
    """Return the path of Maven. Raises ApacheKafkaMissing."""
    found = shutil.which("mvn")
    if found is None:
        raise ApacheKafkaMissing(
            "Apache Kafka comes from Maven, and there is no mvn on the search path: install it, or "
            "name an installation of Apache Kafka with --kafka-home"
        )
    return found


def jars_of_home(home: Path, cache: Path | None = None) -> KafkaJars:
    """Return the jars of an installation (`bin`, `config`, `libs`).

    Raises ApacheKafkaMissing if it has no server.
    """
    jars = tuple(sorted((home / "libs").glob("*.jar")))
    releases = [found[1] for jar in jars if (found := OF_A_SERVER.fullmatch(jar.name))]
    if not releases:
        raise ApacheKafkaMissing(
            f"{home} is no installation of Apache Kafka: there is no libs/kafka_2.*.jar in it"
        )
    return KafkaJars(releases[0], jars, _kept(releases[0], cache))


def jars_from_maven(release: str, cache: Path | None = None) -> KafkaJars:
    """Return the jars of a release, a whole version (`4.1.0`), with kafka-clients, kafka-metadata
    and, where the registry has them, the tools.

    Raises ApacheKafkaMissing without Java, without Maven, and for a release that does not exist.
    """
    directory = _kept(release, cache)
    remembered = directory / CLASS_PATH_FILE
    jars = remembered_jars(remembered)
    if jars is None:
        java()
        with while_alone(directory.parent):
            jars = remembered_jars(remembered)
            if jars is None:
                jars = _download(release, remembered)
    return KafkaJars(release, jars, directory)


def _kept(release: str, cache: Path | None) -> Path:
    directory = (cache or cache_directory()) / release
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def remembered_jars(remembered: Path) -> tuple[Path, ...] | None:
    """Return the jars that a file names; None if it or one of them does not exist."""
    if not remembered.exists():
        return None
    jars = tuple(Path(line) for line in remembered.read_text().splitlines())
    return jars if all(jar.exists() for jar in jars) else None


def resolve(project: str, remembered: Path) -> str:
    """Let Maven download the dependencies of a project and write their paths to a file; return its
    error, or an empty string.

    Raises ApacheKafkaMissing without Maven.
    """
    program = maven()
    remembered.parent.mkdir(parents=True, exist_ok=True)
    pom, fresh = remembered.with_suffix(".pom"), remembered.with_suffix(".new")
    pom.write_text(project)
    command = [
        program,
        "-B",
        "-q",
        "-f",
        str(pom),
        "dependency:build-classpath",
        f"-Dmdep.outputFile={fresh}",
        "-Dmdep.pathSeparator=\n",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=MAVEN_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        return (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
    fresh.replace(remembered)
    return ""


@contextmanager
def while_alone(directory: Path) -> Iterator[None]:
    """Let only one process at a time run Maven: two would write the same files."""
    with open(directory / "maven.lock", "w") as held:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _download(release: str, remembered: Path) -> tuple[Path, ...]:
    log_binding = "slf4j-reload4j" if release.startswith("3.") else "slf4j-simple"
    scala, more = ("2.12", NEWER_ZOOKEEPER) if release.startswith(OLD_LINE) else ("2.13", "")
    both = {"release": release, "scala": scala, "log_binding": log_binding}
    whole = POM.format(**both, tools=TOOLS.format(release=release) + more, server_exclusions="")
    server_only = POM.format(**both, tools="", server_exclusions=NO_TOOLS)
    words = resolve(whole, remembered)
    if f"kafka-tools:jar:{release}" in words:
        words = resolve(server_only, remembered)
    if words:
        raise ApacheKafkaMissing(_reason(release, words))
    jars = remembered_jars(remembered)
    assert jars is not None, "Maven has just downloaded them"
    return jars


def _reason(release: str, words: str) -> str:
    """Return one line for the output of a Maven that failed."""
    if f":jar:{release}" in words and NOT_IN_REGISTRY.search(words):
        return (
            f"Maven has no Apache Kafka {release}: name a version that was released, such as "
            "apache:4.1.2, or an installation with --kafka-home"
        )
    return f"Maven could not download Apache Kafka {release}: {words.splitlines()[0]}"
