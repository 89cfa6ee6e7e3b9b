"""What the programs with faust-streaming have in common, and the correction."""

from typing import Any

import faust
from copied_once import PARTITIONS, SINK, SOURCE
from faust.transport.consumer import TransactionManager

import kraftsim

NAME = "copiers"


class WithoutDirectory(faust.App):  # type: ignore[misc]  # faust is installed for these programs only
    """An app that keeps no files: its host has no file system of Python's."""

    def _create_directories(self) -> None:
        pass


def copier(host: kraftsim.AppHost, **options: Any) -> Any:
    """Return an app that copies a topic, exactly once according to its setting."""
    app = WithoutDirectory(
        NAME,
        broker=";".join(f"kafka://{address}" for address in host.bootstrap.split(",")),
        store="memory://",
        web_enabled=False,
        processing_guarantee="exactly_once",
        topic_partitions=PARTITIONS,
        topic_disable_leader=True,
        broker_session_timeout=10,
        broker_request_timeout=20,
        consumer_metadata_max_age_ms=2000,
        **options,
    )
    # Faust keeps producers in class attributes; two instances in one Python would share them.
    app.producer._transaction_producers, app.producer._trn_locks = {}, {}
    sink = topic(app, SINK)

    async def copy(stream: Any) -> None:
        async for event in stream.events():
            await sink.send(key=event.key, value=event.value, partition=event.message.partition)

    app.agent(topic(app, SOURCE))(copy)
    return app


def topic(app: Any, name: str) -> Any:
    """Return a topic of bytes."""
    return app.topic(
        name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )


async def work(app: Any) -> None:
    """Run a worker until it crashes."""
    worker = faust.Worker(app, override_logging=False, redirect_stdouts=False, quiet=True)
    await worker.start()


class AtomicTransactions(TransactionManager):  # type: ignore[misc]  # faust, as above
    """Corrects what exactly_once needs in transactions: see `corrected`."""

    has_failed = False
    """Whether a record could not be sent: its input must not be committed."""

    def __init__(self, transport: Any, *, consumer: Any, **options: Any) -> None:
        super().__init__(transport, consumer=consumer, **options)
        seek_to_committed = consumer.seek_to_committed

        async def seek_to_committed_or_start() -> Any:
            """Rewind partitions without a committed offset, too: aiokafka leaves them out."""
            found = await seek_to_committed()
            for place, offset in found.items():
                if not offset:
                    await consumer.seek(place, 0)
            return found

        consumer.seek_to_committed = seek_to_committed_or_start

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Any,
        *,
        transactional_id: str | None = None,
    ) -> Any:
        """Send a record in the transaction that commits the input partition of the same number.

        Faust asks its consumer for the partitions of the topic, and sends outside of transactions
        if the consumer does not know that topic because the app does not consume it.
        """
        group = self.app.assignor.group_for_topic(SOURCE)
        try:
            sent = await self.producer.send(
                topic,
                key,
                value,
                partition,
                timestamp,
                headers,
                transactional_id=f"{self.app.conf.id}-{group}-{partition}",
            )
        except Exception:
            self.has_failed = True
            raise
        sent.add_done_callback(self._note_failure)
        return sent

    def _note_failure(self, sent: Any) -> None:
        self.has_failed |= sent.cancelled() or sent.exception() is not None

    async def commit(self, offsets: Any, start_new_transaction: bool = True) -> Any:
        """Commit, unless output was lost: Faust also commits when it stops after a crash."""
        if self.has_failed:
            return False
        return await super().commit(offsets, start_new_transaction)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Abort what will be read again: Faust leaves the transactions of partitions that it keeps
        open, and rewinds to the committed offsets.
        """
        await super().on_partitions_revoked(revoked)
        # Both together: an acknowledged event without its output would be lost.
        self.app._attachments._pending.clear()
        self.consumer._acked.clear()
        self.consumer._acked_index.clear()
        for transactional_id in sorted(self.producer._transaction_producers):
            await self.producer.abort_transaction(transactional_id)


def corrected(host: kraftsim.AppHost) -> Any:
    """Return the app with transactions that are atomic.

    Output goes into a transaction when its input is committed (`stream_publish_on_commit`), not
    earlier, and only that of inputs below the committed offset: Faust also takes that of the next
    one.
    """
    app = copier(host, stream_publish_on_commit=True)
    app.transport.TransactionManager = AtomicTransactions
    publish = app._attachments.publish_for_tp_offset

    async def publish_below(place: Any, offset: int) -> Any:
        return await publish(place, offset - 1)

    app._attachments.publish_for_tp_offset = publish_below
    return app
