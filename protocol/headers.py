"""Request and response headers, and which header version each API uses.

Source: RequestHeader.json, ResponseHeader.json; org.apache.kafka.common.protocol.ApiMessageType
(requestHeaderVersion, responseHeaderVersion).
"""

from protocol.api_keys import ApiKey
from protocol.schema import int16, int32, message, string


@message(kind="header", versions="0-2", flexible="2+")
class RequestHeader:
    """v1 has a client id, v2 tagged fields.

    The client id never became compact: any node must be able to read any ApiVersions request.
    """

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(since=1, nullable="1+", ignorable=True, flexible="none")


@message(kind="header", versions="0-1", flexible="1+")
class ResponseHeader:
    """v1 has tagged fields."""

    correlation_id: int = int32()


def request_header_version(api_key: int, api_version: int, *, flexible: bool) -> int:
    """Return the header version of a request; `flexible`: whether that request version is
    flexible.
    """
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if flexible else 1


def response_header_version(api_key: int, *, flexible: bool) -> int:
    """Return the header version of a response; ApiVersions keeps v0, for clients that do not know
    the node's versions.
    """
    return 1 if flexible and api_key != ApiKey.API_VERSIONS else 0
