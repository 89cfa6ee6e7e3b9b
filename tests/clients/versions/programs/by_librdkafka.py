"""librdkafka of any release: `by_librdkafka.py DIRECTORY BOOTSTRAP NAME PATIENCE_MS`, with the
directory of its shared library.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import string_at
from pathlib import Path
from typing import Any

from librdkafka import (
    ANY_OFFSET,
    BEGINNING,
    CONSUMER,
    COPY_PAYLOAD,
    DELIVERED,
    PRODUCER,
    Library,
    Record,
    Refused,
)
from lines import EACH, TRANSACTIONS, Failed, is_stop_requested, say, serve

SHORT_MS = 100
REST_MS = 300
PAUSE_SECONDS = 0.2
CALL_MS = 10_000
BATCH = 40
UNKNOWN_FOR_A_MOMENT = ("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


class Client:
    """A producer or a consumer, to be closed."""

    def __init__(
        self,
        library: Library,
        kind: int,
        settings: dict[str, str],
        on_delivery: Callable[[bytes, int, int, str], None] | None = None,
    ) -> None:
        self.library = library
        self.c = library.c
        self._on_delivery = on_delivery
        self._troubles: list[str] = []
        self._delivered = DELIVERED(self._on_report)
        self._topics: dict[str, int] = {}
        self.handle = library.client(kind, settings, self._delivered if kind == PRODUCER else None)

    def close(self) -> None:
        """Destroy everything."""
        for topic in self._topics.values():
            self.c.rd_kafka_topic_destroy(topic)
        self.c.rd_kafka_destroy(self.handle)

    # Producing
    # ----------------------------------------------------------------------------------------------

    def produce(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Produce one record.

        A starting broker in ZooKeeper mode has no topic metadata yet: then it is retried.
        """
        give_up_at = time.monotonic() + CALL_MS / 1000
        while self.c.rd_kafka_produce(
            self._topic(topic), partition, COPY_PAYLOAD, value, len(value), key, len(key), None
        ):
            name = self.library.name_of(self.c.rd_kafka_last_error())
            if name not in UNKNOWN_FOR_A_MOMENT or time.monotonic() > give_up_at:
                raise Failed(name)
            say("trouble", name, "retriable")
            self.poll(SHORT_MS)

    def poll(self, milliseconds: int) -> None:
        """Receive the delivery report of a record."""
        self.c.rd_kafka_poll(self.handle, milliseconds)

    def flush(self, milliseconds: int) -> None:
        """Wait for all produced records. Raises Failed for the first one that was not delivered."""
        self.library.require(self.c.rd_kafka_flush(self.handle, milliseconds))
        if self._troubles:
            raise Failed(self._troubles[0])

    def transact(self, verb: str, *words: object) -> None:
        """Retry a transactional function while its error is retriable."""
        while True:
            try:
                self.library.require_done(getattr(self.c, f"rd_kafka_{verb}")(self.handle, *words))
                return
            except Refused as refused:
                if not refused.is_retriable:
                    raise
                say("trouble", refused.name, "retriable")

    def send_offsets(
        self, consumer: "Client", rows: Sequence[tuple[str, int, int]], milliseconds: int
    ) -> None:
        """Add offsets of a group to the transaction."""
        places, member = (
            self.library.places(rows),
            self.c.rd_kafka_consumer_group_metadata(consumer.handle),
        )
        try:
            self.transact("send_offsets_to_transaction", places, member, milliseconds)
        finally:
            self.c.rd_kafka_topic_partition_list_destroy(places)
            self.c.rd_kafka_consumer_group_metadata_destroy(member)

    def fatal_error(self) -> str:
        """Return the name of the fatal error, if any."""
        code = self.c.rd_kafka_fatal_error(self.handle, None, 0)
        return self.library.name_of(code) if code else ""

    def _on_report(self, _: object, message: Any, __: object) -> None:
        row = message.contents
        name = self.library.name_of(row.err) if row.err else ""
        if name:
            self._troubles.append(name)
        if self._on_delivery is not None:
            self._on_delivery(string_at(row.key, row.key_size), row.partition, row.offset, name)

    def _topic(self, topic: str) -> int:
        if topic not in self._topics:
            self._topics[topic] = self.c.rd_kafka_topic_new(self.handle, topic.encode(), None)
        return self._topics[topic]

    # Consuming
    # ----------------------------------------------------------------------------------------------

    def subscribe(self, topic: str) -> None:
        """Join the group."""
        self._with(self.c.rd_kafka_subscribe, [(topic, -1, ANY_OFFSET)])

    def assign(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """Assign partitions with offsets."""
        self._with(self.c.rd_kafka_assign, rows)

    def commit(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """Commit offsets of the group."""
        self._with(self.c.rd_kafka_commit, rows, 0)

    def seek(self, record: Record) -> None:
        """Seek to a record."""
        self.c.rd_kafka_seek(self._topic(record.topic), record.partition, record.offset, CALL_MS)

    def read(self, milliseconds: int) -> Record | None:
        """Return the next record, if there is one."""
        message = self.c.rd_kafka_consumer_poll(self.handle, milliseconds)
        if not message:
            return None
        try:
            row = message.contents
            if row.err:
                return None
            topic = self.c.rd_kafka_topic_name(row.topic).decode()
            return Record(
                topic,
                row.partition,
                row.offset,
                string_at(row.key, row.key_size),
                string_at(row.payload, row.size),
            )
        finally:
            self.c.rd_kafka_message_destroy(message)

    def _with(
        self, function: Callable[..., int], rows: Sequence[tuple[str, int, int]], *words: object
    ) -> None:
        places = self.library.places(rows)
        try:
            self.library.require(function(self.handle, places, *words))
        finally:
            self.c.rd_kafka_topic_partition_list_destroy(places)


class Program:
    """The commands."""

    def __init__(self, directory: str, bootstrap: str, name: str, patience_ms: str) -> None:
        self.library = Library(Path(directory))
        self.name = name
        self.patience_ms = int(patience_ms)
        self._both = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "log_level": "0",
            "reconnect.backoff.ms": "50",
            "reconnect.backoff.max.ms": "500",
            "topic.metadata.refresh.interval.ms": "2000",
            "socket.timeout.ms": str(max(self.patience_ms // 2, 10_000)),
            "api.version.request.timeout.ms": str(max(self.patience_ms // 2, 10_000)),
        }

    def verbs(self) -> dict[str, Callable[..., object]]:
        """Return the supported commands."""
        found: dict[str, Callable[..., object]] = {
            "produce": self.produce,
            "group": self.group,
            "write": self.write,
        }
        if self.library.has_isolation:
            found["read"] = self.read
        if self.library.has_transactions:
            found |= {"transact": self.transact, "copy": self.copy, "copying": self.transform_app}
        return found

    def produce(self, topic: str, partitions: str, count: str) -> None:
        with self._producer() as producer:
            for number in range(int(count)):
                producer.produce(
                    topic, number % int(partitions), b"key-%d" % number, b"value-%d" % number
                )
            producer.flush(self.patience_ms + 1000)

    def transact(self, topic: str, partitions: str, identity: str) -> None:
        with self._producer(identity) as producer:
            producer.transact("init_transactions", self.patience_ms)
            for name in TRANSACTIONS:
                producer.transact("begin_transaction")
                for number in range(EACH):
                    producer.produce(
                        topic,
                        number % int(partitions),
                        b"key-%d" % number,
                        b"%s%d" % (name.encode(), number),
                    )
                producer.flush(self.patience_ms + 1000)
                producer.transact(
                    "abort_transaction" if name == "aborted-" else "commit_transaction",
                    self.patience_ms,
                )

    def read(self, topic: str, partitions: str, count: str) -> str:
        with self._consumer("unused") as consumer:
            consumer.assign([(topic, number, BEGINNING) for number in range(int(partitions))])
            return values(self._take(consumer, int(count)))

    def group(self, topic: str, group: str, count: str) -> str:
        with self._consumer(group) as consumer:
            consumer.subscribe(topic)
            found = self._take(consumer, int(count))
            if found:
                consumer.commit(nexts(found))
            return values(found)

    def copy(self, source: str, sink: str, group: str, identity: str, count: str) -> None:
        with self._producer(identity) as producer, self._consumer(group) as consumer:
            producer.transact("init_transactions", self.patience_ms)
            consumer.subscribe(source)
            found = self._take(consumer, int(count))
            for is_committed in (False, True):
                producer.transact("begin_transaction")
                for record in found:
                    producer.produce(sink, record.partition, record.key, record.value)
                producer.send_offsets(consumer, nexts(found), self.patience_ms)
                producer.transact(
                    "commit_transaction" if is_committed else "abort_transaction", self.patience_ms
                )

    def write(self, topic: str, partitions: str, pause_ms: str) -> int:
        def on_delivery(key: bytes, partition: int, offset: int, trouble: str) -> None:
            say(
                *(
                    ("lost", key.decode(), partition, trouble, "abortable")
                    if trouble
                    else ("sent", key.decode(), partition, offset)
                )
            )

        number = 0
        with self._producer(on_delivery=on_delivery) as producer:
            while not is_stop_requested():
                key = f"{self.name}.{number}"
                try:
                    producer.produce(
                        topic, number % int(partitions), key.encode(), b"value of %s" % key.encode()
                    )
                except Failed as trouble:
                    say(
                        "lost",
                        key,
                        number % int(partitions),
                        producer.fatal_error() or trouble.name,
                        "fatal",
                    )
                number += 1
                producer.poll(int(pause_ms))
            producer.flush(self.patience_ms)
        return number

    def transform_app(self, source: str, sink: str, group: str, identity: str) -> None:
        is_over = False
        while not is_over:
            try:
                with self._producer(identity) as producer, self._consumer(group) as consumer:
                    producer.transact("init_transactions", self.patience_ms)
                    consumer.subscribe(source)
                    while not (is_over := is_stop_requested()):
                        found = self._batch(consumer)
                        if found:
                            self._copy(producer, consumer, sink, found)
            except Failed as trouble:
                say("trouble", trouble.name, "fatal")
                is_over = is_stop_requested()
                time.sleep(PAUSE_SECONDS)

    def _copy(self, producer: Client, consumer: Client, sink: str, found: list[Record]) -> None:
        producer.transact("begin_transaction")
        try:
            for record in found:
                producer.produce(sink, record.partition, record.key, record.value)
            producer.send_offsets(consumer, nexts(found), self.patience_ms)
            producer.transact("commit_transaction", self.patience_ms)
            say("copied", len(found))
        except Failed as trouble:
            if isinstance(trouble, Refused) and trouble.is_fatal:
                raise
            say("trouble", trouble.name, "abortable")
            producer.transact("abort_transaction", self.patience_ms)
            for record in first_of_each(found):
                consumer.seek(record)

    @contextmanager
    def _producer(
        self, identity: str = "", on_delivery: Callable[[bytes, int, int, str], None] | None = None
    ) -> Iterator[Client]:
        own = {
            "enable.idempotence": "true",
            "linger.ms": "5",
            "message.timeout.ms": str(self.patience_ms),
            "retry.backoff.ms": "50",
        }
        if identity:
            own |= {
                "transactional.id": identity,
                "transaction.timeout.ms": str(max(self.patience_ms, 60_000)),
            }
        client = Client(self.library, PRODUCER, {**self._both, **own}, on_delivery)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Client]:
        own = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        own |= {"isolation.level": "read_committed"} if self.library.has_isolation else {}
        client = Client(
            self.library, CONSUMER, {**self._both, **own, "session.timeout.ms": "10000"}
        )
        client.c.rd_kafka_poll_set_consumer(client.handle)
        try:
            yield client
        finally:
            client.c.rd_kafka_consumer_close(client.handle)
            client.close()

    def _take(self, consumer: Client, count: int) -> list[Record]:
        """Read this many records, and check once more whether there are too many."""
        found: list[Record] = []
        give_up_at = time.monotonic() + self.patience_ms / 1000
        while len(found) < count:
            if time.monotonic() > give_up_at:
                raise Failed("_TIMED_OUT", f"{len(found)} of {count} records were read")
            found += filter(None, [consumer.read(SHORT_MS)])
        return found + list(filter(None, [consumer.read(REST_MS)]))

    def _batch(self, consumer: Client) -> list[Record]:
        found: list[Record] = []
        while (
            len(found) < BATCH
            and (record := consumer.read(SHORT_MS if not found else 0)) is not None
        ):
            found.append(record)
        return found


def nexts(found: Sequence[Record]) -> list[tuple[str, int, int]]:
    """Return topic, partition and next offset."""
    ends = {(record.topic, record.partition): record.offset + 1 for record in found}
    return [(topic, partition, offset) for (topic, partition), offset in ends.items()]


def first_of_each(found: Sequence[Record]) -> list[Record]:
    """Return the first record of each partition."""
    firsts = {(record.topic, record.partition): record for record in reversed(found)}
    return list(firsts.values())


def values(found: Sequence[Record]) -> str:
    """Return partition:value of each."""
    return " ".join(f"{record.partition}:{record.value.decode()}" for record in found)


if __name__ == "__main__":
    program = Program(*sys.argv[1:])
    serve("librdkafka", program.library.version, program.verbs())
