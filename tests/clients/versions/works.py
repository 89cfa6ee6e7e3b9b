"""The works that every client is put to, and what must have come of each, as a client of today sees it.

A work has come true when the client says so and the cluster holds exactly what it should; else its outcome is the name of the error.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.versions.catalogue import Client
from tests.clients.versions.program import FAILED, LACKS, Answer, Program

PARTITIONS = 2
COUNT = 30
EACH = 5
SECONDS = 60.0
QUIET = {"log_level": 0}
FIXED, MIXED = "fixed", "mixed"
"""Topics that a client of today has filled: one with records, one with transactions, of which one was aborted."""
WORKS, NOT_THERE = "works", "-"
"""A work came true; a library has nothing of the kind."""
Found = Mapping[str, str]
"""Work -> outcome."""


@dataclass(frozen=True, slots=True)
class Work:
    """One work. `lines` are told one after the other; each answer must be what `expected` says; `output` is then read and must hold `holds`."""

    name: str
    about: str
    lines: Callable[[str], Sequence[str]]
    """From a word that no other client has to lines."""
    answers: Sequence[str]
    """What is read, sorted, for each line."""
    output: str = ""
    """What the name of the topic ends with that is read afterwards."""
    holds: tuple[str, ...] = ()


def plain_values() -> list[str]:
    """Return partition:value of the fixed topic, sorted."""
    return sorted(f"{number % PARTITIONS}:value-{number}" for number in range(COUNT))


def committed_values() -> list[str]:
    """Return partition:value of what the transactions of one client leave, sorted."""
    return sorted(f"{number % PARTITIONS}:{name}{number}" for name in ("first-", "third-") for number in range(EACH))


ALL, COMMITTED = " ".join(plain_values()), " ".join(committed_values())
LIST = (
    Work(
        "idempotent",
        "30 records by an idempotent producer, each once",
        lambda word: [f"produce {word}-idempotent {PARTITIONS} {COUNT}"],
        [""],
        "idempotent",
        tuple(plain_values()),
    ),
    Work(
        "transactions",
        "three transactions, of which the second is aborted",
        lambda word: [f"transact {word}-transactions {PARTITIONS} {word}-id"],
        [""],
        "transactions",
        tuple(committed_values()),
    ),
    Work(
        "read committed",
        "what two committed transactions and an aborted one left",
        lambda word: [f"read {MIXED} {PARTITIONS} {2 * EACH}"],
        [COMMITTED],
    ),
    Work(
        "group",
        "a member of a group reads and commits; the next member has nothing left",
        lambda word: [f"group {FIXED} {word}-group {COUNT}", f"group {FIXED} {word}-group 0"],
        [ALL, ""],
    ),
    Work(
        "copy",
        "records and the group's offsets in a transaction; the first attempt is aborted",
        lambda word: [f"copy {FIXED} {word}-copy {word}-copiers {word}-copier {COUNT}", f"group {FIXED} {word}-copiers 0"],
        ["", ""],
        "copy",
        tuple(plain_values()),
    ),
)
OUTPUTS = tuple(work.output for work in LIST if work.output)


def word_of(client: Client) -> str:
    """Return a word for topics and groups."""
    return client.name.replace(" ", "-").replace(".", "-")


def prepare(bootstrap: str, words: Sequence[str]) -> None:
    """Create the topics of some words, and those that all read, and fill these."""
    create_topics(bootstrap, [FIXED, MIXED, *(f"{word}-{output}" for word in words for output in OUTPUTS)])
    writer = Producer({**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        writer.produce(FIXED, b"value-%d" % number, b"key-%d" % number, number % PARTITIONS)
    assert writer.flush(SECONDS) == 0
    writer = Producer({**QUIET, "bootstrap.servers": bootstrap, "transactional.id": "filling"})
    writer.init_transactions(SECONDS)
    for name in ("first-", "aborted-", "third-"):
        writer.begin_transaction()
        for number in range(EACH):
            writer.produce(MIXED, f"{name}{number}", b"key-%d" % number, number % PARTITIONS)
        assert writer.flush(SECONDS) == 0
        if name == "aborted-":
            writer.abort_transaction(SECONDS)
        else:
            writer.commit_transaction(SECONDS)


def create_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Create topics."""
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    made: Mapping[str, Future[None]] = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
    for future in made.values():
        future.result(SECONDS)


def put_to(program: Program, work: Work, bootstrap: str, word: str, *, seconds: float) -> str:
    """Let a program do a work, with topics and groups of a word, and return its outcome."""
    for line, expected in zip(work.lines(word), work.answers, strict=True):
        program.tell(line)
        told = program.answer(seconds)
        if told.kind == LACKS:
            return NOT_THERE
        if told.kind == FAILED:
            return told.error
        if sorted(told.words.split()) != expected.split():
            return f"read {_difference(told, expected)}"
    if work.output:
        found = values_of(bootstrap, f"{word}-{work.output}")
        if found != sorted(work.holds):
            return f"left {len(found)} of {len(work.holds)}"
    return WORKS


def values_of(bootstrap: str, topic: str) -> list[str]:
    """Return partition:value of all that is committed in a topic, sorted, as the librdkafka of today reads it."""
    settings = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**QUIET, **settings, "bootstrap.servers": bootstrap})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()
    give_up_at = time.monotonic() + SECONDS
    while len(ended) < PARTITIONS:
        assert time.monotonic() < give_up_at, f"{topic} comes to an end"
        for message in consumer.consume(500, 0.1):
            error, partition, value = message.error(), message.partition(), message.value()
            assert partition is not None
            if error is not None:
                ended.add(partition)
            elif value is not None:
                found.append(f"{partition}:{value.decode()}")
    consumer.close()
    return sorted(found)


def _difference(told: Answer, expected: str) -> str:
    came, wanted = told.words.split(), expected.split()
    missing, more = set(wanted) - set(came), len(came) - len(set(came) & set(wanted))
    return f"{len(missing)} too few, {more} too many"
