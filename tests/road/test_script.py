"""`moregpu submit script`, as typed."""

from __future__ import annotations

import json
from pathlib import Path

from moregpu.cli.loopback import LoopbackPool


def test_a_script_runs_once_for_each_payload_and_what_it_prints_is_shown(
    functions: LoopbackPool, tmp_path: Path
) -> None:
    script, payloads = tmp_path / "train.py", tmp_path / "payloads.json"
    script.write_text("print('rate', payload['rate'])\nresult = {'loss': payload['rate'] ** 2}\n")
    payloads.write_text(json.dumps([{"rate": 1}, {"rate": 3}]))
    done = functions.run("submit", "script", str(script), "--payloads", str(payloads), "--wait")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"loss": 1}, {"loss": 9}]
    assert "on anna] rate 3" in done.stderr
    with functions.connect() as pool:
        job = pool.jobs(limit=1)[0]
    assert job.summary == "train.py: 2 calls"


def test_a_script_that_fails_says_so(functions: LoopbackPool, tmp_path: Path) -> None:
    script = tmp_path / "bad.py"
    script.write_text("raise RuntimeError('out of data')\n")
    done = functions.run("submit", "script", str(script))
    assert done.returncode == 5
    assert "payload 0: RuntimeError: out of data" in done.stderr
    assert 'File "script.py", line 1' in done.stderr
    assert functions.run("submit", "script", str(tmp_path / "none.py")).returncode == 2


def test_a_script_may_go_on_alone(functions: LoopbackPool, tmp_path: Path) -> None:
    script = tmp_path / "alone.py"
    script.write_text("result = 1\n")
    done = functions.run("submit", "script", str(script), "--no-wait")
    assert done.returncode == 0, done.stderr
    with functions.connect() as pool:
        assert pool.job(done.stdout.strip()).wait(60).state == "done"
