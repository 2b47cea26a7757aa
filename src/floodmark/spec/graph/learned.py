"""Models as steps, online and fitted: the model, its features and its target, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from floodmark.core.errors import DefinitionError, shown
from floodmark.spec.graph import steps
from floodmark.spec.graph.tagged import tagged
from floodmark.spec.keyed.fitted import ModelVersion, Scoring
from floodmark.spec.keyed.learning import LEARNED, Learning
from floodmark.spec.keyed.model import ModelState, last_part
from floodmark.spec.keyed.process import Process
from floodmark.spec.rows.checks import new_columns, one_of, unfit_setting
from floodmark.spec.rows.contract import schema as contract_schema
from floodmark.spec.rows.contract import type_of
from floodmark.spec.values.schema import Column, Schema

if TYPE_CHECKING:
    from floodmark.spec.graph.stream import KeyedStream, Stream

VERSION = "model_version"
_FEATURES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "string")


def learn(
    keyed: KeyedStream,
    model: object,
    features: tuple[str, ...],
    target: str | None,
    prediction: str,
    settings: dict[str, Any],
) -> Stream[Any]:
    """The stream of ``KeyedStream.learn``."""
    where, schema = keyed.stream.at_step("learn"), keyed.stream.schema
    on_error, order = settings["on_error"], settings["order"]
    one_of(steps.OnError, on_error, "on_error", where)
    if order not in (None, *get_args(steps.Order)):
        raise unfit_setting(where, f"order={order!r}", 'order is "arrival" or "event_time".')
    state = model if isinstance(model, ModelState) else ModelState(model)
    _check_features(features, () if target is None else (target,), schema, where)
    if target in features:
        fix = "Leave it out: it is what the model learns, and is not known when a row is predicted."
        raise DefinitionError(where, "features without the target", f"'{target}'", fix, code="DEFINITION-452")
    last = last_part(state.begun())
    method, type_ = _predicts(last, schema, target, where)
    taken = [name for name in (prediction, LEARNED) if name in schema or name.startswith("_")]
    new_columns(taken, where, f"new columns for the prediction and '{LEARNED}'", 'prediction="expected_delay".')
    own = [schema[key] for key in keyed.keys] + [c for c in schema.columns if c.name not in keyed.keys]
    columns = Schema((*own, Column(name=prediction, type=type_), Column(name=LEARNED, type="bigint", nullable=False)))
    function = Learning(state, method, tuple(features), target, prediction, type_)
    process: dict[str, Any] = {"function": Process(function), "order": order, "on_error": on_error}
    return keyed._then(settings["uid"], keyed.stream.step, columns, **process)  # noqa: SLF001 - its other half


def score(
    keyed: KeyedStream,
    versions: Stream[Any],
    name: str,
    features: tuple[str, ...],
    prediction: str,
    type_: object,
    settings: dict[str, Any],
) -> Stream[Any]:
    """The stream of ``Connected.score``."""
    where, schema = keyed.stream.at_step("score"), keyed.stream.schema
    one_of(steps.OnError, settings["on_error"], "on_error", where)
    _check_features(features, (), schema, where)
    lacking = [column.name for column in contract_schema(ModelVersion).columns if column.name not in versions.schema]
    if lacking:
        fix = "connect(models.broadcast()), where models: Stream[ModelVersion] reads floodmark.models.source(...)."
        raise DefinitionError(
            where, "versions of models", f"a stream without {', '.join(lacking)}", fix, code="DEFINITION-124"
        )
    kind = type_ if isinstance(type_, str) else type_of(type_)
    if kind is None or kind not in (*_FEATURES, "date", "timestamp"):
        raise unfit_setting(where, f"type={type_!r}", "The type of the prediction is float, int, bool or str.")
    new_columns(
        [column for column in (prediction, VERSION) if column in schema or column.startswith("_")],
        where,
        f"new columns for the prediction and '{VERSION}'",
        'prediction="expected_delay".',
    )
    parent, ports = tagged(keyed, versions, (), ("element", "broadcast"), where, last=True, broadcast=True)
    own = [schema[key] for key in keyed.keys] + [c for c in schema.columns if c.name not in keyed.keys]
    columns = Schema((*own, Column(name=prediction, type=kind), Column(name=VERSION, type="bigint")))
    process: dict[str, Any] = {"function": Process(Scoring(name, tuple(features), prediction, kind)), "ports": ports}
    process |= {"on_error": settings["on_error"], "order": "event_time"}
    return keyed._then(settings["uid"], parent, columns, **process)  # noqa: SLF001 - its other half


def _check_features(features: tuple[str, ...], others: tuple[str, ...], schema: Schema, where: str) -> None:
    if not features or isinstance(features, str):
        fix = 'features=("distance", "hour").'
        raise DefinitionError(f"{where}, features", "columns", repr(features), fix, code="DEFINITION-056")
    for name in (*features, *others):
        kind = schema.types.get(name)
        if kind is None or kind.partition("(")[0] not in _FEATURES:
            fix = schema.nearest(name) if kind is None else "Make a number of it: with_columns(hour='hour(at)')."
            got = repr(name) if kind is None else f"{name} {kind}"
            raise DefinitionError(
                f"{where}, features", "columns of numbers, booleans or texts", got, fix, code="DEFINITION-022"
            )


def _predicts(last: Any, schema: Schema, target: str | None, where: str) -> tuple[str, str]:
    """(last part of a model) -> its method that predicts, and the type of what it returns."""
    kind = type(last).__name__
    supervised = bool(getattr(last, "_supervised", target is not None))
    if supervised != (target is not None):
        expected = "a target" if supervised else "no target"
        fix = (
            f'{kind} learns from a label: target="delay".'
            if supervised
            else f"{kind} learns without a label: leave target out."
        )
        raise DefinitionError(where, expected, shown(target), fix, code="DEFINITION-442")
    if target is None:
        method = "score_one" if hasattr(last, "score_one") else "predict_one"
        type_ = "double" if method == "score_one" else "bigint"
    else:
        method, type_ = "predict_one", schema.types[target] if hasattr(last, "predict_proba_one") else "double"
    if not hasattr(last, method):
        fix = "End the pipeline with a model: preprocessing.StandardScaler() | linear_model.LinearRegression()."
        raise DefinitionError(where, "a model that predicts", f"{kind}, without {method}", fix, code="DEFINITION-443")
    return method, type_
