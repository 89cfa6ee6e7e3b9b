"""The numbers and names of errors and API keys equal those of Apache Kafka's enums, in the default
release and in the newest.
"""

import subprocess
from functools import cache
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.apache_kafka.class_path import Missing, class_path, java
from tools.drift.jars import download, jar_path

RELEASES = ("3.9.1", "4.4.0")
LISTENERS = {"ZK_BROKER": "zkBroker", "BROKER": "broker", "CONTROLLER": "controller"}
FORMER_NAMES = {"LIST_CLIENT_METRICS_RESOURCES": "LIST_CONFIG_RESOURCES"}  # KIP-1142

pytestmark = pytest.mark.interop


@cache
def _said(release: str) -> tuple[list[str], ...]:
    """Return the content of the enums of a release, one list of words per line."""
    try:
        program, others = java(), class_path()
        download()
    except (Missing, FileNotFoundError) as reason:
        pytest.skip(str(reason))
    jars = ":".join(map(str, [jar_path("kafka-clients", release), *others]))
    answer = subprocess.run(
        [program, "-cp", jars, Path(__file__).parent / "Names.java"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    return tuple(line.split() for line in answer.stdout.splitlines())


@pytest.mark.parametrize("release", RELEASES)
def test_error_codes_and_retriable_flags_match_apache_kafka(release: str) -> None:
    """The newest release has all of ours; an older one a prefix of them."""
    theirs = [words[1:] for words in _said(release) if words[0] == "error"]
    ours = [
        [
            str(int(code)),
            code.name,
            str(code.retriable).lower(),
            str(code.refreshes_metadata).lower(),
        ]
        for code in ErrorCode
    ]
    assert theirs == ours[: len(theirs)] and len(theirs) > 120
    assert release != RELEASES[-1] or len(theirs) == len(ours)


@pytest.mark.parametrize("release", RELEASES)
def test_api_key_numbers_and_names_match_apache_kafka(release: str) -> None:
    theirs = {
        int(words[1]): FORMER_NAMES.get(words[2], words[2])
        for words in _said(release)
        if words[0] == "key"
    }
    ours = {int(key): key.name for key in ApiKey}
    assert theirs == {number: ours[number] for number in theirs} and len(theirs) > 80
    assert release != RELEASES[-1] or theirs == ours


def test_api_listeners_match_both_releases() -> None:
    """4.0 removed ZooKeeper mode, and with it its API keys: they are kept here."""
    theirs: dict[int, set[str]] = {int(key): set() for key in ApiKey}
    for release in RELEASES:
        for words in _said(release):
            if words[0] == "key":
                theirs[int(words[1])] |= {LISTENERS[listener] for listener in words[3:]}
    assert theirs == {int(key): set(key.listeners) for key in ApiKey}
