"""A script's header says what it needs, as PEP 723 has it."""

from __future__ import annotations

import sys

import pytest

from moregpu.client.functions.options import THIS_PYTHON, chosen, size_in_bytes
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


@pytest.mark.parametrize(
    ("asked", "minor"),
    [(">=3.8", THIS_PYTHON), ("==3.12.*", "3.12"), ("~=3.13", "3.13"), (f">=3.{sys.version_info.minor + 1}", None)],
)
def test_the_python_is_this_one_where_it_fits(asked: str, minor: str | None) -> None:
    assert python_for(asked) == (minor or f"3.{sys.version_info.minor + 1}")


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
    assert chosen({"gpu": "A100"}).device == "A100"
    assert chosen({"gpu": True}).device is None
