"""Where the jars of a release of Apache Kafka are: Maven brings them once, afterwards a file remembers.

Nothing of kraftsim needs Apache Kafka; tests and benches set it beside kraftsim and ask both the same.
"""

import shutil
import subprocess
from pathlib import Path

from kraftsim.cli.machine import java_program

HOUSE = Path(__file__).parents[2]
CACHE = HOUSE / "build" / "apache_kafka"
DEFAULT_RELEASE = "3.9.1"
MAVEN_SECONDS = 900

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kraftsim</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{release}</version></dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{release}</version>
      <exclusions><exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId></exclusion></exclusions>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>{log_binding}</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class Missing(RuntimeError):
    """Apache Kafka cannot run on this machine; the message says what it lacks."""


def java() -> Path:
    """Return the Java to run Apache Kafka with. Raises Missing."""
    found = java_program()
    if found is None:
        raise Missing("Apache Kafka needs Java 17 or newer, and none is in JAVA_HOME or on the search path")
    return found[0]


def class_path(release: str = DEFAULT_RELEASE) -> list[Path]:
    """Return the jars of a release with all they need, kafka-clients, kafka-metadata and the tools among them. Raises Missing."""
    remembered = CACHE / release / "class_path.txt"
    if remembered.exists():
        jars = [Path(line) for line in remembered.read_text().splitlines()]
        if all(jar.exists() for jar in jars):
            return jars
    java()
    return _bring(release, remembered)


def _bring(release: str, remembered: Path) -> list[Path]:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Apache Kafka comes from Maven, and there is no mvn on the search path")
    remembered.parent.mkdir(parents=True, exist_ok=True)
    pom = remembered.with_name("pom.xml")
    pom.write_text(POM.format(release=release, log_binding="slf4j-reload4j" if release.startswith("3.") else "slf4j-simple"))
    fresh = remembered.with_name("class_path.new")
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}", "-Dmdep.pathSeparator=\n"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_SECONDS, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Missing(f"Maven could not bring Apache Kafka {release}: {(done.stdout + done.stderr).strip().splitlines()[:1]}")
    fresh.replace(remembered)
    return [Path(line) for line in remembered.read_text().splitlines()]
