"""Regular expressions of Java translated to those of Sail with the same meaning."""

from __future__ import annotations

import re

_PART = re.compile(
    r"(?P<class>\[\^?[^\[\]\\^&~-]*(?:[^\[\]\\^&~-]-[^\[\]\\^&~-][^\[\]\\^&~-]*)*-?\])|\\(?P<kind>[dDwWsS])|(?P<escape>\\[.\[\](){}*+?|^$/\\-])"
    r"|(?P<group>\((?:\?:|(?!\?))|\))|(?P<count>\{\d+(?:,\d*)?\}|[*+?])(?P<lazy>\??)(?![+*?{])|(?P<dot>\.)|(?P<start>\^)|(?P<or>\|)|(?P<end>\$)"
    r"|(?P<plain>[^\\\[\](){}*+?|^$.])"
)
_KINDS = {"d": "[0-9]", "D": "[^0-9]", "w": "[a-zA-Z_0-9]", "W": "[^a-zA-Z_0-9]"}
_SPACES = r" \t\n\x0B\f\r"
_KINDS |= {"s": f"[{_SPACES}]", "S": f"[^{_SPACES}]"}
_SEPARATOR = re.compile(r"(?:\[\^?[^\[\]\\^&~]+\]\+?|\\[sSdDwW.|*+?(){}\[\]^$]\+?|[^\\\[\](){}*+?|^$.])+")


class OtherPattern(Exception):  # noqa: N818 - a reason, made a refusal by ``rendering``
    """A pattern that Java and Sail may interpret differently."""


_CONDITIONS = frozenset({"rlike", "regexp", "regexp_like"})
"""Functions that only test whether a pattern matches."""


def pattern(text: str, function: str = "rlike") -> str:
    """The pattern for Sail with the meaning of the user's pattern in Java.

    Args:
        text: as the user wrote it.
        function: that uses the pattern.

    Raises:
        OtherPattern: a construct that the two may interpret differently, or a match of the empty text in a function that counts matches.
    """
    if function == "split" and not _SEPARATOR.fullmatch(text):
        message = f"split by the pattern {text!r}"
        raise OtherPattern(message)
    written, position = "", 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or (match["end"] and function not in _CONDITIONS):
            message = f"the pattern {text!r}"
            raise OtherPattern(message)
        written += _written(match)
        position = match.end()
    try:
        shortest = re.compile(text)
    except re.error:
        message = f"the pattern {text!r}"
        raise OtherPattern(message) from None
    if function not in {*_CONDITIONS, "regexp_extract", "regexp_substr"} and shortest.search("") is not None:
        message = f"the pattern {text!r}, which matches no text, in {function}"
        raise OtherPattern(message)
    return written


def replacement(text: str, java: str) -> str:
    """The replacement of a match, in the syntax of Sail.

    Args:
        text: as the user wrote it; ``$1`` is a group.
        java: the pattern.

    Raises:
        OtherPattern: a backslash, or a group that the pattern lacks.
    """
    groups = re.compile(java).groups
    parts = re.split(r"\$(\d)(?!\d)", text)
    if any("$" in part or "\\" in part for part in parts[::2]) or any(int(number) > groups for number in parts[1::2]):
        message = f"the replacement {text!r}"
        raise OtherPattern(message)
    return "".join(f"${{{part}}}" if place % 2 else part for place, part in enumerate(parts))


def _written(match: re.Match[str]) -> str:
    if match["dot"]:
        return r"[^\n\r\x{85}\x{2028}\x{2029}]"
    if match["end"]:
        return r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
    return _KINDS[match["kind"]] if match["kind"] else match[0]
