"""MXNet's .params files: those that MXNet of every version wrote, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from nnvm_nets import DATA

from lightnet.diagnostics import LightNetError
from lightnet.runtime.weights import fetch, open_weights

OLD = DATA / "old"
VERSIONS = ("0.11.0", "1.0.0", "1.5.1", "1.9.1")  # V1 (0.11) and V2


@pytest.mark.parametrize("version", VERSIONS)
def test_every_type_of_every_version(version: str) -> None:
    store = open_weights(OLD / f"dtypes-mx{version}.params")
    expected = {"f16": np.float16, "f64": np.float64, "u8": np.uint8, "i32": np.int32, "i8": np.int8, "i64": np.int64}
    assert list(store) == list(expected)
    for name, dtype in expected.items():
        assert store[name].dtype == dtype
        start = -2 if name == "i8" else 0
        np.testing.assert_array_equal(store[name].reshape(-1), np.arange(start, start + store[name].size))


@pytest.mark.parametrize("version", VERSIONS)
def test_arrays_without_names_are_numbered(version: str) -> None:
    store = open_weights(OLD / f"list-noname-mx{version}.params")
    assert {k: v.tolist() for k, v in store.items()} == {"0": [[1.0] * 3] * 2, "1": [0.0] * 4}


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_sparse_arrays_become_dense(version: str) -> None:
    store = open_weights(OLD / f"sparse-mx{version}.params")
    assert store["csr"].tolist() == [[0, 1], [2, 0]]
    assert store["rs"].tolist() == [[0, 0], [2, 3]]


def test_v0_by_its_first_bytes() -> None:
    """The oldest form; the file has no suffix that says what it is."""
    store = open_weights(DATA / "public" / "legacy_ndarray.v0")
    assert len(store) == 6
    for array in store.values():
        np.testing.assert_array_equal(array, np.arange(128, dtype=np.float32))


def test_prefixes_are_no_part_of_names() -> None:
    store = open_weights(OLD / "mininet-mx1.9.1-0000.params")
    assert store["s1_conv_weight"].shape == (8, 3, 3, 3)
    assert store["s1_bn_moving_mean"].shape == (8,)
    assert not [name for name in store if ":" in name]


# -- lists made here --------------------------------------------------------------------------------------------------

V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA


def shape(*dims: int) -> bytes:
    return struct.pack(f"<i{len(dims)}q", len(dims), *dims)


def dense(dims: tuple[int, ...], kind: int, data: bytes, magic: int = V2) -> bytes:
    head = struct.pack("<I", magic) + (struct.pack("<i", 0) if magic != V1 else b"")
    return head + shape(*dims) + struct.pack("<3i", 1, 0, kind) + data


def listed(*arrays: bytes, names: tuple[str, ...] = ()) -> bytes:
    text = b"".join(struct.pack("<Q", len(n.encode())) + n.encode() for n in names)
    return struct.pack("<3Q", 0x112, 0, len(arrays)) + b"".join(arrays) + struct.pack("<Q", len(names)) + text


@pytest.fixture
def opened(tmp_path: Path):
    def open_(content: bytes):
        path = tmp_path / "w.params"
        path.write_bytes(content)
        return open_weights(path)

    return open_


def test_v3_has_scalars_and_v2_has_empty_arrays(opened) -> None:
    one = struct.pack("<f", 2.5)
    store = opened(listed(dense((), 0, one, V3), struct.pack("<Ii", V2, 0) + shape(), names=("a", "b")))
    assert store["a"].shape == () and store["a"] == 2.5
    with pytest.raises(LightNetError, match="no contents"):
        store["b"]


def test_bool_and_bfloat16(opened) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    store = opened(listed(dense((3,), 7, b"\1\0\1"), dense((2,), 12, struct.pack("<2H", 0x3F80, 0xC000))))
    assert store["0"].tolist() == [True, False, True]
    assert store["1"].dtype == ml_dtypes.bfloat16 and store["1"].astype(np.float32).tolist() == [1.0, -2.0]


def test_arrays_are_mapped_not_read(opened) -> None:
    """An aligned array of the file is no copy."""
    content = listed(dense((1024,), 5, bytes(range(128)) * 8))
    array = opened(content)["0"]
    assert not array.flags.owndata and not array.flags.writeable
    assert array[:5].tolist() == [0, 1, 2, 3, 4]


def row_sparse(dims: tuple[int, ...], rows: list[int], values: np.ndarray) -> bytes:
    head = struct.pack("<Ii", V2, 1) + shape(*values.shape) + shape(*dims) + struct.pack("<3i", 1, 0, 0)
    return (
        head
        + struct.pack("<i", 6)
        + shape(len(rows))
        + values.astype("<f4").tobytes()
        + struct.pack(f"<{len(rows)}q", *rows)
    )


def test_row_sparse_of_any_rank(opened) -> None:
    values = np.arange(12.0).reshape(2, 3, 2)
    array = opened(listed(row_sparse((5, 3, 2), [1, 4], values)))["0"]
    expected = np.zeros((5, 3, 2))
    expected[[1, 4]] = values
    np.testing.assert_array_equal(array, expected)


def test_an_index_of_a_sparse_array_is_checked(opened) -> None:
    with pytest.raises(LightNetError, match="index"):
        opened(listed(row_sparse((5, 2), [1, 7], np.ones((2, 2)))))["0"]


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = (OLD / "sparse-mx1.9.1.params").read_bytes()
    path = tmp_path / "cut.params"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(LightNetError, match="invalid weight file") as caught:
            open_weights(path)
        assert str(path) in str(caught.value)


def test_every_changed_byte_is_harmless(tmp_path: Path) -> None:
    """A damaged file is refused or gives other numbers; nothing else happens, and nothing large is allocated."""
    path = tmp_path / "damaged.params"
    for name in ("sparse-mx1.9.1.params", "dtypes-mx0.11.0.params"):
        content = (OLD / name).read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
            try:
                store = open_weights(path)
                for key in store:
                    if store.dtype(key) is not None and np.prod(store.dims(key), dtype=float) < 1e6:
                        _ = store[key]
            except LightNetError:
                pass


@pytest.mark.parametrize("content, message", [
    (b"\x13\1" + bytes(30), "no list of NDArrays"),
    (struct.pack("<3Q", 0x112, 0, 1 << 40), "more than the file"),
    (listed(dense((1 << 40,), 0, b"")), "are left in the file"),
    (listed(dense((1 << 32, 1 << 32, 1 << 32), 0, b"")), "are left in the file"),
    (listed(dense((2,), 99, b"12345678")), "element type 99"),
    (listed(dense((-3,), 0, b"")), "negative"),
    (listed(struct.pack("<Ii", V2, 7)), "storage type 7"),
    (listed(struct.pack("<Iii", V2, 0, 1000) + bytes(8000)), "1000 dimensions"),
    (listed(dense((1,), 5, b"1"), dense((1,), 5, b"2"), names=("arg:a", "aux:a")), "two arrays are named 'a'"),
    (listed(dense((1,), 5, b"1"), dense((1,), 5, b"2"), names=("a",)), "2 arrays and 1 names"),
    (listed(dense((1,), 5, b"1"))[:-8] + struct.pack("<QQ", 1, 1 << 50), "longer than the file"),
    (listed(row_sparse((1 << 20, 1 << 20), [], np.ones((0, 1 << 20)))), "would take more than"),
    (listed(row_sparse((5, 2), [1], np.ones((2, 2)))), "do not fit together"),
])  # fmt: skip
def test_damaged_lists(opened, content: bytes, message: str) -> None:
    with pytest.raises(LightNetError, match=message):
        opened(content)


def test_bytes_behind_the_list_are_a_warning(opened) -> None:
    store = opened(listed(dense((1,), 5, b"1")) + b"more")
    assert "4 bytes" in store.warnings[0]


def test_fetch_takes_the_file_for_a_tensor() -> None:
    from lightnet.runtime.dtypes import BY_NAME

    store = open_weights(OLD / "mininet-mx1.0.0-0000.params")
    assert fetch(store, "fc_weight", (10, 24), BY_NAME["f32"]).shape == (10, 24)
