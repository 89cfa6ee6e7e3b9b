"""The OpenAPI document: valid, complete, and true of what the server answers."""

from typing import Any

import httpx
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from kraftsim.control.application import OPENAPI
from kraftsim.control.calls import RequestFaultBody
from kraftsim.control.openapi import document
from kraftsim.control.routes import ROUTES, Route
from kraftsim.lab.faults.rules_request_faults import RequestFault
from tests.control.fake_cluster import NODE, Api

DOCUMENT: Any = document()
BODIES: dict[str, dict[str, object]] = {
    "upgrade": {"release": "4.1"},
    "disk": {"fault": "bit-rot"},
    "cut": {"target": NODE},
    "slow": {"target": NODE, "latency_ms": 1},
    "reset": {"target": NODE},
    "inject": {"text": "EndTxn error=CONCURRENT_TRANSACTIONS"},
}


def test_the_document_is_valid_openapi() -> None:
    """By a validator of its own, of OpenAPI 3.1."""
    assert DOCUMENT["openapi"].startswith("3.1.")
    OpenAPIV31SpecValidator(DOCUMENT).validate()


async def test_the_document_is_served_without_a_token() -> None:
    answer = await Api().ask("GET", OPENAPI, token=None)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == DOCUMENT


def test_every_route_is_in_the_document_with_its_refusals() -> None:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        statuses = set(operation["responses"])
        assert {str(route.status), "400", "403"} <= statuses
        assert {str(each) for each in route.refusals} <= statuses
        assert ("401" in statuses) is not route.is_public
        assert ({"408", "413", "415"} <= statuses) is bool(route.bodies)
        assert operation["summary"] and "  " not in operation.get("description", "")
    assert sum(len(each) for each in DOCUMENT["paths"].values()) == len(ROUTES) + 1


def test_only_the_public_paths_need_no_token() -> None:
    assert DOCUMENT["security"] == [{"token": []}]
    public = {
        path
        for path, operations in DOCUMENT["paths"].items()
        for operation in operations.values()
        if operation.get("security") == []
    }
    assert public == {"/healthz", OPENAPI}


def test_every_field_of_a_request_fault_is_offered() -> None:
    assert RequestFaultBody.__struct_fields__ == RequestFault.__struct_fields__
    schema = DOCUMENT["components"]["schemas"]["RequestFaultBody"]
    assert set(schema["properties"]) == set(RequestFault.__struct_fields__)
    assert schema["additionalProperties"] is False


def validate(response: httpx.Response, operation: dict[str, Any]) -> None:
    """Validate an answer against what the document says of it."""
    described = operation["responses"][str(response.status_code)]
    media = response.headers["content-type"].partition(";")[0]
    schema = described["content"][media]["schema"]
    if media == "application/json":
        whole = {**schema, "components": DOCUMENT["components"]}
        OAS31Validator(whole).validate(response.json())


@pytest.mark.parametrize("route", ROUTES, ids=[route.name for route in ROUTES])
async def test_answers_are_as_the_document_says(route: Route) -> None:
    """A good call, one without a token, and one with a parameter that is not there."""
    api = Api()
    await api.ask("POST", "/v1/request-faults", json=BODIES["inject"])
    await api.ask("POST", "/v1/network/cut", json=BODIES["cut"])
    path = route.path.format(node=NODE, number=1, topic="orders")
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    body = BODIES.get(route.name)
    good = await api.ask(route.method, path, json=body)
    if route.name == "events":
        assert good.status_code == 409, "it has no event logs"
    else:
        assert good.status_code == route.status, good.text
    validate(good, operation)
    strange = await api.ask(route.method, path, json=body, params={"surplus": "1"})
    assert strange.status_code == 400
    validate(strange, operation)
    if not route.is_public:
        validate(await api.ask(route.method, path, json=body, token=None), operation)


def test_a_wrong_answer_would_be_noticed() -> None:
    operation = DOCUMENT["paths"]["/v1/nodes"]["get"]
    with pytest.raises(Exception, match="is not of type 'array'"):
        validate(httpx.Response(200, json={"nodes": 7}), operation)
