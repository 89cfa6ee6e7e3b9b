"""Whether the controllers can begin a migration: all of them must be told to.

Source: org.apache.kafka.controller.QuorumFeatures, KIP-866, KIP-919.
"""

from collections.abc import Iterable

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.metadata_versions import METADATA_VERSIONS


def why_not_ready(image: MetadataImage, quorum_ids: Iterable[int]) -> str | None:
    """Return why a migration cannot begin, or None. Below 3.7-IV0 controllers do not register, and nothing is known of them."""
    level = image.metadata_level
    if not level.has_migration_state:
        return f"The metadata.version too low at {METADATA_VERSIONS[level.level].name}"
    if not level.has_controller_registrations:
        return None
    for controller_id in sorted(quorum_ids):
        known = image.registries.controllers.get(controller_id)
        if known is None:
            return f"No registration found for controller {controller_id}"
        if not known.zk_migration_ready:
            return f"Controller {controller_id} has not enabled zookeeper.metadata.migration.enable"
    return None
