"""Forms from Structs: every field is there, and what is typed is what the API would validate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.jobs import JobCommon
from moregpu.wire.api import InviteRequest, TokenRequest
from moregpu.workloads import KernelSpec
from moregpu_tui.forms.describe import Unread, fields_of, files_of, read
from moregpu_tui.options import Settings, with_section

JOB = fields_of(KernelSpec, JobCommon)


def test_every_field_of_a_job_is_in_its_form() -> None:
    assert {field.name for field in JOB} | {"source"} >= set(KernelSpec.__struct_fields__)
    common = [field.name for field in JOB if field.common]
    assert set(common) == set(JobCommon.__struct_fields__)


@pytest.mark.parametrize("struct", [InviteRequest, TokenRequest, Settings])
def test_an_untouched_form_is_the_structs_own_defaults(struct: type) -> None:
    fields = fields_of(struct)
    typed = {field.name: field.default for field in fields}
    assert read(struct, fields, typed) == struct()


def test_units_are_understood() -> None:
    fields = fields_of(InviteRequest)
    assert read(InviteRequest, fields, {"expires_s": "90 min"}).expires_s == 5400.0
    assert read(KernelSpec, JOB, {"operation": "relu", "size": "1e6"}).size == 1_000_000
    assert read(KernelSpec, JOB, {"operation": "relu", "size": "8", "memory_bytes": "2 GiB"}).memory_bytes == 2 << 30
    assert read(KernelSpec, JOB, {"operation": "relu", "size": "8", "keep_s": "3 d"}).keep_s == 3 * 86400.0


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"operation": "matmul", "size": "many"}, "size"),
        ({"operation": "matmul", "size": "1.5"}, "size"),
        ({"operation": "matmul", "size": "-3"}, "size"),
        ({"operation": "matmul", "priority": "500"}, "priority"),
        ({"operation": "cook"}, "operation"),
        ({"operation": "matmul", "size": "5 parsecs"}, "size"),
        ({"operation": "matmul", "name": "x" * 300}, "name"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(typed: dict[str, str], field: str) -> None:
    with pytest.raises(Unread) as caught:
        read(KernelSpec, JOB, typed)
    assert caught.value.field == field
    assert caught.value.wrong


@given(st.dictionaries(st.sampled_from([field.name for field in JOB]), st.text(max_size=20)))
def test_no_text_breaks_a_form(typed: dict[str, str]) -> None:
    try:
        spec = read(KernelSpec, JOB, {"operation": "relu", **typed})
    except Unread as wrong:
        assert wrong.wrong
    else:
        assert isinstance(spec, KernelSpec)


def test_files_have_names() -> None:
    assert files_of(JOB, {"inputs": "a.npy b.npy"}) == {"a": "a.npy", "b": "b.npy"}
    assert files_of(JOB, {"inputs": "x=data/a.npy, y=2.5"}) == {"x": "data/a.npy", "y": "2.5"}
    with pytest.raises(Unread):
        files_of(JOB, {"inputs": "a b c"})


def test_other_sections_of_the_settings_file_stay() -> None:
    text = '[pool]\nname = "home"\n\n[console]\ntheme = "light"\n[console.keys]\n"x" = "y"\n\n[worker]\ncores = 2\n'
    made = with_section(text, "console", '[console]\ntheme = "dark"\n')
    assert '[pool]\nname = "home"' in made
    assert "[worker]\ncores = 2" in made
    assert "light" not in made
    assert '"x"' not in made
    assert made.count("[console]") == 1
