"""What kinds of job a token may submit, at every door that takes one."""

from __future__ import annotations

import base64

import msgspec
import pytest

from moregpu.wire.api import TokenRequest, TokenView
from moregpu.wire.invite import parse_client_line
from moregpu.wire.link import Refused

from .conftest import Pool
from .test_link import link

KERNEL = {"kind": "kernel", "operation": "relu", "size": 4}


def token(pool: Pool, *kinds: str, role: str = "submitter") -> str:
    request = TokenRequest(role=role, kinds=list(kinds))  # type: ignore[arg-type]
    made = pool.ask("POST", "/v1/tokens", pool.admin, request)
    view = msgspec.json.decode(made.body, type=TokenView)
    assert view.kinds == list(kinds)
    return parse_client_line(view.line).token


@pytest.fixture(scope="module")
def functions(pool: Pool) -> str:
    """A token for functions alone."""
    return token(pool, "function")


def test_a_kind_that_is_not_among_its_scopes_is_refused_at_every_door(pool: Pool, functions: str) -> None:
    job = pool.submit(pool.admin)
    admin = token(pool, "function", role="admin")
    old = {"kernel": "relu", "a": base64.b64encode(bytes(16)).decode()}
    for refused in (
        pool.ask("POST", "/v1/jobs", functions, KERNEL),
        pool.ask("POST", "/v1/plan", functions, KERNEL),
        pool.ask("POST", f"/v1/jobs/{job}/retry", admin),
    ):
        assert (refused.status, refused.code) == (403, "forbidden")
    assert pool.ask("POST", "/submit", functions, old).status == 403
    with link(pool, functions) as line:
        line.submit(1, KERNEL)
        answer = line.receive()
        assert isinstance(answer, Refused)
        assert answer.id == 1
        assert answer.problem.type.endswith("forbidden")
    assert pool.ask("GET", "/v1/jobs", functions).json()["items"] == []


def test_a_kind_among_its_scopes_is_taken(pool: Pool) -> None:
    both = token(pool, "kernel", "function")
    assert pool.ask("POST", "/v1/jobs", both, KERNEL).status == 201
    assert pool.ask("POST", "/v1/plan", both, KERNEL).status == 200


def test_a_token_says_what_it_is_for(pool: Pool, functions: str) -> None:
    me = pool.ask("GET", "/v1/me", functions).json()
    assert (me["scope"], me["kinds"]) == ("all", ["function"])
    listed = pool.ask("GET", "/v1/tokens", pool.admin).json()
    assert [row["kinds"] for row in listed if row["id"] == me["id"]] == [["function"]]


def test_a_kind_that_does_not_exist_is_no_scope(pool: Pool) -> None:
    refused = pool.ask("POST", "/v1/tokens", pool.admin, {"kinds": ["kernels"]})
    assert (refused.status, refused.code) == (400, "invalid-request")


def test_the_groups_that_an_admin_puts_a_token_in_are_its_jobs_and_a_submitter_says_nothing_of_them(pool: Pool) -> None:
    made = pool.ask("POST", "/v1/tokens", pool.admin, TokenRequest(label="ann", groups=["lab", "lab"]))
    view = msgspec.json.decode(made.body, type=TokenView)
    assert view.groups == ["lab"]
    ann = parse_client_line(view.line).token
    job = pool.ask("POST", "/v1/jobs", ann, KERNEL).json()["id"]
    row = pool.run(pool.services.desk.store.job(job))
    assert row.submitter_groups == ("lab",)
    assert pool.ask("POST", "/v1/jobs", ann, {**KERNEL, "submitter_groups": ["other"]}).status == 400
    assert pool.ask("POST", "/v1/tokens", ann, TokenRequest(groups=["other"])).status == 403
    assert pool.ask("POST", "/v1/tokens", pool.admin, {"groups": [""]}).status == 400
