"""Plans: pure decisions about variants, slices and limits. No device is needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moregpu_kernels.errors import BadFormula, BadShape
from moregpu_kernels.layout import Limits, Request, Traits, row_slices
from moregpu_kernels.plan import OPERATIONS, bucket, candidates, plan

SMALL = Limits(max_binding_bytes=1 << 16, offset_alignment=256)


def product(m: int, k: int, n: int, dtype: str = "float32", **parameters: str) -> Request:
    return Request("matmul", {"a": (m, k), "b": (k, n)}, dtype, parameters)


@given(st.integers(0, 10_000), st.lists(st.integers(1, 5000), min_size=1, max_size=3))
def test_slices_cover_all_rows_once_within_a_binding_and_aligned(rows: int, row_bytes: list[int]):
    try:
        slices = list(row_slices(rows, row_bytes, SMALL, "x"))
    except BadShape:
        return
    assert [row for first, last in slices for row in range(first, last)] == list(range(rows))
    for first, last in slices:
        for size in row_bytes:
            assert (last - first) * size <= SMALL.max_binding_bytes
            assert len(slices) == 1 or first * size % SMALL.offset_alignment == 0


@given(st.integers(1, 700), st.integers(1, 3000), st.integers(1, 700), st.sampled_from(["float32", "float16"]))
def test_a_product_binds_nothing_beyond_the_limit(m: int, k: int, n: int, dtype: str):
    try:
        planned = plan(product(m, k, n, dtype), Traits(limits=SMALL))
    except BadShape:
        return
    for dispatch in planned.dispatches:
        for span in dispatch.spans:
            assert span.size_bytes <= SMALL.max_binding_bytes + 16
            assert span.offset_bytes % SMALL.offset_alignment == 0


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000))
def test_every_product_sums_k_in_blocks_of_at_most_256(m: int, k: int, n: int):
    for variant in candidates(product(m, k, n), Traits(kind="discrete")):
        for dispatch in plan(product(m, k, n), Traits(kind="discrete"), variant=variant).dispatches:
            options = dict(dispatch.options)
            if dispatch.kernel.name == "matmul_tile":
                assert options["blocked"] or k <= 256


def test_a_few_outputs_with_a_long_k_are_split():
    assert "/split" in candidates(product(64, 8192, 64), Traits(kind="discrete"))[0]
    assert "/split" not in candidates(product(4096, 8192, 4096), Traits(kind="discrete"))[0]


def test_a_software_adapter_never_sets_the_default_of_a_real_one():
    assert candidates(product(512, 512, 512), Traits(kind="discrete"))[0].startswith("shared")
    assert candidates(product(512, 512, 512), Traits(kind="software"))[0].startswith("direct")


@pytest.mark.parametrize("kind", ["software", "discrete"])
def test_rows_are_passed_round_only_where_subgroups_are_large_enough(kind: str):
    def names(size: int, *features: str) -> tuple[str, ...]:
        traits = Traits(kind=kind, subgroup_size=size, features=frozenset(features))
        return candidates(product(512, 512, 512), traits)

    assert "subgroup_8x4" not in (*names(4, "subgroup"), *names(8), *names(0, "subgroup"))
    assert (names(8, "subgroup")[0] == "subgroup_8x4") is (kind == "software")
    assert "subgroup_8x4" in names(32, "subgroup")


def test_tiles_beyond_the_device_are_no_candidates():
    names = candidates(product(512, 512, 512), Traits(limits=Limits(workgroup_bytes=4096, invocations=64)))
    assert not any(name.startswith(("shared_64", "shared_128")) for name in names)


def test_choices_decide_and_unknown_choices_do_not():
    request = product(512, 512, 512)
    chosen = plan(request, Traits(), {bucket(request): "shared_32x32_4x4"})
    assert chosen.variant == "shared_32x32_4x4"
    assert plan(request, Traits(), {bucket(request): "gone"}).variant == plan(request, Traits()).variant


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request("matmul", {"a": (2, 3), "b": (4, 5)}), "takes a"),
        (Request("matmul", {"a": (2, 3)}), "needs an input"),
        (product(2, 2, 2, epilogue="bias"), "needs an input"),
        (product(2, 2, 2, epilogue="explode"), "not understood"),
        (Request("vector_add", {"a": (3,), "b": (4,)}), "one shape|do not fit"),
        (Request("vector_add", {"a": (3,), "b": (1,)}), "one shape"),
        (Request("softmax", {"a": ()}), "last axis"),
        (Request("max", {"a": (3, 0)}), "not defined"),
        (Request("transpose", {"a": (3,)}), "two axes"),
        (Request("explode", {"a": (3,)}), "no operation"),
        (Request("relu", {"a": (3,)}, "float64"), "float64"),
        (Request("relu", {"a": (1 << 33,)}), "2\\^32"),
        (Request("layernorm", {"a": (3, 4), "weight": (3,)}), "weight must be"),
        (Request("gemv_q8_0", {"quants": (2, 8), "scales": (2, 2), "x": (64,)}), "do not fit"),
        (Request("formula", {"a": (2, 3), "b": (4,)}, "float32", {"text": "a + b"}), "do not fit"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(request_: Request, said: str):
    with pytest.raises(BadShape, match=said):
        plan(request_, Traits())


def test_an_unknown_name_in_a_formula_is_pointed_at():
    with pytest.raises(BadFormula, match="Unknown name 'z'") as caught:
        plan(Request("formula", {"x": (3,)}, "float32", {"text": "x + sin(z)"}), Traits())
    assert caught.value.position == 8


def test_a_formula_takes_at_most_seven_arrays():
    names = [f"n{i}" for i in range(8)]
    with pytest.raises(BadFormula, match="at most 7"):
        plan(Request("formula", dict.fromkeys(names, (3,)), "float32", {"text": "+".join(names)}), Traits())


def test_empty_outputs_need_no_dispatch():
    for operation in OPERATIONS:
        shapes = {"a": (0, 4)}
        if operation in ("vector_add", "vector_sub", "vector_mul", "vector_div", "saxpy"):
            shapes["b"] = (0, 4)
        if operation == "matmul":
            shapes["b"] = (4, 3)
        if operation.startswith("gemv"):
            shapes = {"quants": (0, 8 if "q8" in operation else 4), "scales": (0, 1), "x": (32,)}
        parameters = {"scalar": 1.0, "text": "a"}
        assert plan(Request(operation, shapes, "float32", parameters), Traits()).dispatches == ()
