"""Each route of the HTTP API, on a cluster that records what was asked of it."""

import msgspec
import pytest

from kraftsim.control.controlled import Verb, only_simulated
from kraftsim.control.routes import ROUTES
from kraftsim.lab.faults.rules_request_faults import RequestFault
from tests.control.fake_cluster import NODE, Api

FAULT = "EndTxn error=CONCURRENT_TRANSACTIONS times=3"


@pytest.mark.parametrize(
    ("path", "body", "done"),
    [
        ("nodes/broker-1/kill", None, ("kill", "broker-1")),
        ("nodes/broker-*/stop", None, ("stop", "broker-*")),
        ("nodes/leader/pause", None, ("pause", "leader")),
        ("nodes/broker-1,broker-2/resume", None, ("resume", "broker-1,broker-2")),
        ("nodes/broker-1/restart", None, ("restart", "broker-1", None, {})),
        (
            "nodes/broker-1/restart",
            {"release": "4.1", "settings": {"num.io.threads": "4"}},
            ("restart", "broker-1", "4.1", {"num.io.threads": "4"}),
        ),
        ("nodes/*/upgrade", {"release": "4.1"}, ("upgrade", "*", "4.1")),
        ("nodes/broker-1/disk", {"fault": "bit-rot"}, ("fail-disk", "broker-1", "bit-rot")),
        ("network/cut", {"target": "broker-1>broker-2"}, ("cut", "broker-1>broker-2")),
        ("network/slow", {"target": "clients<>broker-1", "latency_ms": 5}, None),
        ("network/reset", {"target": "broker-1"}, ("reset", "broker-1")),
    ],
)
async def test_a_verb_reaches_the_cluster(
    path: str, body: dict[str, object] | None, done: tuple[object, ...] | None
) -> None:
    api = Api()
    answer = await api.ask("POST", f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    assert api.cluster.done == [done or ("slow", "clients<>broker-1")]


async def test_a_node_is_named_with_percent_signs_too() -> None:
    """`>` and `*` are not for URLs; a client quotes them."""
    api = Api()
    await api.ask("POST", "/v1/nodes/broker-%2A%2Cleader/kill")
    assert api.cluster.done == [("kill", "broker-*,leader")]


@pytest.mark.parametrize(
    ("path", "body"),
    [("nodes/no-9/kill", None), ("network/cut", {"target": "no-9"}), ("nodes/no-9/restart", {})],
)
async def test_an_unknown_node_is_404_with_what_there_is(
    path: str, body: dict[str, object] | None
) -> None:
    answer = await Api().ask("POST", f"/v1/{path}", json=body)
    assert answer.status_code == 404
    assert answer.json() == {
        "error": "no node is called no-9",
        "hint": "the lists of GET /v1/nodes, /v1/network and /v1/request-faults have what there is",
    }


async def test_what_cannot_be_now_is_409_and_names_the_data_directory() -> None:
    answer = await Api().ask("POST", "/v1/nodes/busy/pause")
    assert answer.status_code == 409
    assert answer.json()["error"].endswith("kraftsim restart busy --data runs/fake")


@pytest.mark.parametrize(
    ("verb", "method", "path", "body"),
    [
        (Verb.PAUSE, "POST", "nodes/broker-1/pause", None),
        (Verb.CUT, "POST", "network/cut", {"target": "broker-1"}),
        (Verb.INJECT, "POST", "request-faults", {"text": FAULT}),
        (Verb.FAIL_DISK, "POST", "nodes/broker-1/disk", {"fault": "slow-disk"}),
    ],
)
async def test_a_verb_that_a_cluster_does_not_have_is_409_with_the_reason(
    verb: Verb, method: str, path: str, body: dict[str, object] | None
) -> None:
    """And /v1/cluster says it beforehand."""
    api = Api()
    api.cluster.missing[verb] = "there is no proxy"
    answer = await api.ask(method, f"/v1/{path}", json=body)
    assert (answer.status_code, answer.json()["error"]) == (409, "there is no proxy")
    verbs = {each["verb"]: each for each in (await api.ask("GET", "/v1/cluster")).json()["verbs"]}
    assert verbs[verb.value] == {
        "verb": verb.value,
        "is_possible": False,
        "reason": "there is no proxy",
    }
    assert len(verbs) == len(Verb) and verbs["kill"]["is_possible"]


def test_faults_of_disks_that_only_simulation_has_are_named() -> None:
    reason = only_simulated("slow-disk")
    assert reason is not None and "a slow disk" in reason and "--mode sim" in reason
    assert only_simulated("bit-rot") is None and only_simulated("lost-disk") is None
    assert only_simulated("kill") is None, "it is no fault of disks"


async def test_conditions_of_links_are_listed_lifted_and_healed() -> None:
    api = Api()
    for target in ("broker-1", "broker-2"):
        await api.ask("POST", "/v1/network/cut", json={"target": target})
    listed = (await api.ask("GET", "/v1/network")).json()["conditions"]
    assert [(each["number"], each["target"]) for each in listed] == [
        (1, "broker-1"),
        (2, "broker-2"),
    ]
    assert listed[0]["condition"] == {"holds": True}
    lifted = await api.ask("DELETE", "/v1/network/1")
    assert lifted.json() == {"touched_bytes": 5, "connections": 1, "closed": 0}
    assert (await api.ask("DELETE", "/v1/network/1")).status_code == 404
    assert (await api.ask("POST", "/v1/network/heal")).json() == {"healed": 1}


@pytest.mark.parametrize(
    ("body", "media"),
    [
        ({"text": FAULT}, "application/json"),
        (FAULT, "text/plain; charset=utf-8"),
        (
            {
                "action": "error",
                "api": "EndTxn",
                "error": "CONCURRENT_TRANSACTIONS",
                "times": 3,
            },
            "application/json",
        ),
        ({"action": "error", "api": 26, "error": 51, "times": 3}, "application/json"),
    ],
)
async def test_a_fault_of_requests_is_added_in_each_form(
    body: dict[str, object] | str, media: str
) -> None:
    api = Api()
    content = body if isinstance(body, str) else msgspec.json.encode(body)
    answer = await api.ask(
        "POST", "/v1/request-faults", headers={"Content-Type": media}, content=content
    )
    assert answer.status_code == 201, answer.text
    report = answer.json()
    assert (report["number"], report["text"], report["effects"]) == (1, FAULT, 0)
    fault = msgspec.convert(report["fault"], RequestFault)
    assert (fault.api, fault.error, fault.times) == (26, 51, 3)
    assert (await api.ask("GET", "/v1/request-faults/1")).json() == report


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"text": "EndTxm error=NONE"}, "did you mean EndTxn"),
        ({"text": "EndTxn"}, "an API and an action"),
        ({"action": "error", "api": "EndTxn"}, "NONE is no error"),
        ({"action": "eror", "api": "EndTxn"}, "eror"),
        ({"action": "drop", "partition": 1}, "a partition needs its topic"),
        ({"action": "drop", "times": "3"}, "$.times"),
        ({"action": "drop", "api": "NoSuchApi"}, "NoSuchApi is no API"),
        ({"action": "error", "api": "EndTxn", "error": "CONCURENT_TRANSACTIONS"}, "did you mean"),
        ({"action": "delay", "api": 26}, "longer than 0 ms"),
        ({"action": "drop", "api": 26.5}, "$.api"),
        ({}, "Object missing required field"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_400_with_what_is_near(
    body: dict[str, object], wanted: str
) -> None:
    api = Api()
    answer = await api.ask("POST", "/v1/request-faults", json=body)
    assert answer.status_code == 400
    assert wanted in answer.text and set(answer.json()) == {"error", "hint"}
    assert api.cluster.rules.status(0) == ()


async def test_a_fault_of_requests_ends_by_its_number_or_with_all() -> None:
    api = Api()
    for _ in range(3):
        await api.ask("POST", "/v1/request-faults", json={"text": FAULT})
    ended = await api.ask("DELETE", "/v1/request-faults/2")
    assert ended.json()["is_over"] is True
    assert (await api.ask("DELETE", "/v1/request-faults")).json() == {"ended": 2}
    listed = (await api.ask("GET", "/v1/request-faults")).json()["request_faults"]
    assert [each["is_over"] for each in listed] == [True] * 3
    for method in ("GET", "DELETE"):
        assert (await api.ask(method, "/v1/request-faults/9")).status_code == 404


async def test_the_state_is_that_of_the_snapshot() -> None:
    api = Api()
    state = (await api.ask("GET", "/v1/state")).json()
    assert state["took_ms"] == 1.5 and state["topics"][0]["name"] == "orders"
    topics = (await api.ask("GET", "/v1/topics")).json()
    assert topics == {"topics": state["topics"], "missing": {}}
    assert (await api.ask("GET", "/v1/topics/orders")).json() == topics["topics"][0]
    assert (await api.ask("GET", "/v1/topics/none")).status_code == 404
    assert (await api.ask("GET", "/v1/groups")).json() == {
        "groups": [],
        "missing": {"groups": "broker-1 does not offer ListGroups"},
    }
    assert (await api.ask("GET", "/v1/quorum")).json()["high_watermark"] == 7
    violations = (await api.ask("GET", "/v1/violations")).json()
    assert violations == {"violations": [], "checks": None, "missing": {}}


async def test_without_a_quorum_the_reason_is_given() -> None:
    api = Api()
    api.snapshots.last = msgspec.structs.replace(
        api.snapshots.last, quorum=None, missing={"quorum": "it is a cluster in ZooKeeper mode"}
    )
    answer = await api.ask("GET", "/v1/quorum")
    assert (answer.status_code, answer.json()["error"]) == (
        409,
        "it is a cluster in ZooKeeper mode",
    )


async def test_metrics_are_of_all_nodes_or_of_one_that_runs() -> None:
    """A node that is down does not answer as a target of its own."""
    api = Api()
    answer = await api.ask("GET", "/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    assert 'node="broker-1"' in answer.text
    one = await api.ask("GET", f"/metrics?node={NODE}")
    assert one.status_code == 200 and "node=" not in one.text
    assert (await api.ask("GET", "/metrics?node=broker-2")).status_code == 503
    assert (await api.ask("GET", "/metrics?node=broker-9")).status_code == 404


async def test_head_is_get_without_a_body() -> None:
    answer = await Api().ask("HEAD", "/v1/nodes")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", f"/v1/nodes/{NODE}/kill", {"POST"}),
        ("PUT", "/v1/request-faults", {"GET", "HEAD", "POST", "DELETE"}),
        ("PATCH", "/v1/request-faults/1", {"GET", "HEAD", "DELETE"}),
        ("DELETE", "/v1/nodes", {"GET", "HEAD"}),
        ("DELETE", "/v1/network/slow", {"POST"}),
        ("TRACE", "/v1/nodes", {"GET", "HEAD"}),
        ("OPTIONS", "/v1/nodes", {"GET", "HEAD"}),
    ],
)
async def test_another_method_is_405_and_the_right_ones_are_named(
    method: str, path: str, allowed: set[str]
) -> None:
    answer = await Api().ask(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert set(answer.json()) == {"error", "hint"}


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/node", "did you mean /v1/nodes?"),
        ("/v1/transaction", "did you mean /v1/transactions?"),
        ("/xyz", "/openapi.json has all paths"),
    ],
)
async def test_an_unknown_path_says_what_is_near(path: str, hint: str) -> None:
    answer = await Api().ask("GET", path)
    assert answer.status_code == 404 and answer.json()["hint"] == hint


def test_names_of_operations_are_unique() -> None:
    names = [route.name for route in ROUTES]
    assert len(names) == len(set(names))
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
