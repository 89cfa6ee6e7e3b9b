"""Snapshots of the metadata log lack the record of the last block of producer ids.

A controller that loads one, because its log is lost or lags behind, has no record of any allocated
block: as leader it allocates from the first id.

Source: KAFKA-13357, org.apache.kafka.image.MetadataDelta, which replayed everything but
ProducerIdsRecord.
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from protocol.metadata.controller import ProducerIdsRecord


class WithoutProducerIds(MetadataImage):
    """Does not contain blocks of producer ids."""

    def _apply(self, record: MetadataRecord) -> None:
        if not isinstance(record, ProducerIdsRecord):  # right: every record
            super()._apply(record)


BUG = Bug(
    name="KAFKA-13357",
    title="a snapshot without the record of producer id blocks",
    fixed_in=("3.2.0",),
    swap=lambda parts: parts.replacing(metadata_image=WithoutProducerIds),
    scenario="quorum_under_faults",
    caught_by=("snapshot-equals-log", "producer-id-blocks-disjoint", "next-producer-id-monotonic"),
)
