"""Runs the requirements against a node, one after the other, and reports the results."""

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
"""Longer than any check takes that gets its responses, also on a slow machine."""
ALIVE_SECONDS = 10.0


class RequirementVerdict(Enum):
    """The result of a check."""

    MET = "met"
    UNMET = "not met"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementFinding:
    """The result of one check. `why` is empty if the requirement is met.

    It contains what was checked (`what`), the `expected` value and the actual one (`came`);
    `transcript` shows the traffic.
    """

    requirement: Requirement
    verdict: RequirementVerdict
    why: str = ""
    what: str = ""
    expected: str = ""
    came: str = ""
    transcript: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the node meets the requirement."""
        return self.verdict is RequirementVerdict.MET

    def as_row(self) -> dict[str, object]:
        """Return the result as plain values."""
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
    """The node responded before, and no longer does."""


def check(
    requirement: Requirement, target: Target, seconds: float = CHECK_SECONDS
) -> RequirementFinding:
    """Run one check.

    A malformed response and a closed connection are results, too; a refused connection is an
    OSError.
    """
    started = time.monotonic()
    target.begin(seconds)
    try:
        requirement.check(target)
    except Inapplicable as lack:
        return RequirementFinding(
            requirement=requirement,
            verdict=RequirementVerdict.SKIPPED,
            why=str(lack),
            seconds=time.monotonic() - started,
        )
    except Unmet as trouble:
        unmet = trouble
    except OutOfTime:
        unmet = Unmet("the check ran out of time", f"all responses within {seconds:g} s", "fewer")
    except (PeerClosed, PeerSilent) as trouble:
        unmet = Unmet("a response is missing", "a response", str(trouble))
    except LookupError as trouble:
        unmet = Unmet(
            "a response lacks a requested row", "a row for each request row", str(trouble)
        )
    except MalformedMessage as trouble:
        unmet = Unmet("a response is malformed", "a valid response", str(trouble))
    else:
        return RequirementFinding(
            requirement=requirement,
            verdict=RequirementVerdict.MET,
            seconds=time.monotonic() - started,
        )
    finally:
        target.end()
    return RequirementFinding(
        requirement=requirement,
        verdict=RequirementVerdict.UNMET,
        why=str(unmet),
        what=unmet.what,
        expected=unmet.expected,
        came=unmet.came,
        transcript=target.transcript.lines(),
        seconds=time.monotonic() - started,
    )


def check_all(
    target: Target,
    requirements: Iterable[Requirement],
    release: str = "",
    seconds: float = CHECK_SECONDS,
    before: Callable[[Requirement], None] = lambda requirement: None,
) -> Iterator[RequirementFinding]:
    """Run the checks in order and yield each result at once; `before` is called with each check
    when it starts.

    Requirements that do not apply to the release line are skipped. Raises NodeLost if, after an
    unmet requirement, the node does not respond any more.
    """
    for requirement in requirements:
        if not requirement.holds_for(release):
            why = (
                f"applies {requirement.releases()}; the node is checked as "
                f"{release or 'the newest release'}"
            )
            yield RequirementFinding(
                requirement=requirement, verdict=RequirementVerdict.SKIPPED, why=why
            )
            continue
        before(requirement)
        finding = check(requirement, target, seconds)
        yield finding
        if finding.verdict is RequirementVerdict.UNMET:
            require_alive(target, requirement.label)


def require_alive(target: Target, since: str = "") -> None:
    """Send ApiVersions, which every node answers. Raises NodeLost if this one does not."""
    target.begin(ALIVE_SECONDS)
    try:
        with target.peer(timeout_seconds=ALIVE_SECONDS) as peer:
            peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    except (OSError, OutOfTime, MalformedMessage) as trouble:
        returned = str(trouble) or type(trouble).__name__
        raise NodeLost(
            f"it does not respond any more after {since}: {returned}"
            if since
            else f"it does not answer ApiVersions: {returned}"
        ) from trouble
