"""Arrays and jobs in files."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from moregpu.cli.files import check_place, load, load_job, save
from moregpu.cli.submit import in_order
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
    assert job.options == {"name": "night", "priority": 3, "after": ["j-1"]}


def test_one_job_to_wait_for_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('operation = "relu"\nsize = 4\nafter = "j-1"\n')
    assert load_job(str(path)).options == {"after": "j-1"}


def test_a_job_file_of_windows_is_one(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(codecs.BOM_UTF8 + b'operation = "relu"\r\nsize = 4\r\n')
    assert load_job(str(path)).size == 4


@pytest.mark.parametrize(
    ("inputs", "read"),
    [
        ('{ b = "b.npy", a = "a.npy" }', ["a.npy", "b.npy"]),
        ('{ a = "a.npy" }', ["a.npy"]),
        ('["b.npy", "a.npy"]', ["b.npy", "a.npy"]),
    ],
)
def test_a_kernels_inputs_have_names_too(tmp_path: Path, inputs: str, read: list[str]) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'operation = "matmul"\ninputs = {inputs}\n')
    assert in_order(load_job(str(path))) == [str(tmp_path / name) for name in read]


@pytest.mark.parametrize("inputs", ['{ x = "a.npy" }', '{ a = "a.npy", b = 2.0 }', '{ b = "a.npy", weight = "b.npy" }'])
def test_names_that_a_kernel_has_not_are_refused(tmp_path: Path, inputs: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'operation = "matmul"\ninputs = {inputs}\n')
    with pytest.raises(InvalidRequest, match="inputs a and b"):
        in_order(load_job(str(path)))


def test_standard_input_is_one_input_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    np.save(packed, np.ones(3))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed.getvalue())))
    assert np.array_equal(load("-"), np.ones(3))
    with pytest.raises(InvalidRequest, match="nothing more") as refused:
        load("-")
    assert "once" in refused.value.hint


@pytest.mark.parametrize("text", ["", 'operation = "nothing"', 'operation = "relu"\nnonsense = 1', "not toml"])
def test_what_is_no_job_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(InvalidRequest):
        load_job(str(path))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows names no pipes in folders")
@pytest.mark.parametrize("name", ["pipe.npy", "pipe.safetensors", "link.npy"])
def test_what_somebody_reads_from_is_written_into_and_not_replaced(tmp_path: Path, name: str) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    pipe = tmp_path / name
    wanted = tmp_path / f"wanted{pipe.suffix}"
    save(array, str(wanted))
    os.mkfifo(tmp_path / "link" if name == "link.npy" else pipe)
    if name == "link.npy":
        pipe.symlink_to("link")
    came: list[bytes] = []
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()), daemon=True)
    reader.start()
    check_place(str(pipe))
    save(array, str(pipe))
    reader.join(20)
    assert came == [wanted.read_bytes()]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows names no pipes in folders")
def test_an_array_is_read_from_a_pipe_that_has_a_name(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    content = io.BytesIO()
    np.save(content, array)
    os.mkfifo(tmp_path / "a.npy")
    writer = threading.Thread(target=lambda: (tmp_path / "a.npy").write_bytes(content.getvalue()), daemon=True)
    writer.start()
    assert np.array_equal(load(str(tmp_path / "a.npy")), array)
    writer.join(20)


@pytest.mark.skipif(sys.platform == "win32", reason="links take a privilege there")
def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name, before in (("new.npy", False), ("old.npy", True)):
        target, link = tmp_path / "there" / name, tmp_path / name
        if before:
            target.write_bytes(b"before")
        link.symlink_to(target)
        check_place(str(link))
        save(np.ones(3, np.float32), str(link))
        assert link.is_symlink() and np.array_equal(np.load(target), np.ones(3))
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["new.npy", "old.npy"]


@pytest.mark.parametrize("name", ["x" * 300 + ".npy", "ü" * 200 + ".npy", "a\0b.npy"])
def test_a_name_that_no_file_can_have_is_refused_before_the_job_runs(tmp_path: Path, name: str) -> None:
    for write in (check_place, lambda place: save(np.ones(3, np.float32), place)):
        with pytest.raises(InvalidRequest, match="cannot be written"):
            write(str(tmp_path / name))


@pytest.mark.parametrize("name", ["x" * 251 + ".npy", "ü" * 125 + ".npy"])
def test_the_longest_name_that_a_file_can_have_is_written(tmp_path: Path, name: str) -> None:
    check_place(str(tmp_path / name))
    save(np.ones(3, np.float32), str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]
