"""A script's header says what it needs, as PEP 723 has it."""

from __future__ import annotations

import sys

import pytest

from moregpu.client.functions.options import chosen, size_in_bytes
from moregpu.client.functions.scripts import header_of, options_of, python_for
from moregpu.errors import InvalidJob

TEXT = """\
#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "numpy>=2",
#   "rich",
# ]
# ///
import numpy
result = 1
"""


def test_a_header_names_packages() -> None:
    assert header_of(TEXT)["dependencies"] == ["numpy>=2", "rich"]
    assert options_of(TEXT, {}).requires == ("numpy>=2", "rich")
    assert options_of(TEXT, {"requires": ["scipy"]}).requires == ("scipy",)
    assert header_of("import numpy\n") == {}


def test_a_header_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidJob, match="header"):
        header_of("# /// script\n# dependencies = [\n# ///\n")


NEXT, OWN = sys.version_info.minor + 1, sys.version_info.minor


@pytest.mark.parametrize(
    ("asked", "minor"),
    [
        (">=3.8", OWN), (">=3", OWN), ("==3.*", OWN), ("", OWN),
        (">=3.8,<4", OWN), (f"<=3.{OWN}", OWN), (f"<3.{OWN}.9", OWN),
        ("==3.12.*", 12), ("==3.12", 12), ("===3.13.1", 13), ("~=3.29", 29), ("~= 3.29.1", 29), (">= 3.30", 30),
        (f">=3.{NEXT}", NEXT), (f">3.{OWN}", NEXT), (f">=3.8, <3.{NEXT}", OWN), (f"!=3.{OWN}.*,>=3.{OWN}", NEXT),
        (f">3.{OWN}.1", OWN), (f"!=3.{OWN}.1", OWN), (f">=3.8,<3.{NEXT}.0", OWN),
    ],
)  # fmt: skip
def test_the_python_is_this_one_where_it_fits_else_the_oldest_that_does(asked: str, minor: int) -> None:
    assert python_for(asked) == f"3.{minor}"


@pytest.mark.parametrize("asked", [">=3.8,<3.11", ">=3.8,<3.11.0", "==3.9.*", ">3.12,<3.12"])
def test_a_script_for_a_python_that_functions_do_not_run_on_is_refused(asked: str) -> None:
    with pytest.raises(InvalidJob, match="asks for Python"):
        python_for(asked)


@pytest.mark.parametrize(
    ("text", "size"), [("16GB", 16 * 10**9), ("512MiB", 512 << 20), ("1.5g", 1_500_000_000), (7, 7), ("10", 10)]
)
def test_sizes_are_read(text: str | int, size: int) -> None:
    assert size_in_bytes(text) == size


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(TypeError, match="no option 'gpuu'"):
        chosen({"gpuu": True})
    with pytest.raises(InvalidJob):
        chosen({"memory": "much"})
    with pytest.raises(InvalidJob):
        chosen({"timeout": 0})
    for option, value in (("timeout", "60"), ("retry_on", [KeyError, "x"]), ("retry_on", 3), ("local", True)):
        with pytest.raises(InvalidJob, match=option):
            chosen({option: value})
    assert chosen({"retry_on": [KeyError, ValueError]}).retry_on == (KeyError, ValueError)
    assert chosen({"gpu": "A100"}).device == "A100"
    assert chosen({"gpu": True}).device is None
