"""Registration and unregistration of controllers.

Source: KIP-919, org.apache.kafka.controller.ClusterControlManager.
"""

from typing import Final

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.metadata.metadata_level import MetadataLevel
from kraftsim.events.metadata import ControllerRegistered
from protocol.errors import ErrorCode
from protocol.messages.k70_controller_registration import ControllerRegistrationRequest
from protocol.metadata.m27_register_controller import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from protocol.uuids import uuid_text

TOO_OLD: Final = Refusal(
    ErrorCode.UNSUPPORTED_VERSION,
    "The current MetadataVersion is too old to support controller registrations.",
)


def decide_register_controller(
    level: MetadataLevel, request: ControllerRegistrationRequest
) -> Decision[None] | Refusal:
    """Register a controller, without validation of its fields. Fails with UNSUPPORTED_VERSION."""
    if not level.has_controller_registrations:
        return TOO_OLD
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    fact = ControllerRegistered(
        controller_id=request.controller_id, incarnation_id=uuid_text(request.incarnation_id)
    )
    return Decision([record], None, (fact,))
