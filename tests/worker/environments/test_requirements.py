"""What may be asked for: packages by name; nothing that would be fetched or run outside the sandbox."""

from __future__ import annotations

import pytest

from moregpu.errors import EnvironmentRefused
from moregpu.worker.environments.requirements import checked, name_of


@pytest.mark.parametrize(
    "requirement",
    [
        "numpy", "numpy==2.4.*", "pandas >= 2, <3", "scikit-learn[alldeps]~=1.5", "a.b-c_d",
        'tomli; python_version < "3.11"',
    ],
)  # fmt: skip
def test_a_package_by_name_and_version_is_taken(requirement: str) -> None:
    assert checked("3.12", (requirement,)) == (requirement,)


@pytest.mark.parametrize(
    "requirement",
    [
        "", "-e .", "--index-url=http://x", "git+https://x/y", "https://x/y.whl", "./here", "/etc", "numpy @ https://x/y",
        "numpy\n--extra-index-url http://x", "numpy; x\n-e .", "a b", "-r file", "numpy --hash=sha256:0", "$(x)",
    ],
)  # fmt: skip
def test_an_address_a_path_or_an_option_is_refused(requirement: str) -> None:
    with pytest.raises(EnvironmentRefused):
        checked("3.12", (requirement,))


@pytest.mark.parametrize("python", ["3", "3.12.1", "../x", "", "2.7", "3.1234"])
def test_a_python_is_a_minor_version(python: str) -> None:
    with pytest.raises(EnvironmentRefused):
        checked(python, ())


def test_order_and_repetition_make_no_other_environment() -> None:
    one, two = checked("3.12", ("b", "a", "a")), checked("3.12", ("a", "b"))
    assert name_of("3.12", one) == name_of("3.12", two)
    assert name_of("3.11", one) != name_of("3.12", one)
