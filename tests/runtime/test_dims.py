"""Dims with symbols: arithmetic, bounds and comparisons against brute force over all values."""

from __future__ import annotations

from functools import reduce
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightnet.diagnostics import LightNetError
from lightnet.passes.planning.stacking import upper_join
from lightnet.runtime.dim_bounds import BOUNDS, are_apart, without_quotients
from lightnet.runtime.dim_text import dims_text, parse_size, parse_sizes, text
from lightnet.runtime.dims import (
    Dim,
    Undecided,
    at,
    common_divisor,
    dim_max,
    dim_min,
    greatest,
    is_never_below,
    least,
    samples,
    symbol,
    typical,
    with_sizes,
)

_SYMBOLS = [symbol("a", 1, 5), symbol("b", 0, 3), symbol("h", 4, 16, 4)]
_CALLS = [dict(zip("abh", values)) for values in product(range(1, 6), range(4), range(4, 17, 4))]


@st.composite
def _pairs(draw, depth=3):
    """An expression over three symbols: the dim, and a function from a call to its value that knows nothing of dims."""
    kind = draw(st.sampled_from(["symbol", "number", "+", "-", "*", "//", "%", "max", "min"] if depth else ["symbol"]))
    if kind == "symbol":
        k = draw(st.integers(0, 2))
        return _SYMBOLS[k], lambda call: call["abh"[k]]
    if kind == "number":
        n = draw(st.integers(-4, 9))
        return n, lambda call: n
    a, f = draw(_pairs(depth - 1))
    if kind in ("//", "%"):
        n = draw(st.integers(1, 7))
        return (a // n, lambda call: f(call) // n) if kind == "//" else (a % n, lambda call: f(call) % n)
    b, g = draw(_pairs(depth - 1))
    match kind:
        case "+":
            return a + b, lambda call: f(call) + g(call)
        case "-":
            return a - b, lambda call: f(call) - g(call)
        case "*":
            return a * b, lambda call: f(call) * g(call)
        case "max":
            return dim_max(a, b), lambda call: max(f(call), g(call))
    return dim_min(a, b), lambda call: min(f(call), g(call))


@settings(max_examples=300, deadline=None)
@given(_pairs())
def test_a_dim_is_its_expression_in_every_call(pair):
    """A dim has the value of its expression for all values of symbols, and lies within its bounds."""
    dim, value = pair
    for call in _CALLS:
        assert at(dim, call) == value(call)
        assert least(dim) <= value(call) <= greatest(dim)


@settings(max_examples=200, deadline=None)
@given(_pairs(2), _pairs(2))
def test_a_comparison_holds_for_every_call(one, other):
    """What a comparison says holds for all values; where it does not say, `Undecided` names the symbols."""
    (a, f), (b, g) = one, other
    facts = {f(call) < g(call) for call in _CALLS}
    try:
        assert facts == {a < b}
    except Undecided as e:
        assert e.dim.symbols
    if a == b:
        assert all(f(call) == g(call) for call in _CALLS)
        assert hash(a) == hash(b)


@settings(max_examples=200, deadline=None)
@given(_pairs())
def test_the_text_of_a_dim_reads_back(pair):
    dim, _ = pair
    assert parse_size(text(dim)) == dim


@settings(max_examples=100, deadline=None)
@given(_pairs(2), _pairs(2))
def test_a_product_divides_by_its_factors(one, other):
    """``a·b over b`` is a, for every b that is not 0."""
    (a, _), (b, _) = one, other
    if not isinstance(b, Dim):
        return
    whole = a * b
    if isinstance(whole, Dim):
        assert whole.over(b) == a


@settings(max_examples=100, deadline=None)
@given(_pairs(2))
def test_a_substitution_is_the_value_there(pair):
    dim, value = pair
    for call in _CALLS[::7]:
        assert with_sizes(dim, call) == value(call)
        assert at(with_sizes(dim, {"a": call["a"]}), {k: call[k] for k in "bh"}) == value(call)


@pytest.mark.parametrize(
    ("least_of", "bound"),
    [
        (lambda a, b: a * b - a, 0),  # a >= 1, b >= 1
        (lambda a, b: a * b - b, 0),
        (lambda a, b: -(-a // 16) * 16 - a, 0),
        (lambda a, b: a - a // 16 * 16, 0),
        (lambda a, b: 15 - (a - a // 16 * 16), 0),
        (lambda a, b: (a * b + 63) // 64 * 64 - a * b, 0),
        (lambda a, b: dim_max(a, b) - a, 0),
        (lambda a, b: a - dim_min(a, b), 0),
        (lambda a, b: b * dim_max(a, 7) - 7 * b, 0),
        (lambda a, b: 4 * a * b - 2 * a - 2 * b, 0),
    ],
)
def test_what_memory_plans_need_is_proved(least_of, bound):
    """The inequalities that sizes, tails and offsets lead to are proved by the bounds of symbols."""
    assert least(least_of(symbol("a", 1, 512), symbol("b", 1, 16))) >= bound


@settings(max_examples=200, deadline=None)
@given(_pairs(2), _pairs(2), st.integers(1, 3))
def test_what_is_proved_of_two_ranges_holds_in_every_call(one, other, size):
    """Where a size is proved never to be below another, or two ranges to lie apart, they are in every call; a joined
    size is below neither."""
    (a, f), (b, g) = one, other
    if is_never_below(a, b):
        assert all(f(call) >= g(call) for call in _CALLS)
    if are_apart(a, size, b, size):
        assert all(abs(f(call) - g(call)) >= size for call in _CALLS)
    if least(a) >= 0 <= least(b):
        assert all(at(upper_join(a, b), call) >= max(f(call), g(call)) for call in _CALLS)
    assert all(f(call) % max(common_divisor(a), 1) == 0 for call in _CALLS)


def test_a_join_is_a_polynomial_where_no_atom_is_negative():
    """Of each product the larger multiple, which is below neither; nor is it where atoms may be negative."""
    a, b, h = _SYMBOLS
    q = (7 * a + 3) // 4
    for one, other, joined in (
        (3 * a + 2 * b, 2 * a + 5 * b, 3 * a + 5 * b),
        (a * h + 4, 2 * h, a * h + 2 * h + 4),
        (q * b + a, 2 * q + b, q * b + 2 * q + a + b),
        (a, 7, a + 7),
        (3 * b, 3 * b, 3 * b),
    ):
        assert upper_join(one, other) == upper_join(other, one) == joined
    signed = [(b - a) // 2, (3 * b - 2 * a) // 5, dim_min(b, a - 4), dim_max(b - a, 2 * b - h)]
    assert all(next(s.atoms).range[0] < 0 for s in signed)
    for s, (one, other) in product(signed, [(1, 2), (-1, 1), (2, 0), (0, -3), (-1, -2)]):
        for more in (0, a, 2 * b):
            joined = upper_join(one * s + more, other * s)
            assert all(at(joined, c) >= max(one * at(s, c) + at(more, c), other * at(s, c)) for c in _CALLS)


@settings(max_examples=200, deadline=None)
@given(st.lists(_pairs(2), min_size=1, max_size=4), st.data())
def test_a_bound_without_quotients_holds_in_every_call(pairs, data):
    """Sums and products of quotients are never below the polynomial that is taken for them, and its minimum over the
    corners of the symbols' ranges is below none of its values."""
    total, values = 0, []
    for dim, value in pairs:
        divisor, factor = data.draw(st.integers(1, 64)), data.draw(st.integers(-64, 64))
        by, times = data.draw(_pairs(1))
        total += factor * (dim // divisor) * by
        values.append((factor, value, divisor, times))
    if not isinstance(total, Dim):
        return
    kept = data.draw(st.sets(st.sampled_from(list(total.atoms))))
    for bound, multiple in (without_quotients(total), without_quotients(total, kept)):
        for call in _CALLS:
            exact = sum(factor * (value(call) // divisor) * times(call) for factor, value, divisor, times in values)
            corners = BOUNDS.of_corners(bound) if isinstance(bound, Dim) else bound
            assert multiple * exact >= at(bound, call) >= corners


def test_ends_of_neighbours_are_seen_to_be_in_order():
    """What plans of attention and of strided sequences compare: ends that are rounded, and quotients of quotients."""
    l, n = symbol("l", 4, 231), symbol("n", 1, 6)
    squares, lines, half = (l * l * n + 15) // 16, (l * n + 3) // 4, (l + 1) // 2
    assert is_never_below(128 * squares, 64 * lines + 16 * l * n)
    assert not is_never_below(128 * squares, 64 * lines + 17 * l * n)  # at 4, where both ends meet
    assert is_never_below(192 * l * n + 128 * ((l * l * n + 7) // 8), 224 * l * n + 64 * ((l * n + 1) // 2))
    maps = 192 * half * n + 64 * ((half * half * n + 7) // 8)
    assert is_never_below(maps, 16 * half * n + 128 * ((half * n + 3) // 4) + 64 * ((half * half * n + 15) // 16))
    assert not is_never_below(maps, 177 * half * n + 128 * ((half * n + 3) // 4))
    some = dim_min(1, (l * n - 4) // 122) * 3456 * lines  # nothing, for the smallest
    assert (some + 128 * ((3 * l * n + 1) // 2) - 192 * l * n).low >= 0 > (128 * lines - 32 * l * n - some).low


@settings(max_examples=100, deadline=None)
@given(_pairs())
def test_samples_are_the_numbers_of_calls(pair):
    dim, value = pair
    calls = [{"a": 1, "b": 0, "h": 4}, {"a": 5, "b": 3, "h": 16}, {"a": 1, "b": 0, "h": 4}]
    of_symbols = {s.name: [n * s.multiple for n in s.samples] for d in _SYMBOLS for s in d.symbols}
    calls += [{name: found[k] for name, found in of_symbols.items()} for k in range(3, len(samples(dim)))]
    assert samples(dim) == tuple(map(value, calls))
    assert typical(symbol("n", 1, 64, 2) // 3) == 5


def test_sums_of_many_rounded_sizes_are_compared():
    """Sums of more rounded sizes than are looked into one by one are above those of the sizes, and of fewer."""
    b, n = symbol("b", 1, 16), symbol("n", 1, 512)
    sizes = [1032 * b * n, 4 * b * n * n, 16 * b * n * n, b * n * n, 4 * n, 20 * b, 36 * b * n, 4104 * b * n]
    rounded = [-(-size // 64) * 64 for size in sizes]
    assert is_never_below(sum(rounded), sum(sizes)) and not is_never_below(sum(sizes), sum(rounded))
    assert all(is_never_below(sum(rounded) - r, sum(sizes) - size) for r, size in zip(rounded, sizes))
    assert not is_never_below(sum(rounded) - 64, sum(sizes))


@pytest.mark.parametrize("many", [2, 4, 6])
def test_stacks_of_maxima_are_proved_apart(many):
    """What stands on a maximum of sums is above each of them, rounded sizes and maxima below included."""
    a, b, n = symbol("a", 1, 512), symbol("b", 1, 16), symbol("n", 1, 100)
    sizes = [64 * a, 20 * a * b + 4, 12 * n, 4 * a * n, 256 * b, 36 * b * n][:many]
    low = reduce(dim_max, (-(-size // 64) * 64 for size in sizes))
    high = reduce(dim_max, (-(-(low + size) // 64) * 64 for size in sizes))
    for size in sizes:
        assert is_never_below(low, size) and is_never_below(high, low + size) and is_never_below(high, low)
        assert not is_never_below(high - 64, low + size)
        assert high % 64 == 0


def test_a_maximum_shows_what_its_parts_have_in_common():
    a, b = symbol("a", 1, 50), symbol("b", 1, 50)
    assert text(dim_max(192 * a + 64 * b, 128 * a + 128 * b)) == "128*a(1..50) + 64*b(1..50) + 64*max(a, b)"
    assert dim_max(64 * a, 64 * b) % 64 == 0 and common_divisor(dim_max(64 * a, 96 * b)) == 32


def test_forms_are_canonical():
    """Quotients that are whole are polynomials, and different ways to write one are equal."""
    n, h = symbol("n", 1, 100), symbol("h", 32, 1024, 32)
    assert h // 32 * 32 == h and h % 32 == 0 and (h // 2 + h // 2) == h
    assert -(-n // 8) == (n + 7) // 8
    assert (2 * n + 1) // 2 == n
    assert n // 2 // 3 == n // 6
    assert (4 * n + 2) // 8 == (2 * n + 1) // 4
    assert (n * n + n) // n == n + 1
    assert symbol("one", 3, 3) == 3
    assert dim_max(n, 1) == n and dim_min(n, 200) == n and dim_max(n, dim_max(n, 7)) == dim_max(7, n)


def test_the_text_of_dims():
    b, n, h = symbol("batch", 1, 16), symbol("n", 1, 512), symbol("h", 32, 1024, 32)
    assert dims_text([b, 2 * n + 1, n * b, 768]) == "batch(1..16), 2*n(1..512) + 1, batch*n, 768"
    assert text(h // 4) == "(h(32..1024 by 32) floordiv 4)"
    assert text(3 * h) == "3*h(32..1024 by 32)"
    assert text(-(-n // 16)) == "((n(1..512) + 15) floordiv 16)"
    assert text(dim_max(n, 4)) == "max(4, n(1..512))"
    assert text(symbol("a b", 1, 2)) == "'a b'(1..2)"
    for name in ("n'", "'", "''", "'n", "a''b", "min", "n-1", ' "'):
        assert parse_sizes(text(symbol(name, 1, 2)) + ", 3") == (symbol(name, 1, 2), 3)
    assert parse_sizes("b(1..4), b ceildiv 2, b mod 2, min(b, 3), -b + 8") == (
        (s := symbol("b", 1, 4)), -(-s // 2), s % 2, dim_min(s, 3), 8 - s)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("n", "the bounds of 'n' are missing, as in n(1..64), at column 1 of the dims 'n'"),
        ("n(1..4), n(1..5)", "'n' has two ranges: n(1..4) and n(1..5), at column 10"),
        ("n(5..4)", "'n' has no value: 5..4, at column 1"),
        ("n(5..7 by 8)", "'n' has no value: 5..7 by 8, at column 1"),
        ("n(1..4) floordiv 0", "'floordiv' takes a positive number, at column 9"),
        ("n(1..4) floordiv n", "'floordiv' takes a positive number, at column 9"),
        ("n(1..4", "expected ')', got '', at column 7"),
        ("2 *", "expected a dim, got '', at column 4"),
        ("n(1..4) n", "expected ',' or the end, got 'n', at column 9"),
        ("n(1;4)", "unexpected ';', at column 4"),
        ("n(1..99999999999999999999)", "expected a number of at most"),
        ("(" * 30, "nested more than 20 deep"),
        ("1" + " + 1" * 100, "more than 64 operators in a row"),
    ],
)
def test_a_text_that_is_no_dim_says_where(source, message):
    with pytest.raises(LightNetError) as e:
        parse_sizes(source)
    assert message in e.value.message


@pytest.mark.parametrize("use", [int, float, range, bool, lambda n: n < 8, lambda n: [0][n], lambda n: min(n, 9),
                                 lambda n: n / 2, lambda n: 9 // n, lambda n: round(n)])  # fmt: skip
def test_what_needs_the_number_says_so(use):
    """No use of a dim as a number takes one of the numbers that it can be."""
    with pytest.raises(Undecided, match="n"):
        use(symbol("n", 0, 100))


@settings(max_examples=200, deadline=None)
@given(_pairs(2), _pairs(2))
def test_a_quotient_of_dims_is_right_or_undecided(one, other):
    """``a // b`` and ``a % b`` have Python's values in every call. Where no dim says the quotient, `Undecided` is about a dim that
    is divided: not about the divisor, unless that divides a number."""
    (a, f), (b, g) = one, other
    if not isinstance(b, Dim):
        return
    for use, meaning in ((lambda: a // b, lambda x, y: x // y), (lambda: a % b, lambda x, y: x % y)):
        try:
            found = use()
        except Undecided as e:
            assert e.dim == (a if isinstance(a, Dim) else b)
        else:
            assert all(at(found, call) == meaning(f(call), g(call)) for call in _CALLS if g(call))


def test_a_value_out_of_bounds_is_refused():
    h = symbol("h", 32, 1024, 32)
    for value in (0, 31, 33, 1056):
        with pytest.raises(ValueError, match=r"h is .*, not a multiple of 32 in 32\.\.1024"):
            at(h, {"h": value})
