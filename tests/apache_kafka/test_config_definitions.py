"""The tables of configurations and levels are Kafka's own, and so is every word about a wrong value: asked of the classes of 3.9.1."""

import subprocess
from pathlib import Path

import pytest

from kraftsim.core.metadata.broker_config_table import BROKER_CONFIGS
from kraftsim.core.metadata.metadata_versions import METADATA_VERSIONS
from kraftsim.core.metadata.topic_configs import TOPIC_CONFIGS, complaint_about_all
from tests.apache_kafka.class_path import Missing, class_path, java

pytestmark = pytest.mark.interop
PRODUCTION = 21
"""3.9-IV0: what 3.9 holds above it became something else later."""
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
QUESTIONS = [{name: value} for name in TOPIC_CONFIGS for value in VALUES if name != "remote.storage.enable"] + list(TOGETHER)


@pytest.fixture(scope="module")
def told() -> list[list[str]]:
    """What Kafka's classes tell, one list of words per line."""
    try:
        program, jars = java(), ":".join(map(str, class_path()))
    except Missing as reason:
        pytest.skip(str(reason))
    asked = "".join("\t".join(word for pair in values.items() for word in pair) + "\n" for values in QUESTIONS)
    command = [str(program), "-cp", jars, str(Path(__file__).parent / "ConfigDefinitions.java")]
    answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return [line.split("\t") for line in answer.stdout.split("\n")]


def test_kafka_says_the_same_about_every_value(told):
    """36 keys and some fifty values, most of them wrong; and several at once."""
    theirs = ["\t".join(words[1:]) or None for words in told if words[0] == "said"]
    ours = [complaint_about_all(values, {}) for values in QUESTIONS]
    assert len(theirs) == len(QUESTIONS)
    differing = [(values, their, our) for values, their, our in zip(QUESTIONS, theirs, ours, strict=True) if their != our]
    assert differing == []


def test_brokers_have_the_same_configurations(told):
    """Names, types, defaults, and what can be changed while a broker runs."""
    theirs = {words[1]: (words[2], words[4] if words[3] == "true" else None, words[5]) for words in told if words[0] == "broker"}
    assert {name: (config.kind.name, config.default, config.mode.value) for name, config in BROKER_CONFIGS.items()} == theirs


def test_topics_have_the_same_configurations(told):
    """Also in the same order, by which the first of several wrong values is found."""
    theirs = [(words[1], words[2], words[3]) for words in told if words[0] == "topic"]
    assert [(name, config.kind.name, config.default) for name, config in TOPIC_CONFIGS.items()] == theirs


def test_levels_have_the_same_names(told):
    """And the same ones may not be gone below."""
    theirs = {int(words[1]): (words[2], words[3] == "true") for words in told if words[0] == "level" and 0 < int(words[1]) <= PRODUCTION}
    ours = {level: (version.name, version.changes_metadata) for level, version in METADATA_VERSIONS.items() if level <= PRODUCTION}
    assert ours == theirs
