"""Arrays and jobs in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from moregpu.cli.files import load, load_job, save
from moregpu.errors import InvalidRequest


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.uint8, np.bool_]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    )
)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    folder = tmp_path_factory.mktemp("files")
    for name in ("a.npy", "a.safetensors"):
        save(array, str(folder / name))
        found = load(str(folder / name))
        assert found.dtype == array.dtype
        assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")
    assert sorted(path.name for path in folder.iterdir()) == ["a.npy", "a.safetensors"]


def test_a_file_of_python_objects_is_refused_without_a_word_about_allowing_them(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("hello")
    for name in ("objects.npy", "text.npy"):
        with pytest.raises(InvalidRequest, match="holds Python objects, or something else") as refused:
            load(str(tmp_path / name))
        assert "allow_pickle" not in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        b"\x02" + b"\0" * 7 + b"{}",
        b"\x02" + b"\0" * 7 + b"[]",
        b"\x08" + b"\0" * 7 + b'{"a": 1}',
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(InvalidRequest):
        load(str(path))


def test_one_of_several_tensors_is_named(tmp_path: Path) -> None:
    import json
    import struct

    header = json.dumps(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F16", "shape": [1, 2], "data_offsets": [8, 12]},
        }
    ).encode()
    path = tmp_path / "two.safetensors"
    path.write_bytes(
        struct.pack("<Q", len(header)) + header + np.float32([1, 2]).tobytes() + np.float16([3, 4]).tobytes()
    )
    assert load(f"{path}:a").tolist() == [1, 2]
    assert load(f"{path}:b").tolist() == [[3, 4]]
    with pytest.raises(InvalidRequest, match="a, b"):
        load(str(path))


def test_a_job_file_says_all_of_a_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('operation = "matmul"\ninputs = ["a.npy", "-"]\nname = "night"\npriority = 3\nafter = ["j-1"]\n')
    job = load_job(str(path))
    assert job.inputs == [str(tmp_path / "a.npy"), "-"]
    assert job.options == {"name": "night", "priority": 3, "after": ("j-1",)}


@pytest.mark.parametrize("text", ["", 'operation = "nothing"', 'operation = "relu"\nnonsense = 1', "not toml"])
def test_what_is_no_job_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest):
        load_job(str(path))
