"""Waste and omissions that lose no record: ids and epochs that are spent without need, remote
segments without a file, pending offsets that are given up, quotas and configurations that do not
take effect.
"""

from tools.mutants.mutant import Core, Mutator

_prefetching = Mutator("producer ids", "kraftsim.producer_ids.rules_block_clients")
_coordinator = Mutator("transactions", "kraftsim.transactions.rules_coordinator")
_offsets = Mutator("offsets", "kraftsim.groups.rules_offsets")
_store = Mutator("tiered storage", "kraftsim.tiered_storage.remote_store")
_copier = Mutator("tiered storage", "kraftsim.tiered_storage.archiving")
_copying = Mutator("tiered storage", "kraftsim.tiered_storage.rules_copying")
_quotas = Mutator("quotas", "kraftsim.server.client_quotas")
_image = Mutator("quotas", "kraftsim.metadata.rules_image")
_partitions = Mutator("isr", "kraftsim.partitions.partitions")
TIERED = ("tiered_storage_under_faults",)
GROUPS_EXPIRE = ("group_expiry_under_faults",)
CHANGES_UNDER_LOAD = ("access_and_quota_changes_under_load",)

CORE = Core(
    mutants=(
        _prefetching.mutant(
            "every-other-id-is-skipped",
            "PrefetchingBlockClient._hand_out",
            "self._following_producer_id += 1",
            "self._following_producer_id += 2",
            "half of the ids of a block are wasted",
        ),
        _prefetching.mutant(
            "asks-again-with-a-block-in-stock",
            "PrefetchingBlockClient.on_response",
            "self._stock = answer",
            "self._request_in_flight = False\n"
            "                more = self._maybe_request(now_ms)\n"
            "                self._stock = answer\n"
            "                return more",
            "a broker requests blocks without end, and wastes them",
        ),
        _coordinator.mutant(
            "epochs-exhausted-at-3",
            "is_exhausted",
            "producer_epoch >= LAST_GIVEN_EPOCH",
            "producer_epoch >= 3",
            "a transactional id gets a new producer id without need",
        ),
        _offsets.mutant(
            "pending-offsets-keep-no-group",
            "GroupOffsets.is_empty",
            " or self._pending",
            "",
            "a group with nothing but pending offsets expires (KAFKA-19163)",
            scenarios=GROUPS_EXPIRE,
        ),
        _offsets.mutant(
            "first-commit-is-lost-at-its-marker",
            "GroupOffsets.end_transaction",
            "offsets = self._pending.get(producer_id, {})",
            "offsets = self._pending.get(producer_id, {}) if self.committed else {}",
            "the offsets of a committed transaction never become visible",
            scenarios=GROUPS_EXPIRE,
        ),
        _copier.mutant(
            "time-index-stays-behind",
            "SegmentCopier._files",
            'RemoteFile.TIMES: [log.file_of_segment(base_offset, TIME_INDEX) or b""],',
            "",
            "a remote segment has no time index",
            scenarios=TIERED,
        ),
        _copying.mutant(
            "first-due-segment-is-passed-over",
            "candidates",
            "following.base_offset > first_offset",
            "segment.base_offset > first_offset",
            "remote segments have a gap",
            scenarios=TIERED,
        ),
        _store.mutant(
            "offset-index-is-not-deleted",
            "RemoteStore.delete",
            "for kind in reversed(RemoteFile):",
            "for kind in (each for each in reversed(RemoteFile) "
            "if each is not RemoteFile.OFFSETS):",
            "a deleted segment leaves an object in the store",
            scenarios=TIERED,
        ),
        _quotas.mutant(
            "last-quota-stays",
            "ClientQuotas.follow",
            "before = {",
            "records = list(records)\n"
            "        if not records:\n"
            "            return\n"
            "        before = {",
            "a broker enforces a quota that was removed",
            scenarios=CHANGES_UNDER_LOAD,
        ),
        _image.mutant(
            "snapshot-brings-no-quotas",
            "difference",
            "any(\n            one != other for one, other in "
            "zip(_compared(before), _compared(after), strict=True)\n        )",
            "False",
            "quotas that a snapshot brings do not take effect",
            scenarios=CHANGES_UNDER_LOAD,
        ),
        _partitions.mutant(
            "leader-keeps-its-min-insync-replicas",
            "Partitions._use_settings",
            "hosted.replica.leader_state is not None",
            "False",
            "a change of min.insync.replicas does not reach a present leader",
            scenarios=CHANGES_UNDER_LOAD,
        ),
        _partitions.mutant(
            "removed-configs-stay",
            "Partitions._apply_settings",
            "concerns_all or (TOPIC_RESOURCE, hosted.topic) in changed",
            "concerns_all or image.topic_configs(hosted.topic)",
            "the last configuration of a topic is removed without effect",
            scenarios=CHANGES_UNDER_LOAD,
        ),
    )
)
