"""Short texts of the exceptions of engines."""

from __future__ import annotations

import re


def text_of(error: BaseException) -> str:
    """The lines of an exception of Spark or Sail that say what happened and why, without the stack."""
    text = str(error)
    ours = re.findall(r"floodmark\.core\.errors\.(\w+: [^\n]*)", text)
    if ours:
        return str(ours[-1])
    call = re.search(
        r'^<_\w+ of RPC that terminated with:\n\s*status = StatusCode\.(\w+)\n\s*details = "(.*)"$', text, re.MULTILINE
    )
    if call:
        return f"{call[2]} (gRPC {call[1]})"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    conditions = [line for line in lines if re.search(r"\[[A-Z][A-Z0-9_.]+\]", line)]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    parts = dict.fromkeys([(conditions or lines)[0 if conditions else -1], *causes[-1:]])
    return "; ".join(parts)[:2000]
