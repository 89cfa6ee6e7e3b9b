"""Other implementations read our data: kio standalone messages, a Java client our batches.

(Kafka's own classes are used in test_java_oracle.)
"""

import importlib.util
import io
import subprocess
from pathlib import Path
from random import Random

import pytest
from kio.serial import entity_reader, entity_writer

from protocol.codec.declaration import snake_case
from protocol.codec.message_codec import compiled
from protocol.codec.tree import layout_of
from protocol.examples import example
from protocol.records.batches import build_batch
from protocol.records.control_records import SnapshotHeaderRecord
from protocol.records.record import Compression, Record
from protocol.schema import declaration_of
from tests.apache_kafka.class_path import class_path, java
from tools.drift.comparison import declared_messages

HERE = Path(__file__).parent
EXAMPLES_PER_VERSION = 10
DATA = [
    cls
    for cls in declared_messages()
    if declaration_of(cls).kind == "data"
    and importlib.util.find_spec(f"kio.schema.{snake_case(declaration_of(cls).name)}") is not None
]
"""Most standalone messages: control records, the consumer protocol, principals."""


def test_kio_covers_most_messages() -> None:
    assert len(DATA) >= 10, [cls.__name__ for cls in DATA]


@pytest.mark.parametrize("cls", DATA, ids=[cls.__name__ for cls in DATA])
def test_kio_reads_and_builds_the_same_messages(cls: type) -> None:
    declaration = declaration_of(cls)
    for version in range(declaration.versions.first, declaration.versions.last + 1):
        module = importlib.import_module(
            f"kio.schema.{snake_case(declaration.name)}.v{version}.data"
        )
        random = Random(f"{cls.__name__} {version}")
        for _ in range(EXAMPLES_PER_VERSION):
            message = example(layout_of(cls, version), random.randrange, unknown_tags=False)
            if isinstance(message, SnapshotHeaderRecord):
                message.last_contained_log_timestamp = (
                    1_700_000_000_000  # kio has dates there, and no year before 1 or after 9999
                )
            frame = compiled(cls, version).encode(message)
            entity, size = entity_reader(getattr(module, declaration.name))(frame, 0)
            buffer = io.BytesIO()
            entity_writer(type(entity))(buffer, entity)
            assert (size, buffer.getvalue()) == (len(frame), frame)


@pytest.mark.interop
def test_a_java_client_reads_our_batches_in_every_codec() -> None:
    """Its reader is stricter than others: lz4 blocks must be independent, and record counts and
    checksums correct.
    """
    program, jars = java(), ":".join(map(str, class_path()))
    values = [
        b"",
        b"value",
        b"value " * 30_000,
        bytes(97 + number * number % 26 for number in range(100_000)),
    ]
    records = [
        Record(timestamp=1_700_000_000_000 + number, key=b"k", value=value, headers=(("h", b"x"),))
        for number, value in enumerate(values)
    ]
    batches = [
        build_batch(
            records,
            base_offset=5,
            producer_id=7,
            producer_epoch=0,
            base_sequence=2**31 - 1,
            compression=codec,
        )
        for codec in Compression
    ]
    lines = "".join(f"{batch.hex()}\n" for batch in batches)
    answers = subprocess.run(
        [program, "-cp", jars, HERE / "ReadBatches.java"],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    read = " ".join(
        f"{5 + number}:{record.timestamp}:k:{_java_hash(record.value or b'')}:1"
        for number, record in enumerate(records)
    )
    assert answers.stdout.splitlines() == [
        f"{codec.name.lower()} 7 2 {read}" for codec in Compression
    ]


def _java_hash(text: bytes) -> int:
    value = 0
    for byte in text:
        value = (31 * value + byte) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
