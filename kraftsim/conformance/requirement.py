"""A requirement: a number, a sentence, its source, and a check that a running node passes or fails.

Numbers are assigned manually and are stable: `wire/3.2` is the second requirement of the third
section of the chapter `wire`, in every release of this suite. The number of a removed requirement
is not reused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from kraftsim.catalogue import Catalogue
from kraftsim.conformance.target import Target

Check = Callable[[Target], None]

CHAPTERS = (
    "wire",
    "api-versions",
    "metadata",
    "create-topics",
    "delete-topics",
    "create-partitions",
    "elect-leaders",
    "reassignments",
    "init-producer-id",
    "produce",
    "list-offsets",
    "fetch",
    "delete-records",
    "offset-for-leader-epoch",
    "tiered-storage",
    "consumer-groups",
    "describe",
    "security",
    "transactions",
    "cluster",
    "configs",
    "features",
    "quotas",
    "credentials",
    "zookeeper",
    "controller",
)
"""In the order of the checks: basic APIs first, those that leave traces in the cluster last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One sentence about a node.

    The check returns if the node meets it, and raises Unmet if not.
    """

    section: "Requirements"
    number: int
    sentence: str
    source: str
    check: Check
    since: str = ""
    """The first release line of Apache Kafka with this behaviour; empty if all supported ones have
    it.
    """
    until: str = ""
    """The last release line of Apache Kafka with this behaviour; empty if the newest one has it."""

    @property
    def label(self) -> str:
        """The number by which it is referenced, for example wire/3.2."""
        return f"{self.section.label}.{self.number}"

    def holds_for(self, release: str) -> bool:
        """Return whether the requirement applies to a release line; an empty release is the newest
        one.
        """
        if not release:
            return not self.until
        asked = as_numbers(release)
        return (not self.since or as_numbers(self.since) <= asked) and (
            not self.until or asked <= as_numbers(self.until)
        )

    def releases(self) -> str:
        """Return the releases that the requirement applies to, or nothing if all."""
        words = [
            f"since {self.since}" if self.since else "",
            f"until {self.until}" if self.until else "",
        ]
        return ", ".join(word for word in words if word)


@dataclass(slots=True)
class Requirements:
    """One section: the requirements of one file, in the order in which they are written there."""

    chapter: str
    section: int
    title: str
    entries: list[Requirement] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The number of the section, for example wire/3."""
        return f"{self.chapter}/{self.section}"

    @property
    def name(self) -> str:
        """Its name in the catalogue."""
        return self.label

    def that(
        self, number: int, sentence: str, *, source: str, since: str = "", until: str = ""
    ) -> Callable[[Check], Check]:
        """Add the decorated check under a number and a sentence.

        The number must be higher than the previous ones: none is used twice.
        """

        def add(check: Check) -> Check:
            assert not self.entries or number > self.entries[-1].number, (
                f"{self.label}.{number} does not rise"
            )
            self.entries.append(
                Requirement(
                    section=self,
                    number=number,
                    sentence=sentence,
                    source=source,
                    check=check,
                    since=since,
                    until=until,
                )
            )
            return check

        return add


SECTIONS: Catalogue[Requirements] = Catalogue(
    "kraftsim.conformance",
    "REQUIREMENTS",
    Requirements,
    apart=(
        "batches",
        "consumer_group_client",
        "expect",
        "group_client",
        "marker_client",
        "junit",
        "peer",
        "release_line",
        "runner",
        "selection",
        "settle",
        "target",
        "emulated_broker",
        "tiered_topics",
        "transactional_id",
        "transaction_client",
        "transcript",
        "wire_bytes",
    ),
)


def as_numbers(release: str) -> tuple[int, ...]:
    """Return a release line as comparable numbers.

    Raises ValueError for anything but numbers and dots.
    """
    return tuple(int(part) for part in release.split("."))
