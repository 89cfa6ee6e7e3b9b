"""Runs the requirements against a node, one after the other, and says which it keeps."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from kraftsim.conformance.expect import Inapplicable, Unmet
from kraftsim.conformance.peer import OutOfTime, PeerClosed, PeerSilent
from kraftsim.conformance.requirement import Requirement
from kraftsim.conformance.target import Target
from protocol.malformed import MalformedMessage
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

CHECK_SECONDS = 60.0
"""Longer than any check takes that gets its answers, also on a slow machine."""
ALIVE_SECONDS = 10.0


class Verdict(Enum):
    """What a check found."""

    MET = "met"
    UNMET = "not met"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found. `why` is empty where the requirement is met.

    It says what was looked at (`what`), what was `expected` of it and what `came`; `transcript` shows what went over the wire.
    """

    requirement: Requirement
    verdict: Verdict
    why: str = ""
    what: str = ""
    expected: str = ""
    came: str = ""
    transcript: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the node keeps the requirement."""
        return self.verdict is Verdict.MET

    def as_row(self) -> dict[str, object]:
        """Return the finding as plain values."""
        of = self.requirement
        return {
            "requirement": of.label,
            "section": of.section.title,
            "sentence": of.sentence,
            "source": of.source,
            "since": of.since,
            "until": of.until,
            "verdict": self.verdict.value,
            "why": self.why,
            "expected": self.expected,
            "came": self.came,
            "transcript": self.transcript,
            "seconds": round(self.seconds, 3),
        }


class NodeLost(OSError):
    """The node answered before, and does not answer any more."""


def judge(requirement: Requirement, target: Target, seconds: float = CHECK_SECONDS) -> Finding:
    """Run one check. An answer that cannot be read and a connection that ends are findings, too; no connection at all is an OSError."""
    started = time.monotonic()
    target.begin(seconds)
    try:
        requirement.check(target)
    except Inapplicable as lack:
        return Finding(requirement=requirement, verdict=Verdict.SKIPPED, why=str(lack), seconds=time.monotonic() - started)
    except Unmet as trouble:
        unmet = trouble
    except OutOfTime:
        unmet = Unmet("the check ran out of time", f"all answers within {seconds:g} s", "fewer")
    except (PeerClosed, PeerSilent) as trouble:
        unmet = Unmet("an answer is missing", "an answer", str(trouble))
    except LookupError as trouble:
        unmet = Unmet("an answer lacks a row for what was asked", "a row for each thing that was asked for", str(trouble))
    except MalformedMessage as trouble:
        unmet = Unmet("an answer is malformed", "an answer that can be read", str(trouble))
    else:
        return Finding(requirement=requirement, verdict=Verdict.MET, seconds=time.monotonic() - started)
    finally:
        target.end()
    return Finding(
        requirement=requirement,
        verdict=Verdict.UNMET,
        why=str(unmet),
        what=unmet.what,
        expected=unmet.expected,
        came=unmet.came,
        transcript=target.transcript.lines(),
        seconds=time.monotonic() - started,
    )


def judge_all(
    target: Target,
    requirements: Iterable[Requirement],
    release: str = "",
    seconds: float = CHECK_SECONDS,
    before: Callable[[Requirement], None] = lambda requirement: None,
) -> Iterator[Finding]:
    """Run the checks in order and yield each finding at once; `before` hears of each check when it begins.

    What does not hold for the release line is skipped. Raises NodeLost if, after a requirement that is not met, nobody answers any more.
    """
    for requirement in requirements:
        if not requirement.holds_for(release):
            why = f"holds {requirement.releases()}; the node is judged as {release or 'the newest release'}"
            yield Finding(requirement=requirement, verdict=Verdict.SKIPPED, why=why)
            continue
        before(requirement)
        finding = judge(requirement, target, seconds)
        yield finding
        if finding.verdict is Verdict.UNMET:
            require_alive(target, requirement.label)


def require_alive(target: Target, since: str = "") -> None:
    """Ask for ApiVersions, which every node answers. Raises NodeLost if this one does not."""
    target.begin(ALIVE_SECONDS)
    try:
        with target.peer(timeout_seconds=ALIVE_SECONDS) as peer:
            peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    except (OSError, OutOfTime, MalformedMessage) as trouble:
        told = str(trouble) or type(trouble).__name__
        raise NodeLost(f"it does not answer any more after {since}: {told}" if since else f"it does not answer ApiVersions: {told}") from trouble
