"""Checks every requirement on Apache Kafka itself: 3.9, the newest release in use here, and a
broker of 3.9 in ZooKeeper mode: `make oracle`.

A requirement that Apache Kafka does not meet is an error of the suite. Options of `kraftsim
conformance` may follow: `make oracle ARGS="--only wire"`. A broker in ZooKeeper mode, beside a
controller that can become active in its place, is checked by the section on ZooKeeper only. With
--tiered brokers have a remote store: `make oracle ARGS="--tiered --only tiered-storage"`.
"""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, Missing
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.tiered import TIERED_RELEASES, tiered_settings
from tests.apache_kafka.zookeeper_target import zookeeper_mode

CHAPTER = "zookeeper"
RELEASES = (DEFAULT_RELEASE, NEWEST_RELEASE)
MET, FAILED = 0, 3
TIERED = "--tiered"
WORDS = {
    MET: "meets every requirement",
    1: "does not meet some requirements",
    FAILED: "could not be tested",
}


def main(options: list[str]) -> int:
    """Check each release and return the worst exit code."""
    found = {}
    is_of_chapter = any(CHAPTER in each for each in options)
    try:
        for release in () if is_of_chapter else TIERED_RELEASES if TIERED in options else RELEASES:
            print(f"\n=== Apache Kafka {release}", flush=True)
            found[release] = _check(release, options)
        if is_of_chapter or not options:
            print(f"\n=== Apache Kafka {DEFAULT_RELEASE} in ZooKeeper mode", flush=True)
            found[f"{DEFAULT_RELEASE} in ZooKeeper mode"] = _check_zookeeper_mode(options)
    except Missing as lack:
        print(lack)
        return FAILED
    print()
    for release, status in found.items():
        print(f"Apache Kafka {release} {WORDS.get(status, f'ended the suite with {status}')}")
    return max(found.values())


def _check(release: str, options: list[str]) -> int:
    with ExitStack() as stack:
        store = Path(stack.enter_context(TemporaryDirectory(prefix="kraftsim-tiered-")))
        settings = tiered_settings(store, release) if TIERED in options else {}
        kafka = stack.enter_context(ApacheKafka(release, settings))
        return _ask(kafka.bootstrap, kafka.controller, options)


def _check_zookeeper_mode(options: list[str]) -> int:
    with zookeeper_mode() as (broker, controller):
        return _ask(broker, controller, options or ["--only", CHAPTER])


def _ask(broker: str, controller: str, options: list[str]) -> int:
    verb = [
        sys.executable,
        "-m",
        "kraftsim",
        "conformance",
        "--bootstrap",
        broker,
        "--controller",
        controller,
    ]
    return subprocess.run(
        [*verb, *(each for each in options if each != TIERED)], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
