"""Adds a second log directory to a node of Apache Kafka: like the first one, but empty and with a
directory id that the node generates.
"""

from pathlib import Path

from tests.apache_kafka.harness import ApacheKafka

DIRECTORY_ID = "directory.id="


def add_second_directory(node: ApacheKafka, second: Path) -> None:
    """Stop a running node, create the directory, and start the node with both."""
    node.stop()
    second.mkdir()
    meta = (node.data / "meta.properties").read_text().splitlines()
    (second / "meta.properties").write_text(
        "\n".join(line for line in meta if not line.startswith(DIRECTORY_ID)) + "\n"
    )
    properties = node.directory / "server.properties"
    properties.write_text(
        properties.read_text().replace(f"log.dirs={node.data}", f"log.dirs={node.data},{second}")
    )
    node.start()
