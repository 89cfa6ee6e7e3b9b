"""What a requirement is: a sentence, where it is written, and a check that a running node passes or does not."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kraftsim.catalogue import Catalogue
from kraftsim.conformance.target import Target

Check = Callable[[Target], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One sentence about a node. The check returns if the node keeps it, and raises Unmet if not."""

    api: str
    sentence: str
    source: str
    check: Check
    since: str = ""
    """The first release line of Apache Kafka that does so; empty for as long as anybody cares."""

    def holds_for(self, release: str) -> bool:
        """Tell whether a release line does so; an empty release is the newest one."""
        return not self.since or not release or _as_numbers(self.since) <= _as_numbers(release)


@dataclass(slots=True)
class Requirements:
    """The requirements of one file, in the order in which they are written there: usually those of one API."""

    name: str
    entries: list[Requirement] = field(default_factory=list)

    def that(self, sentence: str, *, source: str, since: str = "") -> Callable[[Check], Check]:
        """Add the decorated check under a sentence that begins 'The node ...' in the reader's mind."""

        def add(check: Check) -> Check:
            assert sentence not in {entry.sentence for entry in self.entries}, f"{sentence} is written twice"
            self.entries.append(Requirement(api=self.name, sentence=sentence, source=source, check=check, since=since))
            return check

        return add


REQUIREMENTS_BY_API: Catalogue[Requirements] = Catalogue(
    "kraftsim.conformance", "REQUIREMENTS", Requirements, apart=("peer", "target", "expect", "runner", "batches", "__main__")
)


def _as_numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
