"""The bytes that name a key in state."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from floodmark.semantics.encoding.identity import identities, identity, key_of
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry, KeyGroup
from floodmark.semantics.state.store import MemoryStore

NAN = float("nan")
MOMENT = datetime(2020, 1, 1, tzinfo=UTC)

ONE_KEY = [
    ((NAN,), (-NAN,)),
    ((0.0,), (-0.0,)),
    ((Decimal("1.0"),), (Decimal("1.00"),)),
    ((Decimal("10"),), (Decimal("1E+1"),)),
    ((Decimal("0.00"),), (Decimal("-0"),)),
    ((MOMENT,), (MOMENT.replace(tzinfo=timezone(timedelta(0), "UTC")),)),
    ((MOMENT,), (MOMENT.replace(tzinfo=ZoneInfo("UTC")),)),
    ((MOMENT,), (MOMENT.astimezone(ZoneInfo("Europe/Berlin")),)),
]

SEVERAL = [
    (),
    (None,),
    (None, None),
    ("",),
    ("None",),
    ("'",),
    ("a", "b"),
    ("a', 'b",),
    ("ab",),
    ("as1:b",),
    ("a", None),
    (1,),
    (11,),
    (1, 1),
    ("1",),
    (-1,),
    (1.0,),
    (float("inf"),),
    (-float("inf"),),
    (True,),
    (False,),
    (Decimal(1),),
    (Decimal(-1),),
    (Decimal("0.1"),),
    (Decimal("12345678901234567890123456789012345678"),),
    (Decimal("12345678901234567890123456789012345679"),),
    (b"a",),
    (date(2020, 1, 1),),
    (MOMENT,),
    (MOMENT.replace(tzinfo=None),),
    (MOMENT + timedelta(microseconds=1),),
    (timedelta(microseconds=1),),
    (["a"],),
    ([["a"]],),
]


@pytest.mark.parametrize(("key", "same"), ONE_KEY, ids=repr)
def test_what_is_kept_for_a_key_is_found_however_the_key_is_written(key, same):
    store = MemoryStore()
    entries = KeyGroup.open(store)
    entries.put(Entry(key, "kept"))
    entries.close()
    again = KeyGroup.open(store)
    stored = again.get(same)
    assert stored is not None
    assert stored.value == "kept"
    again.put(Entry(same, "newer"))
    again.close()
    assert len(list(KeyGroup.open(store).due(NONE, NONE))) == 1


@pytest.mark.parametrize("key", [*SEVERAL, *(key for pair in ONE_KEY for key in pair)], ids=repr)
def test_the_bytes_say_which_key_it_is(key):
    assert identity(key_of(identity(key))) == identity(key)


def test_a_column_of_values_has_the_identities_of_its_values():
    values = [[1, -7, 0, 10**25], ["", "é", "a" * 300], [True, False], [None, 1, "a"], [1.5, float("nan")]]
    for column in values:
        assert identities(column) == [identity((value,)) for value in column]


def test_different_keys_have_different_bytes():
    assert len({identity(key) for key in SEVERAL}) == len(SEVERAL)


def test_the_bytes_depend_on_no_release_of_python_or_unicode():
    """A text that ``repr`` escapes in one Python and not in the next, as its Unicode tables grow."""
    assert identity(("\U000105c0é\ud800", 7, None)) == b"s9:\xf0\x90\x97\x80\xc3\xa9\xed\xa0\x80i1:7n"
    assert identity((1.5, Decimal("-1.50"))) == b"d\x3f\xf8\x00\x00\x00\x00\x00\x00D6:-15e-1"
    assert identity((MOMENT, date(2020, 1, 1))) == b"T16:1577836800000000a6:737425"


def test_what_no_key_column_holds_is_an_error():
    with pytest.raises(TypeError, match="a key of dict"):
        identity(({},))
