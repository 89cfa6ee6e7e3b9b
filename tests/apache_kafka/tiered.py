"""A remote store for Apache Kafka: LocalTieredStorage, which is in the test jar of Kafka's storage
module and keeps segments in a directory.
"""

import subprocess
from pathlib import Path

from tests.apache_kafka.class_path import DEFAULT_RELEASE, MAVEN_SECONDS, Missing, maven

STORE_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


TIERED_RELEASES = (DEFAULT_RELEASE, "4.1.2", "4.3.1")
"""The releases under test.

Not every release has published that jar, and 4.4.0 cannot load the class of 4.1.2.
"""


def storage_test_jar(release: str = DEFAULT_RELEASE) -> Path:
    """Return the jar that contains the class. Raises Missing."""
    name = f"kafka-storage-{release}-test.jar"
    jar = Path.home() / ".m2/repository/org/apache/kafka/kafka-storage" / release / name
    if not jar.exists():
        artifact = f"org.apache.kafka:kafka-storage:{release}:jar:test"
        command = [
            maven(),
            "-B",
            "-q",
            "dependency:get",
            f"-Dartifact={artifact}",
            "-Dtransitive=false",
        ]
        subprocess.run(
            command,
            capture_output=True,
            timeout=MAVEN_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    if not jar.exists():
        raise Missing(f"Maven could not bring {name}")
    return jar


def tiered_settings(store: Path, release: str = DEFAULT_RELEASE) -> dict[str, str]:
    """Return the properties of a broker that uploads to a directory, several times a second.

    Raises Missing.
    """
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORE_CLASS,
        "remote.log.storage.manager.class.path": str(storage_test_jar(release)),
        "rsm.config.dir": str(store),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "300",
        "remote.log.manager.copy.quota.window.num": "6",
        "log.initial.task.delay.ms": "300",
    }
