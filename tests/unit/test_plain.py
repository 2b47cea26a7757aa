"""Plain data as bytes: the short way to them gives the bytes of the careful one."""

import io
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.core.errors import UserCodeError
from floodmark.semantics.encoding import plain

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.dates()
    | st.datetimes(timezones=st.sampled_from([UTC, zoneinfo.ZoneInfo("Europe/Berlin")]))
    | st.timedeltas()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner) | st.sets(st.integers())
    ),
    max_leaves=8,
)


def carefully(value):
    out = io.BytesIO()
    plain._Pickler(out, protocol=5).dump(value)
    return out.getvalue()


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_bytes_are_those_of_the_pickler_that_looks_at_every_object(value):
    assert plain.pack(value) == carefully(value)
    assert plain.Packer(of_columns=True)(value) == carefully(value)


@pytest.mark.parametrize("size", [0, 1, 63_000, 66_000, 200_000])
def test_long_values_and_many_entries_too(size):
    entries = {b"k%d" % place: (place, 2**61, b"\x93" * size) for place in range(3)}
    assert plain.packed_bytes(entries) == plain.pack(entries) == carefully(entries)
    assert plain.unpack(plain.pack(entries)) == entries


class Stubborn:
    """Refuses to be pickled, with an error of its own."""

    def __reduce__(self):
        raise ValueError("no")


@pytest.mark.parametrize("value", [PurePosixPath("a"), Stubborn(), [lambda: 1], {"a": (date.today, timedelta(1))}])
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(UserCodeError, match="USER-003"):
        plain.pack(value)


def test_numbers_and_times_come_back_as_they_were():
    value = {"d": Decimal("1.10"), "t": datetime(2024, 1, 1, tzinfo=UTC), "s": {1, 2}, "n": 0x93}
    assert plain.unpack(plain.pack(value)) == value
