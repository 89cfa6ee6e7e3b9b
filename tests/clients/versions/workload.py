"""A workload of clients of many releases, each in a process that is never restarted, while a
scenario upgrades their cluster.

Writers fill one topic, each record with a unique key; consume-transform-produce apps process it in
transactions, each with its own group and output topic. Their results and errors are written to the
event log of the run, so that the invariants check them and the report shows them by phase.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kraftsim.clients.events import ClientStarted, RecordAcknowledged, RecordFailed
from kraftsim.clients.events_transactions import CopyExpected, CopyRead, TransactionErred
from kraftsim.cluster.scenario import LivenessLost, ScenarioEnvironment, ScenarioFailed
from protocol.errors import ErrorCode
from tests.clients.versions.catalogue import client
from tests.clients.versions.program import OK, Program
from tests.clients.versions.tasks import unique_word

TOPIC, PARTITIONS, REPLICAS = "ledger", 3, 3
PAUSE_MS = 250
PATIENCE_MS = 120_000
END_SECONDS = 180.0
LOOK_SECONDS = 0.3
STILL_SECONDS = 60.0
"""How long an app of librdkafka may make no progress although there is input: since brokers that
are down are removed from its metadata, it waits for a former coordinator of its group until any
broker changes its state (librdkafka #5511).
"""
UNKNOWN_OFFSET = -1
SAME_AS = {
    "TIMED_OUT": ErrorCode.REQUEST_TIMED_OUT,
    "TIMED_OUT_QUEUE": ErrorCode.REQUEST_TIMED_OUT,
    "TIMEOUT": ErrorCode.REQUEST_TIMED_OUT,
    "TRANSPORT": ErrorCode.NETWORK_EXCEPTION,
    "DISCONNECT": ErrorCode.NETWORK_EXCEPTION,
    "UNKNOWN_TOPIC": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "UNKNOWN_PARTITION": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "WAIT_COORD": ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Errors that clients raise themselves, without a response of a broker."""
Counted = Counter[tuple[str, str, str]]
"""Client, error, kind of error -> count."""


def code_of(name: str) -> int:
    """Return the code of an error by its name in a client: NotCoordinatorException,
    NOT_COORDINATOR, _TIMED_OUT.
    """
    words = name.removesuffix("Exception").strip("_")
    if words != words.upper():
        words = (
            "".join(f"_{letter}" if letter.isupper() else letter for letter in words)
            .strip("_")
            .upper()
        )
    known = {each.name: each for each in ErrorCode}
    for spelled in (words, words.removesuffix("_FOR_PARTITION"), f"{words}_ERROR"):
        if spelled in SAME_AS or spelled in known:
            return int(SAME_AS.get(spelled, known.get(spelled, ErrorCode.UNKNOWN_SERVER_ERROR)))
    return int(ErrorCode.UNKNOWN_SERVER_ERROR)


class ClientWorkload:
    """Writers and apps, by client name; apps in `by_name` send only the group id with offsets, not
    the member.

    Call `open`, `start`, then `finish`, which checks the results, and finally `close`.
    """

    def __init__(
        self,
        stage: ScenarioEnvironment,
        writers: Sequence[str],
        transform_workers: Sequence[str],
        by_name: Sequence[str],
        logs: Path,
    ) -> None:
        self._stage = stage
        self._writers, self._copiers = (
            [client(name) for name in writers],
            [client(name) for name in transform_workers],
        )
        self._by_name = by_name
        self._logs = logs
        self._programs: dict[str, Program] = {}
        self._stack = ExitStack()
        self.acknowledged: dict[str, tuple[int, int]] = {}
        """Key -> partition and offset."""
        self.errors: Counted = Counter()
        self.copied: Counter[str] = Counter()
        self.woken: list[str] = []
        """Apps that stalled at the end, and continued when a broker was restarted."""

    @property
    def topics(self) -> dict[str, int]:
        """Topic -> partitions."""
        return {
            TOPIC: PARTITIONS,
            **{output_of(unique_word(each)): PARTITIONS for each in self._copiers},
        }

    async def open(self) -> None:
        """Create the topics."""
        for topic, partitions in self.topics.items():
            await self._stage.create_topic(topic, partitions, REPLICAS)
        for each in self._copiers:
            self._stage.emit(
                CopyExpected(input_topic=TOPIC, output_topic=output_of(unique_word(each)))
            )

    async def start(self) -> None:
        """Start all clients. Raises Missing."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for each in self._copiers:
            word, more = unique_word(each), ["by-name"] if each.name in self._by_name else []
            await self._begin(
                f"copier-{word}",
                each.name,
                "copying",
                TOPIC,
                output_of(word),
                f"copiers-{word}",
                f"copier-{word}",
                *more,
            )
        for each in self._writers:
            await self._begin(
                f"writer-{unique_word(each)}", each.name, "write", TOPIC, PARTITIONS, PAUSE_MS
            )

    async def finish(self) -> None:
        """Stop the writers, then the apps when they have processed everything; read all topics.

        Raises ScenarioFailed, LivenessLost.
        """
        sent = 0
        for name in [name for name in self._programs if name.startswith("writer")]:
            sent += int(await self._end(name) or 0)
        if len(self.acknowledged) != sent:
            raise ScenarioFailed(
                f"{sent} records were sent and {len(self.acknowledged)} acknowledged: "
                f"{self.error_summary()}"
            )
        await self._audit_acknowledged()
        for each in self._copiers:
            await self._audit_copy(unique_word(each))

    def close(self) -> None:
        """Stop all processes."""
        self._stack.close()

    def error_summary(self) -> str:
        """Return the errors of the clients as text."""
        rows = [
            f"{name}: {error} ({kind}) {count} times"
            for (name, error, kind), count in sorted(self.errors.items())
        ]
        rows += [f"{name} stalled until a broker was restarted" for name in self.woken]
        return "; ".join(rows) or "no error at all"

    async def _begin(self, name: str, of: str, *words: object) -> None:
        loop = asyncio.get_running_loop()

        def on_line(line: str) -> None:
            loop.call_soon_threadsafe(self._on_line, name, line.split(" "))

        program = Program(
            client(of),
            self._stage.spec.bootstrap,
            name,
            patience_ms=PATIENCE_MS,
            log=self._logs / f"{name}.log",
            on_line=on_line,
        )
        self._programs[name] = await asyncio.to_thread(self._stack.enter_context, program)
        self._stage.emit(ClientStarted(client_id=name, library=of))
        program.send(*words)

    async def _end(self, name: str) -> str:
        program = self._programs[name]
        program.send("stop")
        answer = await asyncio.to_thread(program.answer, END_SECONDS)
        if answer.kind != OK:
            raise LivenessLost(f"{name} did not come to an end: {answer.words}")
        return answer.words

    def _on_line(self, name: str, words: list[str]) -> None:
        match words:
            case ["sent", key, partition, offset_text]:
                offset = max(
                    int(offset_text), UNKNOWN_OFFSET
                )  # librdkafka has no offset for batches that it retried
                self.acknowledged[key] = (int(partition), offset)
                self._stage.emit(
                    RecordAcknowledged(
                        client_id=name,
                        topic=TOPIC,
                        partition=int(partition),
                        record_key=key,
                        offset=offset,
                    )
                )
            case ["lost", key, partition, error, kind]:
                self.errors[name, error, kind] += 1
                lost = RecordFailed(
                    client_id=name,
                    topic=TOPIC,
                    partition=int(partition),
                    record_key=key,
                    error_code=code_of(error),
                    reason=f"{error}, {kind}",
                )
                self._stage.emit(lost)
            case ["trouble", error, kind]:
                self.errors[name, error, kind] += 1
                if name in self.woken:
                    # the transaction that it left open while stalled has timed out by now: caused
                    # by the client, shown but not checked
                    return
                erred = TransactionErred(
                    client_id=name,
                    transactional_id=name,
                    transaction="",
                    error_code=code_of(error),
                    is_fatal=kind == "fatal",
                )
                self._stage.emit(erred)
            case ["copied", count]:
                self.copied[name] += int(count)
            case _:
                raise AssertionError(f"{name} says {words}")

    async def _audit_acknowledged(self) -> None:
        reader = self._stage.reader("reader-of-ledger", read_committed=True)
        found = [
            (record.key, (record.partition, record.offset))
            for record in await reader.read_all(TOPIC, range(PARTITIONS))
        ]
        await reader.close()
        elsewhere = [
            key
            for key, (partition, offset) in found
            if self.acknowledged.get(key) not in ((partition, offset), (partition, UNKNOWN_OFFSET))
        ]
        if len(found) != len(self.acknowledged) or elsewhere:
            raise ScenarioFailed(
                f"{len(self.acknowledged)} records were acknowledged, {len(found)} are in the "
                f"log, {len(dict(found))} of them distinct; {len(elsewhere)} have another "
                f"position than acknowledged: {elsewhere[:5]}"
            )

    async def _wake(self, app: str) -> None:
        """Restart a broker, once, for a client that waits for a state change of any broker."""
        self.woken.append(app)
        await self._stage.restart(self._stage.spec.broker_names[0])
        await self._stage.wait_for_brokers()

    async def _audit_copy(self, word: str) -> None:
        output, transform_worker = output_of(word), f"copier-{word}"
        give_up_at, moved_at, copied = (
            self._stage.now_seconds() + END_SECONDS,
            self._stage.now_seconds(),
            self.copied[transform_worker],
        )
        while self.copied[transform_worker] < len(self.acknowledged):
            now = self._stage.now_seconds()
            if self.copied[transform_worker] > copied:
                moved_at, copied = now, self.copied[transform_worker]
            if (
                now - moved_at > STILL_SECONDS
                and transform_worker not in self.woken
                and "librdkafka" in word
            ):
                await self._wake(transform_worker)
                give_up_at += END_SECONDS
            if now > give_up_at:
                raise LivenessLost(
                    f"{transform_worker} has processed {self.copied[transform_worker]} of "
                    f"{len(self.acknowledged)}: {self.error_summary()}"
                )
            await self._stage.sleep(LOOK_SECONDS)
        await self._end(f"copier-{word}")
        reader = self._stage.reader(f"reader-of-{output}", read_committed=True)
        found = [record.key for record in await reader.read_all(output, range(PARTITIONS))]
        await reader.close()
        self._stage.emit(CopyRead(client_id=f"reader-of-{output}", topic=output))
        if len(found) != len(set(found)) or set(found) != set(self.acknowledged):
            raise ScenarioFailed(
                f"{output} has {len(found)} records, {len(set(found))} of them distinct; the "
                f"input has {len(self.acknowledged)}"
            )


def output_of(word: str) -> str:
    """Return the output topic of an app."""
    return f"copied-by-{word}"
