"""Response rows of AlterConfigs (33) and IncrementalAlterConfigs (44), which have the same
structure, on brokers and controllers.

Source: KIP-133, KIP-339, kafka.server.ConfigAdminManager.reassembleIncrementalResponse.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kraftsim.core.decision import Refusal
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import AlterConfigsResource
from protocol.storage.java_integers import parse_int32


class OfResource(Protocol):
    """A row of a request or of a response."""

    resource_type: int
    resource_name: str


Row = TypeVar("Row", bound=OfResource)


def row_of(
    make: Callable[..., Row], resource_type: int, resource_name: str, refusal: Refusal | None
) -> Row:
    """Return the result for one resource as a row of type `make`."""
    return make(
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        resource_type=resource_type,
        resource_name=resource_name,
    )


def refused_rows(
    make: Callable[..., Row], asked: Sequence[OfResource], error: ErrorCode
) -> list[Row]:
    """Return the same error for every resource."""
    return [row_of(make, each.resource_type, each.resource_name, Refusal(error)) for each in asked]


def joined_rows(
    make: Callable[..., Row],
    asked: Sequence[OfResource],
    done: Sequence[Row | None],
    reported: Sequence[Row],
) -> list[Row]:
    """Merge local results and those of the controller, in request order; a resource without a
    result gets an unknown error.
    """
    by_resource = {(row.resource_type, row.resource_name): row for row in reported}
    rows = []
    for each, own in zip(asked, done, strict=True):
        forgotten = row_of(
            make, each.resource_type, each.resource_name, Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        )
        rows.append(own or by_resource.get((each.resource_type, each.resource_name), forgotten))
    return rows


# --------------------------------------------------------------------------------------------------
# Loggers in Kafka's config API: kraftsim has no configurable loggers, and answers as Kafka does
# for unknown ones
#
# Source: KIP-412, kafka.server.logger.RuntimeLoggerManager.


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
