"""Consume-transform-produce app with kafka-python: `by_kafka_python.py BOOTSTRAP GROUP INPUT OUTPUT
TRANSACTIONAL_ID`, until SIGTERM.

Offsets are committed in the transaction with the member's generation (KIP-447). Any error aborts
the transaction, and the app continues from the committed offsets of the group; an error that an
abort does not resolve ends the process, and so does a call that hangs.
"""

import faulthandler
import signal
import sys
from typing import Any

import kafka
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

BATCH = 40
STUCK_SECONDS = 8
"""The maximum duration of one transaction; a process that exceeds it prints its stack and exits."""
WHIM = 7


class TransformWorker:
    """A consumer and its transactional producer."""

    def __init__(self, bootstrap: str, group: str, source: str, sink: str, name: str) -> None:
        servers = bootstrap.split(",")
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=servers,
            transactional_id=name,
            transaction_timeout_ms=5000,
            retry_backoff_ms=50,
            reconnect_backoff_ms=50,
            max_block_ms=20_000,
        )
        self.producer.init_transactions()
        self.consumer = kafka.KafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=2500,
            heartbeat_interval_ms=300,
            retry_backoff_ms=50,
            metadata_max_age_ms=2000,
        )
        self.sink = sink
        self.count = 0
        self.is_over = False

    def run(self) -> None:
        """Run until it is stopped."""
        while not self.is_over:
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
            found = self.consumer.poll(100, max_records=BATCH)
            if found:
                self.copy(found)
        self.consumer.close(autocommit=False)

    def copy(self, found: dict[Any, Any]) -> None:
        """Process some records in one transaction; read them again if it fails."""
        self.count += 1
        self.producer.begin_transaction()
        try:
            for records in found.values():
                for record in records:
                    self.producer.send(
                        self.sink, record.value.upper(), record.key, partition=record.partition
                    )
            nexts = {
                place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
                for place, records in found.items()
            }
            self.producer.send_offsets_to_transaction(nexts, self.consumer.group_metadata())
            if self.count % WHIM == 0:
                self.producer.abort_transaction()
                self.rewind(found)
            else:
                self.producer.commit_transaction()
        except KafkaError as trouble:
            print("trouble", repr(trouble), file=sys.stderr, flush=True)
            self.producer.abort_transaction()
            self.rewind(found)

    def rewind(self, found: dict[Any, Any]) -> None:
        """Seek back to the start of the transaction, for partitions that are still assigned to this
        member.
        """
        mine = self.consumer.assignment()
        for place, records in found.items():
            if place in mine:
                self.consumer.seek(place, records[0].offset)


def main() -> None:
    """Run until SIGTERM."""
    worker = TransformWorker(*sys.argv[1:])

    def stop(*_: object) -> None:
        worker.is_over = True

    signal.signal(signal.SIGTERM, stop)
    worker.run()


if __name__ == "__main__":
    main()
