"""The result of an audit as data: what the text, the page and the JSON document show.

The fields and their order are the JSON schema of `kraftsim audit --json`; docs/after-an-incident.md
describes it.
"""

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from kraftsim.audit.judging import UNCLEAN_DIRECTORIES, Asked
from kraftsim.audit.rule import (
    AuditOutcome,
    AuditRule,
    DefectSeverity,
    DiskWitness,
    Finding,
    HangingTransaction,
    RuleResult,
)
from kraftsim.audit.timelines import (
    PartitionTimeline,
    TransactionalIdTimeline,
    partition_timelines,
    transactional_id_timelines,
)

FORMAT: Final = 1
"""Of the JSON document: raised when a field is removed or changes its meaning."""
REPLICAS_SHOWN_MAX: Final = 5_000
"""Of the table of replicas; those of partitions with defects come first."""
SEVERITIES: Final = {
    DefectSeverity.LOSS: ("loss", "committed data is gone, or replicas differ"),
    DefectSeverity.WRONG: ("wrong", "a client can see a wrong result"),
    DefectSeverity.DEGRADED: ("degraded", "a service suffers"),
    DefectSeverity.NOTICE: ("notice", "nothing is lost or wrong yet"),
}
"""Name in the JSON document and on the page, and what it means."""
BOOTSTRAP: Final = "HOST:PORT"
"""In commands for the operator: no address of a broker is on its disk."""


class AuditedDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """One log directory that was read. `is_unclean`: the broker was not stopped cleanly, or ran
    while it was copied, so its newest data may be incomplete.
    """

    log_dir: str
    node_id: int | None
    cluster_id: str | None
    role: str
    """broker, or controller for a directory with the metadata log only."""
    is_unclean: bool
    newest_ms: int | None
    replicas: int
    size_bytes: int


class AuditCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How much was read."""

    brokers: int
    controllers: int
    partitions: int
    replicas: int
    segments: int
    batches: int
    records: int
    """In the headers of the batches, over all replicas."""
    size_bytes: int
    client_acknowledged: int
    client_reads: int


class FoundPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place on a disk; position (in bytes) and offset are null where they do not apply."""

    log_dir: str
    file: str
    position: int | None
    offset: int | None

    @property
    def text(self) -> str:
        """The place in one line."""
        parts = [f"{self.log_dir}/{self.file}" if self.file else self.log_dir]
        if self.position is not None:
            parts.append(f"byte {self.position:,}")
        if self.offset is not None:
            parts.append(f"offset {self.offset:,}")
        return ", ".join(parts)


class ReportedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A defect, or something that cannot be decided."""

    subject: str
    message: str
    since_ms: int | None
    age_ms: int | None
    """Until the time of the audit (--now)."""
    witnesses: tuple[FoundPlace, ...]
    transaction: HangingTransaction | None = None
    commands: tuple[str, ...] = ()
    """What ends a hanging transaction: the first with brokers since 3.0, the second for all."""


class RuleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One rule and what it found; of the findings the first hundred of each sort are kept."""

    name: str
    severity: str
    outcome: AuditOutcome
    statement: str
    source: str
    meaning: str
    remedy: str
    examined: int
    defect_count: int
    undecided_count: int
    undecided_unclean: int
    defects: tuple[ReportedFinding, ...]
    undecided: tuple[ReportedFinding, ...]


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One replica: what its files say about the whole log."""

    topic: str
    partition: int
    node_id: int | None
    log_dir: str
    log_start_offset: int | None
    first_offset: int | None
    high_watermark: int | None
    end_offset: int | None
    leader_epoch: int | None
    """Of the newest entry in its leader-epoch-checkpoint."""
    segments: int | None
    has_defect: bool


class RuleNotAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that was left out, and why."""

    name: str
    reason: str


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result."""

    format: int
    kraftsim: str
    audited_ms: int
    outcome: AuditOutcome
    sentence: str
    unknown_because: tuple[str, ...]
    """Why the outcome is unknown; empty for any other."""
    counts: AuditCounts
    directories: tuple[AuditedDirectory, ...]
    rules: tuple[RuleReport, ...]
    """Rules with defects come first, the most severe before the others."""
    not_asked: tuple[RuleNotAsked, ...]
    replicas: tuple[ReplicaRow, ...]
    replica_count: int
    partition_timelines: tuple[PartitionTimeline, ...]
    transactional_id_timelines: tuple[TransactionalIdTimeline, ...]


def report_of(
    ask: Asked,
    asked: Sequence[tuple[AuditRule, RuleResult]],
    not_asked: Sequence[RuleNotAsked],
    *,
    now_ms: int,
    version: str,
) -> AuditReport:
    """Return the report of the rules that were asked, with what the tables say around it."""
    rules = sorted(
        (_rule_report(rule, result, now_ms) for rule, result in asked),
        key=lambda each: (
            each.defect_count == 0,
            -_SEVERITY_OF[each.severity] if each.defect_count else 0,
            each.name,
        ),
    )
    defects = [finding for _, result in asked for finding in result.findings if finding.is_defect]
    counts = _counts(ask)
    directories = _directories(ask)
    outcome, because = _outcome(asked, directories)
    replicas = _replicas(ask, defects)
    return AuditReport(
        format=FORMAT,
        kraftsim=version,
        audited_ms=now_ms,
        outcome=outcome,
        sentence=_sentence(outcome, counts, rules, because),
        unknown_because=because,
        counts=counts,
        directories=directories,
        rules=tuple(rules),
        not_asked=tuple(not_asked),
        replicas=replicas[:REPLICAS_SHOWN_MAX],
        replica_count=len(replicas),
        partition_timelines=partition_timelines(ask, defects),
        transactional_id_timelines=transactional_id_timelines(ask, defects),
    )


_SEVERITY_OF: Final = {name: int(severity) for severity, (name, _) in SEVERITIES.items()}


def _outcome(
    asked: Sequence[tuple[AuditRule, RuleResult]], directories: Sequence[AuditedDirectory]
) -> tuple[AuditOutcome, tuple[str, ...]]:
    """Return the outcome of all, and why it is unknown."""
    if any(result.defect_count for rule, result in asked if rule.is_alarm):
        return AuditOutcome.DEFECT, ()
    because = []
    unclean = [each.log_dir for each in directories if each.is_unclean]
    if unclean:
        because.append(
            f"{_count(len(unclean), 'log directory', 'log directories')} of brokers that were not "
            f"stopped cleanly, or ran while they were copied: {_some(unclean)}"
        )
    because += [
        f"the rule {rule.name} leaves {_count(result.undecided_count, 'thing')} undecided"
        for rule, result in asked
        if rule.must_decide and result.undecided_count
    ]
    if not any(result.examined for _, result in asked):
        because.append("there was nothing to examine")
    return (AuditOutcome.UNKNOWN if because else AuditOutcome.SOUND), tuple(because)


def _sentence(
    outcome: AuditOutcome, counts: AuditCounts, rules: Sequence[RuleReport], because: Sequence[str]
) -> str:
    nodes = [
        _count(number, name)
        for number, name in ((counts.brokers, "broker"), (counts.controllers, "controller"))
        if number
    ]
    read = (
        f"{' and '.join(nodes) or 'No node'}, {_count(counts.partitions, 'partition')} in "
        f"{_count(counts.replicas, 'replica')}, "
        f"{_count(counts.batches, 'batch', 'batches')} in {size_text(counts.size_bytes)}"
    )
    broken = [each for each in rules if each.defect_count]
    undecided = sum(each.undecided_count for each in rules)
    open_end = f"; {_count(undecided, 'thing')} cannot be decided" if undecided else ""
    if outcome is not AuditOutcome.DEFECT and broken:
        noted = sum(each.defect_count for each in broken)
        open_end = f"; {_count(noted, 'notice')}{open_end}"
    if outcome is AuditOutcome.DEFECT:
        found = sum(each.defect_count for each in broken)
        worst = SEVERITIES[DefectSeverity(_SEVERITY_OF[broken[0].severity])][1]
        kinds = f" of {len(broken)} kinds" if len(broken) > 1 else ""
        at_worst = f"; at worst, {worst}" if len(broken) > 1 else f": {worst}"
        return f"{read}: {_count(found, 'defect')}{kinds}{at_worst}{open_end}."
    if outcome is AuditOutcome.UNKNOWN:
        return f"{read}: no defect found, but not everything can be decided: {because[0]}."
    examined = sum(1 for each in rules if each.examined)
    return f"{read}: sound, by {_count(examined, 'rule')}{open_end}."


def _rule_report(rule: AuditRule, result: RuleResult, now_ms: int) -> RuleReport:
    return RuleReport(
        name=rule.name,
        severity=SEVERITIES[rule.severity][0],
        outcome=result.outcome,
        statement=rule.statement,
        source=rule.source,
        meaning=rule.meaning,
        remedy=rule.remedy,
        examined=result.examined,
        defect_count=result.defect_count,
        undecided_count=result.undecided_count,
        undecided_unclean=result.undecided_unclean,
        defects=tuple(_reported(each, now_ms) for each in result.findings if each.is_defect),
        undecided=tuple(_reported(each, now_ms) for each in result.findings if not each.is_defect),
    )


def _reported(finding: Finding, now_ms: int) -> ReportedFinding:
    return ReportedFinding(
        subject=finding.subject,
        message=finding.message,
        since_ms=finding.since_ms,
        age_ms=None if finding.since_ms is None else now_ms - finding.since_ms,
        witnesses=tuple(_place(each) for each in finding.witnesses),
        transaction=finding.transaction,
        commands=() if finding.transaction is None else abort_commands(finding.transaction),
    )


def _place(witness: DiskWitness) -> FoundPlace:
    return FoundPlace(
        log_dir=witness.log_dir,
        file=witness.file,
        position=witness.position if witness.position >= 0 else None,
        offset=witness.offset if witness.offset >= 0 else None,
    )


def abort_commands(hanging: HangingTransaction) -> tuple[str, ...]:
    """Return what ends a hanging transaction (KIP-664), ready for a shell.

    The topic comes from a disk and is quoted. The second form names the producer, for brokers
    before 3.0, which do not answer DescribeProducers.
    """
    place = (
        f"kafka-transactions.sh --bootstrap-server {BOOTSTRAP} abort "
        f"--topic {shell_word(hanging.topic)} --partition {hanging.partition}"
    )
    return (
        f"{place} --start-offset {hanging.start_offset}",
        f"{place} --producer-id {hanging.producer_id} --producer-epoch {hanging.producer_epoch} "
        f"--coordinator-epoch {max(hanging.coordinator_epoch, 0)}",
    )


def shell_word(text: str) -> str:
    """Return a text as one word for a shell, without characters that a terminal would act on."""
    return shlex.quote(re.sub(r"[^ -~]", "?", text))


# --------------------------------------------------------------------------------------------------
# What the tables say


_NODE = "coalesce(CAST(node_id AS STRING), log_dir)"
_COUNTS = f"""
SELECT
    (SELECT count(DISTINCT {_NODE}) FROM log_dirs WHERE log_dir IN
        (SELECT log_dir FROM replicas WHERE topic <> '__cluster_metadata')
        OR NOT has_metadata_log),
    (SELECT count(DISTINCT {_NODE}) FROM log_dirs),
    (SELECT count(*) FROM (SELECT DISTINCT topic, partition FROM replicas) AS each),
    (SELECT count(*) FROM replicas),
    (SELECT sum(segments) FROM replicas),
    (SELECT count(*) FROM batches),
    (SELECT sum(records) FROM batches),
    (SELECT sum(size) FROM files),
    (SELECT sum(records) FROM client_acknowledged),
    (SELECT sum(records) FROM client_reads)
"""
_DIRECTORIES = f"""
SELECT d.log_dir, d.node_id, d.cluster_id,
    CASE WHEN d.has_metadata_log AND coalesce(r.others, 0) = 0 THEN 'controller' ELSE 'broker' END,
    d.log_dir IN ({UNCLEAN_DIRECTORIES}), d.newest_ms, coalesce(r.replicas, 0), coalesce(f.size, 0)
FROM log_dirs AS d
LEFT JOIN (
    SELECT log_dir, count(*) AS replicas,
        sum(CASE WHEN topic = '__cluster_metadata' THEN 0 ELSE 1 END) AS others
    FROM replicas GROUP BY log_dir
) AS r ON r.log_dir = d.log_dir
LEFT JOIN (SELECT log_dir, sum(size) AS size FROM files GROUP BY log_dir) AS f
    ON f.log_dir = d.log_dir
ORDER BY d.node_id, d.log_dir
"""
_REPLICAS = """
SELECT r.topic, r.partition, r.node_id, r.log_dir, r.log_start_offset, r.first_offset,
    r.high_watermark, r.end_offset, e.leader_epoch, r.segments, r.directory
FROM replicas AS r
LEFT JOIN (
    SELECT log_dir, directory, max(leader_epoch) AS leader_epoch
    FROM leader_epochs GROUP BY log_dir, directory
) AS e ON e.log_dir = r.log_dir AND e.directory = r.directory
ORDER BY r.topic, r.partition, r.node_id, r.log_dir
"""


def _counts(ask: Asked) -> AuditCounts:
    numbers = [int(number or 0) for number in ask(_COUNTS)[0]]
    brokers, nodes, partitions, replicas, segments, batches, records, size, acked, reads = numbers
    return AuditCounts(
        brokers=brokers,
        controllers=nodes - brokers,
        partitions=partitions,
        replicas=replicas,
        segments=segments,
        batches=batches,
        records=records,
        size_bytes=size,
        client_acknowledged=acked,
        client_reads=reads,
    )


def _directories(ask: Asked) -> tuple[AuditedDirectory, ...]:
    return tuple(
        AuditedDirectory(
            log_dir=log_dir,
            node_id=node_id,
            cluster_id=cluster_id,
            role=role,
            is_unclean=bool(is_unclean),
            newest_ms=newest_ms,
            replicas=int(replicas),
            size_bytes=int(size),
        )
        for log_dir, node_id, cluster_id, role, is_unclean, newest_ms, replicas, size in ask(
            _DIRECTORIES
        )
    )


def _replicas(ask: Asked, defects: Sequence[Finding]) -> tuple[ReplicaRow, ...]:
    """Return all replicas, those that a defect names first."""
    named = {
        (each.log_dir, each.file.partition("/")[0])
        for finding in defects
        for each in finding.witnesses
    }
    rows = [
        ReplicaRow(
            topic=row[0],
            partition=row[1],
            node_id=row[2],
            log_dir=row[3],
            log_start_offset=row[4],
            first_offset=row[5],
            high_watermark=row[6],
            end_offset=row[7],
            leader_epoch=row[8],
            segments=row[9],
            has_defect=(row[3], row[10]) in named,
        )
        for row in ask(_REPLICAS)
    ]
    broken = {(each.topic, each.partition) for each in rows if each.has_defect}
    return tuple(sorted(rows, key=lambda each: (each.topic, each.partition) not in broken))


# --------------------------------------------------------------------------------------------------
# Numbers as words


def _count(number: int, one: str, many: str = "") -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many or one + 's'}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def size_text(size_bytes: int) -> str:
    """Return a size as 12 bytes, 3.4 KiB, 5.6 MiB, ..."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit has no limit")


def time_text(time_ms: int) -> str:
    """Return a time in UTC, or the number if it is outside of years that people write."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S") + f".{time_ms % 1000:03d} UTC"


def age_text(age_ms: int) -> str:
    """Return a duration as its two largest units."""
    if age_ms < 0:
        return f"{age_text(-age_ms)} after the time of the audit"
    seconds = age_ms // 1000
    parts = [
        (seconds // 86_400, "d"),
        (seconds // 3600 % 24, "h"),
        (seconds // 60 % 60, "min"),
        (seconds % 60, "s"),
    ]
    first = next((place for place, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number:,} {unit}" for number, unit in parts[first : first + 2])
