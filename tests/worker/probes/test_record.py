"""A recording holds an owner's input and load, of the whole machine or of one control group, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from moregpu.errors import InvalidRequest
from moregpu.worker.probes.presence import Presence
from moregpu.worker.probes.record import GroupUse, record
from moregpu_tray.__main__ import main


class Chair:
    """A seat with somebody who moved three seconds ago; or nobody at all."""

    def __init__(self, idle_s: float):
        self.idle_s = idle_s

    def presence(self) -> Presence:
        return Presence(idle_s=self.idle_s)

    def close(self) -> None:
        pass


def use(group: Path, microseconds: int) -> None:
    (group / "cpu.stat").write_text(f"usage_usec {microseconds}\nuser_usec 1\nsystem_usec 2\n")


def test_a_control_groups_use_is_its_share_of_all_cores(tmp_path: Path) -> None:
    now = [10.0]
    use(tmp_path, 5_000_000)
    using = GroupUse(tmp_path, 4, lambda: now[0])
    now[0] = 10.5
    use(tmp_path, 6_000_000)
    using.sample()
    assert using.others == pytest.approx(0.5)
    now[0] = 11.0
    using.sample()
    assert using.others == 0.0


def test_a_folder_that_is_no_control_group_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match="tells no CPU time"):
        GroupUse(tmp_path, 1)
    left: list[int] = []
    monkeypatch.setattr("moregpu_tray.__main__._leave", left.append)
    main(["record-load", "--seconds", "0", "--group", str(tmp_path), str(tmp_path / "out.json")])
    assert left == [InvalidRequest.exit_code]
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_input_and_load_are_noted_and_nobody_is_noted_as_nobody(tmp_path: Path) -> None:
    use(tmp_path, 0)
    recording = record(0.6, "a system", 2, lambda: Chair(3.0), group=tmp_path)
    assert recording.of == f"control group {tmp_path.name}"
    assert len(recording.samples) >= 2
    assert recording.samples[-1].idle_s == 3.0
    assert recording.samples[-1].others == 0.0
    nobody = record(0.3, "a system", 2, lambda: Chair(math.inf))
    assert nobody.of == "the machine"
    assert nobody.samples[-1].idle_s is None
