"""The workspace: every source and operator, checked against each other."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Literal, TypeVar, get_args

import attrs

from floodmark.core.errors import DefinitionError, SetupError, closest
from floodmark.spec.assets.alert import Alert, check_alerts
from floodmark.spec.assets.asset import OperatorAsset, RunWhen, SourceAsset, check_operator, check_source
from floodmark.spec.assets.delivery import Route
from floodmark.spec.assets.freshness import check_event_time
from floodmark.spec.assets.restart import Restart
from floodmark.spec.assets.store import Store
from floodmark.spec.graph.operator import Audit, Operator
from floodmark.spec.rows.source import Source
from floodmark.spec.values import secret
from floodmark.spec.values.secret import Env, Secret, SecretFile

Engine = Literal["spark", "embedded"]
"""The engines that run operators."""

Hosting = Literal["shared", "isolated"]
"""Whether supervised streams of one package share a process, or have one each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a workspace, chosen per environment by ``resources/``.

    Args:
        environment: ``dev`` or ``prod``.
        lake: root of the tables.
        logs: root of another lake whose logs are read instead of this lake's; the other lake is never written.
        spark: Spark configuration on top of floodmark's own; secrets by reference, ``("spark.authenticate.secret", Env("SPARK_SECRET"))``.
        engine: ``spark``, or ``embedded``, which needs no JVM and runs on one machine.
        memory: memory of the embedded engine's queries before they spill, MB; by default two fifths of the machine's.
        master: Spark master.
        shuffle_partitions: state partitions of a new unbounded run.
        folder: base of relative paths of sources.
        control: URL of the control store for SQLAlchemy; by default SQLite in ``.floodmark/control`` of the workspace.
        divided: partition output tables by the partitions of their assets, so that partitions can be computed at the same time and
            replaced without reading others; costs a file per partition and commit.
        kept_days: retention of unreferenced packages, ended timelines, logs of drivers and rows of the control store.
        upkeep_minutes: between two upkeeps of the lake under a supervisor; 0 for none.
        store: how the store of a lake in a bucket is reached; by default by the variables ``AWS_...`` of the environment.
        streams: ``shared``: supervised streams of one package run in one process, each in a thread; ``isolated``: in a process each.
        code: folder of the workspace's modules, which travel to the workers of a cluster; set when a workspace is loaded.
    """

    environment: str = "dev"
    lake: str = "lake"
    logs: str | None = None
    spark: tuple[tuple[str, str | Secret], ...] = ()
    engine: Engine = "spark"
    memory: int | None = None
    master: str = "local[2]"
    shuffle_partitions: int = 2
    folder: str = "."
    control: str | None = None
    divided: bool = True
    kept_days: float = 30
    upkeep_minutes: float = 60
    streams: Hosting = "shared"
    store: Store | None = None
    code: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown engine, and values that a later run would stumble over.

        Raises:
            SetupError: SETUP-072 the engine, SETUP-073 other values, SETUP-105 a secret of Spark that is written out.
        """
        if self.engine not in get_args(Engine):
            fix = f"{closest(self.engine, get_args(Engine))}Correct it in resources/settings.py, or set FLOODMARK_ENGINE=spark."
            expected = " or ".join(get_args(Engine))
            raise SetupError("Settings(engine=...)", expected, repr(self.engine), fix, code="SETUP-072")
        wrong = [name for name, (fits, _) in _EXPECTED.items() if not fits(getattr(self, name))]
        if wrong:
            where = f"Settings({', '.join(f'{name}=...' for name in wrong)})"
            expected = ", ".join(f"{name}: {_EXPECTED[name][1]}" for name in wrong)
            got = ", ".join(f"{name}={getattr(self, name)!r}" for name in wrong)
            fix = "Correct it in resources/settings.py, or in the environment variable it is read from."
            raise SetupError(where, expected, got, fix, code="SETUP-073")
        written = [name for name, value in self.spark if isinstance(value, str) and _SECRET.search(name)]
        if written:
            fix = f'Name the variable or the file that holds it: ("{written[0]}", Env("SPARK_SECRET")) or SecretFile("/run/secrets/spark").'
            where, got = f"Settings(spark=...), {written[0]}", "one that is written out"
            raise SetupError(where, "a secret by reference", got, fix, code="SETUP-105")

    def spark_settings(self) -> dict[str, str]:
        """Spark's settings that are no secrets."""
        return {name: value for name, value in self.spark if isinstance(value, str)}

    def spark_secrets(self) -> dict[str, str]:
        """Spark's settings that are secrets, with their texts. Never to be written or passed as arguments.

        Raises:
            SetupError: SETUP-106, a variable or a file of a secret is missing or empty.
        """
        secrets = {}
        for name, reference in self.spark:
            if isinstance(reference, str):
                continue
            text = secret.read(reference)
            if not text:
                fix = "Set it where floodmark runs, also for its supervisor and Dagster; or correct Settings(spark=...) in resources/settings.py."
                where = secret.described(reference)
                raise SetupError(where, f"the secret {name} of Spark", "nothing", fix, code="SETUP-106")
            secrets[name] = text
        return secrets


_SECRET = re.compile(r"(secret|password|token|secret\.key|access\.key)$", re.IGNORECASE)
"""The end of the name of a setting of Spark that holds a secret, and no path of one."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _are_pairs(value: object) -> bool:
    pairs = value if isinstance(value, tuple) else (None,)
    kinds = (str, str | Env | SecretFile)
    return all(
        isinstance(pair, tuple) and len(pair) == len(kinds) and all(map(isinstance, pair, kinds)) for pair in pairs
    )


_EXPECTED: Mapping[str, tuple[Callable[[object], bool], str]] = MappingProxyType(
    {
        "environment": (_is_text, "a text"),
        "lake": (_is_text, "a text"),
        "logs": (lambda value: value is None or _is_text(value), "a text or None"),
        "spark": (_are_pairs, 'pairs of texts, such as (("spark.driver.memory", "4g"),)'),
        "memory": (lambda value: value is None or _is_count(value), "a whole number of megabytes, or None"),
        "master": (_is_text, "a text"),
        "shuffle_partitions": (_is_count, "a whole number of 1 or more"),
        "folder": (_is_text, "a text"),
        "control": (lambda value: value is None or _is_text(value), "a URL or None"),
        "divided": (lambda value: isinstance(value, bool), "True or False"),
        "kept_days": (_is_length, "a number of 0 or more"),
        "upkeep_minutes": (_is_length, "a number of 0 or more"),
        "store": (lambda value: value is None or isinstance(value, Store), "a Store or None"),
        "streams": (lambda value: value in get_args(Hosting), " or ".join(get_args(Hosting))),
        "code": (lambda value: value is None or _is_text(value), "a text or None"),
    }
)
"""Setting -> (predicate of its values, what an error says was expected)."""


@attrs.frozen(init=False)
class Workspace:
    """Sources and operators by name, each alone or as an asset with its settings; and who is told when one of their streams is at fault.

    Raises:
        DefinitionError: DEFINITION-076 no list, or no source or operator in it, DEFINITION-070 two definitions of one name, 071 an input that neither a source nor an output is, 072 a contract
            that is not the source's, 073 an operator used as input but not listed, 075 an input by name that has to be bound, 297 a freshness of rows without
            an event time of their own, 299 no alerts, or one of an unknown stream.
    """

    source_assets: tuple[SourceAsset, ...]
    operator_assets: tuple[OperatorAsset, ...]
    settings: Settings
    alerts: tuple[Alert, ...]

    def __init__(
        self,
        *,
        sources: Iterable[Source | SourceAsset] = (),
        operators: Iterable[Operator | OperatorAsset] = (),
        settings: Settings | None = None,
        alerts: Iterable[Alert] = (),
    ) -> None:
        settings = Settings() if settings is None else settings
        if not isinstance(settings, Settings):
            got, fix = f"a {type(settings).__name__}", "Write them as Settings(lake=...)."
            raise DefinitionError("Workspace, settings", "Settings", got, fix, code="DEFINITION-076")
        landed = tuple(
            one if isinstance(one, SourceAsset) else SourceAsset(source=check_source(one, "Workspace, sources"))
            for one in _listed(sources, "sources")
        )
        run = tuple(
            one
            if isinstance(one, OperatorAsset)
            else OperatorAsset(operator=check_operator(one, "Workspace, operators"))
            for one in _listed(operators, "operators")
        )
        if not settings.divided:
            run = tuple(replace(one, operator=replace(one.operator, partitions=None)) for one in run)
        audits = {
            asset.operator.output(name).table: Audit(checks, asset.partitions)
            for asset in run
            for name, some in asset.expectations.items()
            if asset.partitions is not None and (checks := tuple(one.name for one in some if one.strict))
        }
        run = tuple(_audited(one, audits) for one in run)
        order = {id(one): place for place, one in enumerate(_in_order(tuple(asset.operator for asset in run)))}
        names = [*(asset.source.name for asset in landed), *(asset.operator.name for asset in run)]
        names += [route.name for source in landed for route in source.deliveries]
        names += [route.name for asset in run for route in asset.deliveries]
        ordered = tuple(sorted(run, key=lambda one: order[id(one.operator)]))
        self.__attrs_init__(landed, ordered, settings, check_alerts(alerts, names))
        self._check_names()
        for operator in self.operators:
            self._check_inputs(operator)
        for asset in self.operator_assets:
            if asset.freshness is not None:
                check_event_time(self._sources_of(asset.operator), f"asset of operator '{asset.operator.name}'")

    @classmethod
    def of(cls, *modules: ModuleType, settings: Settings | None = None) -> Workspace:
        """The workspace of all sources, operators, assets and alerts that are attributes of these modules.

        An asset replaces its source or operator, whichever module it is in.

        Args:
            modules: as a rule those of ``assets`` and ``operators``.
            settings: of the environment.
        """
        named = list({id(value): value for module in modules for value in vars(module).values()}.values())
        sources = [one for one in named if isinstance(one, SourceAsset)]
        operators = [one for one in named if isinstance(one, OperatorAsset)]
        landed = {one.source.name for one in sources}
        run = {(one.operator.name, one.operator.location) for one in operators}
        return cls(
            sources=[*sources, *(one for one in named if isinstance(one, Source) and one.name not in landed)],
            operators=[
                *operators,
                *(one for one in named if isinstance(one, Operator) and (one.name, one.location) not in run),
            ],
            settings=settings,
            alerts=[one for one in named if isinstance(one, Alert)],
        )

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source, as listed."""
        return tuple(asset.source for asset in self.source_assets)

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Every operator, upstream first."""
        return tuple(asset.operator for asset in self.operator_assets)

    def at(self, root: str, *, lake: str | None = None, code: str | None = None) -> Workspace:
        """The workspace with absolute paths in its settings.

        Args:
            root: base of relative paths.
            lake: an absolute path or URI that replaces the settings' lake.
            code: folder of the modules; by default that of the settings, else ``root``.
        """
        settings = self.settings
        located = replace(
            settings,
            folder=_absolute(settings.folder, root),
            lake=lake or _absolute(settings.lake, root),
            logs=None if settings.logs is None else _absolute(settings.logs, root),
            code=code or settings.code or root,
        )
        return self.having(located)

    def having(self, settings: Settings) -> Workspace:
        """The workspace with other settings."""
        return Workspace(
            sources=self.source_assets, operators=self.operator_assets, settings=settings, alerts=self.alerts
        )

    def source(self, name: str) -> Source:
        """The source of that name; DEFINITION-074, which lists all names, if there is none."""
        return _named(name, self.sources, "source", self.operators, "It is an operator: floodmark run")

    def source_asset(self, name: str) -> SourceAsset:
        """The asset of the source of that name; DEFINITION-074 as for ``source``."""
        source = self.source(name)
        return next(one for one in self.source_assets if one.source is source)

    def operator(self, name: str) -> Operator:
        """The operator of that name; DEFINITION-074, which lists all names, if there is none."""
        return _named(name, self.operators, "operator", self.sources, "It is a source: floodmark land")

    def asset(self, name: str) -> OperatorAsset:
        """The asset of the operator of that name; DEFINITION-074 as for ``operator``."""
        operator = self.operator(name)
        return next(one for one in self.operator_assets if one.operator is operator)

    @property
    def deliveries(self) -> tuple[Route, ...]:
        """Every delivery, upstream first."""
        of_logs = [route for asset in self.source_assets for route in asset.deliveries]
        of_outputs = [
            replace(route, operator=asset.operator, output=asset.operator.output(route.output.name))
            for asset in self.operator_assets
            for route in asset.deliveries
        ]
        folder = Path(self.settings.folder)
        return tuple(replace(route, delivery=route.delivery.located(folder)) for route in (*of_logs, *of_outputs))

    def delivery(self, name: str) -> Route:
        """The delivery of that name; DEFINITION-074, which lists all names, if there is none."""
        known = {one.name: one for one in self.deliveries}
        if name in known:
            return known[name]
        fix = f"{closest(name, known)}There are: {', '.join(known) or 'none'}."
        raise DefinitionError("workspace", "the name of one of its deliveries", repr(name), fix, code="DEFINITION-074")

    @property
    def streams(self) -> tuple[Source | Operator | Route, ...]:
        """All that can run as a stream: every source, every operator, upstream first, and every delivery."""
        return (*self.sources, *self.operators, *self.deliveries)

    def stream(self, name: str) -> Source | Operator | Route:
        """The source, operator or delivery of that name, each of which can run as a stream; DEFINITION-074, which lists all names, if there is none."""
        known = {one.name: one for one in self.streams}
        if name in known:
            return known[name]
        fix = f"{closest(name, known)}There are: {', '.join(known) or 'none'}."
        expected = "the name of one of its sources, operators or deliveries"
        raise DefinitionError("workspace", expected, repr(name), fix, code="DEFINITION-074")

    def restart_of(self, name: str) -> Restart | None:
        """The restart strategy declared for the source or operator of that name; None for none."""
        for source in self.source_assets:
            if source.source.name == name:
                return source.restart
        for route in self.deliveries:
            if route.name == name:
                return route.delivery.restart
        return next((one.restart for one in self.operator_assets if one.operator.name == name), None)

    def freshness_of(self, name: str) -> int | None:
        """The freshness declared for the source or operator of that name, ms; None for none."""
        for source in self.source_assets:
            if source.source.name == name:
                return source.freshness
        for route in self.deliveries:
            if route.name == name:
                return route.freshness
        return next((one.freshness for one in self.operator_assets if one.operator.name == name), None)

    def run_when_of(self, name: str) -> RunWhen:
        """When the supervised stream of the source or operator of that name has a process."""
        return next((one.run_when for one in self.operator_assets if one.operator.name == name), "always")

    def _sources_of(self, operator: Operator) -> list[Source]:
        """The sources whose rows an operator reads, also by way of others."""
        writers = {output.table: other for other in self.operators for output in other.outputs}
        read, pending = dict[str, Source](), [operator]
        while pending:
            for table in (one.table for one in pending.pop().inputs):
                read |= {source.name: source for source in self.sources if source.name == table}
                pending += [writers[table]] if table in writers else []
        return list(read.values())

    def _check_names(self) -> None:
        names = Counter(one.name for one in self.streams)
        for name, times in names.items():
            if times > 1:
                places = list(dict.fromkeys(o.location for o in self.operators if o.name == name))
                fix = 'Keep one of them, or rename one: @operator(name="..."), ToSql(..., name="...").'
                fix += f" Defined at {' and '.join(places)}." if places else ""
                raise DefinitionError(
                    "workspace", "one definition per name", f"{times} named '{name}'", fix, code="DEFINITION-070"
                )

    def _check_inputs(self, operator: Operator) -> None:
        tables = {s.name: s.schema for s in self.sources}
        tables |= {out.table: out.schema for o in self.operators for out in o.outputs}
        bound = [o.declared or o for o in self.operators]
        for input_ in operator.inputs:
            where = f"operator '{operator.name}', input '{input_.name}'"
            if input_.upstream and input_.upstream.operator not in bound:
                name = input_.upstream.operator.name
                divided = any(o.name == name and o.partitions for o in self.operators)
                fix = f"Its asset has partitions, by which Global() is one window each: write Global.per(PARTITIONS) in {name}."
                if not (divided and input_.upstream.operator.spans_interval):
                    fix = f"Add {name} to the workspace's operators."
                got = f"'{name}', which is not in it (or is another version there)"
                raise DefinitionError(where, "an operator of the workspace", got, fix, code="DEFINITION-073")
            if input_.table not in tables:
                fix = closest(input_.table, tables) + f"Tables: {', '.join(sorted(tables)) or 'none'}."
                raise DefinitionError(where, "a source or an output", f"'{input_.table}'", fix, code="DEFINITION-071")
            actual = tables[input_.table]
            wrong = [c.name for c in input_.schema.columns if actual.types.get(c.name) != c.type]
            if wrong:
                fix = f"'{input_.table}' has: {actual.describe()}."
                got = f"other or no {', '.join(wrong)}"
                raise DefinitionError(where, f"the columns of '{input_.table}'", got, fix, code="DEFINITION-072")
            source = next((s for s in self.sources if s.name == input_.table), None)
            if input_.upstream is None and (source is None or source.revisable != input_.revisable):
                what = "another operator's output" if source is None else "a source whose rows may be taken back"
                name = input_.table if source is not None else next(_shown(self.operators, input_.table))
                fix = (
                    f'Bind it, so that the operator knows what it reads: @operator(inputs={{"{input_.name}": {name}}}).'
                )
                got = f"{what} by its name"
                raise DefinitionError(where, "a bound input", got, fix, code="DEFINITION-075")


Listed = TypeVar("Listed")


def _listed(definitions: Iterable[Listed], name: str) -> Iterable[Listed]:
    """The definitions, which must be a list of them and no single definition."""
    if isinstance(definitions, Iterable):
        return definitions
    got = f"a single {type(definitions).__name__}"
    raise DefinitionError(
        f"Workspace, {name}", f"a list of {name}", got, f"Put it into brackets: {name}=[...].", code="DEFINITION-076"
    )


def _shown(operators: tuple[Operator, ...], table: str) -> Iterator[str]:
    """(table) -> the binding of the output that writes it, as source text: ``hourly``, or ``hourly["late"]`` if it is not the first output."""
    for operator in operators:
        for position, out in enumerate(operator.outputs):
            if out.table == table:
                yield f'{operator.name}["{out.name}"]' if position else operator.name


def _absolute(path: str, root: str) -> str:
    return path if "://" in path else os.path.normpath(Path(root) / Path(path).expanduser())


Named = TypeVar("Named", Source, Operator)


def _named(
    name: str, candidates: tuple[Named, ...], kind: str, others: tuple[Source | Operator, ...], verb: str
) -> Named:
    """The candidate of a name; if one of ``others`` has the name, the error says so by ``verb``, a sentence without its last word, the name."""
    for candidate in candidates:
        if candidate.name == name:
            return candidate
    names = [candidate.name for candidate in candidates]
    is_other = any(other.name == name for other in others)
    hint = f"{verb} {name}. " if is_other else closest(name, names)
    fix = hint + f"There are: {', '.join(names) or 'none'}."
    raise DefinitionError("workspace", f"the name of one of its {kind}s", repr(name), fix, code="DEFINITION-074")


def _audited(asset: OperatorAsset, audits: Mapping[str, Audit]) -> OperatorAsset:
    """The asset, whose operator waits for the verdicts about its inputs."""
    own = {one.table: audits[one.table] for one in asset.operator.inputs if one.table in audits}
    return replace(asset, operator=replace(asset.operator, audits=own)) if own or asset.operator.audits else asset


def _in_order(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """The operators, upstream first; otherwise in the order listed. Bindings are values, so there can be no cycle."""
    done: dict[int, Operator] = {}

    def visit(operator: Operator) -> None:
        for input_ in operator.inputs:
            for other in operators:
                if input_.table in {out.table for out in other.outputs} and other is not operator:
                    visit(other)
        done.setdefault(id(operator), operator)

    for operator in operators:
        visit(operator)
    return tuple(done.values())
