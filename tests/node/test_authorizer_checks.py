"""Every API that a node serves has an authorizer check, or a documented reason for none. A handler
that is added without either fails here.
"""

from typing import Any

import pytest

from kraftsim.catalogue import Catalogue
from kraftsim.node.broker.forwarded import broker_handlers
from kraftsim.node.call import NO_ANSWER, Handler
from kraftsim.node.security.broker_guards import BROKER_TABLE
from kraftsim.node.security.controller_guards import CONTROLLER_TABLE
from kraftsim.node.security.exempt import IN_ENVELOPE
from kraftsim.node.security.rights import GuardTable, guarded
from kraftsim.node.security.zookeeper_guards import ZOOKEEPER_TABLE
from kraftsim.server.rules_authorization import Authorizer
from protocol.api_keys import ApiKey


def keys(handlers) -> set[ApiKey]:
    return {ApiKey(handler.key) for handler in handlers}


def of_controller() -> set[ApiKey]:
    return keys(Catalogue("kraftsim.node.controller.handlers", "HANDLER", Handler).all())


TABLES: dict[str, tuple[GuardTable[Any], set[ApiKey]]] = {
    "broker": (BROKER_TABLE, keys(broker_handlers())),
    "broker in ZooKeeper mode": (ZOOKEEPER_TABLE, keys(broker_handlers())),
    "controller": (CONTROLLER_TABLE, of_controller()),
}


@pytest.mark.parametrize(("table", "served"), TABLES.values(), ids=TABLES)
def test_every_served_api_has_an_authorizer_check_or_a_reason(table, served):
    names = [key.name for key in sorted(served - set(table.guards) - set(table.exempt))]
    assert not names, (
        "add a guard to kraftsim/node/security, or an exemption with its reason to "
        "kraftsim/node/security/exempt.py"
    )
    assert not set(table.guards) & set(table.exempt)
    assert all(table.exempt.values())


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_no_exemption_or_check_remains_without_its_handler(kind):
    table, served = TABLES[kind]
    assert set(table.guards) <= served
    assert set(table.exempt) <= served


def test_controller_checks_what_a_broker_forwards_unchecked():
    """Otherwise a request could pass unchecked, with both relying on each other."""
    for key, reason in BROKER_TABLE.exempt.items():
        if reason == IN_ENVELOPE:
            assert key in CONTROLLER_TABLE.guards, key.name


def test_in_zookeeper_mode_every_check_is_local():
    assert IN_ENVELOPE not in ZOOKEEPER_TABLE.exempt.values()


class Shell:
    """The parts of a node that `guarded` uses."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self.security = self
        self.authorizer = authorizer


def test_node_with_an_authorizer_does_not_serve_an_unchecked_api():
    table = GuardTable({}, {ApiKey.API_VERSIONS: "before any right"})
    known, added = (
        Handler(key=key, handle=lambda node, call: NO_ANSWER)
        for key in (ApiKey.API_VERSIONS, ApiKey.DELETE_TOPICS)
    )
    authorizer = Authorizer("", allows_without_rules=False, registries=dict)
    assert guarded(Shell(authorizer), table, [known]) == (known,)
    assert guarded(Shell(None), table, [added]) == (added,)
    with pytest.raises(AssertionError, match="DELETE_TOPICS has neither a guard nor a reason"):
        guarded(Shell(authorizer), table, [added])
