"""What clients appended and read in transactions has an explanation, and a bank's money stays.

The checker of histories reads only what clients did (`kraftsim.clients.rules_history_check`): no
event of a node. A workload that is made for it emits what it found.
Source: Elle, VLDB 2020; KIP-98.
"""

from typing import Final

from kraftsim.clients.events import BranchRead, HistoryAnomalyFound, HistoryChecked
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Findings, Invariant
from kraftsim.invariants.verdict import Verdict, Violation

EXPLAINED: Final = "client-histories-explained"
CONSTANT: Final = "bank-total-constant"


class HistoriesExplained:
    """Counts the operations that were checked; each anomaly is a violation."""

    def __init__(self) -> None:
        self._findings = Findings(EXPLAINED)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process the result of a check."""
        match event:
            case HistoryChecked(operation_count=count):
                self._findings.examined += count
            case HistoryAnomalyFound():
                return self._findings.violation(
                    envelope.event_id,
                    f"{event.workload}: {event.anomaly} at {event.key}: {event.witness}",
                    envelope.event_id,
                )
        return None

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


HISTORIES_EXPLAINED = Invariant(
    name=EXPLAINED,
    rule="Some order of the transactions explains what the clients of a list-append or bank "
    "workload appended and read, as far as Kafka promises one.",
    source="KIP-98, Elle",
    watches=(HistoryChecked, HistoryAnomalyFound),
    check=HistoriesExplained,
    examined="""
        SELECT run, CAST(sum(operation_count) AS BIGINT) FROM history_checked
        GROUP BY run HAVING sum(operation_count) > 0
    """,
    violations="""
        SELECT
            run,
            concat(node, '.', incarnation, '.', n) AS key,
            concat(workload, ': ', anomaly, ' at ', key, ': ', witness) AS message,
            position AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM history_anomaly_found
    """,
)


class TotalsConstant:
    """Compares the total of each consistent read of a branch with the money that it began with."""

    def __init__(self) -> None:
        self._findings = Findings(CONSTANT)

    def examine(self, envelope: Envelope, event: Event) -> Violation | None:
        """Process a read."""
        assert isinstance(event, BranchRead)
        self._findings.examined += 1
        if event.total == event.expected_total:
            return None
        return self._findings.violation(
            f"{event.branch}/{event.transfer}/{event.total}",
            f"branch {event.branch} has a total of {event.total} after transfer {event.transfer}, "
            f"not {event.expected_total}",
            envelope.event_id,
        )

    def finish(self) -> Verdict:
        """Return the verdict."""
        return self._findings.verdict()


BANK_TOTAL_CONSTANT = Invariant(
    name=CONSTANT,
    rule="Transfers between accounts leave the sum of all balances as it is, in every consistent "
    "read.",
    source="Jepsen's bank test; KIP-98, KIP-447",
    watches=(BranchRead,),
    check=TotalsConstant,
    examined="SELECT run, count(*) FROM branch_read GROUP BY run",
    violations="""
        SELECT
            run,
            concat(branch, '/', transfer, '/', total) AS key,
            concat('branch ', branch, ' has a total of ', total, ' after transfer ', transfer,
                ', not ', min(expected_total)) AS message,
            min(position) AS first_witness,
            CAST(NULL AS BIGINT) AS second_witness
        FROM branch_read WHERE total <> expected_total GROUP BY run, branch, transfer, total
    """,
)

INVARIANTS = (HISTORIES_EXPLAINED, BANK_TOTAL_CONSTANT)
