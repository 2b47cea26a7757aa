"""Deliveries: where the changes of an output leave to. Frozen settings, without I/O, from which a sink is made where they are delivered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from floodmark.core.errors import DefinitionError, closest, shown
from floodmark.spec.assets.freshness import check_freshness
from floodmark.spec.assets.restart import Restart, check_restart
from floodmark.spec.graph.operator import Operator, Output
from floodmark.spec.rows.source import Source, check_name
from floodmark.spec.values.implementation import implementation_of

if TYPE_CHECKING:
    from floodmark.deliveries.sink import CommitSink, Sink

Guarantee = Literal["transaction", "key", "append"]
"""What a sink can do. ``transaction``: changes and position are stored together, so that each change takes effect once. ``key``: each change names its
key, so that a change that is delivered again changes nothing. ``append``: a change that is delivered again is there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where the changes of an output leave to.

    A delivery is a frozen class with this base, whose fields are its settings. It either names what makes its sink by ``implementation``, or has a
    method ``sink`` of its own. See docs/deliveries.md.

    Args:
        output: name of the operator's output; by default its first.
        name: of the delivery's stream; by default that of the output's table and of the kind, ``hourly_to_sql``.
        restart: when its supervised stream is started again after a crash; None: as ``Restart.exponential()``.
        freshness: ``"5 minutes"``: its stream is at fault while what it has delivered is further behind the clock.
    """

    implementation: ClassVar[str] = ""
    """``"module:callable"``: called with the delivery and its route, it makes the sink; imported where changes are delivered."""
    kind: ClassVar[str] = "delivery"
    """Part of the default name of its stream."""
    guarantee: ClassVar[Guarantee] = "append"
    """What its sink can do."""
    takes_logs: ClassVar[bool] = False
    """Whether it may be declared of a source, whose log it then delivers."""

    output: str = ""
    name: str = ""
    restart: Restart | None = None
    freshness: str | None = None

    @property
    def from_now(self) -> bool:
        """Whether results that are there at the first start are left out."""
        return False

    @property
    def retracts(self) -> bool:
        """Whether the sink can take back what it was given: a result that is revised or deleted."""
        return False

    @property
    def revocable(self) -> bool:
        """Whether nothing of what was taken back is left behind a rollback, so that the sink holds what the output holds."""
        return False

    def located(self, folder: Path) -> Self:  # noqa: ARG002 - for deliveries with paths
        """These settings with absolute paths.

        Args:
            folder: where relative paths start.
        """
        return self

    def sink(self, route: Route) -> Sink | CommitSink:
        """The sink of these settings.

        Raises:
            DefinitionError: DEFINITION-330, the delivery does not say how it is delivered.
        """
        implementation = implementation_of(self.implementation)
        if implementation is None:
            kind = type(self).__name__
            fix = f'Write {kind}.sink(self, route), or {kind}.implementation = "module:callable".'
            raise DefinitionError(f"delivery '{route.name}'", f"a sink of {kind}", "none", fix, code="DEFINITION-330")
        sink: Sink | CommitSink = implementation(self, route)
        return sink

    def check(self, output: Output, where: str) -> None:
        """Refuse an output whose changes the sink cannot take.

        Args:
            output: to be delivered.
            where: of the error.

        Raises:
            DefinitionError: DEFINITION-331, results are revised and the sink cannot take them back.
        """
        if output.revisable and not self.retracts:
            fix = (
                f"Either deliver final results only: leave allowed_lateness and early triggers out of the operator, or emit what is new with "
                f"discarding panes. Or deliver last values to a sink that replaces them, such as ToSql. Or leave {type(self).__name__} out, and read "
                f"the table {output.table}__current."
            )
            got = f"'{output.table}', whose results are revised"
            raise DefinitionError(where, "an output whose results are final", got, fix, code="DEFINITION-331")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror(Delivery):
    """A delivery whose sink is as the output is: a result that is revised is replaced, one that is taken back goes, and a rollback takes all of it back."""

    @property
    def retracts(self) -> bool:
        """As ``Delivery``: it can."""
        return True

    @property
    def revocable(self) -> bool:
        """As ``Delivery``: nothing is left."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A delivery of one output of an operator, or of the log of a source, which is a stream of its own.

    Args:
        name: of the stream.
        operator: the operator that writes the output, or the source that lands into the log.
        output: whose changes are delivered; of a source its log.
        delivery: where to.
        freshness: as declared, ms; None: any.
    """

    name: str
    operator: Operator | Source
    output: Output
    delivery: Delivery
    freshness: int | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that identify a result that may be revised; empty if results are final, so that each row is a result."""
        return () if self.output.current is None else self.output.keys


def routes(operator: Operator | Source, deliveries: Iterable[Any], where: str) -> tuple[Route, ...]:
    """The deliveries of an operator or a source, each with the output that it delivers.

    Raises:
        DefinitionError: DEFINITION-332, no list of deliveries; DEFINITION-333, no such output; DEFINITION-331, an output that the sink cannot take;
            DEFINITION-342, a delivery of a source that takes no logs; those of names, restart strategies and freshness.
    """
    if isinstance(deliveries, Delivery) or not isinstance(deliveries, Iterable):
        got, fix = shown(deliveries), "Put it into brackets: deliver=[...]."
        raise DefinitionError(f"{where}, deliver", "a list of deliveries", got, fix, code="DEFINITION-332")
    return tuple(_route(operator, one, where) for one in deliveries)


def _route(operator: Operator | Source, delivery: Any, where: str) -> Route:
    if not isinstance(delivery, Delivery):
        fix = 'For example deliver=[ToSql(Env("SHOP_DATABASE"), table="hourly")].'
        raise DefinitionError(f"{where}, deliver", "deliveries", shown(delivery), fix, code="DEFINITION-332")
    if isinstance(operator, Source):
        return _route_of_log(operator, delivery, where)
    outputs = {output.name: output for output in operator.outputs}
    output = outputs.get(delivery.output) if delivery.output else operator.outputs[0]
    if output is None:
        names = [name or "(the result)" for name in outputs]
        fix = f"{closest(delivery.output, names)}Outputs: {', '.join(names)}."
        raise DefinitionError(
            f"{where}, deliver", "one of its outputs", repr(delivery.output), fix, code="DEFINITION-333"
        )
    name = _named(delivery, output.table, where)
    if output.revisable and not output.keys:
        fix = "Deliver the output of an operator with a key, such as key_by(...).window(...), which says by which columns a result is one."
        got = f"'{output.table}', whose rows are taken back and have no key"
        raise DefinitionError(f"delivery '{name}'", "results with a key", got, fix, code="DEFINITION-334")
    delivery.check(output, f"delivery '{name}'")
    return _checked(Route(name=name, operator=operator, output=output, delivery=delivery))


def _route_of_log(source: Source, delivery: Delivery, where: str) -> Route:
    if not delivery.takes_logs or delivery.output:
        kind = type(delivery).__name__
        fix = 'A log is replicated: ToLake("/elsewhere/lake"). Deliver rows of it by an operator: operator_asset(...) takes the delivery.'
        got = f"{kind}(output={delivery.output!r})" if delivery.output else kind
        raise DefinitionError(f"{where}, deliver", "a delivery that takes a log", got, fix, code="DEFINITION-342")
    output = Output(name="", table=source.name, schema=source.schema, revisable=source.revisable)
    return _checked(Route(name=_named(delivery, source.name, where), operator=source, output=output, delivery=delivery))


def _named(delivery: Delivery, table: str, where: str) -> str:
    name = delivery.name or f"{table.replace('__', '_')}_to_{delivery.kind}"
    check_name(name, f"{where}, deliver")
    return name


def _checked(route: Route) -> Route:
    check_restart(route.delivery.restart, f"delivery '{route.name}'")
    return replace(route, freshness=check_freshness(route.delivery.freshness, (), f"delivery '{route.name}'"))
