"""Histories that once failed, each with the bug that it found: written out, so that they stay what they are.

Seeds change their meaning whenever something is added to `script.py`; these do not. What they still do depend on is the
order of the pool's own steps, so each bug has a test of its own besides, where it was.
"""

from __future__ import annotations

from tests.simulation.script import Fault, Machine, Script, Work

_FLOOD = Work("ann", 0.5, "relu", 40, wait_s=5.0, then="vanish", later_s=4.213562253037095)

FOUND: dict[str, Script] = {
    "a check that ended after its worker's session was replaced starved that worker for ever": Script(
        seed=290,
        machines=(Machine("machine0", "honest", 1.0, 0.05),),
        works=(
            Work("bob", 1.3875865088008648, "saxpy", 40, check="none", priority=5),
            Work("bob", 0.3209780646897789, "softmax", 6, check="full", then="cancel", later_s=1.7582494833327775),
        ),
        faults=(
            Fault(0.4625659923223896, "sever", "machine0"),
            Fault(0.5918245518656955, "sever", "machine0"),
            Fault(2.3378567900777605, "crash worker", "machine0", steps=225),
            Fault(2.5987072036018226, "clone", "machine0"),
            Fault(2.65570192418168, "freeze coordinator", seconds=2.193629155537552),
            Fault(2.815957737934554, "lossy client", "bob", seconds=0.05),
        ),
        trials=True,
        keep_ended=0,
    ),
    "a wait that ran out told the end of a job that was not on the disk yet": Script(
        seed=743,
        machines=(Machine("machine0", "honest", 1.0, 0.2), Machine("machine1", "honest", 1.0, 0.05, lab=True)),
        works=(
            Work("ann", 0.5, "softmax", 6, wait_s=5.0, then="vanish", later_s=4.213562253037095),
            *([_FLOOD] * 14),
        ),
        faults=(
            Fault(1.1987070679392045, "freeze coordinator", seconds=0.05),
            Fault(3.39768834508172, "slow disk", seconds=17.4180577165476),
        ),
    ),
    "who had voted on a task kept it from the only worker left, which had failed it once": Script(
        seed=2562,
        machines=(
            Machine("machine0", "hasty", 1.0, 0.05),
            Machine("machine1", "slow", 0.03, 0.01, lab=True),
            Machine("machine2", "honest", 1.0, 0.2, lab=True),
        ),
        works=(
            Work("bob", 3.666082515389507, "vector_add", 700, check="agree", wait_s=5.0),
            Work("bob", 0.5, "relu", 1, data="made", wait_s=5.0, after=0, twice=True),
        ),
        faults=(
            Fault(2.1156407017294208, "power off", "machine0"),
            Fault(2.4762320945885796, "crash worker", "machine2", steps=247),
            Fault(3.5526069348257527, "slow disk", seconds=78.38094391123616),
            Fault(11.574395488719913, "engine trouble", "machine2", seconds=69.05693156810375),
        ),
        keep_ended=1,
    ),
    "after a commit that failed, a lease that ran out was taken back twice, and the reaper failed": Script(
        seed=159,
        machines=(
            Machine("machine0", "scaled", 1.0, 0.2, joins_at=7.998485000910225),
            Machine("machine1", "honest", 1.0, 0.05, lab=True),
            Machine("machine2", "steals", 0.3, 0.001),
        ),
        works=(Work("bob", 2.4555768500365773, "vector_mul", 40, data="made", check="agree", priority=5),),
        faults=(Fault(2.885018537423345, "disk full", seconds=11.857432240014225),),
        noise=True,
    ),
    "a refused result named the blob of an accepted one, and had it deleted": Script(
        seed=6,
        machines=(
            Machine("machine0", "yesterday", 1.0, 0.2, joins_at=4.049753809450479),
            Machine("machine1", "steals", 1.0, 0.01),
            Machine("machine2", "black hole", 3.0, 0.05, joins_at=7.124819231340593),
        ),
        works=(
            Work(
                "ann",
                12.770363053861246,
                "softmax",
                20,
                data="blob",
                check="none",
                wait_s=5.0,
                then="vanish",
                later_s=0.02,
                twice=True,
                priority=5,
            ),
        ),
        faults=(),
        noise=True,
        keep_ended=1,
    ),
    "an admin ended a worker's pause while it was away, and nobody told it when it came back": Script(
        seed=2128,
        machines=(
            Machine("machine0", "honest", 0.3, 0.001, joins_at=0.18632612037190577, lab=True),
            Machine("machine1", "scaled", 0.3, 0.01),
            Machine("machine2", "honest", 1.0, 0.01, lab=True),
        ),
        works=(
            Work("ann", 14.83045988793767, "scale", 1, data="inline", then="vanish", later_s=0.02),
            Work("ann", 5.524509269423825, "softmax", 20, data="inline", check="agree"),
            Work("ann", 0.5, "matmul", 40, data="inline", wait_s=5.0),
        ),
        faults=(
            Fault(1.75566360106218, "admin pause", "machine0", seconds=2.5165462814978534, way="up"),
            Fault(1.9560005244499337, "owner pause", "machine2", seconds=14.490752552090239, steps=31),
            Fault(14.74151060153237, "crash coordinator", "machine0", seconds=19.01125753102218, steps=262),
        ),
        trials=True,
        keep_ended=2,
        grains=3,
    ),
    "a rogue that joined while the pool came to rest was on trial still, which is no finding": Script(
        seed=5209,
        machines=(
            Machine("machine0", "steals", 0.3, 0.2, joins_at=4.234837302810202, lab=True),
            Machine("machine1", "honest", 3.0, 0.01, lab=True),
            Machine("machine2", "zeros", 3.0, 0.05, lab=True),
            Machine("machine3", "unsigned", 1.0, 0.2, lab=True),
        ),
        works=(Work("ann", 0.5, "relu", 700, lab=True, priority=5),),
        faults=(),
        trials=True,
        keep_ended=1,
        grains=6,
    ),
    "one submit, sent twice while the job that it waits for was read from the disk, gave two jobs": Script(
        seed=47574,
        machines=(
            Machine("machine0", "unsigned", 3.0, 0.05),
            Machine("machine1", "honest", 1.0, 0.2, lab=True),
            Machine("machine2", "absurd", 1.0, 0.2, joins_at=2.5731205309781604),
            Machine("machine3", "hasty", 1.0, 0.001),
        ),
        works=(
            Work("bob", 3.8140223558817516, "call", 8, check="none", once=True),
            Work("bob", 0.5, "call", 1, check="none", after=0, twice=True, once=True),
        ),
        faults=(),
        keep_ended=0,
    ),
    "what was cancelled while its lease was written filled its worker's only place for ever": Script(
        seed=13886,
        machines=(Machine("machine0", "honest", 1.0, 0.2, lab=True),),
        works=(
            Work("ann", 0.5, "call", 1, check="none", then="cancel", later_s=0.02, twice=True, once=True),
            Work("ann", 8.525438932059286, "scale", 40, data="blob", check="full", wait_s=20.0),
        ),
        faults=(
            Fault(0.43278831115705996, "freeze coordinator", "machine0", 42.398153668568185, 179),
            Fault(19.802378837011727, "stall", "machine0", 31.729161455485915),
        ),
        grains=6,
    ),
    "a result that came when its job was over and forgotten was never answered, nor was any in its message": Script(
        seed=2016123,
        machines=(Machine("machine0", "honest", 3.0, 0.01), Machine("machine1", "honest", 0.3, 0.001)),
        works=(
            Work("ann", 10.620395544336604, "scale", 40, data="inline", check="full", wait_s=5.0, lab=True),
            Work("ann", 1.5295410700421999, "scale", 1, data="inline", lab=True),
            Work("ann", 11.386436240163999, "call", 1, data="inline", check="none", once=True, retries=1),
        ),
        faults=(
            Fault(1.35319277126093, "clone", "machine0", 0.22605684519082492, way="up"),
            Fault(2.2400899712368045, "revoke", "machine0", 75.99514300643281),
            Fault(2.841893369556868, "disk full", "machine1", 81.09006749780251, 19),
            Fault(4.136438197234382, "stall", "machine1", 39.30532030016478, way="down"),
        ),
        keep_ended=1,
        grains=6,
        idle_beats=0.05,
    ),
    "a call that may run once, and had begun when its machine was paused, was handed back and made again": Script(
        seed=4006578,
        machines=(Machine("machine0", "replays", 1.0, 0.05), Machine("machine1", "hasty", 3.0, 0.01)),
        works=(
            Work("ann", 0.3251827389236747, "saxpy", 40, data="made", then="vanish", later_s=2.288203192187402),
            Work("ann", 0.3251827389236747, "relu", 40, then="vanish", later_s=2.288203192187402),
            Work(
                "ann", 0.3251827389236747, "call", 2, check="none", then="vanish", later_s=2.288203192187402, once=True
            ),
        ),
        faults=(Fault(0.3639367723750148, "admin pause", "machine0", 6.561216731767631, way="down"),),
        noise=True,
        grains=3,
        idle_beats=0.02,
    ),
    "a resend of what was accepted, with a statement that cannot be read, broke off the whole check": Script(
        seed=3001396,
        machines=(Machine("machine0", "steals", 3.0, 0.2), Machine("machine1", "nan", 1.0, 0.2, lab=True)),
        works=(
            Work(
                "ann", 11.370800622848245, "call", 1, "blob", "none", then="cancel", later_s=0.02, twice=True, retries=1
            ),
            Work("ann", 0.5, "call", 3, data="blob", check="none", wait_s=5.0, once=True),
        ),
        faults=(),
        grains=6,
        idle_beats=0.05,
    ),
    "who was not asked while it was silent got nothing when it was heard of again": Script(
        seed=63556,
        machines=(Machine("machine0", "honest", 1.0, 0.01, lab=True),),
        works=(Work("ann", 9.5458621659155, "vector_add", 40, "blob", "spot", lab=True),),
        faults=(Fault(5.655870483246442, "cut off", "machine0", 45.72681337108352, steps=21, way="up"),),
        grains=16,
        idle_beats=0.05,
    ),
}
