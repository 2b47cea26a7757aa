"""The code of a user's function or class and all code it reaches: followed, digested and described."""

from floodmark.core.code.digest import Code, check_source, class_of, code_of, settings_of
from floodmark.core.code.followed import Followed
from floodmark.core.code.origin import count_as_own
from floodmark.core.code.reach import Reach
from floodmark.core.code.text import Part
from floodmark.core.code.where import cells

__all__ = [
    "Code",
    "Followed",
    "Part",
    "Reach",
    "cells",
    "check_source",
    "class_of",
    "code_of",
    "count_as_own",
    "settings_of",
]
