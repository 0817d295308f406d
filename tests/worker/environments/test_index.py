"""Packages come from where the machine's owner has them from: uv's settings, else pip's."""

from __future__ import annotations

from pathlib import Path

import pytest

from moregpu.worker.environments import index
from moregpu.worker.environments.index import variables


def test_what_uv_is_told_is_left_alone(tmp_path: Path) -> None:
    told = variables({"HOME": str(tmp_path), "UV_DEFAULT_INDEX": "http://one.test", "PIP_INDEX_URL": "http://two.test"})
    assert told["UV_DEFAULT_INDEX"] == "http://one.test"
    assert "UV_INDEX" not in told


def test_a_file_of_uv_comes_before_pip(tmp_path: Path) -> None:
    (tmp_path / ".config" / "uv").mkdir(parents=True)
    (tmp_path / ".config" / "uv" / "uv.toml").write_text("")
    assert "UV_DEFAULT_INDEX" not in variables({"HOME": str(tmp_path), "PIP_INDEX_URL": "http://two.test"})


def test_without_uv_s_pip_s_files_and_variables_are_followed(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = http://one.test\nextra-index-url =\n    http://a.test\n    http://b.test\n"
        "find-links = /x /y\n"
    )
    told = variables({"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")})
    assert told["UV_DEFAULT_INDEX"] == "http://one.test"
    assert told["UV_INDEX"] == "http://a.test http://b.test"
    assert told["UV_FIND_LINKS"] == "/x,/y"
    told = variables(
        {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_INDEX_URL": "http://three.test"}
    )
    assert told["UV_DEFAULT_INDEX"] == "http://three.test"


def test_nothing_of_the_pool_reaches_the_installer(tmp_path: Path) -> None:
    told = variables({"HOME": str(tmp_path), "MOREGPU_TOKEN": "secret", "PYTHONPATH": "/x", "VIRTUAL_ENV": "/y"})
    assert set(told) & {"MOREGPU_TOKEN", "PYTHONPATH", "VIRTUAL_ENV"} == set()


def test_where_nobody_said_what_to_trust_the_system_s_certificates_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "ca-certificates.crt"
    store.write_text("")
    monkeypatch.setattr(index, "_STORES", (str(store),))
    assert variables({"HOME": str(tmp_path)})["UV_SYSTEM_CERTS"] == "true"
    said = variables({"HOME": str(tmp_path), "PIP_CERT": "/company.crt"})
    assert (said["SSL_CERT_FILE"], "UV_SYSTEM_CERTS" in said) == ("/company.crt", False)
    store.unlink()
    assert "UV_SYSTEM_CERTS" not in variables({"HOME": str(tmp_path)})
