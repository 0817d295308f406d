"""The doors of the compatibility API, by name, and how its callers say who they are."""

from __future__ import annotations

from collections.abc import Mapping

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.compat.net import net
from moregpu.coordinator.api.compat.pool import certificate, control, device, front, gpu, help, logs, whoami, workers
from moregpu.coordinator.api.compat.shown import lines_of
from moregpu.coordinator.api.compat.submit import job, jobs, submit
from moregpu.coordinator.api.compat.weights import listed as list_weights
from moregpu.coordinator.api.compat.weights import put as put_weight
from moregpu.errors import InviteRefused, MissingExtra, MoreGPUError, NotFound, Unauthorized
from moregpu.wire.invite import parse_client_line

__all__ = [
    "LATER", "authorization_of", "certificate", "control", "device", "error_body", "front", "gpu", "help", "job",
    "jobs", "list_weights", "logs", "net", "not_yet", "put_weight", "submit", "whoami", "workers",
]  # fmt: skip

_TIERS = ("/model/{rest:path}", "/train/{rest:path}", "/vision/{rest:path}", "/data/{rest:path}")

LATER = (
    *((verb, path) for path in _TIERS for verb in ("GET", "POST", "DELETE")),
    ("GET", "/workers/{id}/caps"),
)
"""Calls of models and training, by verb and path: they come with the model tier."""

_WORDS: dict[type[MoreGPUError], str] = {Unauthorized: "unauthorized", NotFound: "not found"}
"""What the errors of 1.x say first."""


async def not_yet(ask: Ask) -> Answer:
    """Say that there is no such thing yet, and what to use."""
    raise MissingExtra(
        f"{ask.scope['path'][:60]} is not part of this version",
        "models and training come later; kernels and resident weights are here: GET /help",
    )


def authorization_of(headers: Mapping[str, str]) -> str:
    """The Authorization header that a 1.x caller means: the word Bearer in any case or missing, or `x-admin-token`.

    A whole `MGPUC1-` line where a token belongs is understood as well.
    """
    text = headers.get("authorization", "").strip() or headers.get("x-admin-token", "").strip()
    scheme, _, rest = text.partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else text
    if token.upper().startswith("MGPUC1-"):
        try:
            token = parse_client_line(token).token
        except InviteRefused:
            return ""
    return f"Bearer {token}" if token else ""


def error_body(error: MoreGPUError) -> bytes:
    """An error as 1.x says it."""
    said = str(error).removesuffix(".")
    word = next((word for kind, word in _WORDS.items() if isinstance(error, kind) and word not in said), "")
    return lines_of({"error": f"{word}: {said}" if word else said})
