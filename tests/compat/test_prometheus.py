"""A real Prometheus scrapes a live pool; every query of the dashboard and of the alerts is run against it."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import OldPool

GRAFANA = Path(__file__).parents[2] / "assets" / "grafana"
OLD_DASHBOARD = (
    "moregpu_fleet", "moregpu_queue_depth", "moregpu_total_units", "moregpu_jobs_done", "moregpu_jobs_failed",
    "moregpu_avg_user_util", "moregpu_avg_pool_duty", "moregpu_busy", "moregpu_gpu_slots", "moregpu_cpu_slots",
    "moregpu_worker_share", "rate(moregpu_worker_units[1m])", "moregpu_tokens_served",
)  # fmt: skip
"""What panels of MoreGPU 1.x ask for."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="missing: prometheus; mend: apt-get install prometheus",
    ),
]


class Prometheus:
    def __init__(self, port: int):
        self.base = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.base}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def query(self, expression: str) -> list[Any]:
        return self.get("/api/v1/query", query=expression)["result"]


@pytest.fixture(scope="module")
def prometheus(live: OldPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Debian's Prometheus under the shipped configuration, but for the target's port and the pace."""
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copy(live.certificate, folder / "cert.pem")
    (folder / "token").write_text(live.token("viewer", scope="compat"))
    shutil.copy(GRAFANA / "alerts.yml", folder)
    settings = (GRAFANA / "prometheus.yml").read_text()
    settings = settings.replace("127.0.0.1:8787", live.base.removeprefix("https://")).replace("15s", "250ms")
    (folder / "prometheus.yml").write_text(settings)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        found = Prometheus(port)
        deadline = time.monotonic() + 60
        while not _scraped(found):
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
            for kernel in ("relu", "matmul"):
                live.ask("/submit", {"kernel": kernel, "size": 100})
            live.ask("/health")
        yield found
    finally:
        process.terminate()
        process.wait(20)


def _scraped(prometheus: Prometheus) -> bool:
    """Whether there are samples of a second and more, so that rates exist."""
    try:
        seen = prometheus.query("changes(moregpu_jobs_done[1m])")
    except OSError:
        return False
    return bool(seen) and float(seen[0]["value"][1]) >= 3


def expressions() -> list[str]:
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.mark.parametrize("expression", expressions())
def test_every_query_of_the_dashboard_finds_something(prometheus: Prometheus, expression: str) -> None:
    deadline = time.monotonic() + 60  # a round trip is known after the second heartbeat
    while not any(_says(sample) for sample in prometheus.query(expression.replace("$__rate_interval", "1m"))):
        assert time.monotonic() < deadline, expression
        time.sleep(0.2)


def _says(sample: Any) -> bool:
    """A quantile of a kernel that nobody used in the last minute is NaN: its panel shows nothing, as it should."""
    return not math.isnan(float(sample["value"][1]))


@pytest.mark.parametrize("expression", OLD_DASHBOARD)
def test_panels_of_the_old_dashboard_find_something(prometheus: Prometheus, expression: str) -> None:
    assert prometheus.query(expression)


def test_the_alerts_are_loaded_and_none_fires_on_a_healthy_pool(prometheus: Prometheus) -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(GRAFANA / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (group,) = prometheus.get("/api/v1/rules")["groups"]
    assert len(group["rules"]) == len(re.findall(r"- alert:", (GRAFANA / "alerts.yml").read_text()))
    for rule in group["rules"]:
        assert rule["health"] in ("ok", "unknown"), rule
        # One that is pending has yet to last: on a machine that others keep busy an answer may be late.
        assert not [alert for alert in rule["alerts"] if alert["state"] == "firing"], rule
        prometheus.query(rule["query"])


def test_every_panel_has_a_place_of_its_own() -> None:
    panels = json.loads((GRAFANA / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    places = set[tuple[int, int]]()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places
        places |= cells


def test_every_metric_is_explained_in_the_operations_page(live: OldPool) -> None:
    families = re.findall(r"(?m)^# TYPE (\S+)", live.text("/metrics"))
    page = (GRAFANA.parents[1] / "docs" / "operations.md").read_text()
    assert [name for name in families if f"`{name}" not in page] == []
