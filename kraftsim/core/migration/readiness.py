"""Readiness of the controllers for a migration: all of them must have it enabled.

Up to 3.6 the leader asks them: each reports it in its ApiVersions response. Since 3.7 they report
it in their registration.
Source: org.apache.kafka.controller.QuorumFeatures of 3.4 to 3.9, KIP-866, KIP-919.
"""

from collections.abc import Callable, Iterable

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.metadata_versions import METADATA_VERSIONS


def why_not_asked_ready(
    image: MetadataImage, others: Iterable[int], said: Callable[[int], bool | None]
) -> str | None:
    """Return why a migration cannot start by the other controllers' ApiVersions responses, or None:
    up to 3.6.
    """
    level = image.metadata_level
    if not level.has_migration_state:
        return f"The metadata.version too low at {METADATA_VERSIONS[level.level].name}"
    answers = {controller_id: said(controller_id) for controller_id in sorted(others)}
    missing = [controller_id for controller_id, answer in answers.items() if answer is None]
    if missing:
        return f"Missing apiVersion from nodes: {missing}"
    unready = [controller_id for controller_id, answer in answers.items() if not answer]
    return (
        f"Nodes don't enable `zookeeper.metadata.migration.enable`: {unready}" if unready else None
    )


def why_not_ready(image: MetadataImage, quorum_ids: Iterable[int]) -> str | None:
    """Return why a migration cannot start, or None.

    Below 3.7-IV0 controllers do not register, and nothing is known of them.
    """
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
