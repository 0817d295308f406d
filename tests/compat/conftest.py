"""A live pool of processes, reached as programs written for MoreGPU 1.x reach theirs: urllib, fetch, curl."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.wire.invite import parse_client_line


class OldPool:
    """What a script of 1.x knows: a base address, a token, and a certificate for SSL_CERT_FILE."""

    def __init__(self, loopback: LoopbackPool, folder: Path):
        self.loopback = loopback
        access = loopback.access()
        self.base = f"https://{access.addresses[0]}"
        self.admin = access.token
        self.certificate = folder / "cert.pem"
        self.certificate.write_bytes(self._fetched_without_trust("/cert.pem"))
        self.context = ssl.create_default_context(cafile=str(self.certificate))

    def token(self, role: str, scope: str = "all") -> str:
        _, made = self.ask("/v1/tokens", {"role": role, "scope": scope})
        return parse_client_line(made["line"]).token

    def ask(
        self, path: str, body: Any = None, *, headers: dict[str, str] | None = None, method: str | None = None
    ) -> tuple[int, Any]:
        """As their Python client asks; gives status and decoded JSON also for refusals."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method)
        sent = {"authorization": f"Bearer {self.admin}"} if headers is None else headers
        for name, value in sent.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
                return answer.status, json.loads(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read().decode())

    def text(self, path: str) -> str:
        request = urllib.request.Request(self.base + path, headers={"authorization": f"Bearer {self.admin}"})
        with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
            return answer.read().decode()

    def script(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a program that knows nothing but its environment."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MOREGPU_")} | {
            "MOREGPU_BASE": self.base,
            "MOREGPU_ADMIN_TOKEN": self.admin,
            "SSL_CERT_FILE": str(self.certificate),
        }
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def _fetched_without_trust(self, path: str) -> bytes:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with urllib.request.urlopen(self.base + path, timeout=30, context=context) as answer:
            self.shown_pin = answer.headers["x-moregpu-cert-sha256"]
            return answer.read()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldPool]:
    """One coordinator, two workers."""
    with LoopbackPool(tmp_path_factory.mktemp("old") / "home") as loopback:
        loopback.start_coordinator()
        for name in ("ada", "bob"):
            loopback.start_worker(name)
        loopback.wait_for_workers("ada", "bob")
        yield OldPool(loopback, tmp_path_factory.mktemp("certificate"))
