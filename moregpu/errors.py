"""Every error that a user can meet: what happened, what was expected, and what to do next.

An error has a `code` (its slug in problem documents, RFC 9457), an HTTP status and an exit code of the command line.
The coordinator turns an error into a problem document; the client turns it back into the same class.
"""

from __future__ import annotations

from typing import ClassVar


class MoreGPUError(Exception):
    """Base of all errors that the pool raises on purpose. `str(error)` is one readable line, with the hint."""

    code: ClassVar[str] = "error"
    title: ClassVar[str] = "Something went wrong"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    registry: ClassVar[dict[str, type[MoreGPUError]]] = {}

    retry_after_s: float = 0.0
    """How long the other end asked to wait before the next try; 0 where it said nothing."""

    def __init__(self, detail: str = "", hint: str = ""):
        super().__init__(detail, hint)
        self.detail = detail or self.title
        self.hint = hint

    def __init_subclass__(cls) -> None:
        MoreGPUError.registry[cls.code] = cls

    def __str__(self) -> str:
        return f"{self.detail}. {self.hint}" if self.hint else self.detail


def from_code(code: str, detail: str, hint: str) -> MoreGPUError:
    """Make the error that a problem document names; an unknown code gives the base class."""
    return MoreGPUError.registry.get(code, MoreGPUError)(detail, hint)


# ---- what a submitter may have got wrong -----------------------------------------------------------------------------


class InvalidRequest(MoreGPUError):
    """A body, field or parameter is not what was expected."""

    code, title, status, exit_code = "invalid-request", "The request is not understood", 400, 2


class InvalidJob(InvalidRequest):
    """A JobSpec cannot be run: shapes, dtype, kernel, sizes."""

    code, title = "invalid-job", "The job cannot be run as it is"


class TooLarge(InvalidRequest):
    """More elements, bytes or entries than the pool takes."""

    code, title, status = "too-large", "That is more than the pool takes", 413


class KeyReused(InvalidRequest):
    """An idempotency key that stands for a job already came with another spec; nothing was submitted."""

    code, title, status = "key-reused", "That key stands for another job already", 422


class Unauthorized(MoreGPUError):
    """No token, or a wrong, expired or revoked one."""

    code, title, status, exit_code = "unauthorized", "A valid token is needed", 401, 3


class Forbidden(MoreGPUError):
    """The token is good, but its role does not allow this; or Host or Origin is not allowed."""

    code, title, status, exit_code = "forbidden", "This token may not do that", 403, 3


class NotFound(MoreGPUError):
    """No such thing, or not yours: the answer does not tell which."""

    code, title, status, exit_code = "not-found", "There is no such thing here", 404, 4


class Conflict(MoreGPUError):
    """The thing is in a state that does not allow this."""

    code, title, status, exit_code = "conflict", "That does not fit the present state", 409, 1


class TooManyRequests(MoreGPUError):
    """Too many wrong credentials or requests."""

    code, title, status, exit_code = "too-many-requests", "Too many attempts", 429, 1


class OverQuota(MoreGPUError):
    """A submitter has as many jobs or bytes here as the pool gives one."""

    code, title, status, exit_code = "over-quota", "That is more than your share of the pool", 403, 7


# ---- how jobs end badly ----------------------------------------------------------------------------------------------


class JobFailed(MoreGPUError):
    """A job ended as failed. `detail` carries the last attempt's error and the evidence."""

    code, title, status, exit_code = "job-failed", "The job failed", 200, 5


class NotReproducible(JobFailed):
    """Workers of three owners came to three results: the job has no result of its own, and nobody is to blame."""

    code, title = "not-reproducible", "The job gives another result each time"


class TaskLost(JobFailed):
    """A worker was lost with a call that may run only once: nobody knows whether it ran."""

    code, title = "task-lost", "A call that may run only once was lost"


class JobCancelled(MoreGPUError):
    """A job was cancelled."""

    code, title, status, exit_code = "job-cancelled", "The job was cancelled", 200, 5


class ResultGone(MoreGPUError):
    """The outputs were kept as long as the job asked, and are gone."""

    code, title, status, exit_code = "result-gone", "The outputs are no longer kept", 410, 5


class StillRunning(MoreGPUError):
    """A wait ran out; the job goes on."""

    code, title, status, exit_code = "still-running", "The job is not done yet", 202, 6


# ---- the pool and the way to it --------------------------------------------------------------------------------------


class Unreachable(MoreGPUError):
    """The coordinator does not answer."""

    code, title, status, exit_code = "unreachable", "The coordinator does not answer", 503, 7


class Unavailable(MoreGPUError):
    """The coordinator answers but cannot take this now."""

    code, title, status, exit_code = "unavailable", "Not possible just now", 503, 7


class OutOfSpace(MoreGPUError):
    """The coordinator's disk is nearly full; nothing was accepted."""

    code, title, status, exit_code = "out-of-space", "The coordinator's disk is full", 507, 7


class HandshakeFailed(MoreGPUError):
    """The other end is not who it should be, or speaks wrongly. Every cryptographic failure becomes this one."""

    code, title, status, exit_code = "handshake-failed", "The other end could not prove who it is", 403, 8


class WrongCertificate(HandshakeFailed):
    """The certificate is not the pinned one; nothing secret was sent."""

    code, title = "wrong-certificate", "The coordinator shows another certificate than the pinned one"


class InviteRefused(MoreGPUError):
    """Wrong, expired, used or unknown invite: one neutral answer."""

    code, title, status, exit_code = "invite-refused", "The invite was not accepted", 403, 8


class VersionMismatch(MoreGPUError):
    """The two ends share no version of the protocol, or a state folder is from a newer version."""

    code, title, status, exit_code = "version-mismatch", "The versions do not fit", 426, 8


# ---- this machine ----------------------------------------------------------------------------------------------------


class StateRefused(MoreGPUError):
    """A state folder or secret file cannot be trusted or used: loose permissions, copied, in use, newer."""

    code, title, exit_code = "state-refused", "The state folder cannot be used", 9


class WrongPassphrase(MoreGPUError):
    """A backup does not open with the passphrase that was given."""

    code, title, status, exit_code = "wrong-passphrase", "The passphrase does not open it", 403, 3


class KeyringLocked(MoreGPUError):
    """The system's keyring does not open now. Wait and try again; nothing was replaced."""

    code, title, status, exit_code = "keyring-locked", "The keyring is locked", 503, 9


class PortInUse(MoreGPUError):
    """Another program listens on that port."""

    code, title, exit_code = "port-in-use", "The port is taken", 9


class NotConfigured(MoreGPUError):
    """No pool is known here: no profile, no URL, no token."""

    code, title, exit_code = "not-configured", "No pool is set up here", 2


class MissingExtra(MoreGPUError):
    """An optional part is not installed; the hint is the line that installs it."""

    code, title, status, exit_code = "missing-extra", "A part of MoreGPU is not installed", 501, 2


class DigestMismatch(MoreGPUError):
    """Bytes are not what their name says: damaged or exchanged; refused before use."""

    code, title, status, exit_code = "digest-mismatch", "The bytes are not what their name says", 422, 1


class EnvironmentUnavailable(MoreGPUError):
    """A worker cannot make the Python environment that a function needs now: no network, no such interpreter."""

    code, title, status, exit_code = "environment", "The environment cannot be had there", 503, 7


class EnvironmentRefused(InvalidJob):
    """No worker could make the Python environment: no such package, no wheels, not a package's name."""

    code, title = "environment-refused", "The environment cannot be had"


class EngineError(MoreGPUError):
    """An engine could not run a task: out of memory, device lost, crash of the compute child."""

    code, title, status, exit_code = "engine-error", "The engine could not run the task", 500, 5
