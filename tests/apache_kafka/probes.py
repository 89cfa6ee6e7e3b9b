"""Runs every probe on Apache Kafka 3.9 and the newest release, and on kraftsim as either release,
and writes the responses: `make probes`.

    python -m tests.apache_kafka.probes [--only WORDS ...] [--at HOST:PORT] [--subject NAME ...]

Without options docs/probes.json is written; `make docs` renders it. A difference that the probe
does not explain is a failure, and so is an explanation without a difference.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.group_client import GroupClient, with_retries
from kraftsim.conformance.probes.probe import Answers, Probe, compare, unexplained
from kraftsim.conformance.probes.table import by_settings, probes, put_all, worn_names
from kraftsim.conformance.probes.worn_steps import wear_out
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import find_transaction_coordinator
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE, Missing
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.second_directory import add_second_directory
from tools.docs.probes_page import FILE, keep

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Configs of every node: timeouts are checked often, so that probes need not wait for them."""
NAMES = 16
"""This many names cover all partitions of the coordinator topics, which are loaded one after the
other.
"""
RELEASES = (DEFAULT_RELEASE, NEWEST_RELEASE)
MET, DIFFERENT, FAILED = 0, 1, 3


def line_of(release: str) -> str:
    """Return the line of a release: 3.9 of 3.9.1."""
    return ".".join(release.split(".")[:2])


def subjects() -> dict[str, str]:
    """Return the subjects: name -> release."""
    return {
        name: release
        for release in RELEASES
        for name in (f"Apache Kafka {release}", f"kraftsim {line_of(release)}")
        for release in [release]
    }


class Ours:
    """A node of kraftsim; `bugs` are injected."""

    def __init__(self, release: str, bugs: Sequence[str] = ()) -> None:
        spec = ClusterSpec(
            brokers=1,
            release=line_of(release),
            port=free_port_range(1),
            settings=SETTINGS,
            bugs=tuple(bugs),
        )
        self._cluster, self._names = (
            EmbeddedCluster(spec),
            (*spec.controller_names, *spec.broker_names),
        )
        self._own: dict[str, str | None] = {}

    def __enter__(self) -> Target:
        self._cluster.start()
        return Target(self._cluster.bootstrap)

    def __exit__(self, *_: object) -> None:
        self._cluster.stop()

    def restart_with(self, settings: Mapping[str, str]) -> None:
        """Restart the node with other configs."""
        for name in reversed(
            self._names
        ):  # a broker needs the controller for its controlled shutdown
            self._cluster.tell(name, {**dict.fromkeys(self._own), **settings})
            asyncio.run(self._cluster.stop_node(name))
        self._own = dict(settings)
        for name in self._names:
            self._cluster.restart(name)
        self._cluster.wait_until_ready()

    def add_directory(self, first: str) -> str:
        """Restart the broker with a second log directory, and return its path."""
        second, broker = f"{first}-second", self._names[-1]
        self._cluster.tell(broker, {"log.dirs": f"{first},{second}"})
        asyncio.run(self._cluster.stop_node(broker))
        self._cluster.restart(broker)
        self._cluster.wait_until_ready()
        return second


class Theirs:
    """A node of Apache Kafka. Raises Missing without Java or Maven."""

    def __init__(self, release: str) -> None:
        self._kafka = ApacheKafka(release, SETTINGS)

    def __enter__(self) -> Target:
        self._kafka.start()
        return Target(self._kafka.bootstrap, self._kafka.controller)

    def __exit__(self, *_: object) -> None:
        self._kafka.remove()

    def restart_with(self, settings: Mapping[str, str]) -> None:
        """Restart the node with other configs."""
        self._kafka.stop()
        self._kafka.settings = {**SETTINGS, **settings}
        self._kafka.start()

    def add_directory(self, first: str) -> str:
        """Restart the node with a second log directory, and return its path."""
        second = f"{first}-second"
        add_second_directory(self._kafka, Path(second))
        return second


def subject(name: str, bugs: Sequence[str] = ()) -> Ours | Theirs:
    """Return one subject, not started yet; `bugs` are injected into one of kraftsim."""
    release = subjects()[name]
    return Ours(release, bugs) if name.startswith("kraftsim") else Theirs(release)


def warmed_up(target: Target) -> Target:
    """Return a target whose broker has a producer-id block and loaded coordinators, so that no
    probe gets a retriable error for that.
    """
    target.begin(seconds=60)
    target.producer_id()
    for number in range(NAMES):
        find_transaction_coordinator(target, f"warm-up-{number}")
        GroupClient(target)
    with target.peer() as peer:
        for number in range(NAMES):
            asked = InitProducerIdRequest(
                transactional_id=f"warm-up-{number}", transaction_timeout_ms=60_000
            )
            with_retries(
                # misc: mypy infers no type for a lambda with a default
                lambda asked=asked: peer.ask(asked, 4, InitProducerIdResponse),  # type: ignore[misc]
                lambda answer: answer.error_code,
            )
    return target


def ask(
    name: str, chosen: Sequence[tuple[str, Probe]], *, prints: bool = True
) -> dict[str, list[str]]:
    """Run probes on one subject; print the progress."""
    began = time.monotonic()
    answers: dict[str, list[str]] = {}
    node = subject(name)
    with node as target:
        warmed_up(target)
        present: dict[str, str] = {}
        for settings, group in by_settings(chosen):
            names = worn_names(group)
            wear_out(target, names)
            if names or settings != present:
                node.restart_with(settings)
                warmed_up(target)
                present = settings
            for title, found in put_all(target, group):
                answers[title] = found
                if prints and sys.stderr.isatty():
                    print(
                        f"\r{name}: {len(answers)} of {len(chosen)} probes\033[K",
                        end="",
                        file=sys.stderr,
                        flush=True,
                    )
    if prints:
        print(
            f"\r{name}: {len(answers)} probes in {time.monotonic() - began:.0f} s\033[K",
            file=sys.stderr,
            flush=True,
        )
    return answers


def shown(title: str, asked: Probe, found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a probe, and below each step the responses."""
    yield f"\n{title}"
    for number, step in enumerate(asked.steps):
        yield f"  {step.words()}"
        for name, answers in found.items():
            if number < len(answers):
                yield f"      {name:20s} {answers[number]}"


def main(words: Sequence[str]) -> int:
    """Run the probes, compare, and write the page unless only some were run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.apache_kafka.probes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORDS",
        help="only probes whose name contains these words; prints the responses",
    )
    parser.add_argument(
        "--at",
        metavar="HOST:PORT",
        help="only a node that is already running, of any kind: prints its responses",
    )
    parser.add_argument(
        "--subject",
        nargs="+",
        choices=list(subjects()),
        default=list(subjects()),
        help="only some of the subjects",
    )
    options = parser.parse_args(words)
    try:
        chosen = probes(options.only)
    except KeyError as lack:
        print(lack.args[0], file=sys.stderr)
        return FAILED
    if options.at:
        at = dict(put_all(warmed_up(Target(options.at)), chosen))
        print(
            "\n".join(
                line
                for title, asked in chosen
                for line in shown(title, asked, {options.at: at[title]})
            )
        )
        return MET
    try:
        found: Answers = {name: ask(name, chosen) for name in options.subject}
    except Missing as lack:
        print(lack, file=sys.stderr)
        return FAILED
    is_whole = not options.only and len(found) == len(subjects())
    differing = [
        title
        for title, asked in chosen
        if any(compare(asked, {name: answers[title] for name, answers in found.items()}).values())
    ]
    for title, asked in chosen:
        if options.only or title in differing:
            print(
                "\n".join(
                    shown(title, asked, {name: answers[title] for name, answers in found.items()})
                )
            )
    if is_whole:
        keep(found)
        print(f"\n{len(chosen)} probes, {len(differing)} answered differently; written: {FILE}")
    troubles = unexplained(chosen, found) if is_whole else []
    print("\n".join(troubles))
    return DIFFERENT if troubles else MET


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
