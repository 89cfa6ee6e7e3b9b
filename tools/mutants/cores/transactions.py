"""The transaction coordinator: missing fencing, changed decisions, lost markers, and incomplete
failover.
"""

from tools.mutants.mutant import Core, Mutator

_rules = Mutator("transactions", "kraftsim.transactions.rules_coordinator")
_queue = Mutator("transactions", "kraftsim.transactions.rules_markers")
_records = Mutator("transactions", "kraftsim.transactions.rules_state")
_coordinator = Mutator("transactions", "kraftsim.transactions.transaction_coordinator")

CORE = Core(
    mutants=(
        _rules.mutant(
            "abort-fences-nobody",
            "TransactionRules.fence",
            "else epoch + 1",
            "else epoch",
            "a producer continues after its transaction was aborted (KAFKA-6119)",
        ),
        _rules.mutant(
            "take-over-fences-nobody",
            "TransactionRules._next_epoch",
            "(producer_id, epoch + 1), NO_PRODUCER_EPOCH",
            "(producer_id, max(epoch, 0)), NO_PRODUCER_EPOCH",
            "two producers of one transactional id have the same epoch",
        ),
        _rules.mutant(
            "begins-while-markers-are-missing",
            "is_busy",
            " or entry.facts.state in PREPARED",
            "",
            "the next transaction starts before the previous one has ended",
        ),
        _rules.mutant(
            "every-end-commits",
            "TransactionRules._decided",
            "PREPARE_COMMIT if is_commit else PREPARE_ABORT",
            "PREPARE_COMMIT",
            "aborted records are visible",
        ),
        _queue.mutant(
            "markers-of-the-other-verdict",
            "PreparedTransaction.__init__",
            "is PREPARE_COMMIT",
            "is not PREPARE_COMMIT",
            "committed records are not visible, and aborted ones are",
        ),
        _queue.mutant(
            "lost-markers-are-forgotten",
            "MarkerQueue.on_lost",
            "self._wait(marker)",
            "self.cancel(marker.ended)",
            "a transaction with markers for a dead broker never ends",
            scenarios=("zombie_fenced_by_epoch", "exactly_once_under_faults"),
        ),
        _queue.mutant(
            "over-before-its-markers",
            "MarkerQueue.settle",
            " and not ended.entry.facts.partitions",
            "",
            "a transaction ends before its markers are written",
            scenarios=("coordinator_failover_every_state", "hanging_transaction_marker"),
        ),
        _queue.mutant(
            "refused-markers-count",
            "MarkerQueue._judge",
            "if error is ErrorCode.NONE or error in WITHOUT_MARKER:",
            "if error not in OVERTAKEN:",
            "a marker that no leader wrote counts as written",
            scenarios=("coordinator_failover_every_state", "exactly_once_under_faults"),
        ),
        _coordinator.mutant(
            "nobody-ends-what-is-decided",
            "TransactionCoordinator._on_loaded",
            "self._send_markers(led, entry)",
            "pass",
            "a decision is never completed after a coordinator failover",
        ),
        _records.mutant(
            "partitions-are-not-read-back",
            "read_facts",
            "partitions=partitions,",
            "partitions=(),",
            "another coordinator ends a transaction without markers",
        ),
    )
)
