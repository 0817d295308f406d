"""The API's description, OpenAPI 3.1: from the table of doors, the Structs they take and give, and their docstrings."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import msgspec

from moregpu.coordinator.api.problems import PROBLEM_JSON
from moregpu.coordinator.api.render import MEDIA_TYPES
from moregpu.coordinator.api.table import NATIVE, Door
from moregpu.jobs import JobState
from moregpu.wire.api import Problem
from moregpu.workloads import KINDS

_REF = "#/components/schemas/{name}"
_PLAIN = "text/plain"
_EVENTS = "text/event-stream"
_OCTETS = "application/octet-stream"
_BYTES = {"type": "string", "contentMediaType": _OCTETS}

QUERY: dict[str, tuple[dict[str, Any], str]] = {
    "wait": ({"type": "number", "minimum": 0}, "Seconds to wait for the job's end; at most 60 are"),
    "state": (
        {"type": "string", "enum": [state.value for state in JobState]},
        "Only jobs in this state; several with commas between",
    ),
    "kind": ({"type": "string", "enum": list(KINDS)}, "Only jobs of this kind"),
    "submitter": ({"type": "string"}, "Only jobs of this token's id"),
    "after": (
        {"type": "string", "pattern": "^[0-9A-Za-z-]{0,40}$"},
        "What came last: the list or stream goes on there",
    ),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 500}, "Entries of a page"),
    "purge": ({"type": "string", "enum": ["0", "1"]}, "1: forget an ended job's outputs and keys"),
    "format": ({"type": "string", "enum": list(MEDIA_TYPES)}, "File format; goes before Accept"),
    "output": ({"type": "string"}, "Only this output"),
    "sealed": ({"type": "string", "enum": ["0", "1"]}, "1: names and keys of the sealed blobs"),
    "follow": ({"type": "string", "enum": ["0", "1"]}, "1: server-sent events until the job has ended"),
    "offset": ({"type": "integer", "minimum": 0, "maximum": 1 << 50}, "Where in the sealed bytes the body begins"),
}

_STREAM_QUERY: dict[str, tuple[dict[str, Any], str]] = {
    "after": ({"type": "integer", "minimum": 0, "maximum": 10**17}, "Sequence number that was seen last"),
}


@functools.cache
def openapi(version: str) -> bytes:
    """The document as JSON."""
    types = [type_ for door in NATIVE for type_ in (door.takes, door.gives) if _is_data(type_)]
    _, components = msgspec.json.schema_components([*types, Problem], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for door in NATIVE:
        paths.setdefault(door.path.replace(":path}", "}"), {})[door.verb.lower()] = _operation(door)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "MoreGPU coordinator",
                "version": version,
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
                "description": "Jobs for a private pool of shared GPUs and CPUs. Bodies are JSON, or msgpack where "
                "Content-Type (and, for answers, Accept) says application/msgpack; bytes in JSON are base64. Errors "
                "are RFC 9457 problem documents. `WS /v1/link`, `/v1/events` and `/v1/worker` are WebSockets.",
            },
            "security": [{"token": []}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "A client token"}},
            },
        }
    )


def _is_data(type_: Any) -> bool:
    return type_ is not None and type_ not in (bytes, str)


def _operation(door: Door) -> dict[str, Any]:
    text = inspect.cleandoc(door.handler.__doc__ or "")
    first, _, rest = text.partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": _name(door),
        "summary": first.replace("\n", " "),
        "responses": _responses(door),
    }
    if rest:
        operation["description"] = rest
    if door.access == "public":
        operation["security"] = []
    else:
        operation["x-least-role"] = "submitter or worker" if door.access == "bearer" else door.access
    parameters = [*_path_parameters(door), *_query_parameters(door), *_headers(door)]
    if parameters:
        operation["parameters"] = parameters
    if door.takes is not None:
        content = {_OCTETS: {"schema": _BYTES}} if door.takes is bytes else _both(door.takes)
        operation["requestBody"] = {"required": door.path != "/v1/pool/rotate", "content": content}
    return operation


def _name(door: Door) -> str:
    handler = door.handler
    module = inspect.unwrap(handler).__module__.rpartition(".")[2]
    return f"{module}_{getattr(handler, '__name__', door.verb.lower())}"


def _responses(door: Door) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in door.status:
        response: dict[str, Any] = {"description": _MEANS.get(status, "Done")}
        content = _content(door, status)
        if content:
            response["content"] = content
        responses[str(status)] = response
    refusal = {"description": "Refused, and why", "content": {PROBLEM_JSON: {"schema": _ref(Problem)}}}
    if door.verb == "HEAD":
        refusal = {"description": "Refused, or not here"}
    responses["4XX"] = refusal
    responses["5XX"] = refusal
    return responses


_MEANS = {
    200: "Done",
    201: "Made",
    202: "Not yet: the job still runs",
    204: "Done; nothing more to say",
    206: "A part",
}


def _content(door: Door, status: int) -> dict[str, Any]:
    if status == 202:
        return {PROBLEM_JSON: {"schema": _ref(Problem)}}
    if door.gives is None:
        return {}
    if door.gives is bytes:
        return {_OCTETS: {"schema": _BYTES}}
    if door.path == "/metrics":
        return {_PLAIN: {"schema": {"type": "string"}}}
    if door.gives is str:
        return {_EVENTS: {"schema": {"type": "string"}}}
    content = _both(door.gives)
    if door.path.endswith("/result"):
        content |= {media_type: {"schema": _BYTES} for media_type in MEDIA_TYPES.values()}
    if "follow" in door.query:
        content[_EVENTS] = {"schema": {"type": "string"}}
    return content


def _both(type_: Any) -> dict[str, Any]:
    schema = _ref(type_)
    return {"application/json": {"schema": schema}, "application/msgpack": {"schema": schema}}


def _ref(type_: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([type_], ref_template=_REF)
    return schema


def _path_parameters(door: Door) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)(?::path)?\}", door.path)
    ]


def _query_parameters(door: Door) -> list[dict[str, Any]]:
    table = QUERY | _STREAM_QUERY if door.gives is str else QUERY
    return [
        {"name": name, "in": "query", "required": False, "schema": table[name][0], "description": table[name][1]}
        for name in door.query
    ]


def _headers(door: Door) -> list[dict[str, Any]]:
    if (door.verb, door.path) in (("POST", "/v1/jobs"), ("POST", "/v1/jobs/{id}/retry")):
        schema: dict[str, Any] = {"type": "string", "maxLength": 200}
        return [{"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema,
                 "description": "The same key from the same token finds the same job"}]  # fmt: skip
    if (door.verb, door.path) == ("PUT", "/v1/blobs/{digest}"):
        schema = {"type": "integer", "minimum": 0, "maximum": 1 << 50}
        return [{"name": "Upload-Length", "in": "header", "required": False, "schema": schema,
                 "description": "Length of the whole blob, where the body is a part of it"}]  # fmt: skip
    return []
