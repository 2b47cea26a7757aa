"""The kernel of patterns: rows of a key in order of event time through a matcher, with the rows of open partial matches as state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from floodmark.core.errors import FloodmarkError, UserCodeError, user_error
from floodmark.core.time import END
from floodmark.semantics.kernels.elements import ProcessStage
from floodmark.semantics.kernels.process import KeyCells, ProcessKernel
from floodmark.semantics.patterns.attempt import TooLong
from floodmark.semantics.patterns.automaton import automaton
from floodmark.semantics.patterns.matcher import Event, Matcher, MissingStage, Outcome, Path, TooMany
from floodmark.semantics.patterns.measures import rows_of, tested, valued
from floodmark.semantics.patterns.rows import LEAST_LOCAL, Recognition, RowMatcher
from floodmark.semantics.state.directory import NONE
from floodmark.semantics.state.entries import Entry
from floodmark.semantics.state.store import Store
from floodmark.spec.keyed.order import ordered
from floodmark.spec.patterns.matching import LATE, MATCHES, TIMED_OUT, Matching, PatternMatching, Selected
from floodmark.spec.patterns.recognised import RowMatching


def is_pattern(stage: ProcessStage) -> bool:
    """Whether a stage matches a pattern."""
    return isinstance(stage.step.function.function, Matching)


class _Snapshot:
    """Parts of a key's state before a row; none of them is ever changed, so a copy is the snapshot itself."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __deepcopy__(self, memo: object) -> _Snapshot:
        return self


class PatternCells(KeyCells):
    """The state of one key: a matcher, which has the rows that a match may still need."""

    __slots__ = ("matcher",)

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self.matcher: Matcher | RowMatcher | None = None

    def close(self) -> bool:
        """Write the rows that are needed into the entry; False if there are none."""
        if self.matcher is not None:
            self.states = self.matcher.dump()
        return super().close()

    def dump(self) -> Any:
        """The matcher's state."""
        return _Snapshot(None if self.matcher is None else self.matcher.snapshot())

    def restore(self, dumped: Any) -> None:
        """Restore what ``dump`` returned."""
        (snapshot,) = dumped.parts
        if self.matcher is not None and snapshot is not None:
            self.matcher.restore(snapshot)


class PatternKernel(ProcessKernel):
    """Matches of one key group, of a stage that ``is_pattern``."""

    def __init__(self, stage: ProcessStage, store: Store) -> None:
        super().__init__(stage, store)
        function = stage.step.function.function
        assert isinstance(function, Matching)
        self.matching = function
        self.fresh, self.selected = _compiled(function)
        self.undoes = self.quarantines

    # ---- state

    def _opened(self, entry: Entry) -> PatternCells:
        cells = PatternCells(entry)
        cells.matcher = self.fresh()
        columns = self.stage.step.parent.schema.names
        rows = [(time, {name: row.get(name) for name in columns}) for time, row in cells.states.get("rows", ())]
        try:
            cells.matcher.load(rows, cells.states)
        except Exception as error:
            raise self._failed(error, "The rows were stored before this start.") from error
        self._due(cells)
        return cells

    def _due(self, key_state: Any) -> None:
        matcher = key_state.matcher
        waits = END if matcher.waiting else NONE
        key_state.event, key_state.tick = waits if matcher.expiry is None else matcher.expiry - 1, NONE

    def _wait(self, key_state: Any) -> None:
        self._due(key_state)

    def _has_rank(self) -> bool:
        return True

    def _rank(self, row: Any) -> tuple[Any, ...]:
        return tuple(
            ordered(row[by.column], descending=by.descending, nulls_first=by.nulls_first)
            for by in self.matching.ordering
        )

    # ---- rows and time

    def _element(
        self,
        key_state: Any,
        position: int,  # noqa: ARG002 - the base's
        time: int,
        stamp: int,
        values: tuple[Any, ...],  # noqa: ARG002 - the base's
        row: Any,
    ) -> None:
        key_state.stamp, key_state.latest = stamp, max(key_state.latest, time)
        self.emits = key_state.entry.key, time, stamp
        if time <= stamp:
            self._refuse(key_state, time, stamp, row)
            return
        seen = key_state.matcher.seen
        event = Event(seen[-1].number + 1 if seen else 0, time, row)
        try:
            outcomes = key_state.matcher.push(event)
            self._emit_outcomes(key_state, outcomes, stamp)
        except UserCodeError:
            raise
        except Exception as error:
            raise self._failed(error, f"The row was {self._shown(row)}.") from error
        finally:
            self._due(key_state)

    def _refuse(self, key_state: Any, time: int, stamp: int, row: Mapping[str, Any]) -> None:
        """A late row: counted, and written to the late output if there is one."""
        self.late += self._wanted(time)
        self.context.key_state, self.context.timestamp, self.context.watermark = key_state, time, stamp
        if self.matching.late:
            self.side(LATE, {name: row[name] for name in self.matching.columns})
        else:
            self.count_dropped(time, stamp)

    def _fire(self, key_state: Any, progress: int) -> None:
        try:
            outcomes = key_state.matcher.advance(progress + 1, ended=progress >= END)
            self.emits = key_state.entry.key, progress, key_state.stamp
            self._emit_outcomes(key_state, outcomes, key_state.stamp)
        except UserCodeError:
            raise
        except Exception as error:
            raise self._failed(error, "A partial match timed out.") from error
        finally:
            self._due(key_state)

    def _emit_outcomes(self, key_state: Any, outcomes: Sequence[Outcome], stamp: int) -> None:
        self.context.key_state = key_state
        key, time, _ = self.emits
        for outcome in outcomes:
            event = min(outcome.time, END)
            self.emits = key, event, event - 1
            if outcome.row is not None:
                self._emit(outcome.row)
            elif outcome.path is not None and outcome.kind == "match":
                for made in self.selected[MATCHES](outcome.path):
                    self._emit(made)
            elif outcome.path is not None and TIMED_OUT in self.selected:
                for made in self.selected[TIMED_OUT](outcome.path):
                    self.side(TIMED_OUT, made)
        self.emits = key, time, stamp

    # ---- failures

    def _failed(self, error: Exception, about: str) -> FloodmarkError:
        """The error of a condition, of a measure, or of a limit."""
        where = f"pattern of '{self.stage.step.uid}'"
        if isinstance(error, FloodmarkError):
            return error
        if isinstance(error, TooMany):
            fix = "Shorten within, add conditions, or raise most=... where the memory is there."
            what = "partial matches" if isinstance(self.matching, PatternMatching) else "waiting rows"
            expected = f"at most {self.matching.most:,} {what} of a key"
            return UserCodeError(where, expected, str(error), fix, code="USER-020")
        if isinstance(error, TooLong):
            by_label = "" if error.local else "compare with PREV instead of rows by their labels, "
            most = max(self.matching.most, LEAST_LOCAL) if error.local else self.matching.most
            fix = f"Leave out alternatives and repetitions, {by_label}shorten within, or raise most=... above {most:,} where the time is there."
            expected = f"a match within {error} steps of its search"
            got = "more: the pattern tries many combinations of rows"
            return UserCodeError(where, expected, got, fix, code="USER-024")
        if isinstance(error, MissingStage):
            stage, fix = _continued_at(self.matching)
            return UserCodeError(where, f"a row of '{stage}' to continue at", str(error), fix, code="USER-021")
        return user_error(error, where, about)

    def _shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in self.matching.columns}

    def _quarantined_row(self, values: tuple[Any, ...], row: Any) -> Any:  # noqa: ARG002 - the base's
        return self._shown(row)


Made = Callable[[Path], Sequence[Mapping[str, Any]]]
"""The rows of a match -> rows of the result."""


def _compiled(matching: Matching) -> tuple[Callable[[], Matcher | RowMatcher], dict[str, Made]]:
    """(declaration) -> function that makes a matcher, and what becomes of a match, by output."""
    if isinstance(matching, RowMatching):
        recognition = Recognition(matching)
        return lambda: RowMatcher(recognition), {}
    assert isinstance(matching, PatternMatching)
    compiled = automaton(matching.pattern, tested(matching.conditions))
    selected = {name: _made(output) for name, output in matching.outputs.items()}
    return lambda: Matcher(compiled, matching.skip, matching.most), selected


def _made(output: Selected) -> Made:
    function = output.function
    if function is not None:
        return lambda path: list(function(rows_of(path)) or ())
    measures = [(column, valued(measure)) for column, measure in output.measures]
    return lambda path: [{name: measure(path.event.row, path) for name, measure in measures}]


def _continued_at(matching: Matching) -> tuple[str, str]:
    """The stage or variable at which matching should continue, and what to do where a match lacks it."""
    if isinstance(matching, PatternMatching):
        skip = matching.skip
        return skip.stage, f'Write {skip.strategy}("{skip.stage}") without fails=True; a match then discards nothing.'
    assert isinstance(matching, RowMatching)
    return ", ".join(
        matching.skip[1]
    ), 'Write after_match_skip="PAST LAST ROW", or a variable that every match has behind its first row.'
