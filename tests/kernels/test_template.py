"""Front matter and templates: what they render, and how they name the line that is wrong."""

from __future__ import annotations

import pytest
from moregpu_kernels.errors import BadKernel
from moregpu_kernels.template import kernel_names, load_kernel, parse_kernel, render

HEAD = (
    '//! name = "k"\n//! bindings = ["a: read tensor", "out: write tensor"]\n//! [options]\n//! n = 3\n//! word = "x"\n'
)


def body(text: str, **options: int | str | bool) -> list[str]:
    """Rendered lines that stem from the text, without the generated declarations."""
    rendered = render(parse_kernel(HEAD + text, "k.wgsl"), options)
    return [line for line, (_, number) in zip(rendered.source.splitlines(), rendered.origins, strict=True) if number]


def test_expressions_are_filled_in():
    assert body("let a = {{n * 2 + 1}}; // {{word}}") == ["let a = 7; // x"]
    assert body("{{ceil_div(n, 2)}} {{n // 2}} {{n == 3 and not n < 2}}") == ["2 1 true"]


def test_if_takes_the_first_branch_that_holds():
    text = "#if n == 1\none\n#elif n == 2\ntwo\n#else\nmany\n#endif"
    assert [body(text, n=n) for n in (1, 2, 9)] == [["one"], ["two"], ["many"]]


def test_loops_nest_and_count_half_open():
    text = "#for i in 0..2\n#for j in i..2\n{{i}}{{j}}\n#endfor\n#endfor"
    assert body(text) == ["00", "01", "11"]


def test_a_branch_that_is_not_taken_is_not_evaluated():
    assert body("#if n == 3\nyes\n#else\n{{unknown}}\n#endif") == ["yes"]


def test_the_head_names_the_invocation_of_a_subgroup_only_where_it_is_asked_for():
    plain, asked = (" ".join(body(f"#entry n * 8{more}")) for more in ("", " with peer"))
    assert "@workgroup_size(24)" in plain and "@workgroup_size(24)" in asked
    assert "subgroup_invocation_id" not in plain and "peer: u32)" in asked


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("#entry 64 with magic", 6, "peer and nothing else"),
        ("ok\n{{nothing}}", 7, "unknown name"),
        ("#if n\nopen", 6, "not closed"),
        ("ok\n#endfor", 7, "closes nothing"),
        ("#for i from 1\n#endfor", 6, "FIRST..LAST"),
        ("{{n // 0}}", 6, "is wrong"),
        ("{{__import__('os')}}", 6, "not allowed"),
        ("{{n.real}}", 6, "not allowed"),
        ("#include nosuchfile", 6, "nothing to include"),
        ("#include ../template", 6, "nothing to include"),
        ("#for i in 0..100000\n#endfor", 6, "4096"),
    ],
)
def test_a_wrong_line_is_named(text: str, line: int, said: str):
    with pytest.raises(BadKernel, match=said) as caught:
        body(text)
    assert (caught.value.file, caught.value.line) == ("k.wgsl", line)


@pytest.mark.parametrize(
    "head",
    [
        "",
        "//! name = 3\n",
        '//! name = "k"\n//! colour = 1\n',
        '//! name = "k\n',
        '//! name = "k"\n//! bindings = ["a tensor"]\n',
    ],
)
def test_wrong_front_matter_is_refused(head: str):
    with pytest.raises(BadKernel):
        parse_kernel(head + "fn main() {}", "k.wgsl")


def test_unknown_options_are_refused():
    with pytest.raises(BadKernel, match="no option"):
        body("x", colour=1)


def test_every_kernel_of_the_library_renders_with_its_defaults():
    assert "matmul_tile" in kernel_names()
    for name in kernel_names():
        assert "fn main" in render(load_kernel(name), {}).source


def test_included_lines_remember_their_own_file():
    rendered = render(load_kernel("softmax"), {})
    assert {"softmax.wgsl", "row.wgsl", "number.wgsl"} <= {file for file, number in rendered.origins if number}
