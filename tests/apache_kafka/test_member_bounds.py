"""Timeouts of group members and their bounds: a broker of each release refuses to start with the
same values and message as ours.

Apache Kafka validates each set of properties as at startup (KafkaConfig.fromProps); one broker of
each release is started with an invalid one.
"""

import subprocess
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.config_values import MEMBER_KINDS, check_values
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, class_path, java
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
COMMON: Final = (
    "process.roles=broker",
    "node.id=1",
    "listeners=PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names=CONTROLLER",
    "controller.quorum.voters=2@127.0.0.1:9093",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
)
TIMES: Final = {
    "session.timeout.ms": (
        "-1",
        "0",
        "1",
        "4999",
        "5000",
        "44999",
        "45000",
        "45001",
        "60000",
        "60001",
        "x",
    ),
    "heartbeat.interval.ms": ("0", "1", "4999", "5000", "5001", "15000", "15001", "45000", "60001"),
}
"""Values around the defaults: 45 s within 45 s to 60 s, 5 s within 5 s to 15 s."""
SCALA: Final = "requirement failed: "
"""The prefix of a failed `require` in Scala."""
Values = dict[str, str]


def questions(line: str) -> list[Values]:
    """Return single settings of each kind of group with each value, all pairs of them, and all six
    at once.
    """
    tables = config_tables(line)
    found: list[Values] = []
    for kind in MEMBER_KINDS:
        known = {
            name: values
            for time, values in TIMES.items()
            for bound in ("", "min.", "max.")
            if (name := f"group.{kind}.{bound}{time}") in tables.broker or name in tables.internal
        }
        found += [{name: value} for name, values in known.items() for value in values]
        found += [
            {one: a, other: b}
            for one, other in combinations(known, 2)
            for a in known[one]
            for b in known[other]
        ]
        found += [
            {name: values[at % len(values)] for name, values in known.items()}
            for at in range(len(max(known.values(), key=len, default=())))
        ]
    return found


def theirs(release: str, asked: list[Values]) -> list[str]:
    """Return the error of Apache Kafka for each set; empty if it starts."""
    jars = ":".join(map(str, class_path(release)))
    source = str(Path(__file__).parent / "StartingConfig.java")
    command = [
        str(java()),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars,
        source,
        *COMMON,
    ]
    lines = "".join(
        "\t".join(word for pair in values.items() for word in pair) + "\n" for values in asked
    )
    answer = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return [
        line.removeprefix("said\t").removeprefix(SCALA)
        for line in answer.stdout.splitlines()
        if line.startswith("said\t")
    ]


def ours(line: str, values: Values) -> str:
    """Return the error of our node."""
    try:
        check_values(line, values)
    except ConfigError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, "4.0.2", "4.1.2", NEWEST_RELEASE])
def test_the_same_member_timeouts_are_refused_with_the_same_message(release: str) -> None:
    line = line_of(release)
    asked = questions(line)
    their_errors = theirs(release, asked)
    assert len(their_errors) == len(asked) and "" in their_errors and len(set(their_errors)) > 10
    differing = [
        (values, their, our)
        for values, their in zip(asked, their_errors, strict=True)
        if their != (our := ours(line, values))
    ]
    assert differing == []


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, "4.1.2", NEWEST_RELEASE])
def test_a_broker_does_not_start_with_invalid_member_timeouts(release: str) -> None:
    settings = {"group.consumer.session.timeout.ms": "70000"}
    why = ours(line_of(release), settings)
    assert why
    kafka = ApacheKafka(release, settings)
    try:
        with pytest.raises(AssertionError, match="Apache Kafka ended with 1") as ended:
            kafka.start()
        assert why in str(ended.value)
    finally:
        kafka.remove()
