"""Which quota holds for a client, by its user and its id: the most particular one that is set, and who shares it.

Source: KIP-13, KIP-55, KIP-546, kafka.server.ClientQuotaManager.DefaultQuotaCallback.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.client_quotas import CLIENT_ID, USER
from protocol.metadata.m14_client_quota import ClientQuotaRecord

ANYBODY: Final = ""
"""In the place of a name: the quota does not look at it."""
DEFAULT: Final = None
"""In the place of a name: for everybody without a quota of their own."""
Part = str | None
Sharers = tuple[str, str]
"""User and client id; '' where all share the limit."""


@dataclass(frozen=True, slots=True)
class Limit:
    """So much per second, for all of `sharers` together."""

    value: float
    sharers: Sharers


class ClientLimits:
    """The quotas that are set, as the metadata say."""

    def __init__(self, records: Iterable[ClientQuotaRecord] = ()) -> None:
        self._tables: dict[str, dict[tuple[Part, Part], float]] = {}
        for record in records:
            names = {part.entity_type: part.entity_name for part in record.entity}
            if names.keys() <= {USER, CLIENT_ID}:
                self._tables.setdefault(record.key, {})[names.get(USER, ANYBODY), names.get(CLIENT_ID, ANYBODY)] = record.value

    def __bool__(self) -> bool:
        return bool(self._tables)

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if it has none."""
        table = self._tables.get(key)
        if table is None:
            return None
        for user_part in (user, DEFAULT, ANYBODY):
            for client_part in (client_id, DEFAULT, ANYBODY):
                value = table.get((user_part, client_part))
                if value is not None:
                    return Limit(value, ("" if user_part == ANYBODY else user, "" if client_part == ANYBODY else client_id))
        return None
