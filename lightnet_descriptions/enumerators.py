"""The enumerators of upstream's C, by what they enumerate: dtypes, operations, parameter types, memory types. Imports
the dtypes and the memory types."""

from __future__ import annotations

from lightnet.ir.memory import MEMORY_TYPES
from lightnet.runtime.dtypes import DTYPES

#: The strings that upstream's conversion functions (`from_func`) know.
CONVERSIONS: dict[str, tuple[str, ...]] = {
    "tl_dtype_from_str": tuple(d.tl for d in DTYPES),
    "tl_elew_op_from_str": ("TL_MUL", "TL_DIV", "TL_SUM", "TL_SUB", "TL_MAX", "TL_MIN", "TL_POW"),
    "tl_resize_type_from_str": ("TL_NEAREST", "TL_LINEAR"),
    "tl_sort_dir_from_str": ("TL_SORT_DIR_ASCENDING", "TL_SORT_DIR_DESCENDING"),
}
PTYPES = tuple(
    f"LN_PARAM_{t}" for t in ("NULL", "STRING", "NUMBER", "BOOL", "ARRAY_STRING", "ARRAY_NUMBER", "ARRAY_BOOL")
)
MTYPES = tuple(f"LN_MEM_{name.upper()}" for name in MEMORY_TYPES)
#: What a C enumerator stands for: a dtype by our name for it, any other by its own name.
ENUMERATORS: dict[str, str] = {
    **{e: e for names in CONVERSIONS.values() for e in names},
    **{d.tl: d.name for d in DTYPES},
    **{e: e for e in (*PTYPES, *MTYPES)},
}
