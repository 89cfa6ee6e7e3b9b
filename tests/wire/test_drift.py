"""The declarations match Apache Kafka: compared with definitions extracted from its jars, version
by version, field by field.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.codec.declaration import NO_VERSIONS, Declaration, Kind, VersionRange
from protocol.schema import declaration_of
from tools.drift.comparison import drifts, kafkas_messages, undeclared
from tools.drift.definitions import Definition, parse_definition
from tools.drift.exceptions import (
    ALLOWED,
    NOT_COMPARED,
    NOT_DECLARED,
    RENAMED,
    VERSIONS_LEFT_OUT,
)
from tools.drift.facts import Facts, Shape, extract_facts, facts_text, load_facts
from tools.drift.former_names import FORMER_NAMES, in_current_names, under_present_names
from tools.drift.jars import RELEASES, download, missing_jars
from tools.drift.layouts import declared_layout, defined_layout
from tools.drift.scaffold import scaffold

FILE = Path(__file__).parent / "definitions.json"


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts(FILE)


def test_declarations_match_apache_kafka(facts: Facts) -> None:
    """Names, types, versions, nullability, defaults, tags, compactness, ignorability; four releases
    from 2.8 to 4.4.
    """
    assert drifts(facts) == []


def test_every_message_of_apache_kafka_is_declared(facts: Facts) -> None:
    """No drift in either direction: omitted messages have a reason in `exceptions`."""
    assert undeclared(facts) == []
    names = [declaration_of(cls).name for cls in kafkas_messages()]
    assert {*names, *NOT_DECLARED} == set(under_present_names(facts)) and len(names) == len(
        set(names)
    )
    in_release = {
        release: [
            name
            for name, shapes in facts.items()
            if any(release in shape.releases for shape in shapes)
        ]
        for release in RELEASES
    }
    assert {release: len(names) > 150 for release, names in in_release.items()} == dict.fromkeys(
        RELEASES, True
    )


def test_every_exception_has_its_reason() -> None:
    reasons = [
        *NOT_COMPARED.values(),
        *NOT_DECLARED.values(),
        *(reason for _, reason in FORMER_NAMES.values()),
    ]
    reasons += [reason for versions in VERSIONS_LEFT_OUT.values() for reason in versions.values()]
    reasons += [reason for words in RENAMED.values() for _, reason in words.values()]
    reasons += [reason for lines in ALLOWED.values() for reason in lines.values()]
    assert all(len(reason) > 10 for reason in reasons)


def test_an_undeclared_message_is_found(facts: Facts) -> None:
    """In the other direction too: an exception for an undefined or a declared message is
    reported.
    """
    lines = undeclared(
        {"NewRequest": facts["ProduceRequest"], "ProduceRequest": facts["ProduceRequest"]}
    )
    assert "NewRequest: Kafka defines it, and it is not declared" in lines
    assert not any(line.startswith("ProduceRequest:") for line in lines)
    assert {
        f"{name}: no release defines what an exception is for"
        for name in (*NOT_DECLARED, *FORMER_NAMES)
    } <= set(lines)


def test_a_renamed_message_is_compared_under_its_current_name(facts: Facts) -> None:
    shapes = under_present_names(facts)["AlterPartitionRequest"]
    assert shapes[0].releases == ("2.8.2",) and {shape.definition.name for shape in shapes} == {
        "AlterPartitionRequest"
    }
    assert len(shapes) == 1 + len(
        facts["AlterPartitionRequest"]
    ) and "AlterIsrRequest" not in under_present_names(facts)


def coordinator_record(kind: Kind, number: int) -> Declaration:
    return Declaration(
        name="X",
        kind=kind,
        api_key=number,
        versions=VersionRange(0, 0),
        flexible=NO_VERSIONS,
        calls={},
        digest="",
    )


@pytest.mark.parametrize(
    "name, kind, number, versions",
    [
        ("OffsetCommitKey", "coordinator-key", 1, "0"),
        ("GroupMetadataKey", "coordinator-key", 2, "0"),
        ("OffsetCommitValue", "coordinator-value", 1, "0-4"),
        ("TransactionLogKey", "coordinator-key", 0, "0"),
    ],
)
def test_coordinator_records_of_3_9_are_compared_by_their_4_0_names(
    facts: Facts, name: str, kind: Kind, number: int, versions: str
) -> None:
    """Version N of a key in 3.9 is key type N; the fields of both are the same."""
    older = next(shape.definition for shape in facts[name] if "3.9.1" in shape.releases)
    newer = facts[name][-1].definition
    assert (older.kind, newer.kind) == ("data", kind)
    present = in_current_names(older, coordinator_record(kind, number))
    assert (present.kind, present.api_key, str(present.versions)) == (kind, number, versions)
    for version in range(present.versions.first, present.versions.last + 1):
        assert (
            defined_layout(present, version)
            == [slot for slot in defined_layout(newer, version) if not slot.is_tagged]
            != []
        )
    wrong = in_current_names(older, coordinator_record(kind, number + 1))
    assert (wrong.kind, wrong.api_key) != (newer.kind, newer.api_key), (
        "a key with a wrong number is a drift"
    )


def words(line: int, before: str, after: str) -> Callable[[dict[str, Any]], None]:
    def change(message: dict[str, Any]) -> None:
        assert before in message["fields"][""][line], "the changed text exists"
        message["fields"][""][line] = message["fields"][""][line].replace(before, after)

    return change


@pytest.mark.parametrize(
    "change, difference",
    [
        (words(0, "TransactionalId", "TransactionId"), "transactionid"),
        (words(1, "int32", "int64"), "int64"),
        (words(2, "3+", "4+"), "v3"),
        (words(0, "nullable=0+", "nullable=1+"), "v0"),
        (words(2, "default=-1", "default=0"), "default"),
        (words(1, "0+", "0+ ignorable"), "ignorable"),
        (words(3, "3+", "3+ tag=0 tagged=3+"), "tag=0"),
        (lambda message: message.update(flexible="3+"), "compact"),
        (lambda message: message.update(key=23), "request 22"),
        (lambda message: message.update(versions="0-7"), "versions"),
        (lambda message: message["fields"][""].pop(3), "only on one side"),
        (lambda message: message["fields"][""].append("More int8 2+"), "missing"),
        (lambda message: message["fields"][""].reverse(), "v0"),
    ],
)
def test_any_difference_is_found(change: Callable[[dict[str, Any]], None], difference: str) -> None:
    """The check itself can fail: one change in the definition of one message
    (InitProducerIdRequest) gives at least one difference.
    """
    found = json.loads(FILE.read_text())
    newest = found["messages"]["InitProducerIdRequest"][-1]
    change(newest)
    changed = Definition.from_facts("InitProducerIdRequest", newest)
    facts = {**load_facts(FILE), "InitProducerIdRequest": [Shape(RELEASES, changed)]}
    lines = drifts(facts)
    assert lines and all(line.startswith("InitProducerIdRequest") for line in lines)
    assert any(difference in line for line in lines)


def test_a_scaffold_matches_its_definition(facts: Facts) -> None:
    """Scaffolded source, executed as Python, has the layout of the definition in every version."""
    for name, shapes in facts.items():
        definition = shapes[-1].definition
        scope: dict[str, Any] = {}
        exec(scaffold(definition), scope)
        declaration = declaration_of(scope[name])
        for version in range(definition.versions.first, definition.versions.last + 1):
            assert declared_layout(declaration, version) == defined_layout(definition, version)


def test_a_definition_with_comments_is_read() -> None:
    """Kafka's files have comments everywhere; one of 2.8.2 has text after the object."""
    text = """// a licence
    { "apiKey": 1, "type": "request", "name": "XRequest", // "validVersions": "9"
      "validVersions": "0-2", "flexibleVersions": "none", "latestVersionUnstable": true,
      "fields": [
        { "name": "Host", "type": "string", "versions": "0+", "nullableVersions": "1+",
          "default": "null", "about": "as in http://host // no comment" },
        { "name": "Rows", "type": "[]Row", "versions": "1+", "fields": [
          { "name": "Key", "type": "int32", "versions": "1+", "default": "0x7fffffff",
            "tag": 0, "taggedVersions": "2+", "ignorable": true } ] } ] } and more"""
    definition = parse_definition(text)
    assert definition is not None and definition.latest_unstable
    assert [field.line() for field in definition.structures[""]] == [
        "Host string 0+ nullable=1+ default=null",
        "Rows []Row 1+",
    ]
    (key,) = definition.structures["Row"]
    assert (
        key.line() == "Key int32 1+ tag=0 tagged=2+ ignorable default=0x7fffffff"
        and key.default_value == 2**31 - 1
    )
    assert Definition.from_facts("XRequest", definition.facts()) == definition
    assert parse_definition(text.replace('"0-2"', '"none"')) is None, (
        "a message without versions is removed (keys 4 to 7 in 4.0)"
    )


@pytest.mark.interop
def test_recorded_definitions_match_the_jars() -> None:
    """`python -m tools.drift extract tests/wire/definitions.json` would change nothing."""
    if missing_jars() and shutil.which("mvn") is None:
        pytest.skip(
            "the jars of Apache Kafka are not in the local Maven repository, and there is no mvn "
            "to fetch them"
        )
    download()
    assert facts_text(extract_facts()) == FILE.read_text()
