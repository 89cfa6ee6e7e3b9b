"""The quota of a client, by user and client id: the most specific one that is set, and the clients
that share it.

Source: KIP-13, KIP-55, KIP-546, kafka.server.ClientQuotaManager.DefaultQuotaCallback.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kraftsim.core.metadata.client_quotas import CLIENT_ID, USER
from protocol.metadata.m14_client_quota import ClientQuotaRecord

ANY: Final = ""
"""Instead of a name: the quota has no such part."""
DEFAULT: Final = None
"""Instead of a name: the default of entities without their own quota."""
Part = str | None
Sharers = tuple[str, str]
"""User and client id; '' if all share the limit."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit per second, for all of `sharers` together."""

    value: float
    sharers: Sharers


class ClientLimits:
    """The quotas that are set in the metadata."""

    def __init__(self, records: Iterable[ClientQuotaRecord] = ()) -> None:
        self._tables: dict[str, dict[tuple[Part, Part], float]] = {}
        for record in records:
            names = {part.entity_type: part.entity_name for part in record.entity}
            if names.keys() <= {USER, CLIENT_ID}:
                self._tables.setdefault(record.key, {})[
                    names.get(USER, ANY), names.get(CLIENT_ID, ANY)
                ] = record.value

    def __bool__(self) -> bool:
        return bool(self._tables)

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if it has none."""
        table = self._tables.get(key)
        if table is None:
            return None
        for user_part in (user, DEFAULT, ANY):
            for client_part in (client_id, DEFAULT, ANY):
                value = table.get((user_part, client_part))
                if value is not None:
                    return Limit(
                        value,
                        ("" if user_part == ANY else user, "" if client_part == ANY else client_id),
                    )
        return None
