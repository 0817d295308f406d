"""What the owner chose, kept in the section `[worker]` of `config.toml`; what else stands there stays."""

from __future__ import annotations

from moregpu.platform.settings import read_section, write_section
from moregpu.worker.config import WorkerConfig

FIELDS = ("name", "cores", "ceiling", "schedule", "paused", "kinds", "functions")
"""What menu and commands change."""


def save(config: WorkerConfig) -> None:
    """Write them; one that is as it would be anyway is left out. Raises `NotConfigured` for a file that is no TOML."""
    kept, usual = read_section("worker"), WorkerConfig(yields=True)
    for field in FIELDS:
        value = getattr(config, field)
        if value == getattr(usual, field):
            kept.pop(field, None)
        else:
            kept[field] = list(value) if isinstance(value, tuple) else value
    write_section("worker", kept)
