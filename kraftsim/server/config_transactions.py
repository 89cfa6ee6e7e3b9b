"""The settings of a node about transactions, which `NodeConfig` begins with.

Source: org.apache.kafka.coordinator.transaction.{TransactionStateManagerConfig,
TransactionLogConfig, AddPartitionsToTxnConfig}.
"""

from dataclasses import dataclass

from kraftsim.server.config_keys import (
    AS_MERGED,
    AS_RELEASED,
    KEEPING,
    boolean,
    choice,
    integer,
    setting,
)
from kraftsim.server.config_share import ShareProperties


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionConfig(ShareProperties):
    """Transactions, and two-phase commit.

    Classes with slots have one base each: it is that of the settings before these.
    """

    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", integer(at_least=1), "604800000"
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", integer(at_least=1), "900000"
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", integer(at_least=1), "50"
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor", integer(at_least=1, at_most=32767), "3"
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", integer(at_least=1), "2"
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", integer(at_least=1), "104857600"
    )
    transaction_state_log_load_buffer_size: int = setting(
        "transaction.state.log.load.buffer.size", integer(at_least=1), "5242880"
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", integer(at_least=1), "10000"
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", integer(at_least=1), "3600000"
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable", boolean, "true"
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.ms", integer(at_least=1), "20"
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.max.ms", integer(at_least=0), "100"
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable", boolean, "false"
    )
    two_phase_commit: str = setting(
        "kraftsim.two.phase.commit", choice(AS_RELEASED, AS_MERGED, KEEPING), AS_RELEASED
    )

    @property
    def offers_two_phase_commit(self) -> bool:
        """Whether brokers offer the version of InitProducerId that is unstable in releases."""
        return self.two_phase_commit != AS_RELEASED

    @property
    def keeps_prepared_transactions(self) -> bool:
        """Whether an open transaction is kept for the next producer, if it asks for it."""
        return self.two_phase_commit == KEEPING
