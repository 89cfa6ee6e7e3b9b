"""Loads ACLs from ZooKeeper and follows their changes, for a broker with a ZooKeeper-based
authorizer.

Source: kafka.security.authorizer.AclAuthorizer.
"""

import asyncio
from collections.abc import Callable

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.world.interface import World
from kraftsim.zookeeper.broker_registration import create_if_absent
from kraftsim.zookeeper.change_notifications import ChangeNotifications, read
from kraftsim.zookeeper.config_watch import Apply, tree
from kraftsim.zookeeper.events import ZnodeNotUnderstood
from kraftsim.zookeeper.rules_znodes import Resource, access_changes, resource_of_path
from kraftsim.zookeeper.session import ZookeeperSession
from protocol.acls import AclPatternType
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_access_znodes import (
    ACL_CHANGES,
    ACLS,
    EXTENDED_ACL_CHANGES,
    EXTENDED_ACLS,
    RESOURCE_TYPES,
    acl_path,
    acl_root,
    parse_acl_change,
    pascal_case,
)

PATTERNS = (AclPatternType.LITERAL, AclPatternType.PREFIXED)


class AccessWatch:
    """`image()` returns the broker's metadata image; `apply` is awaited with the records that
    change it.
    """

    def __init__(
        self,
        world: World,
        session: ZookeeperSession,
        image: Callable[[], MetadataImage],
        apply: Apply,
    ) -> None:
        self._world = world
        self._session = session
        self._image = image
        self._apply = apply
        self._changes = [
            ChangeNotifications(session, path, self._follow_one)
            for path in (ACL_CHANGES, EXTENDED_ACL_CHANGES)
        ]

    async def read_all(self) -> None:
        """Create the parent znodes of ACLs, load all ACLs and set watches.

        Raises ZookeeperRefused.
        """
        for path in (
            ACLS,
            EXTENDED_ACLS,
            acl_root(AclPatternType.PREFIXED),
            ACL_CHANGES,
            EXTENDED_ACL_CHANGES,
        ):
            await create_if_absent(self._session, path, None)
        for pattern in PATTERNS:
            for each in RESOURCE_TYPES:
                await create_if_absent(
                    self._session, f"{acl_root(pattern)}/{pascal_case(each.name)}", None
                )
        for changes in self._changes:
            await changes.begin()
        for root in (ACLS, EXTENDED_ACLS):
            for path, (data, _) in (await tree(self._session, root)).items():
                resource = resource_of_path(path)
                if resource is not None:
                    await self._take(resource, data)

    async def run(self) -> None:
        """Follow changes until cancelled."""
        await asyncio.gather(*(changes.run() for changes in self._changes))

    async def _follow_one(self, path: str, data: bytes) -> None:
        try:
            resource = parse_acl_change(data)
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=path, reason=malformed.reason))
            return
        await self._take(resource, await read(self._session, acl_path(*resource)))

    async def _take(self, resource: Resource, data: bytes | None) -> None:
        try:
            records = access_changes(resource, data, self._image())
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=acl_path(*resource), reason=malformed.reason))
            return
        if records:
            await self._apply(records)
