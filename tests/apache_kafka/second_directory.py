"""A node of Apache Kafka gets a second log directory: like its first one, but empty and with a directory id that the node draws."""

import shutil
from pathlib import Path

from tests.apache_kafka.harness import ApacheKafka

DIRECTORY_ID = "directory.id="


def give_second_directory(node: ApacheKafka, second: Path) -> None:
    """Stop a running node, make the directory, and start the node with both."""
    node.stop()
    shutil.copytree(node.data, second, ignore=shutil.ignore_patterns("__cluster*", "*-0", "*checkpoint", ".*"))
    meta = second / "meta.properties"
    meta.write_text("\n".join(line for line in meta.read_text().splitlines() if not line.startswith(DIRECTORY_ID)) + "\n")
    properties = node.directory / "server.properties"
    properties.write_text(properties.read_text().replace(f"log.dirs={node.data}", f"log.dirs={node.data},{second}"))
    node.start()
