"""The tables of configs and feature levels match Kafka, and so does every message about an invalid
value, as returned by the classes of releases.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftsim.metadata.rules_config_releases import ConfigTables, config_tables
from kraftsim.metadata.rules_versions import METADATA_VERSIONS
from kraftsim.releases.release import release
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, class_path, java

pytestmark = pytest.mark.interop
VALUES = (
    "", " ", "x", "-1", "0", "-2", "-3", "1", " 7 ", "13", "99999999999999999999", "2147483648",
    "9223372036854775808", "1.5", "true", "TRUE", "yes",
    "delete,compact", "compact ,delete", "delete,foo", ",", "Delete", "*", "*,*", "1:2,3:4",
    "1:2,,3:4", "1:2:3", "CreateTime", "LogAppendTime",
    "logappendtime", "zstd", "ZSTD", "0.5", "1e3", "1.5f", "+5", "0x10", "1_000", "23", "18", "10",
    "-131073", "2.1", "NaN", "Infinity", "none", "-0",
    "1234567.8", "12345678.9", "0.00012", "3.9", "2.8-IV1", "3.9-IV9",
)  # fmt: skip
TOGETHER = (
    {"retention.ms": "x", "segment.ms": "y", "cleanup.policy": "z"},
    {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
    {"no.such": "1", "segment.ms": "y"},
)
INTERNAL = "internal.segment.bytes"
"""Internal config for Kafka's own tests (since 4.1), never returned."""


@dataclass(frozen=True)
class Definitions:
    """The output of the classes of a release, one list of words per line; and our tables of it."""

    line: str
    tables: ConfigTables
    questions: list[dict[str, str]]
    words: list[list[str]]

    def rows(self, kind: str) -> list[list[str]]:
        """Return the lines of one kind."""
        return [words[1:] for words in self.words if words[0] == kind]


@pytest.fixture(scope="module", params=[DEFAULT_RELEASE, "4.1.2", NEWEST_RELEASE])
def definitions(request: pytest.FixtureRequest) -> Definitions:
    """The definitions in Kafka's classes of a release."""
    line = request.param.rpartition(".")[0]
    tables = config_tables(line)
    questions = [
        {name: value}
        for name in tables.topic
        for value in VALUES
        if name != "remote.storage.enable"
    ] + list(TOGETHER)
    asked = "".join(
        "\t".join(word for pair in values.items() for word in pair) + "\n" for values in questions
    )
    jars = ":".join(map(str, class_path(request.param)))
    command = [str(java()), "-cp", jars, str(Path(__file__).parent / "ConfigDefinitions.java")]
    answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return Definitions(
        line, tables, questions, [line.split("\t") for line in answer.stdout.split("\n")]
    )


def test_config_values_are_validated_as_in_apache_kafka(definitions: Definitions) -> None:
    """Every key and some fifty values, most of them invalid; and several at once."""
    theirs = ["\t".join(words) or None for words in definitions.rows("said")]
    ours = [
        definitions.tables.complaint_about_topic(values, {}) for values in definitions.questions
    ]
    assert len(theirs) == len(definitions.questions)
    differing = [
        (values, their, our)
        for values, their, our in zip(definitions.questions, theirs, ours, strict=True)
        if their != our
    ]
    assert differing == []


def test_broker_configs_match_apache_kafka(definitions: Definitions) -> None:
    """Names, types, defaults, and update modes."""
    theirs = {
        name: (kind, default if has == "true" else None, mode)
        for name, kind, has, default, mode in definitions.rows("broker")
    }
    assert {
        name: (config.kind.name, config.default, config.mode.value)
        for name, config in definitions.tables.broker.items()
    } == theirs


def test_topic_configs_match_apache_kafka(definitions: Definitions) -> None:
    """Also in the same order, which decides which of several invalid values is reported."""
    theirs = [tuple(row) for row in definitions.rows("topic") if row[0] != INTERNAL]
    assert [
        (name, config.kind.name, config.default)
        for name, config in definitions.tables.topic.items()
    ] == theirs


def test_feature_levels_have_the_same_names(definitions: Definitions) -> None:
    """Downgrades below the same levels are refused; levels above that of a release were redefined
    later.
    """
    lowest, highest = (
        max(1, release(definitions.line).supported_features["metadata.version"][0]),
        release(definitions.line).metadata_version,
    )
    theirs = {
        int(level): (name, changes == "true")
        for level, name, changes in definitions.rows("level")
        if lowest <= int(level) <= highest
    }
    ours = {
        level: (version.name, version.changes_metadata)
        for level, version in METADATA_VERSIONS.items()
        if lowest <= level <= highest
    }
    assert ours == theirs
