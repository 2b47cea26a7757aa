"""Rows of ``Stream.call``: which answers are recorded already, the questions that are left, and the rows made of all answers.

An answer belongs to the values that the function receives and the event time of their row. Equal rows of one event time are one question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.errors import UserCodeError, described
from floodmark.semantics.aggregates.numbers import Ints, row_codes
from floodmark.semantics.encoding.columns import arrow_schema, table_fitted
from floodmark.semantics.encoding.identity import identity
from floodmark.semantics.kernels.failures import Failure, Mapped, failure
from floodmark.semantics.kernels.requests import Question, Reply, asked, failed
from floodmark.spec.graph.steps import Call
from floodmark.spec.rows.lookup import Lookup
from floodmark.spec.values.schema import RETRACTION, ROW

_KEY_BYTES = 16
_EXACT = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_decimal128,
    pa.types.is_timestamp,
    pa.types.is_date32,
)
"""Kinds of values that are equal in Arrow if and only if their identities are: there is one of each value."""


class Answers(Protocol):
    """The recorded answers of one step: tables of ``answer_schema``."""

    def held(self) -> AbstractContextManager[None]:
        """A context in which no other thread of this process asks for the same step."""

    def known(self, keys: Sequence[bytes], times: Sequence[int]) -> pa.Table:
        """The answers that are recorded.

        Args:
            keys: of questions.
            times: of the same questions, ms.
        """

    def record(self, answers: pa.Table) -> pa.Table:
        """Record answers. Returns the answers in effect: of a question that another process has answered before, its answer."""


Lookups = Callable[[Call, Sequence[Question]], pa.Table]
"""(step of a lookup table, its questions) -> the answers of its current rows, as of ``answer_schema``."""


def answer_schema(step: Call) -> pa.Schema:
    """Columns of recorded answers: ``key``, ``time`` in ms, ``rows``, and ``reason`` of a row that is quarantined."""
    rows = pa.list_(pa.struct(list(arrow_schema(step.answered))))
    return pa.schema([("key", pa.binary(_KEY_BYTES)), ("time", pa.int64()), ("rows", rows), ("reason", pa.string())])


def called(step: Call, table: pa.Table, kinds: Ints, times: Ints, answers: Answers | None, lookup: Lookups) -> Mapped:
    """The answers for every row; markers, ticks and rows that failed before become one row of nulls each, as in ``flat_mapped``.

    Args:
        step: whose function asks.
        table: columns of the step's parent.
        kinds: ``_kind`` of each row.
        times: ``_event_time`` of each row, ms; 0 for a row without one.
        answers: recorded ones; None for none.
        lookup: of the rows of lookup tables.

    Raises:
        UserCodeError: USER-009, if the step's ``on_error`` is "stop"; USER-010, USER-011.
    """
    questions, places = _questions(step, table, np.asarray(kinds), np.asarray(times, np.int64))
    by_key = {question.key: question for question in questions}
    with nullcontext() if answers is None else answers.held():
        answered = _answered(step, by_key, answers, lookup)
    return _mapped(step, table, np.asarray(kinds), questions, places, answered)


def _questions(step: Call, table: pa.Table, kinds: Ints, times: Ints) -> tuple[list[Question], Ints]:
    """The different questions of rows; for each row the place of its question, -1 for a row without one."""
    rows, asking = table.select(list(step.asked)), np.flatnonzero(kinds <= ROW)
    at = times // step.cache_for * step.cache_for if step.cache_for else times
    alike, first, which = np.unique(_alike(rows, at)[asking], return_index=True, return_inverse=True)
    number_of, questions, numbers = dict[bytes, int](), list[Question](), np.zeros(len(alike), np.int64)
    order = np.argsort(first)
    asked_first = rows.take(pa.array(asking[first[order]])).to_pylist()
    for code, row in zip(order.tolist(), asked_first, strict=True):
        moment = int(at[asking[first[code]]])
        key = blake2b(identity([_plain(list(row.values())), moment]), digest_size=_KEY_BYTES).digest()
        if key not in number_of:
            number_of[key] = len(questions)
            questions.append(Question(key, row, moment))
        numbers[code] = number_of[key]
    places = np.full(len(kinds), -1, np.int64)
    places[asking] = numbers[which]
    return questions, places


def _alike(rows: pa.Table, times: Ints) -> Ints:
    """A number for each row, the same for none but rows of one time and of equal values; all numbers differ if a column has values whose equality Arrow and ``identity`` see otherwise."""
    if not all(any(is_kind(kind) for is_kind in _EXACT) for kind in rows.schema.types):
        return np.arange(len(times))
    return row_codes(rows.columns, np.unique(times, return_inverse=True)[1])


def _plain(value: Any) -> Any:
    """A value with structs and maps as lists, for ``identity``."""
    if isinstance(value, Mapping):
        return [[name, _plain(part)] for name, part in value.items()]
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _answered(step: Call, questions: Mapping[bytes, Question], answers: Answers | None, lookup: Lookups) -> pa.Table:
    """The answers to all questions, recorded ones and new ones; new ones are recorded.

    Raises:
        UserCodeError: as ``called``.
    """
    tables = [answer_schema(step).empty_table()]
    if answers is not None and questions:
        tables.append(answers.known(list(questions), [question.timestamp for question in questions.values()]))
    known = set(tables[-1]["key"].to_pylist())
    unknown = [question for key, question in questions.items() if key not in known]
    if isinstance(step.function, Lookup):
        if unknown:
            new = lookup(step, unknown)
            tables.append(new if answers is None else answers.record(new))
        return pa.concat_tables(tables)
    error: UserCodeError | None = None
    for portion in asked(step, unknown):
        fitted = list(_fitted(step, portion))
        if step.on_error == "stop":
            error = next((reply for _, reply in fitted if isinstance(reply, UserCodeError)), error)
            fitted = [(question, reply) for question, reply in fitted if not isinstance(reply, UserCodeError)]
        if fitted:
            new = _table(step, fitted)
            tables.append(new if answers is None else answers.record(new))
    if error is not None:
        raise error
    return pa.concat_tables(tables)


def _fitted(step: Call, portion: Iterable[tuple[Question, Reply]]) -> Iterator[tuple[Question, Reply]]:
    """The replies, those that are no rows of the contract as errors."""
    for question, reply in portion:
        if isinstance(reply, UserCodeError):
            yield question, reply
            continue
        try:
            yield question, table_fitted(reply, step.answered).to_pylist()
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            yield (
                question,
                failed(step, f"{described(error)}; the contract is {step.answered.describe()}", question.row),
            )


def _table(step: Call, replies: Sequence[tuple[Question, Reply]]) -> pa.Table:
    values = [
        {
            "key": question.key,
            "time": question.timestamp,
            "rows": None if isinstance(reply, UserCodeError) else reply,
            "reason": reply.got if isinstance(reply, UserCodeError) else None,
        }
        for question, reply in replies
    ]
    return pa.Table.from_pylist(values, schema=answer_schema(step))


def _mapped(
    step: Call, table: pa.Table, kinds: Ints, questions: Sequence[Question], places: Ints, answered: pa.Table
) -> Mapped:
    """The answers of all rows as one table.

    Args:
        step: whose answers they are.
        table: columns of the step's parent.
        kinds: ``_kind`` of each row.
        questions: of the rows.
        places: of each row's question; -1 for none.
        answered: the answers.
    """
    keys = pa.array([question.key for question in questions], pa.binary(_KEY_BYTES))
    answer_of = pc.fill_null(pc.index_in(keys, answered["key"].combine_chunks()), -1).to_numpy()
    index = np.r_[answer_of, -1].astype(np.int64)[places]
    lists, reasons = answered["rows"].combine_chunks(), answered["reason"].combine_chunks()
    failing = np.r_[pc.is_valid(reasons).to_numpy(zero_copy_only=False), False][index]
    has_rows, gone = (
        (index >= 0) & ~failing,
        failing & (kinds == RETRACTION),
    )  # the row it retracts was quarantined, too
    offsets = np.r_[lists.offsets.to_numpy(), 0].astype(np.int64)
    lengths = np.where(has_rows, offsets[index + 1] - offsets[index], np.where(gone, 0, 1))
    starts = np.cumsum(lengths) - lengths
    origin = np.repeat(np.arange(len(kinds)), lengths)
    taken = offsets[index[origin]] + np.arange(len(origin)) - starts[origin]
    empty = ~has_rows[origin]
    failures = dict[int, Failure]()
    for position in np.flatnonzero(failing & ~gone).tolist():
        (row,) = table.select(list(step.asked)).slice(position, 1).to_pylist()
        failures[int(starts[position])] = failure("", failed(step, reasons[int(index[position])].as_py(), row), row)
    at, nothing = pa.array(origin, pa.int64()), pa.array(empty)
    answers = lists.values.take(pa.array(taken, pa.int64(), mask=empty))
    columns = dict(zip(step.answered.names, answers.flatten(), strict=True))
    if step.cache:
        before = table if len(origin) == len(kinds) and (lengths == 1).all() else table.take(at)
        for name in step.parent.schema.names:
            values = before[name].combine_chunks()
            columns[name] = pc.if_else(nothing, pa.scalar(None, values.type), values) if empty.any() else values
    whole = arrow_schema(step.schema)
    return Mapped(pa.table([columns[name] for name in whole.names], whole.names).cast(whole), at, failures)
