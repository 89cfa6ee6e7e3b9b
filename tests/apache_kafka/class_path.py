"""Where tests have the jars of an Apache Kafka release: those that `kraftsim --on apache:...` uses
(`kraftsim.cluster.apache_kafka.jars`), remembered in the build directory of the project.

kraftsim does not depend on Apache Kafka; tests and benches compare both with the same requests.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from zipfile import ZipFile

from kraftsim.cluster.apache_kafka.jars import (
    MAVEN_SECONDS,
    ApacheKafkaMissing,
    KafkaJars,
    jars_from_maven,
    java,
    maven,
    remembered_jars,
    resolve,
    while_alone,
)

__all__ = ["MAVEN_SECONDS", "java", "maven"]

PROJECT_ROOT = Path(__file__).parents[2]
CACHE = PROJECT_ROOT / "build" / "apache_kafka"
DEFAULT_RELEASE = "3.9.1"
NEWEST_RELEASE = "4.4.0"
"""The newest release that is run here; its message definitions are beside those of 4.1.2 in
tests/wire/definitions.json.
"""
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
Missing = ApacheKafkaMissing
"""Apache Kafka cannot run on this machine; the message names what is missing."""


def one_at_a_time() -> AbstractContextManager[None]:
    """Let only one process at a time run Maven."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return while_alone(CACHE)


def jars_of(release: str = DEFAULT_RELEASE) -> KafkaJars:
    """Return the jars of a release. Raises Missing."""
    return jars_from_maven(release, CACHE)


def class_path(release: str = DEFAULT_RELEASE) -> list[Path]:
    """Return the jars of a release with all dependencies, including kafka-clients, kafka-metadata
    and the tools.

    Raises Missing.
    """
    return list(jars_of(release).jars)


def shell_class_path(release: str = DEFAULT_RELEASE) -> list[Path]:
    """Return the jars of kafka-metadata-shell, which no other tool needs. Raises Missing."""
    remembered = CACHE / release / "shell_class_path.txt"
    found = remembered_jars(remembered)
    if found is None:
        java()
        with one_at_a_time():
            words = resolve(SHELL_POM.format(release=release), remembered)
        if words:
            raise Missing(f"Maven could not bring kafka-shell {release}: {words.splitlines()[:1]}")
        found = remembered_jars(remembered)
    assert found is not None, "Maven has just downloaded them"
    return list(found)


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
