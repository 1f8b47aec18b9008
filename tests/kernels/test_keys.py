"""Order keys: integers with the order of the scores, for every dtype."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.errors import DtypeError
from avgk_dask.kernels import keys
from avgk_dask.testing import strategies


@given(strategies.score_matrices())
def test_encode__keeps_order_and_equality(scores):
    flat = scores.reshape(-1)
    encoded = keys.encode(flat)
    for a, b in itertools.pairwise(range(flat.size)):
        assert (flat[a] < flat[b]) == (encoded[a] < encoded[b])
        assert (flat[a] == flat[b]) == (encoded[a] == encoded[b])


@given(strategies.score_matrices())
def test_decode__inverts_encode(scores):
    decoded = keys.decode(keys.encode(scores.reshape(-1)), scores.dtype)
    assert decoded.dtype == scores.dtype
    assert (decoded == scores.reshape(-1)).all()


@pytest.mark.slow
@given(strategies.score_matrices())
def test_carrier__has_the_keys_in_its_bits(scores):
    carried = keys.carrier(scores)
    bits, magnitude = keys.carrier_bits(carried)
    actual = bits.astype(np.int64)
    actual = np.where((actual < 0) & (magnitude != 0), -(actual & magnitude), actual)
    assert (actual == keys.encode(scores)).all()


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_encode__puts_nan_below_everything(name):
    dtype = strategies.as_dtype(name)
    values = np.array([np.nan, -np.inf, -np.nan]).astype(dtype)
    encoded = keys.encode(values)
    assert encoded[0] == encoded[2] == keys.NAN_KEY < encoded[1]
    assert np.isnan(keys.decode(encoded[:1], dtype).astype(float)).all()


@pytest.mark.parametrize("dtype", ["complex64", "O", "U3", "bool", "M8[s]", "longdouble"])
def test_check_dtype__refuses_what_has_no_order_we_serve(dtype):
    with pytest.raises(DtypeError, match="scores must be real numbers"):
        keys.check_dtype(dtype)


def test_check_dtype__accepts_foreign_byte_order():
    assert keys.check_dtype(">f4") == np.dtype("float32")


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="no longer double here")
def test_first_key_above__takes_numbers_of_more_bits_than_a_double():
    just_above_one, dtype = np.nextafter(np.longdouble(1), np.longdouble(2)), np.dtype("f8")
    assert keys.first_key_above(just_above_one, dtype) == keys.first_key_above(1, dtype)
    assert keys.first_key_from(just_above_one, dtype) == keys.first_key_from(1, dtype) + 1
    assert keys.first_key_above(np.longdouble("inf"), dtype) == keys.key_range(dtype)[1] + 1


@given(
    strategies.score_matrices(max_samples=3, max_classes=4),
    st.one_of(st.fractions(), st.integers(), st.floats(allow_nan=False)),
)
def test_first_key_above__compares_without_rounding(scores, bound):
    first = keys.first_key_above(bound, scores.dtype)
    for value, key in zip(scores.reshape(-1), keys.encode(scores.reshape(-1)).tolist(), strict=True):
        number = float(value) if scores.dtype.kind not in "iu" else int(value)
        exact = Fraction(number) if abs(number) != float("inf") else number
        limit = Fraction(bound) if abs(bound) != float("inf") else bound
        assert (exact > limit) == (key >= first)
