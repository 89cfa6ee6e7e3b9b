"""A requirement: a number, a sentence, its source, and a check that a running node passes or fails.

Numbers are assigned manually and are stable: `wire/3.2` is the second requirement of the third
section of the chapter `wire`, in every release of this suite. The number of a removed requirement
is not reused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

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
    "share-groups",
    "streams-groups",
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
        "share_group_client",
        "streams_group_client",
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


# --------------------------------------------------------------------------------------------------
# Selects requirements: by number, by section, by chapter, by a pattern of these, or by a part of
# the sentence


def sections() -> list[Requirements]:
    """Return all sections in the order of the checks."""
    return sorted(
        SECTIONS.all(), key=lambda section: (CHAPTERS.index(section.chapter), section.section)
    )


def all_requirements(only: Iterable[str] = (), release: str | None = None) -> list[Requirement]:
    """Return the requirements in their order.

    With `only`, those that match one of the patterns (KeyError for a pattern without a match); with
    a `release` line, those that apply to it, where the empty one is the newest.
    """
    found = [requirement for section in sections() for requirement in section.entries]
    patterns = list(only)
    for pattern in patterns:
        if not any(is_meant(requirement, pattern) for requirement in found):
            raise KeyError(
                f"no requirement matches {pattern}: write a number (wire/3.2), a section "
                f"(wire/3), a chapter ({', '.join(CHAPTERS)}), or words"
            )
    meant = [
        requirement
        for requirement in found
        if not patterns or any(is_meant(requirement, pattern) for pattern in patterns)
    ]
    return [
        requirement for requirement in meant if release is None or requirement.holds_for(release)
    ]


def is_meant(requirement: Requirement, pattern: str) -> bool:
    """Return whether a pattern matches a requirement: `wire`, `wire/3`, `wire/3.2`, `wire/*.1`, or
    a part of its sentence, case-insensitively.
    """
    wanted = pattern.strip().rstrip("/").lower()
    names = (requirement.section.chapter, requirement.section.label, requirement.label)
    if wanted in names or any(fnmatchcase(name, wanted) for name in names):
        return True
    is_number = "/" in wanted and " " not in wanted
    return (
        bool(wanted)
        and wanted not in CHAPTERS
        and not is_number
        and wanted in requirement.sentence.lower()
    )
