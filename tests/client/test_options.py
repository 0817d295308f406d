"""What callers say of a job, as its spec has it."""

from __future__ import annotations

from typing import Any

import pytest

from moregpu.client.options import fields_of
from moregpu.errors import InvalidJob


class Job:
    """As a handle, or a view, names its job."""

    id = "j-2"


@pytest.mark.parametrize(
    ("after", "ids"),
    [
        ("j-1", ("j-1",)), (Job(), ("j-2",)), (["j-1", Job()], ("j-1", "j-2")), (iter([Job()]), ("j-2",)),
        (("j-1",), ("j-1",)), ([], ()), (None, ()),
    ],
)  # fmt: skip
def test_jobs_to_wait_for_are_named_by_id_or_handle_one_or_several(after: Any, ids: tuple[str, ...]) -> None:
    assert fields_of({"after": after, "priority": 3}) == {"after": ids, "priority": 3}


@pytest.mark.parametrize("after", [5, [None], ["j-1", 5], [Job(), object()]])
def test_what_names_no_job_is_refused_with_what_does(after: Any) -> None:
    with pytest.raises(InvalidJob, match="none") as refused:
        fields_of({"after": after})
    assert 'after="j-…"' in refused.value.hint


def test_what_is_not_said_is_not_in_the_spec() -> None:
    assert fields_of({}) == {}
