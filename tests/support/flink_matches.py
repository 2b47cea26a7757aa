"""Patterns that are drawn, with the matches that Flink's own automaton finds: tests/cases/patterns/drawn.json, written anew by

    python tests/support/flink_matches.py LIB [--patterns 400] [--seed 47]

LIB is the folder of the jars of PyFlink 2.3.0, ``pyflink/lib``; ``java`` and ``javac`` 17 are on the path. Left out are patterns that Flink refuses, and those without a match,
and those of a skip strategy of which several matches begin with one row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pattern_search import Drawn, built

from floodmark.core.errors import DefinitionError

FOLDER = Path(__file__).parents[1] / "cases" / "patterns"
FILE = FOLDER / "drawn.json"
SOURCE = FOLDER / "flink" / "FlinkMatches.java"
CONTIGUITY = ("next", "followed_by", "followed_by_any")
REPETITION = ("relaxed", "consecutive", "combinations")
DRAWN_PER_MATCH = 8
"""Patterns that are drawn for each that is wanted, as most have no match."""
SKIPS = ("no_skip", "no_skip", "skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last")


def stage(draw: random.Random, name: str, *, group: bool) -> Drawn:
    """A stage, or a group of one or two."""
    counts = [(1, 1), (2, 2), (1, 2), (1, None)] + ([] if group else [(1, 1), (2, None), (2, 3)])
    least, most = draw.choice(counts)
    repetition = draw.choice(REPETITION)
    greedy = not group and (least, most) != (1, 1) and repetition != "combinations" and draw.random() < 0.4
    made = {"name": name, "letter": "" if group else draw.choice("abc"), "contiguity": draw.choice(CONTIGUITY)}
    made |= {"least": least, "most": most, "repetition": repetition, "optional": draw.random() < 0.3, "greedy": greedy}
    made |= {"until": draw.choice(["", "", "a", "b", "x"]) if most is None else "", "without": "", "other": ""}
    inner = range(draw.randint(1, 2)) if group else ()
    return made | {"group": [stage(draw, f"{name}p{number}", group=False) for number in inner]}


def drawn(draw: random.Random) -> dict[str, Any] | None:
    """A pattern with rows; None if the builder or Flink refuses the like of it, or Flink does not end."""
    stages = [stage(draw, f"s{number}", group=draw.random() < 0.3) for number in range(draw.randint(1, 3))]
    for before, behind in itertools.pairwise(stages):
        if not before["optional"] and draw.random() < 0.25:
            behind |= {"without": draw.choice(["not_next", "not_followed_by"]), "other": draw.choice("abcx")}
        if before["greedy"] and behind["optional"]:
            return None
    if any(one["group"] and all(part["optional"] for part in one["group"]) for one in stages):
        return None
    try:
        built(stages, 100)
    except DefinitionError:
        return None
    strategy, size = draw.choice(SKIPS), draw.randint(2, 8)
    text = "".join(draw.choice("abcx") for _ in range(size))
    times = list(itertools.accumulate(draw.randint(1, 3) for _ in text))
    names = [one["name"] for one in stages if not one["group"]]
    strategy = strategy if names else "no_skip"
    skip = [strategy, draw.choice(names) if strategy in {"skip_to_first", "skip_to_last"} else ""]
    return {"stages": stages, "text": text, "times": times, "window": draw.choice([3, 6, 10, 100]), "skip": skip}


def _asked(command: list[str], cases: list[dict[str, Any]]) -> list[Any]:
    """The matches of each case, or why Flink refuses it."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    told = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in told.splitlines()]


def _differ(matches: list[list[list[Any]]]) -> bool:
    """Whether no two matches begin with one row: which of these is first to discard others is up to a heap of Flink's."""
    firsts = [min(row for _, row in match) for match in matches]
    return len(set(firsts)) == len(firsts)


def main() -> None:
    """Draw, ask Flink, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lib")
    parser.add_argument("--patterns", type=int, default=400)
    parser.add_argument("--seed", type=int, default=47)
    options = parser.parse_args()
    jars = ":".join(str(path) for path in Path(options.lib).glob("*.jar"))
    draw = random.Random(options.seed)
    asked = list(itertools.islice(filter(None, iter(lambda: drawn(draw), ...)), DRAWN_PER_MATCH * options.patterns))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", folder, str(SOURCE)], check=True)
        command = ["java", "-cp", f"{jars}:{folder}", "FlinkMatches"]
        answers, whole = (_asked(command, asked), _asked(command, [case | {"skip": ["no_skip", ""]} for case in asked]))
    found = (
        case | {"expect": sorted(map(sorted, rows))}
        for case, rows, all_rows in zip(asked, answers, whole, strict=True)
        if rows and isinstance(rows, list) and (case["skip"][0] == "no_skip" or _differ(all_rows))
    )
    cases = list(itertools.islice(found, options.patterns))
    assert len(cases) == options.patterns, f"{len(cases)} of {len(asked)} have a match"
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    FILE.write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
