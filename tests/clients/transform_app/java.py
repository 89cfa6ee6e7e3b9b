"""The consume-transform-produce apps in Java: Apache Kafka's own TransactionalMessageCopier, and a
Kafka Streams application of ours.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.apache_kafka.class_path import (
    CACHE,
    DEFAULT_RELEASE,
    MAVEN_SECONDS,
    PROJECT_ROOT,
    Missing,
    java,
    maven,
)
from tests.apache_kafka.harness import java_command
from tests.clients.transform_app.scenario import Command, TransformApp

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COPIER_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
STREAMS = PROJECT_ROOT / "tests" / "clients" / "streams"
BUILT = PROJECT_ROOT / "build" / "streams"
ALL = "-1"


def transform_worker(*, in_group: bool) -> Command:
    """Return the command of TransactionalMessageCopier: in a group with the member's generation, or
    on the partition in its name.
    """

    def command(transform_app: TransformApp, name: str) -> Sequence[str]:
        words = [
            "--broker-list",
            transform_app.bootstrap,
            "--input-topic",
            transform_app.input,
            "--output-topic",
            transform_app.output,
        ]
        words += [
            "--consumer-group",
            transform_app.group,
            "--transactional-id",
            transform_app.transactional_id(name),
        ]
        words += [
            "--transaction-size",
            "40",
            "--transaction-timeout",
            "5000",
            "--enable-random-aborts",
        ]
        words += [
            "--input-partition",
            *((ALL, "--group-mode", "--use-group-metadata") if in_group else (name,)),
        ]
        return java_command(DEFAULT_RELEASE, COPIER, *words, jvm=COPIER_JVM)

    return command


def streams() -> Command:
    """Return the command of the Streams application; builds it if necessary. Raises Missing."""
    jars = build()

    def command(transform_app: TransformApp, name: str) -> Sequence[str]:
        directory = Path(transform_app.directory) / name
        words = [
            transform_app.bootstrap,
            transform_app.group,
            transform_app.input,
            transform_app.output,
            str(directory),
        ]
        return [
            str(java()),
            *COPIER_JVM,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            jars,
            "kraftsim.Copy",
            *words,
        ]

    return command


def build(project: Path = STREAMS, built_in: Path = BUILT, **properties: str) -> str:
    """Build a Streams application with Maven, unless it is newer than its sources, and return its
    class path.

    Raises Missing.
    """
    sources = [project / "pom.xml", *project.rglob("*.java")]
    done = built_in / "class_path.txt"
    if not done.exists() or any(
        done.stat().st_mtime < source.stat().st_mtime for source in sources
    ):
        java()
        command = [
            maven(),
            "-B",
            "-q",
            "-f",
            str(project / "pom.xml"),
            f"-Dkraftsim.build={built_in}",
            *(f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()),
            "compile",
            "dependency:build-classpath",
        ]
        environment = {**os.environ, "MAVEN_OPTS": "-XX:TieredStopAtLevel=1"}
        command += [f"-Dmdep.outputFile={done}.new"]
        built = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=MAVEN_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if built.returncode != 0:
            raise Missing(
                "Maven could not build the Streams application: "
                f"{(built.stdout + built.stderr).strip()[:300]}"
            )
        Path(f"{done}.new").replace(done)
    return f"{built_in / 'classes'}:{done.read_text().strip()}"


if __name__ == "__main__":
    print(build())

assert CACHE.is_relative_to(PROJECT_ROOT), "build output stays in the repository directory"
