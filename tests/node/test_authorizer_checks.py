"""Every API that a node serves has an authorizer check, or a documented reason for none. A handler
that is added without either fails here.
"""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Never, cast

import pytest

from kraftsim.catalogue import Catalogue
from kraftsim.metadata.rules_registries import Registries
from kraftsim.server.call import NO_ANSWER, Call, Handler, NoAnswer
from kraftsim.server.forwarding import broker_handlers
from kraftsim.server.rules_authorization import Authorizer
from kraftsim.server.security.broker_guards import BROKER_TABLE, ZOOKEEPER_TABLE
from kraftsim.server.security.controller_guards import CONTROLLER_TABLE
from kraftsim.server.security.rights import IN_ENVELOPE, GuardTable, guarded
from kraftsim.server.shell import NodeShell
from protocol.api_keys import ApiKey


def keys(handlers: Iterable[Handler[Never]]) -> set[ApiKey]:
    return {ApiKey(handler.key) for handler in handlers}


def of_controller() -> set[ApiKey]:
    handlers: Catalogue[Handler[Never]] = Catalogue(
        "kraftsim.*.controller_handlers", "HANDLER", Handler
    )
    return keys(handlers.all())


AnyTable = GuardTable[Never]
TABLES: dict[str, tuple[AnyTable, set[ApiKey]]] = {
    "broker": (BROKER_TABLE, keys(broker_handlers())),
    "broker in ZooKeeper mode": (ZOOKEEPER_TABLE, keys(broker_handlers())),
    "controller": (CONTROLLER_TABLE, of_controller()),
}


@pytest.mark.parametrize(("table", "served"), TABLES.values(), ids=TABLES)
def test_every_served_api_has_an_authorizer_check_or_a_reason(
    table: AnyTable, served: set[ApiKey]
) -> None:
    names = [key.name for key in sorted(served - set(table.guards) - set(table.exempt))]
    assert not names, (
        "add a guard to kraftsim/server/security, or an exemption with its reason to "
        "kraftsim/server/security/rights.py"
    )
    assert not set(table.guards) & set(table.exempt)
    assert all(table.exempt.values())


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_no_exemption_or_check_remains_without_its_handler(kind: str) -> None:
    table, served = TABLES[kind]
    assert set(table.guards) <= served
    assert set(table.exempt) <= served


def test_controller_checks_what_a_broker_forwards_unchecked() -> None:
    """Otherwise a request could pass unchecked, with both relying on each other."""
    for key, reason in BROKER_TABLE.exempt.items():
        if reason == IN_ENVELOPE:
            assert key in CONTROLLER_TABLE.guards, key.name


def test_in_zookeeper_mode_every_check_is_local() -> None:
    assert IN_ENVELOPE not in ZOOKEEPER_TABLE.exempt.values()


def shell(authorizer: Authorizer | None) -> NodeShell:
    """The parts of a node that `guarded` uses."""
    return cast(NodeShell, SimpleNamespace(security=SimpleNamespace(authorizer=authorizer)))


def without_answer(node: object, call: Call) -> NoAnswer:
    return NO_ANSWER


def test_node_with_an_authorizer_does_not_serve_an_unchecked_api() -> None:
    table: GuardTable[object] = GuardTable({}, {ApiKey.API_VERSIONS: "before any right"})
    known, added = (
        Handler(key=key, handle=without_answer)
        for key in (ApiKey.API_VERSIONS, ApiKey.DELETE_TOPICS)
    )
    authorizer = Authorizer("", allows_without_rules=False, registries=lambda: Registries(dict))
    assert guarded(shell(authorizer), table, [known]) == (known,)
    assert guarded(shell(None), table, [added]) == (added,)
    with pytest.raises(AssertionError, match="DELETE_TOPICS has neither a guard nor a reason"):
        guarded(shell(authorizer), table, [added])
