"""Loggers in Kafka's config API: kraftsim has no configurable loggers, and answers as Kafka does
for unknown ones.

Source: KIP-412, kafka.server.logger.RuntimeLoggerManager.
"""

from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import AlterConfigsResource
from protocol.storage.java_integers import parse_int32


def refuse_loggers(node_id: int, resource: AlterConfigsResource) -> Refusal | None:
    """Return why log levels cannot be changed, or None for an empty request."""
    try:
        asked_id = parse_int32(resource.resource_name)
    except ValueError:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Node id must be an integer, but it is: {resource.resource_name}",
        )
    if asked_id != node_id:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {node_id}, but received {node_id}",
        )  # Kafka's own slip (3.9)
    if not resource.configs:
        return None
    return Refusal(ErrorCode.INVALID_CONFIG, f"Logger {resource.configs[0].name} does not exist!")
