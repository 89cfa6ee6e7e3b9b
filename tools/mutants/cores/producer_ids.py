"""Producer-id blocks that are allocated twice, used twice, or never available."""

from tools.mutants.mutant import Core, Mutator

_control = Mutator("producer ids", "kraftsim.producer_ids.rules_allocation")
_block = Mutator("producer ids", "kraftsim.producer_ids.rules_allocation")
_prefetching = Mutator("producer ids", "kraftsim.producer_ids.rules_block_clients")
_waiting = Mutator("producer ids", "kraftsim.producer_ids.rules_block_clients")
_received = Mutator("producer ids", "kraftsim.producer_ids.rules_allocation")
_ledger = Mutator("producer ids", "kraftsim.metadata.metadata_writer")
_journal = Mutator("producer ids", "kraftsim.core.timeline")
BEFORE_PREFETCHING = "3.5"
NO_CONTROLLER = "controller_unreachable_for_minutes"

CORE = Core(
    mutants=(
        _control.mutant(
            "next-id-falls-behind",
            "ProducerIdControl.replay",
            "self._next_producer_id.value = record.next_producer_id",
            "self._next_producer_id.value = record.next_producer_id - 1",
            "blocks share an id",
        ),
        _control.mutant(
            "record-names-its-own-block",
            "ProducerIdControl.decide_allocate",
            "next_producer_id=block.next_producer_id",
            "next_producer_id=block.first_producer_id",
            "the next block starts where this one does (KAFKA-15552)",
        ),
        _control.mutant(
            "record-names-the-last-id",
            "ProducerIdControl.decide_allocate",
            "next_producer_id=block.next_producer_id",
            "next_producer_id=block.last_producer_id",
            "blocks share an id",
        ),
        _control.mutant(
            "serves-former-incarnations",
            "ProducerIdControl.decide_allocate",
            "if not self._is_current(broker_id, broker_epoch):",
            "if False:",
            "a replaced incarnation of a broker gets a block",
            scenarios=("duplicate_broker_id",),
        ),
        _control.mutant(
            "gives-the-same-block-again",
            "ProducerIdControl.replay",
            "self._next_producer_id.value = record.next_producer_id",
            "pass",
            "every block is the first one",
        ),
        _block.mutant(
            "block-is-an-id-longer",
            "ProducerIdBlock.last_producer_id",
            "self.size - 1",
            "self.size",
            "a broker returns the first id of the next block",
        ),
        _block.mutant(
            "next-block-begins-inside",
            "ProducerIdBlock.next_producer_id",
            "self.first_producer_id + self.size",
            "self.first_producer_id + self.size - 1",
            "blocks share an id",
        ),
        _prefetching.mutant(
            "id-handed-out-twice",
            "PrefetchingBlockClient._hand_out",
            "self._following_producer_id += 1",
            "self._following_producer_id += producer_id % 100 != 99",
            "two producers share an id",
        ),
        _prefetching.mutant(
            "block-used-twice",
            "PrefetchingBlockClient._use",
            "self._stock = None",
            "pass",
            "a broker uses its block again",
        ),
        _prefetching.mutant(
            "goes-on-in-the-old-block",
            "PrefetchingBlockClient._use",
            "self._following_producer_id = block.first_producer_id",
            "self._following_producer_id = max(self._following_producer_id, "
            "block.first_producer_id - 1)",
            "ids from outside the block",
        ),
        _prefetching.mutant(
            "refused-once-refused-for-ever",
            "PrefetchingBlockClient.on_response",
            "self._request_in_flight = False",
            "pass",
            "a broker never requests a block again",
        ),
        _prefetching.mutant(
            "lost-once-lost-for-ever",
            "PrefetchingBlockClient.on_timeout",
            "self._request_in_flight = False",
            "pass",
            "a broker never requests a block again",
            scenarios=(NO_CONTROLLER,),
        ),
        _prefetching.mutant(
            "never-asks-ahead",
            "PrefetchingBlockClient._hand_out",
            "if self._asks_ahead(ProducerId(producer_id)):",
            "if False:",
            "clients wait for every block",
            equivalent="only slower: a claim without an id requests a block as well",
        ),
        _prefetching.mutant(
            "asks-while-it-waits",
            "PrefetchingBlockClient._maybe_request",
            " or self._stock is not None or self._request_in_flight:",
            ":",
            "two block requests are in flight, and one block is lost",
        ),
        _prefetching.mutant(
            "last-id-is-kept",
            "PrefetchingBlockClient.claim",
            "self._following_producer_id <= self._current.last_producer_id",
            "self._following_producer_id < self._current.last_producer_id",
            "the last id of a block is not used",
            equivalent=(
                "an unused id violates no guarantee; the scripts of the block client show it"
            ),
        ),
        _received.mutant(
            "takes-errors-for-blocks",
            "received_block",
            "if error_code != ErrorCode.NONE:",
            "if False:",
            "an error is treated as an empty block at 0",
            scenarios=("broker_loses_cluster_action",),
        ),
        _waiting.mutant(
            "slot-used-twice",
            "WaitingBlockClient._take_slot",
            "content, self._slot = self._slot, None",
            "content = self._slot",
            "a broker before 3.6 uses its block again",
            release=BEFORE_PREFETCHING,
        ),
        _waiting.mutant(
            "waiter-gets-no-id",
            "WaitingBlockClient._complete_first",
            "return CompleteRequest(self._waiters.popleft(), result)",
            "return WakeAt(self._waiters.popleft())",
            "clients that wait for a block wait forever",
            scenarios=(NO_CONTROLLER,),
            release=BEFORE_PREFETCHING,
        ),
        _waiting.mutant(
            "number-not-taken",
            "WaitingBlockClient._take_slot",
            "self._last_claimed = content.first_producer_id",
            "self._last_claimed = content.first_producer_id - 1",
            "the first id of a block is returned twice",
            release=BEFORE_PREFETCHING,
        ),
        _waiting.mutant(
            "beyond-the-block",
            "WaitingBlockClient._advance",
            "self._last_claimed <= self._current.last_producer_id",
            "self._last_claimed <= self._current.next_producer_id",
            "ids from outside the block",
            release=BEFORE_PREFETCHING,
        ),
        _ledger.mutant(
            "answers-before-the-commit",
            "MetadataWriter.write",
            "self._waiting.append(_Waiting(offsets.last_offset, on_commit, on_given_up))",
            "on_commit()",
            "a block is returned before a majority has it",
        ),
        _ledger.mutant(
            "answers-one-commit-early",
            "MetadataWriter.on_high_watermark",
            "self._waiting[0].last_offset < high_watermark",
            "self._waiting[0].last_offset <= high_watermark",
            "a block is returned before a majority has it",
        ),
        _ledger.mutant(
            "undoes-nothing",
            "MetadataWriter.revert",
            "self.state.revert_to(high_watermark)",
            "pass",
            "a former leader keeps uncommitted state",
        ),
        _ledger.mutant(
            "answers-what-it-undid",
            "MetadataWriter.give_up",
            "if waiting.on_given_up is not None:\n                waiting.on_given_up()",
            "waiting.on_commit()",
            "a reverted block is returned",
        ),
        _ledger.mutant(
            "forgets-how-to-undo",
            "MetadataWriter.on_high_watermark",
            "self.state.commit_through(high_watermark - 1)",
            "self.state.commit_through(high_watermark)",
            "the first uncommitted record cannot be reverted",
            scenarios=("admin_requests_during_controller_failover",),
        ),
        _journal.mutant(
            "undoes-one-too-few",
            "Journal.revert_to",
            "self._pages[-1][0] >= next_offset",
            "self._pages[-1][0] > next_offset",
            "a former leader keeps an uncommitted record",
        ),
        _journal.mutant(
            "undoes-in-the-wrong-order",
            "Journal.revert_to",
            "for undo in reversed(self._pages.pop()[1]):",
            "for undo in self._pages.pop()[1]:",
            "a reverted record leaves state behind",
            equivalent="no record changes one value twice, and the order of reverting different "
            "values does not matter",
        ),
        _journal.mutant(
            "undoes-what-is-committed",
            "Journal.commit_through",
            "self._pages[kept][0] <= last_offset",
            "self._pages[kept][0] < last_offset",
            "the last committed record is reverted",
        ),
    )
)
