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
from floodmark.semantics.encoding.columns import arrow_schema, table_fitted
from floodmark.semantics.encoding.identity import identity
from floodmark.semantics.kernels.failures import Failure, Mapped, failure
from floodmark.semantics.kernels.requests import Question, Reply, asked, failed
from floodmark.spec.graph.steps import Call
from floodmark.spec.rows.lookup import Lookup
from floodmark.spec.values.schema import RETRACTION, ROW

_KEY_BYTES = 16


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


def called(
    step: Call,
    table: pa.Table,
    kinds: Sequence[int],
    times: Sequence[int | None],
    answers: Answers | None,
    lookup: Lookups,
) -> Mapped:
    """The answers for every row; markers, ticks and rows that failed before become one row of nulls each, as in ``flat_mapped``.

    Args:
        step: whose function asks.
        table: columns of the step's parent.
        kinds: ``_kind`` of each row.
        times: ``_event_time`` of each row, ms.
        answers: recorded ones; None for none.
        lookup: of the rows of lookup tables.

    Raises:
        UserCodeError: USER-009, if the step's ``on_error`` is "stop"; USER-010, USER-011.
    """
    rows = table.select(list(step.asked)).to_pylist()
    questions: dict[bytes, Question] = {}
    keys: list[bytes | None] = []
    for row, kind, moment in zip(rows, kinds, times, strict=True):
        if kind > ROW:
            keys.append(None)
            continue
        at = moment or 0
        at = at // step.cache_for * step.cache_for if step.cache_for else at
        key = blake2b(identity([_plain(list(row.values())), at]), digest_size=_KEY_BYTES).digest()
        questions.setdefault(key, Question(key, row, at))
        keys.append(key)
    with nullcontext() if answers is None else answers.held():
        answered = _answered(step, questions, answers, lookup)
    return _mapped(step, table, rows, kinds, keys, answered)


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
    step: Call,
    table: pa.Table,
    inputs: Sequence[Mapping[str, Any]],
    kinds: Sequence[int],
    keys: Sequence[bytes | None],
    answered: pa.Table,
) -> Mapped:
    """The answers of all rows as one table."""
    indices = pc.index_in(pa.array(keys, pa.binary(_KEY_BYTES)), answered["key"].combine_chunks()).to_pylist()
    lists = answered["rows"].combine_chunks()
    reasons = answered["reason"].to_pylist()
    offsets, taken, origin, failures = lists.offsets.to_pylist(), list[int | None](), list[int](), dict[int, Failure]()
    for position, index in enumerate(indices):
        reason = None if index is None or keys[position] is None else reasons[index]
        if reason is not None and kinds[position] == RETRACTION:  # the row it retracts was quarantined, too
            continue
        if reason is not None:
            failures[len(taken)] = failure("", failed(step, reason, inputs[position]), inputs[position])
        if index is None or reason is not None or keys[position] is None:
            taken.append(None)
            origin.append(position)
            continue
        places = range(offsets[index], offsets[index + 1])
        taken += places
        origin += [position] * len(places)
    at = pa.array(origin, pa.int64())
    answers = lists.values.take(pa.array(taken, pa.int64()))
    columns = dict(zip(step.answered.names, answers.flatten(), strict=True))
    if step.cache:
        empty = pa.array(np.array([index is None for index in taken], dtype=bool))
        before = table.take(at)
        columns |= {
            name: pc.if_else(empty, pa.scalar(None, before[name].type), before[name].combine_chunks())
            for name in step.parent.schema.names
        }
    whole = arrow_schema(step.schema)
    return Mapped(pa.table([columns[name] for name in whole.names], whole.names).cast(whole), at, failures)
