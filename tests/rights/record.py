"""Records the responses of Apache Kafka to principals without ACLs: `python -m
tests.rights.record`.

Every release is started with StandardAuthorizer and SASL/PLAIN, on the broker and the controller
listener; 3.9 also in ZooKeeper mode, with AclAuthorizer.
"""

import json
import sys
from pathlib import Path

from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.conformance.secured import secured_apache_kafka, secured_apache_kafka_in_zookeeper_mode
from tests.rights.answers import Table, table_of

RELEASES = {"3.9": DEFAULT_RELEASE, "4.4": NEWEST_RELEASE}
"""Line -> the recorded release of Apache Kafka."""
ZOOKEEPER_MODE = "3.9 in ZooKeeper mode"
TABLES = (*RELEASES, ZOOKEEPER_MODE)
DIRECTORY = Path(__file__).parent


def recorded(line: str) -> Table:
    """Return the recorded table."""
    found: Table = json.loads(_file(line).read_text())
    return found


def asked(line: str) -> Table:
    """Start Apache Kafka, and send all requests."""
    node = (
        secured_apache_kafka_in_zookeeper_mode()
        if line == ZOOKEEPER_MODE
        else secured_apache_kafka(RELEASES[line])
    )
    with node as target:
        return table_of(target, line)


def _file(line: str) -> Path:
    return DIRECTORY / f"apache_kafka_{line.replace('.', '_').replace(' ', '_').lower()}.json"


def main() -> int:
    """Record every release and write its file."""
    for line in TABLES:
        _file(line).write_text(json.dumps(asked(line), indent=1) + "\n")
        print(f"{_file(line).name} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
