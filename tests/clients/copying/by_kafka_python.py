"""Copies a topic exactly once with kafka-python: `by_kafka_python.py BOOTSTRAP GROUP INPUT OUTPUT TRANSACTIONAL_ID`, until SIGTERM.

Offsets go into the transaction with the member's generation (KIP-447). Whatever goes wrong aborts the transaction, and the group's offsets say where
to go on; what no abort heals ends the process, and so does a call that does not come back.
"""

import faulthandler
import signal
import sys

import kafka
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

BATCH = 40
STUCK_SECONDS = 8
"""So long at most takes one turn; who sits in it longer says where, and dies."""
WHIM = 7


class Copier:
    """A consumer and a producer that go together."""

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
        """Copy until it is over."""
        while not self.is_over:
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
            found = self.consumer.poll(100, max_records=BATCH)
            if found:
                self.copy(found)
        self.consumer.close(autocommit=False)

    def copy(self, found) -> None:  # type: ignore[no-untyped-def]
        """Copy some records in one transaction; begin again with them if it fails."""
        self.count += 1
        self.producer.begin_transaction()
        try:
            for records in found.values():
                for record in records:
                    self.producer.send(self.sink, record.value.upper(), record.key, partition=record.partition)
            nexts = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in found.items()}
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

    def rewind(self, found) -> None:  # type: ignore[no-untyped-def]
        """Read again from where the transaction had begun, as far as the partitions are still this member's."""
        mine = self.consumer.assignment()
        for place, records in found.items():
            if place in mine:
                self.consumer.seek(place, records[0].offset)


def main() -> None:
    """Copy until SIGTERM."""
    copier = Copier(*sys.argv[1:])

    def stop(*_: object) -> None:
        copier.is_over = True

    signal.signal(signal.SIGTERM, stop)
    copier.run()


if __name__ == "__main__":
    main()
