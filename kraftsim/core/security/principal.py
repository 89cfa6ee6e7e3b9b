"""The principal of an authenticated connection.

A principal is written `Type:name`; without authentication it is `User:ANONYMOUS`.
Source: org.apache.kafka.common.security.auth.KafkaPrincipal,
org.apache.kafka.common.utils.SecurityUtils.parseKafkaPrincipal.
"""

from typing import NamedTuple

USER_TYPE = "User"


class Principal(NamedTuple):
    """A type, nearly always `User`, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")


def parse_principal_text(text: str) -> Principal:
    """Parse `Type:name`. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not text or not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)
