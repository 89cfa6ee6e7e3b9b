"""The harness of the real Apache Kafka: it starts, stops, keeps its data, and its tools run."""

import time
from pathlib import Path

import pytest

from tests.apache_kafka.class_path import CACHE, Missing, class_path
from tests.apache_kafka.harness import ApacheKafka, dump_log

pytestmark = pytest.mark.interop


def test_records_survive_a_restart_and_can_be_dumped(apache_kafka: ApacheKafka) -> None:
    with ApacheKafka(apache_kafka.release) as kafka:
        kafka.tool("topics", "--create", "--topic", "kept", "--partitions", "1")
        kafka.tool("console-producer", "--topic", "kept", stdin="one\ntwo\n")
        kafka.stop()
        kafka.start()
        read = kafka.tool(
            "console-consumer", "--topic", "kept", "--from-beginning", "--max-messages", "2"
        )
        assert read.splitlines() == ["one", "two"]
        dumped = dump_log(*sorted(kafka.data.glob("kept-0/*.log")))
        assert "payload: one" in dumped and "payload: two" in dumped and "isvalid: true" in dumped
        metadata = dump_log(*sorted(kafka.data.glob("__cluster_metadata-0/*.log")), metadata=True)
        assert "PRODUCER_IDS_RECORD" in metadata and '"name":"kept"' in metadata


def test_a_node_answers_soon_after_its_start(apache_kafka: ApacheKafka) -> None:
    """About two seconds on an idle machine; formatting is done once per release."""
    started = time.monotonic()
    with ApacheKafka(apache_kafka.release):
        assert time.monotonic() - started < 60


def test_missing_maven_or_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("tests.apache_kafka.class_path.CACHE", tmp_path)
    with pytest.raises(Missing, match="needs Java 17 or newer"):
        class_path("3.9.1")
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(Missing, match="no mvn on the search path"):
        class_path("3.9.1")
    assert tmp_path != CACHE


def test_a_release_without_tools_in_the_registry_uses_those_of_another(
    apache_kafka_newest: ApacheKafka,
) -> None:
    topic = "made-with-borrowed-tools"
    apache_kafka_newest.tool("topics", "--create", "--topic", topic, "--partitions", "1")
    assert topic in apache_kafka_newest.tool("topics", "--list").splitlines()
