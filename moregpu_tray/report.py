"""`moregpu-tray status` for people: how it stands, what ran here, and when."""

from __future__ import annotations

from typing import Any

from moregpu_tray.consent import told
from moregpu_tray.history import HOUR_S, bars, duration, energy


def lines(report: dict[str, Any]) -> list[str]:
    """The report, line by line."""
    view, status = report["view"], report["view"]["status"]
    shown = [report["line"][:1].upper() + report["line"][1:]]
    if view["joined"]:
        shown += [
            f"pool:         {status['pool_name'] or '(none yet)'}  {status['fingerprint']}",
            f"this machine: {status['name']}  {status['worker']}",
            f"keys:         {view['secrets']}",
            f"limits:       up to {report['ceiling']:.0%}, {report['schedule']}",
        ]
        off = status["functions_off"]
        shown.append(f"functions:    {told(report['functions'])}{f'; {off}' if off else ''}")
        if 1.0 > status["asked"] > status["ceiling"] > 0.0:
            shown.append(f"              the pool asks for {status['asked']:.0%}; yours holds")
    shown += [
        f"today:        {_sum(report['today'])}",
        f"30 days:      {_sum(report['month'])}",
        f"last 24 h:    [{bars(report['hours'], HOUR_S)}]",
    ]
    for job in report["jobs"][:8]:
        who = job["submitter"] or "the pool"
        what = f"{job['name'] or job['kind']} for {who}"
        shown.append(f"              {what}: {duration(job['seconds'])}, {energy(job['watt_hours'])}")
    shown.append(f"log:          {report['log']}")
    return shown


def _sum(total: dict[str, Any]) -> str:
    return f"{duration(total['seconds'])} in {total['tasks']} tasks, {energy(total['watt_hours'])}"
