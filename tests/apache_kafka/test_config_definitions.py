"""The tables of configurations and levels are Kafka's own, and so is every word about a wrong value: asked of the classes of releases."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftsim.core.metadata.config_releases import config_tables
from kraftsim.core.metadata.config_tables import ConfigTables
from kraftsim.core.metadata.metadata_versions import METADATA_VERSIONS
from kraftsim.releases.catalogue import release
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, class_path, java

pytestmark = pytest.mark.interop
VALUES = (
    "", " ", "x", "-1", "0", "-2", "-3", "1", " 7 ", "13", "99999999999999999999", "2147483648", "9223372036854775808", "1.5", "true", "TRUE", "yes",
    "delete,compact", "compact ,delete", "delete,foo", ",", "Delete", "*", "*,*", "1:2,3:4", "1:2,,3:4", "1:2:3", "CreateTime", "LogAppendTime",
    "logappendtime", "zstd", "ZSTD", "0.5", "1e3", "1.5f", "+5", "0x10", "1_000", "23", "18", "10", "-131073", "2.1", "NaN", "Infinity", "none", "-0",
    "1234567.8", "12345678.9", "0.00012", "3.9", "2.8-IV1", "3.9-IV9",
)  # fmt: skip
TOGETHER = (
    {"retention.ms": "x", "segment.ms": "y", "cleanup.policy": "z"},
    {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
    {"no.such": "1", "segment.ms": "y"},
)
INTERNAL = "internal.segment.bytes"
"""For Kafka's own tests (since 4.1): shown to nobody."""


@dataclass(frozen=True)
class Told:
    """What the classes of a release tell, one list of words per line; and our tables of it."""

    line: str
    tables: ConfigTables
    questions: list[dict[str, str]]
    words: list[list[str]]

    def rows(self, kind: str) -> list[list[str]]:
        """Return what was told of one kind of thing."""
        return [words[1:] for words in self.words if words[0] == kind]


@pytest.fixture(scope="module", params=[DEFAULT_RELEASE, "4.1.2", NEWEST_RELEASE])
def told(request) -> Told:
    """What Kafka's classes tell of a release."""
    line = request.param.rpartition(".")[0]
    tables = config_tables(line)
    questions = [{name: value} for name in tables.topic for value in VALUES if name != "remote.storage.enable"] + list(TOGETHER)
    asked = "".join("\t".join(word for pair in values.items() for word in pair) + "\n" for values in questions)
    jars = ":".join(map(str, class_path(request.param)))
    command = [str(java()), "-cp", jars, str(Path(__file__).parent / "ConfigDefinitions.java")]
    answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return Told(line, tables, questions, [line.split("\t") for line in answer.stdout.split("\n")])


def test_kafka_says_the_same_about_every_value(told):
    """Every key and some fifty values, most of them wrong; and several at once."""
    theirs = ["\t".join(words) or None for words in told.rows("said")]
    ours = [told.tables.complaint_about_topic(values, {}) for values in told.questions]
    assert len(theirs) == len(told.questions)
    differing = [(values, their, our) for values, their, our in zip(told.questions, theirs, ours, strict=True) if their != our]
    assert differing == []


def test_brokers_have_the_same_configurations(told):
    """Names, types, defaults, and what can be changed while a broker runs."""
    theirs = {name: (kind, default if has == "true" else None, mode) for name, kind, has, default, mode in told.rows("broker")}
    assert {name: (config.kind.name, config.default, config.mode.value) for name, config in told.tables.broker.items()} == theirs


def test_topics_have_the_same_configurations(told):
    """Also in the same order, by which the first of several wrong values is found."""
    theirs = [tuple(row) for row in told.rows("topic") if row[0] != INTERNAL]
    assert [(name, config.kind.name, config.default) for name, config in told.tables.topic.items()] == theirs


def test_levels_have_the_same_names(told):
    """And the same ones may not be gone below; what a release holds above its own level became something else later."""
    lowest, highest = max(1, release(told.line).supported_features["metadata.version"][0]), release(told.line).metadata_version
    theirs = {int(level): (name, changes == "true") for level, name, changes in told.rows("level") if lowest <= int(level) <= highest}
    ours = {level: (version.name, version.changes_metadata) for level, version in METADATA_VERSIONS.items() if lowest <= level <= highest}
    assert ours == theirs
