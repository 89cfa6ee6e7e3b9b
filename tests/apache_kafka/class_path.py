"""Locates the jars of an Apache Kafka release: Maven downloads them once, and the class path is
cached in a file.

kraftsim does not depend on Apache Kafka; tests and benches compare both with the same requests.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

from kraftsim.cli.doctor import java_program

PROJECT_ROOT = Path(__file__).parents[2]
CACHE = PROJECT_ROOT / "build" / "apache_kafka"
DEFAULT_RELEASE = "3.9.1"
NEWEST_RELEASE = "4.4.0"
"""The newest release that is run here; its message definitions are beside those of 4.1.2 in
tests/wire/definitions.json.
"""
MAVEN_SECONDS = 900

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
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
TOOLS = """
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{release}</version>
      <exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId></exclusion></exclusions>
    </dependency>"""
SHELL_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kraftsim</groupId>
  <artifactId>kafka-shell</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-shell</artifactId><version>{release}</version></dependency>
  </dependencies>
</project>
"""
OLD_LINE = "2.3."
"""It was not built for Scala 2.13, and its ZooKeeper client 3.4 parses host names from a text that
Java formats differently since 14.
"""
NEWER_ZOOKEEPER = """
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.5.9</version></dependency>"""
NO_TOOLS = """
      <exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion></exclusions>"""


class Missing(RuntimeError):
    """Apache Kafka cannot run on this machine; the message names what is missing."""


def java() -> Path:
    """Return the Java to run Apache Kafka with. Raises Missing."""
    found = java_program()
    if found is None:
        raise Missing(
            "Apache Kafka needs Java 17 or newer, and none is in JAVA_HOME or on the search path"
        )
    return found[0]


def class_path(release: str = DEFAULT_RELEASE) -> list[Path]:
    """Return the jars of a release with all dependencies, including kafka-clients, kafka-metadata
    and the tools.

    Raises Missing.
    """
    remembered = CACHE / release / "class_path.txt"
    if not _is_there(remembered):
        java()
        with _one_at_a_time():
            if not _is_there(remembered):
                return _bring(release, remembered)
    return _jars(remembered)


def shell_class_path(release: str = DEFAULT_RELEASE) -> list[Path]:
    """Return the jars of kafka-metadata-shell, which no other tool needs. Raises Missing."""
    remembered = CACHE / release / "shell_class_path.txt"
    if not _is_there(remembered):
        java()
        with _one_at_a_time():
            words = _resolve(maven(), SHELL_POM.format(release=release), remembered)
        if words:
            raise Missing(f"Maven could not bring kafka-shell {release}: {words.splitlines()[:1]}")
    return _jars(remembered)


def has_tools(release: str) -> bool:
    """Return whether the jars of a release contain the command-line tools: for some releases the
    registry has only the server.
    """
    return any(jar.name == f"kafka-tools-{release}.jar" for jar in class_path(release))


def has_class(release: str, name: str) -> bool:
    """Return whether a jar of the release itself, not of a dependency, contains a class."""
    path = f"{name.replace('.', '/')}.class"
    for jar in class_path(release):
        if jar.name.startswith("kafka"):
            with ZipFile(jar) as opened:
                if path in opened.namelist():
                    return True
    return False


def _jars(remembered: Path) -> list[Path]:
    return [Path(line) for line in remembered.read_text().splitlines()]


def _is_there(remembered: Path) -> bool:
    return remembered.exists() and all(jar.exists() for jar in _jars(remembered))


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let only one process at a time run Maven: two would write the same files."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "maven.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _bring(release: str, remembered: Path) -> list[Path]:
    program = maven()
    log_binding = "slf4j-reload4j" if release.startswith("3.") else "slf4j-simple"
    scala, more = ("2.12", NEWER_ZOOKEEPER) if release.startswith(OLD_LINE) else ("2.13", "")
    both = {"release": release, "scala": scala, "log_binding": log_binding}
    whole = POM.format(**both, tools=TOOLS.format(release=release) + more, server_exclusions="")
    server_only = POM.format(**both, tools="", server_exclusions=NO_TOOLS)
    words = _resolve(program, whole, remembered)
    if f"kafka-tools:jar:{release}" in words:
        words = _resolve(program, server_only, remembered)
    if words:
        raise Missing(f"Maven could not bring Apache Kafka {release}: {words.splitlines()[:1]}")
    return _jars(remembered)


def maven() -> str:
    """Return the path of Maven. Raises Missing."""
    found = shutil.which("mvn")
    if found is None:
        raise Missing("Apache Kafka comes from Maven, and there is no mvn on the search path")
    return found


def _resolve(program: str, project: str, remembered: Path) -> str:
    """Let Maven download the dependencies of a project; return its error, or an empty string."""
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
