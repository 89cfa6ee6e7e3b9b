"""Puts every requirement to Apache Kafka itself, 3.9 and the newest that starts here: `make oracle`.

What it does not meet is a mistake of ours. Options of `kraftsim conformance` may follow: `make oracle ARGS="--only wire"`.
"""

import subprocess
import sys

from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, Missing
from tests.apache_kafka.harness import ApacheKafka

RELEASES = (DEFAULT_RELEASE, NEWEST_RELEASE)
MET, FAILED = 0, 3
WORDS = {MET: "meets every requirement", 1: "does not meet some requirements", FAILED: "could not be judged"}


def main(options: list[str]) -> int:
    """Judge each release in turn and return the worst exit code."""
    found = {}
    for release in RELEASES:
        print(f"\n=== Apache Kafka {release}", flush=True)
        try:
            found[release] = _judge(release, options)
        except Missing as lack:
            print(lack)
            return FAILED
    print()
    for release, status in found.items():
        print(f"Apache Kafka {release} {WORDS.get(status, f'ended the suite with {status}')}")
    return max(found.values())


def _judge(release: str, options: list[str]) -> int:
    with ApacheKafka(release) as kafka:
        verb = [sys.executable, "-m", "kraftsim", "conformance", "--bootstrap", kafka.bootstrap, "--controller", kafka.controller]
        return subprocess.run([*verb, *options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
