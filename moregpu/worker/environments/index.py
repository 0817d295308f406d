"""Where packages come from: whatever this machine's uv is set up with, else what its pip is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_UV = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE")
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")  # the last: older versions of uv
_STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_OF_PIP = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that uv runs in: the owner's, without the pool's, and with pip's index where uv has none."""
    kept = {name: value for name, value in environment.items() if not name.startswith(("MOREGPU", "PYTHON"))}
    kept.pop("VIRTUAL_ENV", None)
    if not any(name in kept for name in _UV) and not _has_uv_file(kept):
        kept |= _pip(kept)
    if "PIP_CERT" in kept:
        kept.setdefault("SSL_CERT_FILE", kept["PIP_CERT"])
    if not any(name in kept for name in _TRUST):
        # uv brings a list of its own; a company's certificates stand in the system's.
        kept |= {"UV_SYSTEM_CERTS": "true", "UV_NATIVE_TLS": "true"} if _has_system_store() else {}
    return kept


def _has_system_store() -> bool:
    return any(Path(path).is_file() for path in _STORES)


def _has_uv_file(environment: Mapping[str, str]) -> bool:
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "/")) / ".config")
    named = environment.get("UV_CONFIG_FILE", "")
    return any(Path(path).is_file() for path in (named, f"{home}/uv/uv.toml", "/etc/uv/uv.toml") if path)


def _pip(environment: Mapping[str, str]) -> dict[str, str]:
    import configparser  # not in the memory of an agent that builds nothing

    found: dict[str, str] = {}
    home = environment.get("HOME", "/")
    files = ["/etc/pip.conf", f"{home}/.pip/pip.conf", f"{home}/.config/pip/pip.conf"]
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        files = []
    elif named:
        files.append(named)
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue
        for section in ("global", "install"):
            for key, variable in _OF_PIP.items():
                if parser.has_option(section, key):
                    found[variable] = parser.get(section, key)
    for key, variable in _OF_PIP.items():
        value = environment.get("PIP_" + key.upper().replace("-", "_"), "")
        if value:
            found[variable] = value
    separators = {"UV_FIND_LINKS": ","}
    return {name: separators.get(name, " ").join(value.split()) for name, value in found.items()}
