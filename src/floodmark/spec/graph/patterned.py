"""Patterns over a keyed stream: ``stream.key_by("card").pattern(begin("a").where("amount < 1").next("b")).select(...)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from floodmark.core.code import Code
from floodmark.core.errors import DefinitionError, shown
from floodmark.core.time import span
from floodmark.spec.graph import steps
from floodmark.spec.graph.connected import Processes, keyed_stream
from floodmark.spec.graph.top import order_of
from floodmark.spec.keyed.process import Process
from floodmark.spec.keyed.top import By
from floodmark.spec.patterns.bounds import MOST, check_most, check_pattern
from floodmark.spec.patterns.matching import (
    LATE,
    MATCHES,
    TIMED_OUT,
    Matching,
    OwnRow,
    PatternMatching,
    Rows,
    Selected,
    read_conditions,
)
from floodmark.spec.patterns.pattern import Pattern
from floodmark.spec.patterns.recognised import RowMatching, clause
from floodmark.spec.patterns.skip import Skip, no_skip
from floodmark.spec.patterns.terms import Term, term
from floodmark.spec.rows.checks import columns_of, new_columns, one_of
from floodmark.spec.rows.contract import Contract
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import KeyedStream, Stream

OfMatch = Callable[[Rows], Iterable[Mapping[str, Any]]]
"""(stage -> its rows) -> rows of the result."""


class Patterns(Processes):
    """Patterns; mixed into ``KeyedStream``."""

    __slots__ = ()

    def pattern(
        self,
        pattern: Pattern,
        *,
        skip: Skip | None = None,
        most: int | None = None,
        sequence: str | tuple[str, ...] = (),
        late: steps.Late = "drop",
        uid: str | None = None,
        on_error: steps.OnError = "stop",
    ) -> Matches:
        """The matches of a pattern among the rows of each key. Call ``select`` or ``flat_select`` on it.

        Args:
            pattern: from ``begin``.
            skip: which partial matches a match discards; by default none, ``no_skip()``.
            most: partial matches that a key may have; more stop the run. Needed where nothing else bounds them: without ``within``, and for
                combinations of any number of rows. By default 100,000.
            sequence: columns that order rows of one event time, as of ``top``: ``"number"``, ``"number DESC NULLS FIRST"``. Rows that are equal in them are ordered by their values.
            late: what happens to late rows: ``"drop"`` counts them, ``"side_output"`` writes them to ``<operator>__late``.
            uid: names the state of this step; by default the operator's name.
            on_error: what an exception in a condition or a measure does: ``"stop"`` ends the run, ``"quarantine"`` moves the row to
                ``<operator>__quarantine``; it then is in no match.

        Time: rows are matched in order of event time, each once progress reaches it. A match has the event time of the row, or of the time-out,
            that decided it. State: the rows of a key since the first row of its earliest partial match.
        Source: Flink ``CEP.pattern``.

        Raises:
            DefinitionError: DEFINITION-022, 421..426 and those of the conditions.
        """
        keyed = keyed_stream(self)
        where = keyed.stream.at_step("pattern")
        if not isinstance(pattern, Pattern):
            fix = 'pattern(begin("a").where("amount < 1").next("b")), begin from floodmark.'
            raise DefinitionError(where, "a pattern", shown(pattern), fix, code="DEFINITION-421")
        if skip is not None and not isinstance(skip, Skip):
            fix = 'skip=skip_past_last_event(), skip=skip_to_first("a"); import them from floodmark.'
            raise DefinitionError(where, "a skip strategy", shown(skip), fix, code="DEFINITION-421")
        one_of(steps.Late, late, "late", where)
        one_of(steps.OnError, on_error, "on_error", where)
        ordering = order_of(keyed.stream.schema, sequence, f"{where}, sequence")
        chosen = skip or no_skip()
        limit = check_pattern(pattern, chosen, most, where)
        conditions = read_conditions(pattern, keyed.stream.schema, where)
        settings: dict[str, Any] = {"late": late == "side_output", "columns": keyed.stream.schema.names}
        return Matches(keyed, pattern, (chosen, limit, ordering, conditions), settings, uid, on_error)

    def match_recognize(  # noqa: PLR0913 - the parts of the clause
        self,
        *,
        pattern: str,
        define: Mapping[str, str] | None = None,
        measures: Mapping[str, str] | None = None,
        order_by: str | tuple[str, ...] = (),
        rows_per_match: str = "ONE ROW PER MATCH",
        after_match_skip: str = "PAST LAST ROW",
        subset: Mapping[str, Sequence[str]] | None = None,
        within: str | timedelta | None = None,
        most: int | None = None,
        late: steps.Late = "drop",
        uid: str | None = None,
        on_error: steps.OnError = "stop",
    ) -> Stream[Any]:
        """``MATCH_RECOGNIZE`` of standard SQL in each partition, which is a key: matches one after the other, the preferred one each time.

        Example: ``match_recognize(pattern="A B+ C", define={"B": "price < PREV(price)", "C": "price > PREV(price)"}, measures={"low": "LAST(B.price)"})``

        Args:
            pattern: PATTERN without its parentheses.
            define: variable -> condition; a variable without one fits every row. Names are in upper case unless quoted, as in SQL.
            measures: column -> expression.
            order_by: columns, as of ``sequence`` of ``pattern``, that order rows of one event time; all rows come in order of event time first.
            rows_per_match: ``"ONE ROW PER MATCH"``, or ``"ALL ROWS PER MATCH"`` with ``SHOW EMPTY MATCHES``, ``OMIT EMPTY MATCHES`` or ``WITH UNMATCHED ROWS``.
            after_match_skip: ``"PAST LAST ROW"``, ``"TO NEXT ROW"``, ``"TO FIRST A"``, ``"TO LAST A"``.
            subset: name of several variables -> the variables.
            within: greatest time from the first row of a match to its last, exclusive.
            most: rows of a key that may wait for the end of a match; more stop the run. By default 100,000.
            late, uid, on_error: as of ``pattern``.

        Shape: the keys, then the measures; with ALL ROWS the keys, the columns of ``order_by``, the measures, the other columns.
        Time: a match is emitted once no preferred alternative can change it, with the event time of the row or time that decided that.
        State: the rows since the one at which the next match may begin.
        Source: ISO/IEC 9075-2; ``within`` as of Flink SQL.

        Raises:
            DefinitionError: DEFINITION-022, 050, 055, 056, 422, 423, 426, 430..432.
        """
        keyed = keyed_stream(self)
        where, schema = keyed.stream.at_step("match_recognize"), keyed.stream.schema
        one_of(steps.Late, late, "late", where)
        one_of(steps.OnError, on_error, "on_error", where)
        ordering = order_of(schema, order_by, f"{where}, order_by")
        length = None if within is None else span(within, f"{where}, within")
        if length is not None and length <= 0:
            fix = 'within="10 minutes".'
            raise DefinitionError(where, "a positive duration", repr(within), fix, code="DEFINITION-055")
        read = clause(
            pattern,
            define or {},
            measures or {},
            rows_per_match,
            after_match_skip,
            subset or {},
            length,
            schema=schema,
            where=where,
        )
        columns = [Column(name=name, type=term.type) for name, term in read.measures]
        untyped = next((column.name for column in columns if not column.type), None)
        if untyped is not None:
            fix = f'Say the type: {untyped}="CAST(... AS double)".'
            raise DefinitionError(where, "measures of known type", repr(untyped), fix, code="DEFINITION-043")
        passed: tuple[str, ...] = ()
        if read.rows != "one":
            passed = tuple(name for name in schema.names if name not in keyed.keys)
            first = [by.column for by in ordering]
            front = [schema[name] for name in dict.fromkeys(first) if name in passed]
            columns = [*front, *columns, *(schema[name] for name in passed if name not in first)]
        names = [*keyed.keys, *(column.name for column in columns)]
        taken = dict.fromkeys(name for name in names if names.count(name) > 1 or name.startswith("_"))
        new_columns(taken, where, "different names that begin with no underscore", "Give the measure another name.")
        if not columns and not keyed.keys:
            raise DefinitionError(
                where, "at least one measure", "none", 'measures={"n": "COUNT(*)"}.', code="DEFINITION-056"
            )
        limit = MOST if most is None else check_most(most, where)
        settings: dict[str, Any] = {"columns": schema.names, "late": late == "side_output"}
        function = RowMatching(pattern, read, passed, limit, ordering, **settings)
        result = Schema((*(schema[key] for key in keyed.keys), *columns))
        parent = _masked(keyed.stream, (condition for _, condition in read.define), on_error)
        return _matching(keyed, parent, function, {MATCHES: result}, uid, on_error)


def _masked(stream: Stream[Any], conditions: Iterable[OwnRow | Term], on_error: steps.OnError) -> steps.Step:
    """The step with a column for each condition over the row alone, which an engine computes for all rows at once."""
    masks = {condition.column: condition.text for condition in conditions if isinstance(condition, OwnRow)}
    if not masks:
        return stream.step
    columns = tuple((name, f"`{name}`") for name in stream.schema.names)
    columns += tuple((name, f"coalesce({text}, false)") for name, text in masks.items())
    new = (Column(name=name, type="boolean", nullable=False) for name in masks)
    return steps.Project(stream.step, columns, Schema((*stream.schema.columns, *new)), on_error)


def _matching(
    keyed: KeyedStream,
    parent: steps.Step,
    function: Matching,
    schemas: Mapping[str, Schema],
    uid: str | None,
    on_error: steps.OnError,
) -> Stream[Any]:
    """The stream of a step that matches rows."""
    schema = keyed.stream.schema
    sides = tuple((name, side) for name, side in schemas.items() if name != MATCHES)
    if function.late:
        head = (schema[key] for key in keyed.keys)
        sides += ((LATE, Schema((*head, *(c for c in schema.columns if c.name not in keyed.keys)))),)
    settings: dict[str, Any] = {"sides": sides, "order": "event_time", "on_error": on_error}
    return keyed._then(uid, parent, schemas[MATCHES], function=Process(function), **settings)  # noqa: SLF001 - its other half


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches of a pattern: call ``select`` or ``flat_select`` on it."""

    keyed: KeyedStream
    of: Pattern
    matching: tuple[Skip, int, tuple[By, ...], dict[str, OwnRow | Term]]
    settings: dict[str, Any]
    uid: str | None
    on_error: steps.OnError

    def select(self, *, timed_out: Mapping[str, str] | None = None, **measures: str) -> Stream[Any]:
        """One row per match: the keys, then a column per measure.

        Args:
            timed_out: column -> measure of partial matches that have timed out, written to ``<operator>__timed_out``.
            measures: ``card_tested="first(small.amount)"``, ``swipes="count(large)"``, ``amounts="collect(large.amount)"``. ``large.amount`` is
                the value of the last row of a stage; a column alone that of the last row of the match.

        Raises:
            DefinitionError: DEFINITION-022, 043, 050, 056, 422, 423.
        """
        where = self.keyed.stream.at_step("select")
        if not measures:
            fix = 'Write select(first="first(a.amount)").'
            raise DefinitionError(where, "at least one measure", "none", fix, code="DEFINITION-056")
        outputs = {MATCHES: self._measured(measures, where)}
        if timed_out is not None:
            outputs[TIMED_OUT] = self._measured(timed_out, f"{where}, timed_out")
        return self._step(
            {name: Selected(tuple(terms)) for name, (_, terms) in outputs.items()},
            {n: s for n, (s, _) in outputs.items()},
        )

    def flat_select(
        self,
        function: OfMatch,
        schema: type[Contract],
        *,
        timed_out: OfMatch | None = None,
        timed_out_schema: type[Contract] | None = None,
    ) -> Stream[Any]:
        """Any number of rows per match, from a Python function.

        Args:
            function: (stage -> its rows, oldest first) -> rows; it must depend on its argument alone.
            schema: contract of the rows; the key's columns need not be in it.
            timed_out: as ``function``, for partial matches that have timed out; its rows go to ``<operator>__timed_out``.
            timed_out_schema: contract of these rows.
        """
        where = self.keyed.stream.at_step("flat_select")
        wanted: dict[str, tuple[Any, Any]] = {MATCHES: (function, schema)}
        if timed_out is not None or timed_out_schema is not None:
            wanted[TIMED_OUT] = timed_out, timed_out_schema
        selected, schemas, fix = {}, {}, "flat_select(function, schema=Alert), where Alert is a Contract."
        for name, (written, contract) in wanted.items():
            columns = columns_of(contract, where, fix).columns
            if not callable(written):
                raise DefinitionError(where, "a function of a match", shown(written), fix, code="DEFINITION-057")
            selected[name] = Selected((), written, Code.of(written))
            schemas[name] = Schema((*self._head(), *(c for c in columns if c.name not in self.keyed.keys)))
        return self._step(selected, schemas)

    def _head(self) -> list[Column]:
        return [self.keyed.stream.schema[key] for key in self.keyed.keys]

    def _measured(self, measures: Mapping[str, str], where: str) -> tuple[Schema, list[tuple[str, Term]]]:
        schema, stages = self.keyed.stream.schema, self.of.names
        taken = [name for name in measures if name in self.keyed.keys or name.startswith("_")]
        new_columns(
            taken, where, "names that are no keys and begin with no underscore", "Give the measure another name."
        )
        terms = []
        for name, text in measures.items():
            about = f"{where}, column '{name}'"
            measure = term(text, stages, schema, about)
            if not measure.type:
                fix = f'Say the type: {name}="CAST({text} AS double)".'
                raise DefinitionError(about, "an expression of known type", repr(text), fix, code="DEFINITION-043")
            terms.append((name, measure))
        columns = [Column(name=name, type=measure.type) for name, measure in terms]
        return Schema((*self._head(), *columns)), terms

    def _step(self, outputs: dict[str, Selected], schemas: dict[str, Schema]) -> Stream[Any]:
        stream = self.keyed.stream
        skip, most, ordering, conditions = self.matching
        function = PatternMatching(self.of, skip, most, ordering, conditions, outputs, **self.settings)
        parent = _masked(stream, conditions.values(), self.on_error)
        return _matching(self.keyed, parent, function, schemas, self.uid, self.on_error)
