"""The description of the gateway: valid, whole, the same for the same code."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from forebay.executor import Submit
from forebay.gateway.openapi.answers import SCHEMAS
from forebay.gateway.openapi.describe import describe
from forebay.gateway.openapi.operations import SHARED, submission
from forebay.gateway.openapi.parameters import OPTIONS
from forebay.gateway.routes.every import ROUTES
from tests.gateway.forms_app import as_json, manifest

PAGE = Path(__file__).parents[2] / "docs/concepts/gateway.md"
URL = "http://127.0.0.1:8080"
SUBMISSION = submission("{name}", doc="", body={}, result={})


def described(told: dict[str, Any] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(describe(told or manifest(), URL))
    return made


def operations(description: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, item in description["paths"].items()
        for method, operation in item.items()
    }


def routes_of_the_page() -> set[tuple[str, str]]:
    """The methods and paths of the table."""
    found = set()
    for line in PAGE.read_text().splitlines():
        cell = line.split("|")[1] if line.startswith("| `") else ""
        method = re.match(r" `(GET|POST) (/\S*)`", cell)
        if method is None:
            continue
        first = method[2]
        found.add((method[1], first))
        for other in re.findall(r"`(/\S*)`", cell):
            same_folder = other.startswith("/v1/")
            found.add((method[1], other if same_folder else first.rpartition("/")[0] + other))
    return found


def test_it_is_openapi():
    """Generators of clients, and what shows it to people, can read it."""
    OpenAPIV31SpecValidator(described()).validate()


def test_an_application_without_requests_is_described():
    """A server that could load nothing still answers."""
    empty: dict[str, Any] = {"app": "", "code": "", "requests": [], "definitions": {}}
    OpenAPIV31SpecValidator(described(empty)).validate()
    OpenAPIV31SpecValidator(described({"target": "nothing"})).validate()


def test_the_page_and_the_description_have_the_same_routes():
    """What is written down is what there is."""
    names = {request["name"] for request in manifest()["requests"]}
    told = {
        (method, "/v1/requests/{name}" if path.rpartition("/")[2] in names else path)
        for method, path in operations(described())
    }
    assert told == routes_of_the_page()


def test_the_gateway_serves_what_is_described_to_the_same_roles():
    """No route is left out of the description, and none is promised that is not there."""
    told = {
        (one.method, re.sub(r"{\w+}", "{}", one.path), one.role) for one in (*SHARED, SUBMISSION)
    }
    served = {(one.method, one.path, one.role and one.role.name.lower()) for one in ROUTES}
    assert told == served


def test_each_request_is_an_operation_with_its_own_types():
    """A generated client has a method for each, and checks arguments before it sends them."""
    description = described()
    body = operations(description)["POST", "/v1/requests/image"]["requestBody"]
    assert body["required"]
    assert body["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/image_arguments"
    }
    schema = description["components"]["schemas"]["image_arguments"]
    assert schema["required"] == ["image"]
    assert schema["properties"]["image"] == {"$ref": "#/components/schemas/ForebayArray"}
    for schema in description["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_the_schema_of_a_body_takes_what_the_gateway_takes():
    """A body that a client has checked is not refused for its form."""
    import numpy as np

    description = described()
    own = description["components"]["schemas"]["nested_arguments"]
    validator = Draft202012Validator({**own, "components": description["components"]})
    good = {"sample": {"label": "a", "blob": b"x", "image": np.arange(3)}, "tree": {"blob": b""}}
    assert validator.is_valid(as_json(good))
    assert validator.is_valid({"what": {"type": "sound", "data": "AAAA"}})
    assert not validator.is_valid({"sample": {"label": "a", "image": {"dtype": "|O"}}})
    assert not validator.is_valid({"more": 1})


def test_no_reference_leads_nowhere():
    """Definitions of the application are where their references say."""
    description = described()
    text = json.dumps(description)
    assert "#/definitions/" not in text
    for pointer in set(re.findall(r'"#/([^"]+)"', text)):
        at = description
        for part in pointer.split("/"):
            at = at[part]


def test_a_definition_that_is_called_as_ours_gets_another_name():
    """An application may have a class of any name."""
    told = manifest()
    told["code"] = "other"
    told["definitions"]["ForebayArray"] = {"type": "integer"}
    told["requests"][0]["parameters"][0]["schema"] = {"$ref": "#/definitions/ForebayArray"}
    description = described(told)
    assert description["components"]["schemas"]["ForebayArray"] == SCHEMAS["ForebayArray"]
    assert description["components"]["schemas"]["ForebayArray_"] == {"type": "integer"}


def test_the_options_are_those_of_submit():
    """An option that the client in Python has is not forgotten here."""
    of_the_gateway = {"idempotency", "idempotent", "parent", "submitter", "traceparent"}
    """Headers, the name of the token, and what functions and their clients alone know."""
    assert OPTIONS.keys() == {field.name for field in fields(Submit)} - of_the_gateway
    operation = operations(described())["POST", "/v1/requests/plain"]
    query = [one["name"] for one in operation["parameters"] if one.get("in") == "query"]
    assert query == list(OPTIONS)


def test_only_health_and_the_page_need_no_token():
    """A description that says otherwise would make clients leave the token out."""
    open_ = {path for (_, path), one in operations(described()).items() if one["security"] == []}
    assert open_ == {"/healthz", "/readyz", "/login", "/", "/ui", "/ui/", "/ui/{file}"}


def test_names_of_operations_are_unique():
    """Generated clients make functions of them."""
    names = [one["operationId"] for one in operations(described()).values()]
    assert len(names) == len(set(names))


def test_it_is_made_once_for_each_code_and_always_the_same():
    """It can be compared, and costs nothing when it is asked for again."""
    first = describe(manifest(), URL)
    assert describe(manifest(), URL) is first
    assert describe({**manifest(), "code": "another"}, URL) is not first
    assert describe(manifest(), "http://other") != first


@pytest.mark.parametrize("status", ["400", "401", "403", "429", "500", "503"])
def test_every_route_with_a_token_has_the_problems_of_all(status: str):
    """A client is prepared for them everywhere."""
    for operation in operations(described()).values():
        if operation["security"]:
            assert status in operation["responses"]


def test_a_number_of_a_result_may_be_null():
    """A float that is not finite has no form in JSON; arguments have none of it."""
    description = described()
    schemas = description["components"]["schemas"]
    answers = operations(description)["POST", "/v1/requests/plain"]["responses"]
    result = answers["200"]["content"]["application/json"]["schema"]
    assert result["additionalProperties"]["type"] == ["number", "null"]
    weights = schemas["plain_arguments"]["properties"]["weights"]["anyOf"][0]["items"]
    assert weights == {"type": "number"}


def test_a_definition_with_numbers_is_another_one_in_results():
    """The names and the titles differ, so that generated clients have two classes."""
    told = manifest()
    told["code"] = "numbers"
    point = {"title": "Point", "type": "object", "properties": {"x": {"type": "number"}}}
    line = {"title": "Line", "type": "array", "items": {"$ref": "#/definitions/Point"}}
    told["definitions"] |= {"Point": point, "Line": line}
    told["requests"][0]["parameters"][0]["schema"] = {"$ref": "#/definitions/Line"}
    told["requests"][0]["result"] = {"$ref": "#/definitions/Line"}
    schemas = described(told)["components"]["schemas"]
    assert schemas["Point"]["properties"]["x"]["type"] == "number"
    assert schemas["PointResult"]["properties"]["x"]["type"] == ["number", "null"]
    assert schemas["LineResult"]["items"] == {"$ref": "#/components/schemas/PointResult"}
    assert schemas["LineResult"]["title"] == "LineResult"
