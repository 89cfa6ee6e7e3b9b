"""The OpenAPI 3.1 document of the HTTP API, made of the table of routes and of the types of bodies
and answers.
"""

from typing import Final

import msgspec

from kraftsim.control.access import BODY_BYTES_MAX, Refused
from kraftsim.control.routes import EVENT_STREAM, JSON, PLAIN, ROUTES, Route
from kraftsim.version import __version__

REFERENCE: Final = "#/components/schemas/{name}"
TITLE: Final = "kraftsim control"
ABOUT: Final = (
    "Controls a running cluster: its nodes, its network, faults of requests, its state and its "
    "events. Every request needs `Authorization: Bearer TOKEN`, but for /, /openapi.json and "
    "/healthz, and a Host header that names this server. A request that is refused is answered "
    "with `error` and `hint`."
)
JsonObject = dict[str, object]
TAGS: Final = (
    ("nodes", "Kill, stop, restart, upgrade, pause and resume nodes; fail their disks"),
    ("network", "Cut, slow, reset and heal links between nodes and to clients"),
    ("request faults", "Errors, delays, lost and doubled requests and replies"),
    ("state", "What the cluster knows, read-only"),
    ("events", "What happens, as it happens"),
    ("server", "This server"),
)
COMMON: Final = {
    400: "malformed; the error says what is wrong",
    401: "no token",
    403: "a wrong token, another Host, or a page of another origin",
}
WITH_BODY: Final = {
    408: "the body did not arrive in time",
    413: f"the body is longer than {BODY_BYTES_MAX} bytes",
    415: "the body has another media type",
}


def document() -> JsonObject:
    """Return the document."""
    types: dict[type[msgspec.Struct], None] = {Refused: None}
    for route in ROUTES:
        types |= dict.fromkeys(route.bodies)
        if route.answer is not None:
            types[route.answer] = None
    _, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    paths: dict[str, JsonObject] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    paths["/openapi.json"] = {"get": _own_document()}
    written = {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__, "description": ABOUT},
        "tags": [{"name": name, "description": about} for name, about in TAGS],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    # msgspec gives a default that is a tuple as one; a document has arrays
    plain: JsonObject = msgspec.json.decode(msgspec.json.encode(written))
    return plain


def _operation(route: Route) -> JsonObject:
    operation: JsonObject = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route),
    }
    if route.about:
        operation["description"] = route.about
    if route.parameters:
        operation["parameters"] = [
            {
                "name": each.name,
                "in": each.where,
                "required": each.where == "path",
                "description": each.about,
                "schema": dict(each.schema),
                **({} if each.example is None else {"example": each.example}),
            }
            for each in route.parameters
        ]
    if route.bodies:
        operation["requestBody"] = {
            "required": route.needs_body,
            "content": _content_of_body(route),
        }
    if route.is_public:
        operation["security"] = []
    return operation


def _responses(route: Route) -> JsonObject:
    statuses = {**COMMON, **(WITH_BODY if route.bodies else {}), **route.refusals}
    if route.is_public:
        del statuses[401]
    responses: JsonObject = {
        str(route.status): {"description": route.summary, "content": _content_of_answer(route)}
    }
    for status in sorted(statuses):
        responses[str(status)] = {
            "description": statuses[status],
            "content": {JSON: {"schema": _reference(Refused)}},
        }
    return responses


def _content_of_answer(route: Route) -> JsonObject:
    if route.answer is not None:
        return {JSON: {"schema": _reference(route.answer)}}
    media = route.media.partition(";")[0]
    about = "`id`, `data` with a line of JSON" if media == EVENT_STREAM else "text"
    return {media: {"schema": {"type": "string", "description": about}}}


def _content_of_body(route: Route) -> JsonObject:
    schemas = [_reference(each) for each in route.bodies]
    content: JsonObject = {
        JSON: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    }
    if route.takes_text:
        content[PLAIN] = {"schema": {"type": "string", "minLength": 1, "maxLength": 1000}}
    return content


def _own_document() -> JsonObject:
    return {
        "operationId": "openapi",
        "summary": "This document",
        "tags": ["server"],
        "security": [],
        "responses": {
            "200": {
                "description": "This document",
                "content": {JSON: {"schema": {"type": "object"}}},
            }
        },
    }


def _reference(kind: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": REFERENCE.format(name=kind.__name__)}
