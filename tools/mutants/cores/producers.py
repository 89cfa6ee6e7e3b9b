"""Producers and their partitions: records duplicated, lost, or acknowledged at a wrong offset."""

from tools.mutants.mutant import Core, Mutator

_manager = Mutator("producer state", "kraftsim.producer_state.rules_manager")
_entry = Mutator("producer state", "kraftsim.producer_state.rules_entries")
_sequence = Mutator("producer state", "kraftsim.producer_state.rules_entries")
_replica = Mutator("partitions", "kraftsim.partitions.rules_replica")
_replica_log = Mutator("partitions", "kraftsim.partitions.rules_replica_log")
_segments = Mutator("partitions", "kraftsim.partitions.rules_log")
_queue = Mutator("clients", "kraftsim.clients.rules_producer_steps")
_producer = Mutator("clients", "kraftsim.clients.rules_idempotent_producer")

CORE = Core(
    mutants=(
        _manager.mutant(
            "knows-no-duplicates",
            "ProducerStateManager.check",
            "if copy is not None:",
            "if False:",
            "a batch that is in the log is rejected, and sent again as a new one",
        ),
        _manager.mutant(
            "duplicate-at-the-wrong-place",
            "ProducerStateManager.check",
            "first_offset=copy.first_offset",
            "first_offset=copy.last_offset + 1",
            "a client receives a wrong offset",
        ),
        _manager.mutant(
            "remembers-nothing",
            "ProducerStateManager.apply",
            "entry.add_batch(batch.last_sequence, base_offset + offset_delta, offset_delta, "
            "max_timestamp)",
            "pass",
            "no producer can continue",
        ),
        _manager.mutant(
            "forgets-at-a-restart",
            "ProducerStateManager.replay",
            "self.apply(batch, batch.base_offset)",
            "None",
            "a batch that is retried after a restart is appended again",
        ),
        _manager.mutant(
            "remembers-the-wrong-end",
            "ProducerStateManager.apply",
            "base_offset + offset_delta, offset_delta",
            "base_offset, offset_delta",
            "a client receives a wrong offset",
        ),
        _manager.mutant(
            "takes-any-sequence",
            "ProducerStateManager._check_sequence",
            "if is_next_sequence(last_sequence, base_sequence):",
            "if True:",
            "a batch that is retried out of order is appended again",
        ),
        _manager.mutant(
            "new-epoch-begins-anywhere",
            "ProducerStateManager._check_sequence",
            "if base_sequence == 0:",
            "if True:",
            "a producer may skip sequences",
        ),
        _entry.mutant(
            "remembers-one-batch",
            "ProducerStateEntry.add_batch",
            "[PACKED.size * (1 - self.retained_max) :]",
            "[:0]",
            "of several batches in flight only the last is recognised",
        ),
        _entry.mutant(
            "keeps-batches-of-former-epochs",
            "ProducerStateEntry.take_epoch",
            'self.last_sequence, self.last_offset, self.earlier = NO_SEQUENCE, NO_OFFSET, b""',
            "pass",
            "a batch of a new epoch is treated as one of the old",
        ),
        _sequence.mutant(
            "sequence-may-stay",
            "is_next_sequence",
            "base_sequence == last_sequence + 1",
            "base_sequence in (last_sequence, last_sequence + 1)",
            "a batch of one record that is retried is appended again",
        ),
        _sequence.mutant(
            "sequence-does-not-wrap",
            "is_next_sequence",
            "base_sequence == 0 and last_sequence == LAST_SEQUENCE",
            "False",
            "the batch after the last sequence is refused",
        ),
        _sequence.mutant(
            "sequence-may-jump",
            "is_next_sequence",
            "base_sequence == last_sequence + 1",
            "base_sequence > last_sequence",
            "a batch overtakes one that was lost",
        ),
        _replica_log.mutant(
            "appends-without-leading",
            "ReplicaLog._refuse_replicas",
            "if not self.is_leader:",
            "if False:",
            "a broker that is no longer leader accepts records",
        ),
        _replica_log.mutant(
            "hides-the-last-record",
            "ReplicaLog.apply_append",
            "self.log_end_offset if self.leader_state.is_alone",
            "self.log_end_offset - 1 if self.leader_state.is_alone",
            "consumers wait forever",
        ),
        _replica.mutant(
            "leader-state-begins-at-zero",
            "PartitionReplica.lead",
            "self.epochs.assign(leader_and_isr.leader_epoch, self.log_end_offset)",
            "self.epochs.assign(leader_and_isr.leader_epoch, 0)",
            "log comparison by epochs gives wrong results",
        ),
        _replica.mutant(
            "serves-past-reigns",
            "PartitionReplica.refuse_epoch",
            "if current_leader_epoch < self.leader_epoch:",
            "if False:",
            "a consumer with old metadata is served",
        ),
        _segments.mutant(
            "segment-ends-a-record-early",
            "SegmentList.holding",
            "bisect_right(self._base_offsets, offset)",
            "bisect_right(self._base_offsets, offset - 1)",
            "the first record of a segment is searched in the previous one",
        ),
        _segments.mutant(
            "end-of-the-log-falls-behind",
            "SegmentList.add_batch",
            "self.log_end_offset = last_offset + 1",
            "self.log_end_offset = last_offset",
            "offsets are assigned twice",
        ),
        _segments.mutant(
            "drops-the-segment-it-needs",
            "SegmentList.remove_before",
            "bisect_right(self._base_offsets, offset) - 1",
            "bisect_right(self._base_offsets, offset)",
            "records that no snapshot covers are deleted",
            scenarios=("quorum_under_faults",),
        ),
        _queue.mutant(
            "new-sequence-for-old-records",
            "PartitionQueue.send",
            "if batch.identity is None:",
            "if True:",
            "retried records are appended again",
        ),
        _queue.mutant(
            "overtakes-itself",
            "PartitionQueue.sendable",
            "self.is_first_open(batch) if batch.attempts else",
            "True if batch.attempts else",
            "batches are retried out of order",
        ),
        _queue.mutant(
            "renumbers-what-may-be-there",
            "PartitionQueue.needs_new_identity",
            "self.has_lost_sequence and not any(batch.state is not BatchState.REFUSED for batch "
            "in self.sent_batches())",
            "self.has_lost_sequence",
            "an unsettled batch is sent with a new sequence",
        ),
        _producer.mutant(
            "lost-is-lost",
            "IdempotentProducer._lose_request",
            "self._queues[batch.where].retry(batch, now_ms + self._settings.retry_backoff_ms)",
            "self._queues[batch.where].remove(batch, sequence_is_used=True)\n            "
            "self._deliver(batch, -1)",
            "a lost record is reported as acknowledged",
        ),
        _producer.mutant(
            "new-epoch-for-what-came-late",
            "IdempotentProducer._settle_batch",
            "if queue.is_first_open(batch):",
            "if True:",
            "a batch after an unsettled one is renumbered",
        ),
        _producer.mutant(
            "keeps-its-epoch",
            "IdempotentProducer._renew_identities",
            "self._identity.producer_epoch + 1",
            "self._identity.producer_epoch",
            "sequences restart in the same epoch",
        ),
    )
)
