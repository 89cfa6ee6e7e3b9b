"""The transaction coordinator: producers that are not fenced, decisions that change, markers that are lost, and take-overs that forget."""

from mutants.mutant import Core, Workshop

_rules = Workshop("transactions", "kraftsim.core.transactions.transaction_rules")
_queue = Workshop("transactions", "kraftsim.core.transactions.marker_queue")
_records = Workshop("transactions", "kraftsim.core.transactions.transaction_records")
_coordinator = Workshop("transactions", "kraftsim.node.broker.transactions.transaction_coordinator")

CORE = Core(
    mutants=(
        _rules.mutant(
            "abort-fences-nobody",
            "TransactionRules.fence",
            "else epoch + 1",
            "else epoch",
            "a producer whose transaction was aborted goes on as if nothing had happened (KAFKA-6119)",
        ),
        _rules.mutant(
            "take-over-fences-nobody",
            "TransactionRules._next_epoch",
            "(producer_id, epoch + 1), NO_PRODUCER_EPOCH",
            "(producer_id, max(epoch, 0)), NO_PRODUCER_EPOCH",
            "two producers of one transactional id have one epoch",
        ),
        _rules.mutant(
            "begins-while-markers-are-missing",
            "is_busy",
            " or entry.facts.state in PREPARED",
            "",
            "the next transaction begins before the one before is over",
        ),
        _rules.mutant(
            "every-end-commits",
            "TransactionRules._decided",
            "PREPARE_COMMIT if is_commit else PREPARE_ABORT",
            "PREPARE_COMMIT",
            "what a producer aborts is read all the same",
        ),
        _queue.mutant(
            "markers-of-the-other-verdict",
            "EndedTransaction.__init__",
            "is PREPARE_COMMIT",
            "is not PREPARE_COMMIT",
            "what is committed is not read, and what is aborted is",
        ),
        _queue.mutant(
            "lost-markers-are-forgotten",
            "MarkerQueue.on_lost",
            "self._wait(marker)",
            "self.cancel(marker.ended)",
            "a transaction whose markers met a dead broker is never over",
            scenarios=("zombie_fenced_by_epoch", "exactly_once_under_faults"),
        ),
        _queue.mutant(
            "over-before-its-markers",
            "MarkerQueue.settle",
            " and not ended.entry.facts.partitions",
            "",
            "a transaction is over while readers still wait for its markers",
            scenarios=("coordinator_failover_in_every_state", "marker_that_never_completes"),
        ),
        _queue.mutant(
            "refused-markers-count",
            "MarkerQueue._judge",
            "if error is ErrorCode.NONE or error in WITHOUT_MARKER:",
            "if error not in OVERTAKEN:",
            "a marker that no leader wrote is taken for written",
            scenarios=("coordinator_failover_in_every_state", "exactly_once_under_faults"),
        ),
        _coordinator.mutant(
            "nobody-ends-what-is-decided",
            "TransactionCoordinator._on_loaded",
            "self._send_markers(led, entry)",
            "pass",
            "what is decided when a coordinator falls is never ended",
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
