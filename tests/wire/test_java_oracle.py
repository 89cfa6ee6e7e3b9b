"""Apache Kafka's own classes read our messages and build the same bytes: every message at every
version of a release, and every envelope.

`Echo.java` gets our bytes and lets the classes of the jars read and write them; Kafka's JSON of a
message shows that both have the same fields.
"""

import json
import re
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from protocol.codec.message_codec import CompiledMessage, compiled
from protocol.codec.tree import holds_records, layout_of
from protocol.coordinator.registry import (
    CoordinatorTopic,
    build_record,
    declared_types,
    parse_record,
    record_classes,
)
from protocol.examples import example
from protocol.malformed import MalformedMessage
from protocol.message_json import message_to_json
from protocol.records.record_frames import build_frame
from protocol.schema import Message, declaration_of
from protocol.version_prefixed import DefaultPrincipalData, build_principal, build_version_prefixed
from tests.apache_kafka.class_path import Missing, class_path, java
from tests.wire.hostile_bytes import random_source, short_frame
from tools.drift.comparison import declared_messages
from tools.drift.exceptions import NOT_COMPARED, NOT_DECLARED
from tools.drift.facts import Facts, Shape, load_facts
from tools.drift.former_names import FORMER_NAMES
from tools.drift.jars import ARTIFACTS, download, jar_path
from tools.drift.layouts import declared_layout, defined_layout

HERE = Path(__file__).parent
EXAMPLES_PER_VERSION = 10
JSON_PER_VERSION = 2
ENVELOPES_PER_KIND = 5
GENERATED = re.compile(
    r"org/apache/kafka/(?:common/message|common/metadata|\w+(?:/\w+)*/generated)/\w+\.class|"
    r"kafka/internals/generated/\w+\.class"
)
COORDINATOR = "org.apache.kafka.coordinator"
SERDES = {
    "3.9.1": {CoordinatorTopic.CONSUMER_OFFSETS: f"{COORDINATOR}.group.CoordinatorRecordSerde"},
    "4.4.0": {
        CoordinatorTopic.CONSUMER_OFFSETS: f"{COORDINATOR}.group.GroupCoordinatorRecordSerde",
        CoordinatorTopic.TRANSACTION_STATE: (
            f"{COORDINATOR}.transaction.TransactionCoordinatorRecordSerde"
        ),
        CoordinatorTopic.SHARE_GROUP_STATE: f"{COORDINATOR}.share.ShareCoordinatorRecordSerde",
    },
}
LAST_TYPE = {"3.9.1": 8, "4.4.0": 23}
"""Types of __consumer_offsets: the definitions of 3.9 contain those of share groups, which its
coordinator does not support yet.
"""
UNKNOWN_TYPE = "00630000"
MUTATIONS_PER_VERSION = 10
MUTATED_SIZE_MAX = 150
KAFKA_READS_BUT_CANNOT_BUILD = "Invalid raw tag field list"
"""Unknown tags that are not ascending are read, but not written again."""


class Question(NamedTuple):
    """A line for Echo, and the expected reply: a text, or an object that must equal the JSON
    reply.
    """

    line: str
    expected: object


class Mutated(NamedTuple):
    """The expected result of a mutated frame: the same bytes again, or (None) a refusal."""

    built: str | None


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts(HERE / "definitions.json")


@pytest.mark.interop
@pytest.mark.parametrize("release, least", [("2.8.2", 9_000), ("3.9.1", 14_000), ("4.4.0", 16_000)])
def test_apache_kafka_reads_and_builds_every_message_the_same(
    facts: Facts, release: str, least: int
) -> None:
    """Byte equality in both directions, also of mutated frames; 2.8.2 for the versions that later
    releases removed, one Java per release.
    """
    try:
        program = java()
        others = class_path("3.9.1" if release == "2.8.2" else release)
        download()
    except (Missing, FileNotFoundError) as reason:
        pytest.skip(str(reason))
    asked = [*_messages(facts, release), *_envelopes(facts, release)]
    # The jars of the release first; after them their dependencies (logging, JSON).
    jars = ":".join(map(str, [*_definition_jars(release), *others]))
    done = subprocess.run(
        [program, "-cp", jars, HERE / "Echo.java"],
        input="".join(f"{question.line}\n" for question in asked),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    wrong = [
        f"{question.line[:200]}: {answer[:200]}, expected {str(question.expected)[:200]}"
        for question, answer in zip(asked, done.stdout.splitlines(), strict=True)
        if not _is_right(question.expected, answer)
    ]
    assert not wrong, f"{len(wrong)} of {len(asked)}: {wrong[:5]}"
    assert len(asked) > least, f"only {len(asked)} questions"


def _is_right(expected: object, answer: str) -> bool:
    if isinstance(expected, Mutated):
        return (
            answer.startswith("!")
            if expected.built is None
            else answer == expected.built or KAFKA_READS_BUT_CANNOT_BUILD in answer
        )
    if answer.startswith("!") or isinstance(expected, str):
        return bool(answer == expected)
    return bool(json.loads(answer) == expected)


def _messages(facts: Facts, release: str) -> Iterator[Question]:
    """Yield questions about every field of every message of the release."""
    declared = {declaration_of(cls).name: cls for cls in declared_messages()}
    for name, shapes in facts.items():
        shape = _shape(shapes, release)
        cls = declared.get(FORMER_NAMES.get(name, (name,))[0])
        assert cls is not None or name in NOT_DECLARED, f"{name} is not declared"
        if cls is None or shape is None:
            continue
        java_class, is_newest = (
            _java_classes(release)[name],
            shape is shapes[-1] and name not in FORMER_NAMES,
        )
        for version, their_version in _versions(cls, shape):
            random = Random(f"{cls.__name__} {version}")
            for number in range(EXAMPLES_PER_VERSION):
                message = example(layout_of(cls, version), random.randrange)
                frame = compiled(cls, version).encode(message)
                yield Question(f"message {java_class} {their_version} {frame.hex()}", frame.hex())
                if (
                    is_newest
                    and number < JSON_PER_VERSION
                    and not holds_records(layout_of(cls, version))
                ):
                    yield Question(
                        f"json {java_class} {their_version} {frame.hex()}",
                        message_to_json(message, version),
                    )
            if _knows_all_tags(cls, version, shape, their_version):
                yield from _mutations(cls, version, f"message {java_class} {their_version}")
            if declaration_of(cls).kind == "data":
                frame = compiled(cls, version).encode(message)
                yield Question(
                    f"prefixed {java_class} {their_version} {frame.hex()}",
                    build_version_prefixed(message, version).hex(),
                )


def _knows_all_tags(cls: type, version: int, shape: Shape, their_version: int) -> bool:
    """Return whether a release has every tagged field that kraftsim has: it uses the size of an
    unknown tag, and ignores that of a known one.
    """
    ours = sum(slot.is_tagged for slot in declared_layout(declaration_of(cls), version))
    return ours == sum(slot.is_tagged for slot in defined_layout(shape.definition, their_version))


def _mutations(cls: type, version: int, question: str) -> Iterator[Question]:
    """Yield frames with one or two bytes changed: kraftsim accepts what Kafka accepts, with the
    same values, and refuses the rest.
    """
    frame = short_frame(cls, version, MUTATED_SIZE_MAX)
    codec: CompiledMessage[object] = compiled(cls, version)
    randrange = random_source(cls, version, "mutations for Java")
    for _ in range(MUTATIONS_PER_VERSION if frame else 0):
        mutated = bytearray(frame)
        for _ in range(1 + randrange(2)):
            mutated[randrange(len(mutated))] = (0x00, 0x01, 0x7F, 0x80, 0xFF, randrange(256))[
                randrange(6)
            ]
        try:
            message, position = codec.decode(bytes(mutated), 0)
        except MalformedMessage:
            yield Question(f"{question} {mutated.hex()}", Mutated(None))
        else:
            whole = position == len(mutated)
            yield Question(
                f"{question} {mutated.hex()}",
                Mutated(codec.encode(message).hex() if whole else None),
            )


def _envelopes(facts: Facts, release: str) -> Iterator[Question]:
    """Yield questions about the envelopes of records: types, versions, frames."""
    for topic, serde in SERDES.get(release, {}).items():
        for record_type in declared_types(topic):
            if record_type <= LAST_TYPE[release]:
                yield from _coordinator_records(facts, release, topic, serde, record_type)
        yield Question(
            f"record {serde} {UNKNOWN_TYPE} -",
            "! UnknownRecordTypeException: Found an unknown record type 99",
        )
        assert parse_record(topic, bytes.fromhex(UNKNOWN_TYPE), None) is None
    if release not in SERDES:
        return
    for cls in declared_messages():
        shape = (
            _shape(facts[declaration_of(cls).name], release)
            if declaration_of(cls).kind == "metadata"
            else None
        )
        if shape is not None:
            frame = "remote" if cls.__module__.startswith("protocol.remote_log") else "metadata"
            for version, _ in _versions(cls, shape):
                for message in _examples(cls, version):
                    value = build_frame(message, version).hex()
                    yield Question(f"frame {frame} {value}", value)
    for message in _examples(DefaultPrincipalData, 0, unknown_tags=False):
        yield Question(
            f"principal {build_principal(message).hex()}", build_principal(message).hex()
        )


def _coordinator_records(
    facts: Facts, release: str, topic: CoordinatorTopic, serde: str, record_type: int
) -> Iterator[Question]:
    classes = record_classes(topic, record_type)
    shape = _shape(facts[declaration_of(classes.value).name], release)
    if shape is None:
        return
    for key in _examples(classes.key, 0):
        content, _ = build_record(key, None)
        yield Question(f"record {serde} {content.hex()} -", f"{content.hex()} -")
    for version, _ in _versions(classes.value, shape):
        for value in _examples(classes.value, version):
            content, body = build_record(key, value, version)
            assert body is not None and parse_record(topic, content, body) == (key, value)
            yield Question(
                f"record {serde} {content.hex()} {body.hex()}", f"{content.hex()} {body.hex()}"
            )
        # Trailing bytes of a value are ignored on both sides.
        assert body is not None
        assert parse_record(topic, content, body + b"\x00") == (key, value)
        yield Question(
            f"record {serde} {content.hex()} {body.hex()}00", f"{content.hex()} {body.hex()}"
        )


def _examples(cls: type, version: int, *, unknown_tags: bool = True) -> list[Message]:
    random = Random(f"envelope of {cls.__name__} {version}")
    return [
        example(layout_of(cls, version), random.randrange, unknown_tags=unknown_tags)
        for _ in range(ENVELOPES_PER_KIND)
    ]


def _shape(shapes: Sequence[Shape], release: str) -> Shape | None:
    """Return the definition of a release, None if it is not compared."""
    shape = next((shape for shape in shapes if release in shape.releases), None)
    if (
        shape is None
        or (shape.definition.kind, release) in NOT_COMPARED
        or (shape.definition.name, release) in NOT_COMPARED
    ):
        return None
    return shape


def _versions(cls: type, shape: Shape) -> list[tuple[int, int]]:
    """Return our versions that a release supports, with its numbers for them: up to 3.9 the version
    of a coordinator key is its type.
    """
    declaration = declaration_of(cls)
    if declaration.kind == "coordinator-key":
        return [
            (0, 0 if shape.definition.kind == declaration.kind else shape.definition.versions.last)
        ]
    both = declaration.versions.intersection(shape.definition.versions)
    return [(version, version) for version in range(both.first, both.last + 1)]


def _definition_jars(release: str) -> list[Path]:
    return [
        jar_path(artifact, release)
        for artifact, releases in ARTIFACTS.items()
        if release in releases
    ]


@cache
def _java_classes(release: str) -> dict[str, str]:
    """Map each message to the class that Kafka generated from it."""
    found: dict[str, str] = {}
    for jar in _definition_jars(release):
        with zipfile.ZipFile(jar) as entries:
            for entry in filter(GENERATED.fullmatch, entries.namelist()):
                name = entry.removesuffix(".class").replace("/", ".")
                simple = name.rpartition(".")[2]
                found[simple] = name
                if simple.endswith(("RequestData", "ResponseData", "HeaderData")):
                    found[simple.removesuffix("Data")] = name
    return found
