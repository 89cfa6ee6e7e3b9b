"""A rule of an audit: one question to the tables of `kraftsim.audit.tables`, in SQL that DuckDB and
Spark share, and what its findings mean to an operator.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

import msgspec


class DefectSeverity(IntEnum):
    """How bad a defect is; findings are shown in falling order."""

    NOTICE = 1
    """Nothing is lost or wrong yet."""
    DEGRADED = 2
    """A service suffers: readers wait, space is not freed, a restart takes long."""
    WRONG = 3
    """A client can see a wrong result: a duplicate, a gap, a wrong offset."""
    LOSS = 4
    """Acknowledged data is gone, or replicas differ in what was committed."""


class AuditOutcome(StrEnum):
    """The result of a rule."""

    SOUND = "sound"
    DEFECT = "defect"
    UNKNOWN = "unknown"
    """Something that it examined cannot be decided from these disks; the reasons say why."""
    NOT_APPLICABLE = "not applicable"
    """There was nothing to examine."""


class DiskWitness(msgspec.Struct, frozen=True):
    """A place on a disk that shows a finding.

    `position` is a byte of the file, `offset` an offset of the log; -1 where it does not apply.
    """

    log_dir: str
    file: str
    position: int = -1
    offset: int = -1


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One defect, or with `is_defect` false one thing that cannot be decided.

    `subject` says what it is about: a partition, a producer, a transactional id, a group.
    `since_ms` says since when, as well as the disks tell: null if they do not.
    """

    rule: str
    subject: str
    message: str
    witnesses: tuple[DiskWitness, ...]
    since_ms: int | None = None
    is_defect: bool = True
    transaction: "HangingTransaction | None" = None


class HangingTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """What `kafka-transactions --abort` needs to end a hanging transaction (KIP-664)."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found: `examined` things, and of defects and undecided things their number and
    the first FINDINGS_KEPT_MAX.
    """

    rule: str
    outcome: AuditOutcome
    examined: int
    defect_count: int
    undecided_count: int
    undecided_unclean: int
    """Of the undecided things, those about log directories of brokers that were not stopped
    cleanly.
    """
    findings: tuple[Finding, ...]


FINDINGS_KEPT_MAX: Final = 100
"""Of defects, and of undecided things, of one rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRule:
    """One property that the disks of a sound cluster have.

    The SQL texts read the tables by their names. They use only what Spark SQL and DuckDB have in
    common.
    - `examined`: one row with one number, how many things were checked.
    - `defects`: one row per defect with the columns `subject` (text), `message` (text), `since_ms`
      (long or null), and two witnesses: `log_dir`, `file`, `position`, `at_offset`, and `log_dir2`,
      `file2`, `position2`, `at_offset2` (null where there is none; a position or offset that does
      not apply is -1).
    - `undecided`: rows with the same columns: what cannot be decided, with the reason as message. A
      rule never counts as a defect what these rows name.
    """

    name: str
    statement: str
    """What holds on sound disks, in one sentence."""
    source: str
    """The KIP, class or ticket that says so."""
    severity: DefectSeverity
    meaning: str
    """What a defect means to those who use the cluster, in one or two sentences."""
    remedy: str
    """What to do about it."""
    reads: tuple[str, ...]
    """The names of the tables in its SQL."""
    examined: str
    defects: str
    undecided: str = ""
    transaction_columns: str = ""
    """Further columns of `defects` for a HangingTransaction, in the order of its fields."""
    is_alarm: bool = True
    """Whether a defect makes the whole audit one: false for what a sound cluster may have, too, and
    an operator should know.
    """
    needs_records: bool = False
    """Whether it reads records of users' topics: then it is asked only with `--records`."""
    must_decide: bool = False
    """Whether the audit is unknown if something is undecided, even when all brokers were stopped
    cleanly. For what any sound directory decides; not for what retention or compaction removes.
    """
