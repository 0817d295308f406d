"""What is going to happen in a history, drawn from one seed: machines, jobs, faults. Plain data, so that it shrinks."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

HORIZON_S = 25.0
"""Faults and jobs begin within this; then everything heals and must come to its end."""

HONEST = ("honest", "honest", "honest", "honest", "slow", "hasty")
ROGUES = ("zeros", "scaled", "yesterday", "nan", "black hole", "unsigned", "replays", "steals", "absurd")

OPERATIONS = ("vector_add", "vector_mul", "saxpy", "scale", "relu", "softmax", "matmul")


@dataclass(frozen=True)
class Machine:
    """A worker's machine."""

    name: str
    kind: str  # one of HONEST or ROGUES
    speed: float  # share of the nominal speed
    delay_s: float  # one way
    joins_at: float = 0.0
    lab: bool = False  # member of the group "lab"


@dataclass(frozen=True)
class Work:
    """A job that somebody submits, and what they do then."""

    submitter: str
    at: float
    operation: str
    size: int
    data: str = "inline"  # inline | blob | made
    check: str = "spot"
    wait_s: float = 0.0
    then: str = "follow"  # follow | cancel | vanish | hang up
    later_s: float = 0.0  # until `then`
    after: int | None = None  # an earlier job of theirs, by its place in the script
    twice: bool = False  # sent twice at once, under one key
    lab: bool = False
    priority: int = 0
    once: bool = False  # of calls: none may be made twice
    retries: int = 4


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong. `what` says how; `who` names a machine or a submitter where it matters."""

    at: float
    what: str
    who: str = ""
    seconds: float = 0.0
    steps: int = 0  # callbacks of the victim until a crash
    way: str = "both"  # up | down | both


@dataclass(frozen=True)
class Script:
    """A whole history before it runs."""

    seed: int
    machines: tuple[Machine, ...]
    works: tuple[Work, ...]
    faults: tuple[Fault, ...]
    noise: bool = False
    """Real handshakes and ciphers; else messages travel as they are, through a channel of the same interface."""
    trials: bool = False
    keep_ended: int = 256
    grains: int = 16
    """Grains that a job is cut into, where it is large enough."""
    idle_beats: float = 40.0
    """Heartbeats a second of all idle workers together: with few of them, each may be silent for minutes."""
    faults_kept: tuple[int, ...] | None = None
    """Which faults of the full script these are; None: all."""
    works_kept: tuple[int, ...] | None = None

    @property
    def quiet_at(self) -> float:
        """When the last fault is over by itself, at the latest at the horizon."""
        return min(HORIZON_S + 5.0, max((fault.at + fault.seconds for fault in self.faults), default=0.0) + 1.0)

    def with_parts(self, faults: tuple[int, ...] | None, works: tuple[int, ...] | None) -> Script:
        """Only some faults and jobs of a full script, by their places in it."""
        script = self
        if faults is not None:
            script = replace(script, faults=tuple(self.faults[at] for at in faults), faults_kept=faults)
        if works is not None:
            kept = [self.works[at] for at in works]
            places = {old: new for new, old in enumerate(works)}
            kept = [
                replace(work, after=places.get(work.after) if work.after is not None else None) for work in kept
            ]  # fmt: skip
            script = replace(script, works=tuple(kept), works_kept=works)
        return script

    def without_fault(self, at: int) -> Script:
        """One fault less."""
        kept = self.faults_kept if self.faults_kept is not None else tuple(range(len(self.faults)))
        return replace(self, faults=_without(self.faults, at), faults_kept=_without(kept, at))

    def without_work(self, at: int) -> Script:
        """One job less; those that waited for it wait for nothing."""
        kept = self.works_kept if self.works_kept is not None else tuple(range(len(self.works)))
        return script_of(self.seed).with_parts(self.faults_kept, _without(kept, at))

    @property
    def replay(self) -> str:
        """How to run exactly this again."""
        options = [f"--seed {self.seed}"]
        if self.faults_kept is not None:
            options.append(f"--faults {','.join(map(str, self.faults_kept)) or 'none'}")
        if self.works_kept is not None:
            options.append(f"--works {','.join(map(str, self.works_kept))}")
        return f"python -m tests.simulation {' '.join(options)}"


def _without(items: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    return (*items[:at], *items[at + 1 :])


def script_of(seed: int) -> Script:
    """Draw a history."""
    rng = random.Random(f"script {seed}")
    noise = rng.random() < 0.15
    machines = _machines(rng)
    works = _works(rng, machines)
    faults = _faults(rng, machines, works)
    return Script(
        seed=seed,
        machines=machines,
        works=_with_calls(random.Random(f"calls {seed}"), works),
        faults=faults,
        noise=noise,
        trials=rng.random() < 0.15,
        keep_ended=rng.choice((0, 1, 2, 256)),
        grains=rng.choice((3, 6, 16)),
        idle_beats=random.Random(f"beats {seed}").choice((40.0, 0.1, 0.05, 0.02)),
    )


def _machines(rng: random.Random) -> tuple[Machine, ...]:
    rogues = rng.random() < 0.5
    machines: list[Machine] = []
    for number in range(rng.choice((1, 2, 2, 3, 3, 4))):
        kind = rng.choice(ROGUES) if rogues and rng.random() < 0.5 else rng.choice(HONEST)
        machines.append(
            Machine(
                name=f"machine{number}",
                kind=kind,
                speed=rng.choice((0.3, 1.0, 1.0, 3.0)) * (0.1 if kind == "slow" else 1.0),
                delay_s=rng.choice((0.001, 0.01, 0.05, 0.2)),
                joins_at=rng.choice((0.0, 0.0, 0.0, rng.uniform(0.0, 10.0))),
                lab=rng.random() < 0.5,
            )
        )
    return tuple(machines)


def _works(rng: random.Random, machines: tuple[Machine, ...]) -> tuple[Work, ...]:
    works: list[Work] = []
    submitters = ("ann", "bob")[: rng.choice((1, 1, 2))]
    flood = rng.random() < 0.08
    for number in range(rng.choice((1, 2, 2, 3, 4))):
        submitter = rng.choice(submitters)
        own = [index for index, work in enumerate(works) if work.submitter == submitter]
        then = rng.choice(("follow", "follow", "follow", "follow", "cancel", "vanish", "hang up"))
        operation = rng.choice(OPERATIONS)
        data = rng.choice(("inline", "inline", "inline", "blob", "made"))
        works.append(
            Work(
                submitter=submitter,
                at=rng.choice((0.5, rng.uniform(0.0, HORIZON_S * 0.7))),
                operation=operation,
                size=_size(rng, operation, data),
                data=data,
                check=rng.choice(("spot", "spot", "spot", "full", "none", "agree")),
                wait_s=rng.choice((0.0, 0.0, 5.0, 20.0)),
                then=then,
                later_s=0.0 if then == "follow" else rng.choice((0.02, rng.uniform(0.0, 6.0))),
                after=rng.choice(own) if own and rng.random() < 0.25 else None,
                twice=rng.random() < 0.15,
                lab=rng.random() < 0.1,
                priority=rng.choice((0, 0, 0, 5)),
            )
        )
        if flood and number == 0:
            works += [replace(works[-1], after=None, size=40, data="inline", operation="relu")] * rng.randint(5, 15)
    return tuple(works)


def _with_calls(rng: random.Random, works: tuple[Work, ...]) -> tuple[Work, ...]:
    """Some of the works as a function's calls instead, in two histories of five: none costs more for it."""
    if rng.random() < 0.6:
        return works
    return tuple(_as_calls(rng, work) if rng.random() < 0.6 else work for work in works)


def _as_calls(rng: random.Random, work: Work) -> Work:
    once = rng.random() < 0.5
    return replace(
        work,
        operation="call",
        size=rng.choice((1, 1, 2, 3, 8)),
        data=work.data if work.data == "blob" else "inline",
        check="none" if once else rng.choice(("none", "none", "agree")),
        once=once,
        retries=rng.choice((1, 4)),
    )


def _size(rng: random.Random, operation: str, data: str) -> int:
    if operation == "matmul":
        return rng.choice((8, 24, 40))
    if operation == "softmax":
        return rng.choice((6, 20))
    return rng.choice((40, 300, 700, 5000)) if data == "blob" else rng.choice((1, 40, 300, 700))


WHATS = (
    ("crash coordinator", 6),
    ("restart coordinator", 1),
    ("crash worker", 3),
    ("power off", 2),
    ("sever", 4),
    ("stall", 4),
    ("cut off", 3),
    ("freeze worker", 2),
    ("freeze coordinator", 2),
    ("wall jump", 1),
    ("disk full", 2),
    ("slow disk", 2),
    ("owner pause", 2),
    ("resend", 2),
    ("revoke", 1),
    ("admin pause", 1),
    ("lossy client", 2),
    ("clone", 1),
    ("housekeeping", 1),
    ("engine trouble", 1),
)


def _faults(rng: random.Random, machines: tuple[Machine, ...], works: tuple[Work, ...]) -> tuple[Fault, ...]:
    names, weights = zip(*WHATS, strict=True)
    faults: list[Fault] = []
    for what in rng.choices(names, weights, k=rng.choice((0, 1, 2, 3, 4, 5, 7))):
        faults.append(
            Fault(
                at=rng.choice((rng.uniform(0.3, 3.0), rng.uniform(0.0, HORIZON_S))),
                what=what,
                who=rng.choice(works).submitter if what == "lossy client" else rng.choice(machines).name,
                seconds=rng.choice((0.05, rng.uniform(0.0, 3.0), rng.uniform(3.0, 20.0), rng.uniform(20.0, 90.0))),
                steps=rng.choice((0, rng.randrange(40), rng.randrange(400))),
                way=rng.choice(("both", "up", "down")),
            )
        )
    return tuple(sorted(faults, key=lambda fault: fault.at))
