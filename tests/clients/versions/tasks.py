"""The tasks of every client, and the expected results, as read by a current client.

A task is successful if the client reports success and the cluster has exactly the expected records;
otherwise its outcome is the error name.
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
"""Topics filled by a current client: one with records, one with transactions, of which one was
aborted.
"""
TASKS, NOT_THERE = "works", "-"
"""A task succeeded; a library does not support it."""
Found = Mapping[str, str]
"""Task -> outcome."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    `lines` are sent one after the other; each reply must equal `expected`; `output` is then read
    and must contain `holds`.
    """

    name: str
    about: str
    lines: Callable[[str], Sequence[str]]
    """Maps a word, unique to the client, to command lines."""
    answers: Sequence[str]
    """The records read, sorted, for each line."""
    output: str = ""
    """The suffix of the name of the topic that is read afterwards."""
    holds: tuple[str, ...] = ()


def plain_values() -> list[str]:
    """Return partition:value of the fixed topic, sorted."""
    return sorted(f"{number % PARTITIONS}:value-{number}" for number in range(COUNT))


def committed_values() -> list[str]:
    """Return partition:value of the committed records of one client, sorted."""
    return sorted(
        f"{number % PARTITIONS}:{name}{number}"
        for name in ("first-", "third-")
        for number in range(EACH)
    )


ALL, COMMITTED = " ".join(plain_values()), " ".join(committed_values())
LIST = (
    Task(
        "idempotent",
        "30 records by an idempotent producer, each once",
        lambda word: [f"produce {word}-idempotent {PARTITIONS} {COUNT}"],
        [""],
        "idempotent",
        tuple(plain_values()),
    ),
    Task(
        "transactions",
        "three transactions, of which the second is aborted",
        lambda word: [f"transact {word}-transactions {PARTITIONS} {word}-id"],
        [""],
        "transactions",
        tuple(committed_values()),
    ),
    Task(
        "read committed",
        "what two committed transactions and an aborted one left",
        lambda word: [f"read {MIXED} {PARTITIONS} {2 * EACH}"],
        [COMMITTED],
    ),
    Task(
        "group",
        "a member of a group reads and commits; the next member has nothing left",
        lambda word: [f"group {FIXED} {word}-group {COUNT}", f"group {FIXED} {word}-group 0"],
        [ALL, ""],
    ),
    Task(
        "copy",
        "records and the group's offsets in a transaction; the first attempt is aborted",
        lambda word: [
            f"copy {FIXED} {word}-copy {word}-copiers {word}-copier {COUNT}",
            f"group {FIXED} {word}-copiers 0",
        ],
        ["", ""],
        "copy",
        tuple(plain_values()),
    ),
)
OUTPUTS = tuple(work.output for work in LIST if work.output)


def unique_word(client: Client) -> str:
    """Return a unique word for topics and groups."""
    return client.name.replace(" ", "-").replace(".", "-")


def prepare(bootstrap: str, words: Sequence[str]) -> None:
    """Create the topics of some words, and the shared topics, and fill these."""
    create_topics(
        bootstrap, [FIXED, MIXED, *(f"{word}-{output}" for word in words for output in OUTPUTS)]
    )
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
    made: Mapping[str, Future[None]] = admin.create_topics(
        [NewTopic(name, PARTITIONS, 1) for name in names]
    )
    for future in made.values():
        future.result(SECONDS)


def run_task(program: Program, work: Task, bootstrap: str, word: str, *, seconds: float) -> str:
    """Run a task with a program, with the topics and groups of a word, and return its outcome."""
    for line, expected in zip(work.lines(word), work.answers, strict=True):
        program.send(line)
        reply = program.answer(seconds)
        if reply.kind == LACKS:
            return NOT_THERE
        if reply.kind == FAILED:
            return reply.error
        if sorted(reply.words.split()) != expected.split():
            return f"read {_difference(reply, expected)}"
    if work.output:
        found = values_of(bootstrap, f"{word}-{work.output}")
        if found != sorted(work.holds):
            return f"left {len(found)} of {len(work.holds)}"
    return TASKS


def values_of(bootstrap: str, topic: str) -> list[str]:
    """Return partition:value of all committed records of a topic, sorted, as read by the current
    librdkafka.
    """
    settings = {
        "group.id": "unused",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**QUIET, **settings, "bootstrap.servers": bootstrap})
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    )
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


def _difference(reply: Answer, expected: str) -> str:
    came, wanted = reply.words.split(), expected.split()
    missing, more = set(wanted) - set(came), len(came) - len(set(came) & set(wanted))
    return f"{len(missing)} too few, {more} too many"
