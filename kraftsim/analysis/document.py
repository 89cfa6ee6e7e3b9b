"""The form of an analysis as JSON: `analysis.json` of a run, and `kraftsim analyze --json`.

Each violation has its events in full, so that a reader of the file needs no event log.
"""

from typing import NotRequired, TypedDict

import msgspec

from kraftsim.analysis.analysis import Analysis, RunFacts
from kraftsim.analysis.dataset import IngestResult
from kraftsim.analysis.details import RunDetails
from kraftsim.analysis.transaction_chapter import TransactionChapter
from kraftsim.analysis.upgrade_chapter import UpgradeChapter
from kraftsim.analysis.witnesses import Witness
from kraftsim.invariants.verdict import Outcome, Verdict, Violation


class ViolationDocument(TypedDict):
    """A `Violation` with its events; its invariant is that of the verdict around it."""

    key: str
    message: str
    witnesses: tuple[Witness, ...]


class VerdictDocument(TypedDict):
    """A `Verdict`. Its violations are called `breaches` in the file."""

    invariant: str
    rule: str
    source: str
    must_exercise: bool
    outcome: Outcome
    examined: int
    violation_count: int
    breaches: tuple[ViolationDocument, ...]
    reason: str


class AnalysisDocument(TypedDict):
    """An `Analysis`. Its verdicts are called `judgements` in the file."""

    verdict: Outcome
    facts: RunFacts
    ingest: IngestResult
    judgements: tuple[VerdictDocument, ...]
    transactions: NotRequired[TransactionChapter | None]
    upgrade: NotRequired[UpgradeChapter | None]
    details: NotRequired[RunDetails | None]


def document_of(analysis: Analysis) -> AnalysisDocument:
    """Return an analysis in its form as JSON; the order of the fields is that of the file."""
    return AnalysisDocument(
        verdict=analysis.verdict,
        facts=analysis.facts,
        ingest=analysis.ingest,
        judgements=tuple(_verdict_document(each, analysis) for each in analysis.verdicts),
        transactions=analysis.transactions,
        upgrade=analysis.upgrade,
        details=analysis.details,
    )


def encode(analysis: Analysis) -> bytes:
    """Return the content of `analysis.json`."""
    return msgspec.json.encode(document_of(analysis))


def decode(content: bytes) -> Analysis:
    """Return the analysis of a file.

    Raises msgspec.DecodeError for any other content.
    """
    document = msgspec.json.decode(content, type=AnalysisDocument)
    verdicts = []
    evidence: dict[Violation, tuple[Witness, ...]] = {}
    for each in document["judgements"]:
        shown = {_violation(each["invariant"], one): one["witnesses"] for one in each["breaches"]}
        verdicts.append(_verdict(each, tuple(shown)))
        evidence.update(shown)
    return Analysis(
        verdict=document["verdict"],
        facts=document["facts"],
        ingest=document["ingest"],
        verdicts=tuple(verdicts),
        evidence=evidence,
        transactions=document.get("transactions"),
        upgrade=document.get("upgrade"),
        details=document.get("details"),
    )


def _verdict_document(verdict: Verdict, analysis: Analysis) -> VerdictDocument:
    return VerdictDocument(
        invariant=verdict.invariant,
        rule=verdict.rule,
        source=verdict.source,
        must_exercise=verdict.must_exercise,
        outcome=verdict.outcome,
        examined=verdict.examined,
        violation_count=verdict.violation_count,
        breaches=tuple(
            ViolationDocument(key=each.key, message=each.message, witnesses=analysis.evidence[each])
            for each in verdict.violations
        ),
        reason=verdict.reason,
    )


def _verdict(document: VerdictDocument, violations: tuple[Violation, ...]) -> Verdict:
    return Verdict(
        invariant=document["invariant"],
        outcome=document["outcome"],
        examined=document["examined"],
        violation_count=document["violation_count"],
        violations=violations,
        reason=document["reason"],
        rule=document["rule"],
        source=document["source"],
        must_exercise=document["must_exercise"],
    )


def _violation(invariant: str, document: ViolationDocument) -> Violation:
    return Violation(
        invariant=invariant,
        key=document["key"],
        message=document["message"],
        witnesses=tuple(event.event_id for event in document["witnesses"]),
    )
