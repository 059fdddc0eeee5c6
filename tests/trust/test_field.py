"""Index notation in a prime field: held to Python's own integers and fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from kernels import op_of

from lightnet.backends.expressions import bind_op
from lightnet.dialects.ln.dialect import optypes
from lightnet_trust.interpreter.field import (
    PRIME,
    canonical,
    evaluate_residues,
    image,
    inverse,
    random_function,
)

OPS = {name: cls for name, cls in optypes().items() if cls.samples()}
CASES = [(name, i) for name, cls in sorted(OPS.items()) for i in range(len(cls.samples()))]
#: Ops of sums, products, quotients and order alone, whose definitions give a whole number or a fraction for whole numbers.
RATIONAL = (
    "conv2d",
    "deconv2d",
    "matmul",
    "elew",
    "reduce_sum",
    "reduce_mean",
    "reduce_prod",
    "relu",
    "lrelu",
    "einsum",
)


def residue(x: Fraction) -> int:
    """A fraction in the field, around 0."""
    found = x.numerator * pow(x.denominator, -1, PRIME) % PRIME
    return found - PRIME if found > PRIME // 2 else found


def residues(array: np.ndarray) -> np.ndarray:
    return canonical(image(array))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_images_are_those_of_the_rational_numbers_that_floats_are(dtype):
    """Of numbers of every magnitude, of whole ones, and of the least and the largest there are."""
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    numbers = np.concatenate([
        rng.standard_normal(300) * 2.0 ** rng.integers(-140, 120, 300), np.arange(-9.0, 9), [0.1, info.max, info.tiny, -info.smallest_subnormal]
    ]).astype(dtype)  # fmt: skip
    assert residues(numbers).tolist() == [residue(Fraction(float(x))) for x in numbers]


def test_a_number_one_step_beside_has_another_image():
    """Of a scalar as of an array."""
    x = np.float32(0.1)
    assert residues(x) != residues(np.nextafter(x, np.float32(1)))


def test_inverses_are_pythons():
    """Each is what Python's own pow gives."""
    numbers = np.array([1.0, -1, 2, 3, PRIME // 2, -(PRIME // 2), 77777])
    assert canonical(inverse(numbers)).tolist() == [residue(Fraction(1, int(x))) for x in numbers]


def test_random_functions_are_functions_of_their_arguments():
    """The same arguments give the same, other ones, another order and another name do not."""
    a, b = np.array([5.0, 6, 5]), np.array([7.0, 7, 7])
    one, other = random_function("pow", a, b), random_function("pow", b, a)
    assert one[0] == one[2] and one[0] != one[1] and one[0] != other[0]
    assert random_function("exp", a)[0] != random_function("tanh", a)[0]


def fields_of(op, arrays):
    names, results = op.arg_names()
    floats = {n: residues(a) for n, a in zip(names, arrays) if op.operand_specs[names.index(n)].dtype.is_float}
    return evaluate_residues(bind_op(op), dict(zip(names, arrays)), floats), results


@pytest.mark.parametrize("name, index", [case for case in CASES if OPS[case[0]].definition is not None])
def test_every_definition_is_evaluated(name, index):
    """The residues have the results' dims, are in one form, and the same again."""
    op, arrays = op_of(OPS[name], OPS[name].samples()[index], index)
    found, results = fields_of(op, arrays)
    for result, spec in zip(results, op.result_specs, strict=True):
        if spec.dtype.is_float:
            assert found[result].shape == spec.dims and (np.abs(found[result]) <= PRIME // 2).all()
            np.testing.assert_array_equal(found[result], fields_of(op, arrays)[0][result])


@pytest.mark.parametrize("name, index", [case for case in CASES if case[0] in RATIONAL])
def test_sums_and_products_are_those_of_whole_numbers(name, index):
    """Of small whole numbers, where float64 has no rounding: the result's image is the results' residues."""
    op, arrays = op_of(OPS[name], OPS[name].samples()[index], index)
    if (
        any(not s.dtype.is_float or s.dtype.is_short for s in op.operand_specs)
        or "TL_POW" in op.param_values().values()
    ):
        pytest.skip("no floats that whole numbers fit in")
    rng = np.random.default_rng(index)
    arrays = [rng.integers(1, 4, a.shape).astype(a.dtype) for a in arrays]
    want = op.reference(*arrays)
    if not np.array_equal(want, np.round(want)) or np.abs(want).max(initial=0) > 2**24:
        pytest.skip("no whole number")
    found, results = fields_of(op, arrays)
    np.testing.assert_array_equal(found[results[0]], residues(want))
