"""What a node of Apache Kafka is started with: properties, jars, and the release of --on."""

from dataclasses import replace
from pathlib import Path

import pytest

from kraftsim.cluster.apache_kafka.jars import ApacheKafkaMissing, jars_from_maven, jars_of_home
from kraftsim.cluster.apache_kafka.properties import apache_properties
from kraftsim.cluster.apache_kafka.target import apache_target
from kraftsim.cluster.spec import ClusterSpec

SMALL = "1000"
BEHIND = ClusterSpec(controllers=1, brokers=3, port=9092, behind_proxy=True)


def properties_of(
    spec: ClusterSpec, node: str, line: str, **overrides: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what a node of a release gets, and what was left out."""
    return apache_properties(spec.node(node), overrides, line)


@pytest.mark.parametrize("line", ["3.3", "3.9", "4.0", "4.4"])
def test_a_broker_gets_what_says_where_it_is_and_nothing_of_kraftsim(line: str) -> None:
    passed, left_out = properties_of(BEHIND, "broker-2", line)
    assert passed["process.roles"] == "broker" and passed["node.id"] == "2"
    assert passed["listeners"] == "PLAINTEXT://127.0.0.1:9293"
    assert passed["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert passed["controller.quorum.voters"] == "101@127.0.0.1:9192"
    assert not [key for key in passed if key.startswith("kraftsim.")]
    assert left_out == {}


@pytest.mark.parametrize(
    "key, value, line, reason",
    [
        ("kraftsim.producer.ids", "ending", "4.1", "a setting of kraftsim's own nodes"),
        ("inter.broker.protocol.version", "3.6", "4.1", "Apache Kafka 4.1 has no such setting"),
        ("log.segment.bytes", SMALL, "4.1", "Invalid value 1000 for configuration"),
        ("metadata.log.segment.bytes", SMALL, "3.9", "larger than a segment"),
        ("metadata.log.segment.bytes", SMALL, "4.4", "larger than a segment"),
        ("offsets.topic.num.partitions", "0", "3.9", "Invalid value 0 for configuration"),
    ],
)
def test_a_setting_that_a_release_does_not_take_is_left_out_with_the_reason(
    key: str, value: str, line: str, reason: str
) -> None:
    spec = replace(BEHIND, settings={key: value})
    passed, left_out = properties_of(spec, "broker-1", line)
    assert key not in passed
    assert reason in left_out[key]


@pytest.mark.parametrize(
    "key, value, line",
    [
        ("inter.broker.protocol.version", "3.6", "3.9"),
        ("log.segment.bytes", SMALL, "3.9"),
        ("metadata.log.segment.bytes", "10000000", "4.4"),
        ("rsm.config.dir", "/x", "4.1"),
    ],
)
def test_a_setting_that_a_release_takes_is_passed_on(key: str, value: str, line: str) -> None:
    passed, left_out = properties_of(replace(BEHIND, settings={key: value}), "broker-1", line)
    assert passed[key] == value and left_out == {}


def test_a_controller_advertises_its_listener_only_since_kip_853() -> None:
    """Before 3.9 a node that does exits: the voters of the quorum have the address."""
    assert "advertised.listeners" not in properties_of(BEHIND, "controller-101", "3.8")[0]
    advertised = properties_of(BEHIND, "controller-101", "3.9")[0]["advertised.listeners"]
    assert advertised == "CONTROLLER://127.0.0.1:9192"
    combined = replace(BEHIND, combined=1)
    before = properties_of(combined, "broker-1", "3.8")[0]["advertised.listeners"]
    assert before == "PLAINTEXT://127.0.0.1:9092"
    since = properties_of(combined, "broker-1", "3.9")[0]["advertised.listeners"]
    assert since == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192"


def test_the_topic_of_the_share_coordinator_has_no_more_replicas_than_brokers() -> None:
    two = replace(BEHIND, brokers=2)
    assert (
        properties_of(two, "broker-1", "4.1")[0]["share.coordinator.state.topic.replication.factor"]
        == "2"
    )
    assert not [key for key in properties_of(two, "broker-1", "3.9")[0] if key.startswith("share.")]


def test_overrides_of_a_node_replace_its_properties() -> None:
    passed, _ = properties_of(BEHIND, "broker-1", "4.1", **{"message.max.bytes": "2000"})
    assert passed["message.max.bytes"] == "2000"


# --------------------------------------------------------------------------------------------------
# What --on names


@pytest.mark.parametrize(
    "text, version, line",
    [
        ("apache:4.1.0", "4.1.0", "4.1"),
        ("apache:4.1", "4.1.2", "4.1"),
        ("apache:3.3.2", "3.3.2", "3.3"),
        ("apache:4.2.0-rc1", "4.2.0-rc1", "4.2"),
    ],
)
def test_a_target_is_a_version_of_a_known_line(text: str, version: str, line: str) -> None:
    """Without a patch number it is the last patch release of the line."""
    target = apache_target(text)
    assert (target.version, target.line) == (version, line)
    assert str(target) == f"apache:{version}"


@pytest.mark.parametrize(
    "text, words",
    [
        ("apache", "name a release of Apache Kafka"),
        ("apache:", "name a release of Apache Kafka"),
        ("redpanda:24.1", "name a release of Apache Kafka"),
        ("apache:new", "is no version"),
        ("apache:4", "is no version"),
        ("apache:2.8.2", "in KRaft mode, not on 2.8"),
        ("apache:9.9.9", "not on 9.9"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        apache_target(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An installation of 4.1.0, as far as its jars are looked at."""
    libs = tmp_path / "kafka" / "libs"
    libs.mkdir(parents=True)
    for name in ("kafka_2.13-4.1.0.jar", "kafka-clients-4.1.0.jar", "other-1.0.jar"):
        (libs / name).touch()
    return libs.parent


def test_an_installation_has_its_own_version_and_jars(home: Path, tmp_path: Path) -> None:
    for text in ("apache", "apache:4.1.0", "apache:4.1"):
        assert apache_target(text, home).version == "4.1.0"
    jars = jars_of_home(home, tmp_path / "cache")
    assert jars.release == "4.1.0" and len(jars.jars) == 3


def test_an_installation_of_another_version_or_none_is_refused(home: Path) -> None:
    with pytest.raises(ApacheKafkaMissing, match=r"is Apache Kafka 4\.1\.0, not 4\.0\.0"):
        apache_target("apache:4.0.0", home)
    with pytest.raises(ApacheKafkaMissing, match="is no installation of Apache Kafka"):
        apache_target("apache", home.parent)


# --------------------------------------------------------------------------------------------------
# Maven


def put_programs(directory: Path, monkeypatch: pytest.MonkeyPatch, maven: str) -> None:
    """Put a Java that says its version, and a Maven, alone on the search path."""
    for name, script in (("java", "echo 'openjdk version \"21.0.8\"' >&2"), ("mvn", maven)):
        program = directory / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/bin:/usr/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_a_release_that_was_never_released_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "[ERROR] Could not find artifact org.apache.kafka:kafka_2.13:jar:4.1.77 in central"
    put_programs(tmp_path, monkeypatch, f"echo '{said}'; exit 1")
    with pytest.raises(ApacheKafkaMissing, match=r"Maven has no Apache Kafka 4\.1\.77") as raised:
        jars_from_maven("4.1.77", tmp_path / "cache")
    assert "\n" not in str(raised.value)


def test_another_error_of_maven_is_reported_by_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_programs(tmp_path, monkeypatch, "echo 'Unknown host central'; echo more; exit 1")
    with pytest.raises(ApacheKafkaMissing, match=r"download Apache Kafka 4\.1\.2: Unknown"):
        jars_from_maven("4.1.2", tmp_path / "cache")


def test_jars_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for again if one of them is gone."""
    jar = tmp_path / "one.jar"
    jar.touch()
    found = 'for word; do case "$word" in -Dmdep.outputFile=*) file=${word#*=};; esac; done'
    count = tmp_path / "count"
    put_programs(tmp_path, monkeypatch, f'{found}\necho {jar} > "$file"\necho x >> {count}')
    for _ in range(2):
        assert jars_from_maven("4.1.2", tmp_path / "cache").jars == (jar,)
    assert count.read_text() == "x\n"
    jar.unlink()
    with pytest.raises(AssertionError):
        jars_from_maven("4.1.2", tmp_path / "cache")
    assert count.read_text() == "x\nx\n"
