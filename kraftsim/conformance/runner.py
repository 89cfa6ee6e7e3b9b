"""Runs the requirements against a node, one after the other, and says which it keeps."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kraftsim.conformance.expect import Unmet
from kraftsim.conformance.peer import PeerClosed, PeerSilent
from kraftsim.conformance.requirement import REQUIREMENTS_BY_API, Requirement
from kraftsim.conformance.target import Target
from protocol.malformed import MalformedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found. `why` is empty where the requirement is met."""

    requirement: Requirement
    why: str
    seconds: float

    @property
    def is_met(self) -> bool:
        """Whether the node keeps the requirement."""
        return not self.why

    def as_row(self) -> dict[str, object]:
        """Return the finding as plain values."""
        of = self.requirement
        return {
            "api": of.api,
            "requirement": of.sentence,
            "source": of.source,
            "met": self.is_met,
            "why": self.why,
            "seconds": round(self.seconds, 3),
        }


def all_requirements(apis: Iterable[str] = (), release: str = "") -> list[Requirement]:
    """Return the requirements in the order of files and then of lines.

    With `apis` only those of the named ones (KeyError for others), with a `release` line, like 3.5, only those that it meets already.
    """
    chapters = [REQUIREMENTS_BY_API.named(api) for api in apis] or REQUIREMENTS_BY_API.all()
    return [requirement for chapter in chapters for requirement in chapter.entries if requirement.holds_for(release)]


def judge(requirement: Requirement, target: Target) -> Finding:
    """Run one check. An answer that cannot be read and a connection that ends are findings, too; no connection at all is an OSError."""
    started = time.monotonic()
    try:
        requirement.check(target)
        why = ""
    except (Unmet, PeerClosed, PeerSilent, MalformedMessage) as trouble:
        why = f"{type(trouble).__name__}: {trouble}" if not isinstance(trouble, Unmet) else str(trouble)
    return Finding(requirement=requirement, why=why, seconds=time.monotonic() - started)


def judge_all(target: Target, requirements: Iterable[Requirement], tell: Callable[[Finding], None] = lambda finding: None) -> Iterator[Finding]:
    """Run the checks in order, handing each finding to `tell` at once."""
    for requirement in requirements:
        finding = judge(requirement, target)
        tell(finding)
        yield finding
