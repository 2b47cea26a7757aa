"""Regular expressions of Java as RE2's, where both mean the same."""

from __future__ import annotations

import re

from floodmark.engines.local.casts import NotTranslated

_PART = re.compile(
    r"(?P<class>\[\^?[^\[\]\\^&]+\])|(?P<escape>\\[dDwWsS.\[\](){}*+?|^$/\\-])|(?P<group>\((?:\?:)?|\))"
    r"|(?P<count>\{\d+(?:,\d*)?\}|[*+?])(?P<lazy>\??)(?![+*?{])|(?P<dot>\.)|(?P<start>\^)|(?P<or>\|)|(?P<end>\$)"
    r"|(?P<plain>[^\\\[\](){}*+?|^$.])"
)


def regex(pattern: str) -> str:
    """A pattern RE2 reads as Java does.

    Raises:
        NotTranslated: a construct they read differently.
    """
    translated, position = "", 0
    while position < len(pattern):
        match = _PART.match(pattern, position)
        if match is None:
            raise NotTranslated(f"the pattern {pattern!r}")
        translated += _translated(match)
        position = match.end()
    return translated


def _translated(match: re.Match[str]) -> str:
    if match["dot"]:
        return r"[^\n\r\x{85}\x{2028}\x{2029}]"
    if match["end"]:
        return r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
    return match[0]


def separator(pattern: str) -> str:
    """A pattern of ``split`` that matches one or more characters, each time.

    Raises:
        NotTranslated: it might match nothing.
    """
    if not re.fullmatch(r"(?:\[\^?[^\[\]\\^&]+\]\+?|\\[sSdDwW.|*+?(){}\[\]^$]\+?|[^\\\[\](){}*+?|^$.])+", pattern):
        raise NotTranslated(f"split by the pattern {pattern!r}")
    return regex(pattern)


_DATES = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%g"}


def strftime(pattern: str) -> str:
    """A pattern of ``date_format`` for ``strftime``.

    Raises:
        NotTranslated: a letter outside yyyy MM dd HH mm ss SSS.
    """
    translated, position = "", 0
    while position < len(pattern):
        match = re.compile(
            r"'([^']+)'|(yyyy|MM|dd|HH|mm|ss|SSS)(?![A-Za-z])|(yyyy|MM|dd|HH|mm|ss)(?=[MdHms])|([^A-Za-z'%])"
        ).match(pattern, position)
        if match is None:
            raise NotTranslated(f"the pattern {pattern!r}")
        quoted, last, inner, plain = match.groups()
        translated += (quoted or "").replace("%", "%%") or _DATES.get(last or inner or "", plain or "")
        position = match.end()
    return translated
