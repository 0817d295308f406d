"""What an engine raises when its device is gone."""

from __future__ import annotations

from moregpu.errors import EngineError


class DeviceUnfit(EngineError):
    """The device cannot be used, and trying again will not help: it is put aside, and the others go on."""
