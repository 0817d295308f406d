"""The API's description: valid OpenAPI 3.1, and what the server really does (schemathesis walks all of it)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from moregpu.coordinator.api.table import NATIVE

from .conftest import Pool

schemathesis = pytest.importorskip("schemathesis")
not_a_server_error = pytest.importorskip("schemathesis.checks").not_a_server_error


@pytest.fixture(scope="module")
def document(pool: Pool) -> dict[str, Any]:
    answer = pool.ask("GET", "/v1/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


def test_the_description_is_openapi_and_names_every_door(document: dict[str, Any]) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(document).validate()
    named = {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs}
    assert named == {(door.verb, door.path.replace(":path}", "}")) for door in NATIVE}
    operations = [operation for verbs in document["paths"].values() for operation in verbs.values()]
    assert all(operation["summary"] for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_bodies_come_from_the_structs(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    spec = schemas["KernelSpec"]
    assert spec["additionalProperties"] is False
    assert spec["properties"]["priority"]["maximum"] == 100
    assert schemas["Problem"]["required"] == ["type", "title", "status"]
    assert "JobView" in schemas and "bytes" not in schemas


@pytest.mark.slow
def test_the_server_does_what_the_description_says(pool: Pool, document: dict[str, Any], tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    certificate.write_bytes(pool.ask("GET", "/cert.pem").body)
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document)))
    schema.config.base_url = f"https://{pool.address}"
    walked = [
        walk(pool, result.ok(), str(certificate))
        for result in schema.get_all_operations()
        if result.ok().path != "/v1/events"  # a stream without an end
    ]
    assert len(walked) == len(NATIVE) - 1
    assert min(walked) >= 1


def walk(pool: Pool, operation: Any, certificate: str) -> int:
    """Ask in a dozen ways that the description allows; every answer must be one that it tells of."""
    from schemathesis.specs.openapi import checks

    asked = 0

    @settings(
        max_examples=12, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        for name, calm in (("wait", 0), ("follow", "0")):
            if case.query and name in case.query:
                case.query[name] = calm
        response = case.call(headers={"Authorization": f"Bearer {pool.admin}"}, verify=certificate, timeout=20)
        case.validate_response(
            response,
            checks=(
                not_a_server_error,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
            ),
        )

    ask()
    return asked
