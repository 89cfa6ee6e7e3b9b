"""The principal of a forwarded request in an Envelope: a version, then type and name of the
principal.

A cluster with a custom principal builder sends another format.
Source: KIP-590; DefaultKafkaPrincipalBuilder, DefaultPrincipalData.json.
"""

from protocol.schema import boolean, message, string
from protocol.version_prefixed import build_version_prefixed, parse_version_prefixed

VERSION = 0


@message(kind="data", versions="0", flexible="0+")
class DefaultPrincipalData:
    """A principal such as User:ANONYMOUS."""

    principal_type: str = string(kafka_name="Type")
    name: str = string()
    token_authenticated: bool = boolean()


def build_principal(principal: DefaultPrincipalData) -> bytes:
    """Return the bytes that an Envelope carries."""
    return build_version_prefixed(principal, VERSION)


def parse_principal(content: bytes) -> DefaultPrincipalData:
    """Return the principal.

    Raises MalformedMessage; a controller then returns PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    found: DefaultPrincipalData = parse_version_prefixed(DefaultPrincipalData, content)
    return found
