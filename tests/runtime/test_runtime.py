"""The runtime's basics: conversions and numbers, weight stores, the text of tensors, initial contents, `genwts`.

Oracles: Python's unbounded integers and C's printf rules, NumPy's and safetensors' own writers and readers, zlib and
zipfile, SHA-256 and Philox taken step by step, and texts of the LightNet documents.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import math
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from counting import calls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.source import Source
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir
from lightnet.runtime import printing
from lightnet.runtime.dtypes import BY_NAME, BY_NP, BY_TL, DTYPES, convert
from lightnet.runtime.files import write_atomic
from lightnet.runtime.initial import initial_contents, sample, uniform
from lightnet.runtime.numbers import DBL_MAX, FLT_MAX, INT_MAX, INT_MIN, as_realtype
from lightnet.runtime.printing import format_tensor, fprint_path, open_fprint, print_tensor
from lightnet.runtime.weights import fetch, open_weights, save_npz, save_wts
from lightnet_export import genwts

DATA = Path(__file__).parents[1] / "data"
F32, I8, I64 = BY_NAME["f32"], BY_NAME["i8"], BY_NAME["i64"]
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# -- convert, numbers


def converted(value, dtype):
    """One element, by the definition: exact arithmetic on Python numbers."""
    if dtype.kind == "bool":
        return value != 0
    if dtype.is_float:
        if isinstance(value, float) and not math.isfinite(value):
            return value
        limit = float((np if dtype.name != "bf16" else ml_dtypes).finfo(dtype.np).max)
        value = min(max(value, -limit), limit) if isinstance(value, float) or dtype.is_short else value
        if dtype.name == "bf16" and value:  # ml_dtypes rounds to float first: round to 8 bits here
            step = Fraction(2) ** (max(math.frexp(value)[1], -125) - 8)
            value = float(round(Fraction(value) / step) * step) or math.copysign(0, value)
        return dtype.np.type(value)
    if value != value:
        return 0
    info = np.iinfo(dtype.np)
    if value in (math.inf, -math.inf):
        return int(info.max) if value > 0 else int(info.min)
    return min(max(math.trunc(Fraction(value)), int(info.min)), int(info.max))


def edges(dtype):
    """Values of a dtype at and around the bounds of every integer and float type."""
    bounds = {s * (2**k + d) for k in (0, 7, 8, 15, 16, 31, 32, 53, 63, 64) for d in (-1, 0, 1) for s in (1, -1)}
    if dtype.kind == "bool":
        return np.array([False, True])
    if not dtype.is_float:
        info = np.iinfo(dtype.np)
        return np.array([b for b in bounds if info.min <= b <= info.max] + [info.min, info.max], dtype.np)
    more = [0.5, -0.5, -0.0, 1.7, -1.7, 254.999, 1e30, -1e30, math.inf, -math.inf, math.nan]
    more += [FLT_MAX, -FLT_MAX, 5e-324, 1e-45, 1e39, -1e39, DBL_MAX, -DBL_MAX]
    with np.errstate(over="ignore"):
        base = np.array([*map(float, bounds), *more], dtype.np)
        toward = (np.full(base.shape, to, dtype.np) for to in (0, np.inf))
        return np.concatenate([base, *(np.nextafter(base, to) for to in toward)])


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_convert_every_pair_at_the_bounds(source, target):
    values = edges(source)
    result = convert(values, target)
    assert result.dtype == target.np and result.shape == values.shape
    expected = np.array([converted(v, target) for v in values.tolist()], target.np)
    same(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected)) if target.is_float else None
    scalar = convert(np.array(values[0]), target)
    assert isinstance(scalar, np.ndarray) and scalar.shape == () and scalar.dtype == target.np


def test_convert_documented_examples():
    values = np.array([300, -300, 1.7, -1.7])
    assert convert(values, I8).tolist() == [127, -128, 1, -1]
    assert convert(np.array([300, 0, 0.5, -1.7]), BY_TL["TL_BOOL"]).tolist() == [True, False, True, True]


def test_numbers_saturate():
    for value, i, f in [
        (0, 0, 0.0),  # not FLT_MIN, upstream's mistake
        (-0.1, 0, float(np.float32(-0.1))),
        (2.9, 2, float(np.float32(2.9))),
        (-2.9, -2, float(np.float32(-2.9))),
        (1e300, INT_MAX, FLT_MAX),
        (-1e300, INT_MIN, -FLT_MAX),
        (10**400, INT_MAX, FLT_MAX),
        (2**31 - 1, INT_MAX, 2.0**31),
        (-(2**31) - 0.5, INT_MIN, -(2.0**31)),
        (math.inf, INT_MAX, FLT_MAX),
        (1e-60, 0, 0.0),
    ]:
        whole = as_realtype(value, "int")
        assert whole == i and type(whole) is int
        assert as_realtype(value, "float") == f
    assert as_realtype(-(10**400), "double") == -DBL_MAX and as_realtype(0.1, "double") == 0.1
    assert as_realtype(math.nan, "int") == 0


@given(st.floats(allow_nan=False))
def test_number_float_is_what_c_computes(value):
    clamped = min(max(value, -FLT_MAX), FLT_MAX)
    assert as_realtype(value, "float") == ctypes.c_float(clamped).value


# -- .wts


def refusal(path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LightNetError) as caught:
        open_weights(path)
    return caught.value.render().replace(str(path), "F")


def test_wts_reference_file(tmp_path):
    store = open_weights(DATA / "test_trt_weight.wts")
    assert list(store) == ["wts1", "wts2"] and store.warnings == []
    five = np.array([1.2, 0.001, -0.03, 200000, 0], np.float32)
    np.testing.assert_array_equal(fetch(store, "wts1", [2, 5], F32), [five, five])
    np.testing.assert_array_equal(fetch(store, "wts2", [10], I8), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])
    assert store.dims("wts1") == (10,) and store.dtype("wts2") == I8
    save_wts(tmp_path / "w.wts", store)
    assert (tmp_path / "w.wts").read_text().split() == (DATA / "test_trt_weight.wts").read_text().split()


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "F:1:1: error: invalid weight file: the file ends before the number of tensors"),
        ("-1\n", "F:1:1: error: invalid weight file: the number of tensors is negative (-1)"),
        ("131073", "F:1:1: error: invalid weight file: 131073 tensors are more than the limit"),
        ("x", "F:1:1: error: invalid weight file: expected the number of tensors, got 'x'"),
        ("2\na 0 1 3f800000\n", "F:3:1: error: invalid weight file: the file ends before the name of the next tensor"),
        ("1\na -1 1 00", "F:2:3: error: invalid weight file: the type of 'a' is negative"),
        ("1\na 3 1 00", "F:2:3: error: invalid weight file: type 3 of 'a' is unknown"),
        ("1\na 0 -2 00", "F:2:5: error: invalid weight file: the length of 'a' is negative"),
        ("1\na 0 99999999999999 00", "error: invalid weight file: the file ends before the 99999999999999 elements"),
        ("1\na 0 9999999999999999999 00", "F:2:5: error: invalid weight file: expected the length of 'a'"),
        ("1\na 0 2 3f800000        ", "error: invalid weight file: the file ends before the last element of 'a'"),
        ("1\na 0 2 3f800000\n 3f8g0000", "F:3:2: error: invalid weight file: element '3f8g0000' of 'a' is not"),
        ("1\na 0 1 3f8000001", "F:2:7: error: invalid weight file: element '3f8000001' of 'a' is not"),
        ("1\na 2 2 01 100", "F:2:10: error: invalid weight file: element '100' of 'a' is not a hexadecimal number"),
        ("1\na 2 1 -1", "F:2:7: error: invalid weight file: element '-1'"),
        ("2\na 2 1 01\na 2 1 01", "F:3:1: error: invalid weight file: tensor 'a' is in the file twice"),
        (b"1\n\xff 2 1 01", "F:2:1: error: invalid weight file: expected the name of the next tensor"),
        ("1\n" + "a" * 2000, "F:2:1: error: invalid weight file: a field of more than 1024 characters"),
        ("1\n\x1b[31m 2 1 01", "the name '\\x1b[31m' is too long or not printable"),
    ],
)
def test_wts_refusals(tmp_path, text, expected):
    assert expected in refusal(tmp_path / "w.wts", text)


def test_wts_half(tmp_path):
    (tmp_path / "w.wts").write_text("2\nh 1 2 3c00 c000\nf 0 1 3fc00000\n")
    store = open_weights(tmp_path / "w.wts")
    assert fetch(store, "f", [1], F32).tolist() == [1.5]
    assert fetch(store, "h", [2], BY_NAME["f16"]).tolist() == [1, -2]
    with pytest.raises(LightNetError, match="has type f16, and the tensor has f32"):
        fetch(store, "h", [2], F32)


def test_wts_text_after_the_last_tensor_is_a_warning(tmp_path):
    path = tmp_path / "w.wts"
    path.write_text("1\na 2 1 01\nb 2 1 01")
    store = open_weights(path)
    assert list(store) == ["a"] and store.warnings == [f"{path}:3:1: text after the last of 1 tensors is ignored"]


def test_wts_short_elements_and_any_white_space(tmp_path):
    (tmp_path / "w.wts").write_text("1 \r\n\ta\f2\v4\n\n 1 ff\t7F\r\n80")
    assert open_weights(tmp_path / "w.wts")["a"].tolist() == [1, -1, 127, -128]


def test_wts_elements_across_chunks(tmp_path, monkeypatch):
    values = np.arange(40, dtype=np.float32) * 1.25
    save_wts(tmp_path / "w.wts", {"a": values, "b": np.arange(30, dtype=np.int8)})
    text = (tmp_path / "w.wts").read_bytes()
    for chunk in range(11, 40):
        monkeypatch.setattr("lightnet.runtime.wts._CHUNK", chunk)
        store = open_weights(tmp_path / "w.wts")
        np.testing.assert_array_equal(store["a"], values)
        np.testing.assert_array_equal(store["b"], np.arange(30))
        assert "F:3:8: error: invalid" in refusal(tmp_path / "bad.wts", text.replace(b" 00 01", b" 0g 01"))


# -- stores in general


def arrays(dtypes):
    shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    return st.one_of([arrays_of(d, shapes) for d in dtypes])


def arrays_of(dtype, shapes):
    """Hypothesis knows no bfloat16: any 16 bits are one."""
    if dtype.name != "bf16":
        return hnp.arrays(dtype.np, shapes)
    return hnp.arrays(np.uint16, shapes).map(lambda bits: bits.view(dtype.np))


def same(got, want):
    """NumPy cannot tell that a NaN of bfloat16 is one."""
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(*(a.astype(np.float32) if BY_NP[a.dtype].name == "bf16" else a for a in (got, want)))


names = st.text(st.characters(categories=["L", "N"]) | st.sampled_from("_./"), min_size=1, max_size=12)


@quick
@given(tensors=st.dictionaries(names, arrays(DTYPES), max_size=4), packed=st.booleans())
def test_npz_round_trip_with_numpy_on_the_other_side(tmp_path, tensors, packed):
    path = tmp_path / "w.npz"
    save_npz(path, tensors)
    with np.load(path, allow_pickle=False) as loaded:
        assert set(loaded) == set(tensors)
        for name in tensors:
            if BY_NP[tensors[name].dtype].name == "bf16":  # what NumPy writes of a type it does not know
                assert loaded[name].dtype == "V2" and loaded[name].tobytes() == tensors[name].tobytes()
                continue
            np.testing.assert_array_equal(loaded[name], tensors[name])
            assert loaded[name].dtype == tensors[name].dtype
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, array in tensors.items():
            image = io.BytesIO()
            np.save(image, array)
            archive.writestr(f"{name}.npy", image.getvalue())
    store = open_weights(path)
    assert list(store) == list(tensors)
    for name, array in tensors.items():
        assert store.dims(name) == array.shape and store.dtype(name) == BY_NP[array.dtype]
        same(store[name], array)
        assert store[name].flags.c_contiguous and not store[name].flags.writeable


def test_npz_is_mapped_and_aligned(tmp_path):
    save_npz(tmp_path / "w.npz", {"a": np.arange(3, dtype=np.float32), "bé": np.ones((2, 3), np.float64)})
    store = open_weights(tmp_path / "w.npz")
    for name in store:
        array = store[name]
        assert array.ctypes.data % 64 == 0
        assert array.ctypes.data == store[name].ctypes.data, "a view, not a copy"


def test_npz_orders_and_foreign_types(tmp_path):
    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(
        tmp_path / "w.npz",
        fortran=np.asfortranarray(grid),
        big=grid.astype(">f4"),
        quad=grid.astype("g"),
        text=np.array(["x"]),
        pair=np.zeros(2, "i4,f4"),
        obj=np.array([{}], object),
    )
    store = open_weights(tmp_path / "w.npz")
    for name in ("fortran", "big"):
        np.testing.assert_array_equal(store[name], grid)
        assert store[name].dtype == np.float32 and store[name].flags.c_contiguous
    for name in ("quad", "text", "pair", "obj"):
        assert store.dtype(name) is None
        with pytest.raises(LightNetError, match="unsupported type"):
            store[name]


def npz_of(path, member: bytes, name="a.npy", method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, member)
    return path


def npy(header: str, body: bytes = b"", version: int = 1) -> bytes:
    width = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(width, len(header)) + header.encode() + body


@pytest.mark.parametrize(
    "member, expected",
    [
        (b"", "not an .npy array"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", b"1234"), "needs 75 bytes, and there are 71"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904)}"), "needs"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), "malformed header"),
        (npy("{'descr': '<f4', 'fortran_order': 'x', 'shape': (1,), }"), "malformed header"),
        (npy("{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }"), "malformed header"),
        (npy("__import__('os').abort()"), "malformed header"),
        (npy("(" * 60000, version=2), "malformed header"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)" + " " * 65000), "malformed header"),
        (npy("")[:9] + b"\xff", "longer than the file"),
    ],
)
def test_npz_refuses_malformed_members(tmp_path, member, expected):
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = npz_of(tmp_path / "w.npz", member, method=method)
        with pytest.raises(LightNetError, match=expected):
            open_weights(path)


def test_npz_refuses_bombs_and_damage(tmp_path):
    image = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", bytes(16))
    raw = bytearray(npz_of(tmp_path / "w.npz", image, method=zipfile.ZIP_DEFLATED).read_bytes())
    entry = raw.rindex(b"PK\x01\x02")
    bomb = raw.copy()
    bomb[entry + 24 : entry + 28] = struct.pack("<I", 0xFFFFFF00)  # the declared size
    assert "cannot hold the 4294967040 that it declares" in refusal(tmp_path / "b.npz", bytes(bomb))
    wrong = raw.copy()
    wrong[entry + 16] ^= 1  # the checksum
    (tmp_path / "c.npz").write_bytes(wrong)
    with pytest.raises(LightNetError, match="checksum differs"):
        open_weights(tmp_path / "c.npz")["a"]
    locked = raw.copy()
    locked[entry + 8] |= 1
    assert "is encrypted" in refusal(tmp_path / "d.npz", bytes(locked))
    directory = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 5 << 20, 0, 0)
    assert "larger than 4194304 bytes" in refusal(tmp_path / "e.npz", bytes(5 << 20) + directory)
    assert "compression is neither" in refusal(
        tmp_path / "f.npz", npz_of(tmp_path / "g.npz", image, method=zipfile.ZIP_BZIP2).read_bytes()
    )


@quick
@given(tensors=st.dictionaries(names.filter(lambda n: n != "__metadata__"), arrays(DTYPES), min_size=1, max_size=4))
def test_safetensors_from_the_package_that_defines_it(tmp_path, tensors):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    save_file(
        {k: np.ascontiguousarray(v).reshape(v.shape) for k, v in tensors.items()},
        tmp_path / "w.safetensors",
        metadata={"format": "np"},
    )
    store = open_weights(tmp_path / "w.safetensors")
    assert set(store) == set(tensors)
    for name, array in tensors.items():
        assert store.dims(name) == array.shape and store.dtype(name) == BY_NP[array.dtype]
        same(store[name], array)
        assert not store[name].flags.writeable


def safetensors(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"\1\0", "longer than the file"),
        (struct.pack("<Q", 1 << 62) + b"{}", "longer than the file"),
        (safetensors(b" " * ((1 << 24) + 1)), "longer than the limit"),
        (safetensors(b"[]"), "not a JSON object"),
        (safetensors(b'{"a": 1, "a": 1}'), "a key stands twice"),
        (safetensors(b'{"a": NaN}'), "NaN is not JSON"),
        (safetensors(b"\xff"), "malformed header"),
        (safetensors(b"[" * 100000), "malformed header"),
        (safetensors({"a": 1}), "needs dtype, shape and data_offsets"),
        (safetensors({"a": tensor([True], 0, 4)}, bytes(4)), "malformed dtype, shape"),
        (safetensors({"a": tensor([-1], 0, 4)}, bytes(4)), "malformed dtype, shape"),
        (safetensors({"a": tensor([1] * 65, 0, 4)}, bytes(4)), "malformed dtype, shape"),
        (safetensors({"a": tensor([10**30], 0, 4)}, bytes(4)), "malformed dtype, shape"),
        (safetensors({"a": tensor([2], 0, 8)}, bytes(4)), "are not in the file's 4 bytes"),
        (safetensors({"a": tensor([1], 4, 0)}, bytes(4)), "are not in the file's 4 bytes"),
        (safetensors({"a": tensor([2**40, 2**40], 0, 4)}, bytes(4)), "does not fill the 4 bytes"),
        (safetensors({"a": tensor([1], 0, 4), "b": tensor([1], 0, 4)}, bytes(4)), "overlap or leave a gap"),
        (safetensors({"a": tensor([1], 0, 4)}, bytes(5)), "the arrays take 4 bytes, and the file has 5"),
        (safetensors({"\ud800": tensor([1], 0, 4)}, bytes(4)), "not printable"),
        (safetensors({"a" * 1025: tensor([1], 0, 4)}, bytes(4)), "too long"),
    ],
)
def test_safetensors_refusals(tmp_path, data, expected):
    assert expected in refusal(tmp_path / "w.safetensors", data)


def test_safetensors_unknown_type_is_an_error_only_when_used(tmp_path):
    header = {"a": tensor([1], 0, 1, "F6_E2M3"), "b": tensor([1], 1, 5)}
    (tmp_path / "w.safetensors").write_bytes(safetensors(header, bytes(5)))
    store = open_weights(tmp_path / "w.safetensors")
    assert store["b"].tolist() == [0]
    with pytest.raises(LightNetError, match="unsupported type: type 'F6_E2M3'"):
        store["a"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["wts", "npz", "deflated.npz", "safetensors"]))
def test_mutated_files_give_arrays_or_lightnet_errors(tmp_path, data, kind):
    path = tmp_path / f"w.{kind}"
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, -1], np.int8)}
    if kind == "wts":
        save_wts(path, tensors)
    elif kind == "safetensors":
        header = {"a": tensor([2, 3], 0, 24), "b": tensor([2], 24, 26, "I8")}
        path.write_bytes(safetensors(header, tensors["a"].tobytes() + b"\1\xff"))
    else:
        (np.savez_compressed if kind == "deflated.npz" else np.savez)(path, **tensors)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        length = data.draw(st.sampled_from([0, 1, 1, 1, 4, 40]))
        raw[at : at + length] = data.draw(st.binary(min_size=0, max_size=4))
    path.write_bytes(raw)
    try:
        store = open_weights(path)
        for name in store:
            store.dims(name)
            store[name].sum()
    except LightNetError as error:
        assert error.render()


def test_fetch_says_what_differs(tmp_path):
    store = open_weights({"conv1_wts": np.zeros((4, 3, 1, 1), np.float32), "q": np.zeros(3, np.int8)})
    for name, dims, dtype, expected in [
        ("conv1_wt", [1], F32, "weight 'conv1_wt' is missing (did you mean 'conv1_wts'?)"),
        ("zzz", [1], F32, "weight 'zzz' is missing (the store has 2 names: 'conv1_wts', 'q')"),
        ("q", [3], F32, "weight 'q' has type i8, and the tensor has f32"),
        ("q", [4], I8, "weight 'q' has 3 elements [3], and the tensor has [4]"),
        ("conv1_wts", [3, 4, 1, 1], F32, "weight 'conv1_wts' has shape [4, 3, 1, 1], and the tensor has [3, 4, 1, 1]"),
    ]:
        with pytest.raises(LightNetError) as caught:
            fetch(store, name, dims, dtype)
        assert expected in str(caught.value)
    assert fetch(store, "conv1_wts", [4, 3], F32).shape == (4, 3)
    assert fetch(store, "q", [1, 3], I8).shape == (1, 3)
    assert store.unused_names(["q"]) == ["conv1_wts"]
    assert store.unused_warnings(["conv1_wts"]) == ["ignore unused weight q"]


def test_a_large_declared_tensor_is_not_allocated_to_be_refused(tmp_path):
    """A deflated gigabyte in a file of a megabyte: the check of the length comes before the loading."""
    image = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (16777216,), }", bytes(1 << 26))
    path = npz_of(tmp_path / "w.npz", image, method=zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    store = open_weights(path)
    with pytest.raises(LightNetError, match="16777216 elements"):
        fetch(store, "a", [10], F32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_files_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.wts")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "w.bin").write_bytes(b"")
    for name, expected in [
        ("pipe.wts", "not a regular file"),
        ("folder.npz", "not a regular file"),
        ("none.npz", "cannot open: No such file"),
        ("w.bin", "unknown kind of weight file"),
    ]:
        with pytest.raises(LightNetError, match=expected):
            open_weights(tmp_path / name)
    for suffix in ("npz", "safetensors"):
        assert "error: invalid weight file" in refusal(tmp_path / f"empty.{suffix}", b"")


def test_saving_leaves_nothing_behind_on_an_error(tmp_path):
    (tmp_path / "w.wts").write_text("old")
    for tensors in ({"a": np.zeros(2)}, {"a b": np.zeros(2, np.float32)}):
        with pytest.raises(LightNetError, match="cannot hold"):
            save_wts(tmp_path / "w.wts", tensors)
    with pytest.raises(LightNetError, match="unsupported type"):
        save_npz(tmp_path / "x.npz", {"a": np.array([object()])})
    with pytest.raises(LightNetError, match="cannot write"):
        save_npz(tmp_path / "no" / "x.npz", {})
    assert [p.name for p in tmp_path.iterdir()] == ["w.wts"] and (tmp_path / "w.wts").read_text() == "old"


# -- printing


def printed(array) -> str:
    """The format by recursion, one element at a time."""

    def level(part, depth):
        if part.ndim == 1:
            return "[" + " ".join(c_format(x) for x in part) + "]"
        return "[" + ("\n" + " " * (depth + 1)).join(level(p, depth + 1) for p in part) + "]"

    return level(array, 0) + "\n"


def c_format(value) -> str:
    if BY_NP[value.dtype].is_float:
        return f"{float(value):.3f}"
    return str(int(value))


def test_print_documented_examples():
    # The three-op example of the documents on the JSON IR and on IL.
    text = io.StringIO()
    print_tensor(text, "tensor2:", np.array([[2, 3, 4], [6, 7, 8]], np.float32))
    assert text.getvalue() == "tensor2:\n[[2.000 3.000 4.000]\n [6.000 7.000 8.000]]\n"
    assert format_tensor(np.arange(8).reshape(2, 2, 2)) == "[[[0 1]\n  [2 3]]\n [[4 5]\n  [6 7]]]\n"
    special = np.array([-0.0, -0.0001, np.nan, -np.nan, np.inf, -np.inf, 2.0625, 1e10], np.float32)
    assert format_tensor(special) == "[-0.000 -0.000 nan nan inf -inf 2.062 10000000000.000]\n"
    assert format_tensor(np.array([True, False])) == "[1 0]\n"
    extremes = np.array([2**64 - 1], np.uint64), np.array([-(2**63)], np.int64)
    assert [format_tensor(a) for a in extremes] == ["[18446744073709551615]\n", "[-9223372036854775808]\n"]
    text = io.StringIO()
    print_tensor(text, "", np.zeros(1, np.int8))
    assert text.getvalue() == "\n[0]\n"


@given(st.one_of([arrays_of(d, hnp.array_shapes(max_dims=5, max_side=4)) for d in DTYPES]), st.integers(1, 70))
def test_print_any_shape_in_any_pieces(array, block):
    before, printing._BLOCK = printing._BLOCK, block
    try:
        assert format_tensor(array) == printed(array)
    finally:
        printing._BLOCK = before


def test_print_a_million_elements_in_pieces():
    for shape in [(1000, 1000), (1000000,), (1000000, 1), (2, 500000)]:
        with calls(at_most=5000):
            assert max(map(len, printing.format_pieces(np.zeros(shape, np.float32)))) < 1 << 20


def test_print_to_a_stream_that_lacks_the_characters():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_tensor(stream, "é\ud800", np.zeros(1))
    stream.flush()
    assert stream.buffer.getvalue() == b"\\xe9\\ud800\n[0.000]\n"


def test_a_circle_of_links_is_not_written_through(tmp_path):
    """Nor replaced: who made it meant something else."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for name in ("a", "b/c"):
        with pytest.raises(LightNetError, match=rf"cannot write '.*{name}': "):
            write_atomic(tmp_path / name, "text")
    assert {p.name: os.readlink(p) for p in tmp_path.iterdir()} == {"a": "b", "b": "a"}


def test_fprint_stays_below_its_folder(tmp_path):
    base, outside = tmp_path / "base", tmp_path / "outside"
    (base / "sub").mkdir(parents=True)
    outside.mkdir()
    (base / "out").symlink_to(outside)
    (base / "file").symlink_to(outside / "new")
    (base / "loop").symlink_to("loop")
    (base / "inner").symlink_to("sub")
    os.mkfifo(base / "pipe")
    for file in [
        "/etc/passwd",
        "../x",
        "sub/../../x",
        "sub/../x",
        "out/x",
        "file",
        "",
        ".",
        "a\0b",
        "sub",
        "pipe",
        "loop/x",
    ]:
        with pytest.raises(LightNetError, match="fprint may not write"):
            open_fprint(file, base)
    assert list(outside.iterdir()) == []
    assert fprint_path("inner/x.txt", base) == (base / "sub" / "x.txt").resolve()
    for content in ("a longer text", "short"):  # the file is truncated
        with open_fprint("sub/x.txt", base) as out:
            out.write(content)
    assert (base / "sub" / "x.txt").read_text() == "short"
    with pytest.raises(FileNotFoundError):
        open_fprint("none/x", base)


# -- initial contents


def test_uniform_is_what_its_docstring_says():
    """Philox4x64-10 written out from the paper (section 3.3), keyed and scaled as documented."""
    mask = 2**64 - 1
    digest = hashlib.sha256(b"7:conv1").digest()
    key = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")]
    # NumPy's generator increments the counter before the first block.
    counter, (k0, k1) = [1, 0, 0, 0], key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [(b >> 64) ^ counter[1] ^ k0, b & mask, (a >> 64) ^ counter[3] ^ k1, a & mask]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    expected = [(word >> 11) / 2**53 for word in counter]
    np.testing.assert_array_equal(uniform("conv1", 7, 4, 0, 1), expected)
    assert not np.array_equal(uniform("conv2", 7, 4, 0, 1), expected)
    assert not np.array_equal(uniform("conv1", 8, 4, 0, 1), expected)


def test_uniform_ranges(monkeypatch):
    values = uniform("x", 0, 20000, -2, 6)
    assert values.min() >= -2 and values.max() <= 6
    assert abs(values.mean() - 2) < 0.06 and abs(values.std() - 8 / math.sqrt(12)) < 0.06
    assert np.isfinite(uniform("x", 0, 100, -DBL_MAX, DBL_MAX)).all()
    monkeypatch.setattr("lightnet.runtime.initial._BLOCK", 7)
    np.testing.assert_array_equal(uniform("x", 0, 20000, -2, 6), values)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8"])
@pytest.mark.parametrize("ran", [(-0.1, 0.1), (0, 1e-45), (-3e38, 3e38), (-1e300, 1e300)])
def test_random_contents_are_converted_uniform_numbers(dtype: str, ran: tuple[float, float]) -> None:
    """Rounded where they fit, saturated where they do not; of more elements than are made at a time."""
    got = initial_contents("w", (300, 70), BY_NAME[dtype], ran=ran, seed=3)
    expected = convert(uniform("w", 3, 21000, *ran), BY_NAME[dtype])
    assert got.tobytes() == expected.tobytes()


def test_initial_contents_by_the_rules_of_create(tmp_path):
    store = open_weights({"w": np.array([1, 2, 3, 4], np.float32)})
    missing: list[str] = []
    got = initial_contents("w", [2, 2], F32, ran=[1, 2], data=[9], from_file=True, store=store, missing=missing)
    assert got.tolist() == [[1, 2], [3, 4]] and missing == []
    assert initial_contents("v", [2], F32, from_file=True, store=store, missing=missing).tolist() == [0, 0]
    assert initial_contents("u", [1], I8, from_file=True, missing=missing).tolist() == [0]
    assert missing == ["v", "u"]
    # `ran` goes before `data`; a weight that is not `from_file` is not taken from the store.
    drawn = initial_contents("w", [50], F32, ran=[3, 4], data=[9], store=store)
    assert drawn.dtype == np.float32 and ((drawn >= 3) & (drawn <= 4)).all() and len(set(drawn.tolist())) > 40
    assert initial_contents("w", [2, 2], I8, data=[300, -300, 1.7]).tolist() == [[127, -128], [1, 0]]
    assert initial_contents("w", [2], BY_NAME["i1"], data=[0]).tolist() == [False, False]
    assert set(initial_contents("i", [500], I8, ran=[-1.9, 1.9]).tolist()) == {-1, 0, 1}
    assert initial_contents("i", [3], BY_NAME["ui8"], ran=[-9, -8]).tolist() == [0, 0, 0]
    np.testing.assert_array_equal(drawn, initial_contents("w", [50], F32, ran=[3, 4]))


@pytest.mark.parametrize(
    ("named", "name"), [('as "op"("tensor")', "tensor"), ('as ("tensor")', "tensor"), ('as "op"', "op"), ("", "?")]
)
def test_contents_are_those_of_the_tensors_name(named: str, name: str) -> None:
    """Else of the op's: in a file of weights, among what is missing there, and for random numbers."""

    def source(params: str):
        text = f"func.func @main() {{ %w = ln.param {{{params}}} : tensor<5xf32> {named} func.return }}"
        module = parse_mlir(make_context(), text, "net.mlir")  # as it is: a reader of networks names all tensors
        return next(op for op in module.walk() if isinstance(op, Source)), module

    op, _module = source("from_file = true")
    weights = {n: np.full(5, k, np.float32) for k, n in enumerate(("tensor", "op", "?"))}
    np.testing.assert_array_equal(op.contents(open_weights(weights)), weights[name])
    missing: list[str] = []
    op.contents(None, missing=missing)
    assert missing == [name]
    op, _module = source("ran = [0, 1]")
    np.testing.assert_array_equal(op.contents(None, seed=3), initial_contents(name, [5], F32, ran=[0, 1], seed=3))


def test_initial_contents_refusals():
    with pytest.raises(LightNetError) as caught:
        initial_contents("w", [2], F32, data=[1, 2, 3])
    assert caught.value.label == "create.data-length"
    for dims in ([2**40], [2**62, 2**62], [1] * 100):
        with pytest.raises(LightNetError) as caught:
            initial_contents("w", dims, BY_NAME["f64"], data=[0])
        assert caught.value.label == "create.size"


def test_sample_kinds():
    weights = sample("w", "weight", [64, 32, 3, 3], F32)
    assert abs(weights.std() * math.sqrt(32 * 9) - 1) < 0.02
    assert (sample("w", "weight", [64, 64], F32, fan_in=1).std() / sample("w", "weight", [64, 64], F32).std()) > 7
    for kind, low, high in [("variance", 0.5, 1.5), ("bias", -0.1, 0.1), ("data", -1, 1), ("anchor", 4, 64)]:
        values = sample("x", kind, [300], F32)
        assert low <= values.min() < values.max() <= high and values.dtype == np.float32
    index = sample("i", "index", [200], BY_NAME["i32"], bound=7)
    assert set(index.tolist()) == set(range(7)) and index.dtype == np.int32
    for dtype in DTYPES:
        values = sample("x", "data", [5, 20], dtype)
        assert values.dtype == dtype.np and values.shape == (5, 20) and len(np.unique(values)) > 1
        assert sample("x", "variance", [50], dtype).any()
    with pytest.raises(ValueError):
        sample("x", "nonsense", [1], F32)


# -- genwts


def tool(capsys, *args) -> tuple[int, str, str]:
    try:
        status = genwts.main([str(a) for a in args])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def test_genwts_makes_the_reference_file(tmp_path, capsys):
    five = "[1.2, 0.001; (-0.03)|{2e5} <0>!\tnan x1 1e 0x3 + .]"
    (tmp_path / "wts1.conv.txt").write_text(five + "\n" + five)
    (tmp_path / "wts2.txt").write_text("1 2 3 4 5 6 7 8 9 0")
    golden = (DATA / "test_trt_weight.wts").read_text().split("\n")
    for kind, name, line in [(0, "wts1.conv.txt", golden[1]), (2, "wts2.txt", golden[2])]:
        out = tmp_path / "out.wts"
        assert tool(capsys, "-t", kind, "-o", out, tmp_path / name) == (0, "", "")
        assert out.read_text().split("\n") == ["1", line.rstrip(), ""]


def test_genwts_int8_truncates_and_wraps(tmp_path, capsysbinary):
    (tmp_path / "a.txt").write_text("300 -1 -1.7 127.9 128 1e30")
    assert genwts.main(["-t", "2", "-o", "-", str(tmp_path / "a.txt")]) == 0
    assert capsysbinary.readouterr().out == b"1\na 2 6 2c ff ff 7f 80 ff\n"


def test_genwts_counts_only_what_it_took(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("1.5")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)))
    out = tmp_path / "out.wts"
    status, _, err = tool(capsys, "-t", 0, "-o", out, tmp_path / "none", tmp_path / "a.txt", tmp_path / "b.bin")
    assert status == 0 and err.count("warning: ") == 2 and "not a text file; file skipped" in err
    assert out.read_text() == "1\na 0 1 3fc00000\n"


def test_genwts_takes_numpy_files(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.array([[1.5, 1e300]]))
    np.savez(tmp_path / "n.npz", x=np.array([2], np.int64), y=np.array([True]))
    out = tmp_path / "out.wts"
    assert tool(capsys, "-t", 0, "-o", out, tmp_path / "a.npy", tmp_path / "n.npz") == (0, "", "")
    store = open_weights(out)
    assert {name: store[name].tolist() for name in store} == {"a": [1.5, math.inf], "x": [2], "y": [1]}


def test_genwts_errors(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("1")
    (tmp_path / "a.dat").write_text("1")
    out = tmp_path / "out.wts"
    for args, expected in [
        (("-t", 1, "-o", out, tmp_path / "a.txt"), "type 1 (half) is not supported yet"),
        (("-t", 3, "-o", out, tmp_path / "a.txt"), "unknown type 3"),
        (("-t", "x", "-o", out, tmp_path / "a.txt"), "invalid int value"),
        (("-t", 0, "-o", out), "required: INFILE"),
        (("-t", 0, tmp_path / "a.txt"), "required: -o"),
        (("-t", 0, "-o", out, tmp_path / "none"), "no input file could be used"),
        (("-t", 0, "-o", out, tmp_path / "a.txt", tmp_path / "a.dat"), "tensor 'a' would be in the file twice"),
        (("-t", 0, "-o", tmp_path / "no" / "out.wts", tmp_path / "a.txt"), "cannot write"),
    ]:
        status, stdout, err = tool(capsys, *args)
        assert status == 1 and stdout == "" and "error: " in err and expected in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.dat", "a.txt"]


def test_the_runtime_does_without_xdsl():
    code = (
        "import sys, lightnet_export.genwts, lightnet.runtime.initial, lightnet.runtime.numbers, lightnet.runtime.printing\n"
        "assert not {'xdsl', 'llvmlite', 'safetensors'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
