"""Requests: the options of the verbs that act on streams, as data.

The options of the command line (``cli.shell.invocation``), the config of Dagster's jobs (``orchestration.config``) and the table in
``docs/dagster.md`` are derived from the fields of the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, get_type_hints

from floodmark.core.errors import LifecycleError
from floodmark.core.time import span
from floodmark.lifecycle.experiment import CURRENT
from floodmark.spec.assets.asset import PATIENCE, SOAK
from floodmark.spec.assets.rollout import PromoteWhen
from floodmark.spec.values.tolerance import Within

_PATIENCE, _SOAK = span(PATIENCE) / 1000, span(SOAK) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a request.

    Args:
        name: as the request spells it.
        says: the purpose, in a sentence.
        kind: ``bool``, ``int``, ``float``, ``str``; ``tuple`` of texts; ``dict`` of texts by name.
        default: ``MISSING`` for a required option.
        unit: of a number.
        least: smallest value allowed.
        most: greatest value allowed.
        flag: name on the command line, if it differs from ``name``.
        form: of the value on the command line.
        share: whether the value is a number of 0 to 1, which may be written as a percentage.
    """

    name: str
    says: str
    kind: type
    default: Any
    unit: str = ""
    least: float | None = None
    most: float | None = None
    flag: str = ""
    form: str = ""
    share: bool = False

    @property
    def option_string(self) -> str:
        """The name on the command line: ``--undo-backfills``."""
        return f"--{(self.flag or self.name).replace('_', '-')}"

    @property
    def configured(self) -> str:
        """The name in a config: ``patience_seconds``."""
        return f"{self.name}_{self.unit}" if self.unit else self.name


def _option(says: str, default: Any = MISSING, **details: Any) -> Any:
    metadata = {"says": says, **details}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def options(request: type) -> Iterator[Option]:
    """The options of a request, in order."""
    hints = get_type_hints(request)
    for option_field in fields(request):
        kind = getattr(hints[option_field.name], "__origin__", hints[option_field.name])
        kind = dict if kind is Mapping else kind
        yield Option(name=option_field.name, kind=kind, default=_default(option_field), **option_field.metadata)


def _default(option_field: Field[Any]) -> Any:
    return option_field.default_factory() if option_field.default_factory is not MISSING else option_field.default


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointRequest:
    """A savepoint of a stream."""

    note: str = _option("Reason for the savepoint.", "")
    with_downstream: bool = _option(
        "Also create savepoints of all downstream streams, at one consistent cut.", default=False
    )
    keep: int = _option(
        "Savepoints with this note to retain, newest first, besides pinned and needed ones; 0: all.", 0, least=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """Streams roll back to a savepoint."""

    undo_backfills: bool = _option("Also undo bounded runs that came after the savepoint.", default=False)
    leave_readers: bool = _option(
        "Do not roll back downstream streams; such streams refuse to resume until computed anew.", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRequest:
    """A stream resumes under the current definition of its operator."""

    forward_only: bool = _option("Resume with open windows as the old code has filled them.", default=False)
    rebuild: bool = _option("Compute all results with the new code beside the stream, then switch.", default=False)
    note: str = _option("Reason for the upgrade, recorded with the savepoint made first.", "")
    patience: float = _option("Time limit for the new version's first micro-batch.", _PATIENCE, unit="seconds", least=0)
    soak: float = _option("How long the new version must run without a crash.", _SOAK, unit="seconds", least=0)
    set_aside: bool = _option("Let the new version set rows aside, though the old version did not.", default=False)

    def __post_init__(self) -> None:
        if self.forward_only and self.rebuild:
            fix = "Leave one of them out: forward_only goes on from the state there is, rebuild does not."
            got = "both forward_only and rebuild"
            raise LifecycleError("upgrade", "one way for the state", got, fix, code="LIFECYCLE-114")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRequest:
    """Versions of a stream run beside it from one savepoint."""

    arms: Mapping[str, str] = _option(
        "Arm -> its code: @current for the code of the stream, . for the current code, or a package. All arms are compared with the first.",
        {"a": CURRENT, "b": "."},
        flag="arm",
        form="NAME=CODE",
    )
    savepoint: str = _option(
        "Savepoint that all arms start from. Default: a new one.", "", flag="from", form="SAVEPOINT"
    )
    sample: float = _option(
        "Share of the keys that the arms run over, the same keys in each arm: 0.1 or 10%; 1: all. Such an arm cannot be promoted.",
        1.0,
        share=True,
        form="SHARE",
    )
    forward_only: bool = _option("Start arms with open windows as the old code has filled them.", default=False)
    rebuild: bool = _option(
        "Let an arm whose code cannot resume from the savepoint, or only with forward_only, compute all input, from the first row.",
        default=False,
    )
    promote_when: tuple[str, ...] = _option(
        "Conditions that make an arm the stream once all hold: 'match>=99.9%', 'mean_delay within 0.5', 'mean error<=95%', 'lag<=30 s', 'soak>=2 hours', 'at>=TIME', approve.",
        (),
        form="CONDITION",
    )
    promote: str = _option("Arm that promote_when is about. Default: the only one besides the first.", "", form="ARM")
    note: str = _option("Reason for the experiment.", "")

    @property
    def rule(self) -> PromoteWhen | None:
        """When an arm becomes the stream; None for never.

        Raises:
            LifecycleError: LIFECYCLE-092, an arm is named to be promoted, but no condition.
            DefinitionError: a text is not a condition.
        """
        if self.promote_when:
            return PromoteWhen.parse(self.promote_when)
        if self.promote:
            fix = "Say when: --promote-when 'match>=99.9%'. Or leave --promote out."
            where = f"arm '{self.promote}', which is to be promoted"
            raise LifecycleError(where, "a condition for it", "none", fix, code="LIFECYCLE-092")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRequest:
    """How much values may differ, and how many rows."""

    tolerances: Mapping[str, str] = _option(
        "Column -> by how much values may differ: 0.5 for half a unit, 0.1% for a thousandth.",
        {},
        flag="tolerance",
        form="COLUMN=N",
    )
    match: float = _option(
        "Least share of the rows of each output that must be the same: 0.999 or 99.9%.", 1.0, share=True, form="SHARE"
    )

    @property
    def bounds(self) -> dict[str, Within]:
        """Column -> tolerance of its values.

        Raises:
            DefinitionError: DEFINITION-160, a text is not a tolerance.
        """
        return {name: Within.parse(text, f"tolerance of {name}") for name, text in self.tolerances.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest(ToleranceRequest):
    """Two sets of rows are compared. Later comparisons of an experiment keep the tolerances and columns of its first."""

    without: tuple[str, ...] = _option("Columns that are not compared.", (), form="COLUMN")
    memory: str = _option("Memory limit, above which the comparison spills to disk.", "2GB")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest(ToleranceRequest):
    """Changed code resumes from a savepoint, and its results are compared with the stream's."""

    forward_only: bool = _option("Resume with open windows as the old code has filled them.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRequest:
    """An arm of an experiment replaces its stream."""

    arm: str = _option("Arm that becomes the stream.", form="ARM")
    cutover: str = _option(
        "Event time before which the stream's results stay: ISO 8601, or closed for the latest possible. "
        "Default: the time when the arms parted.",
        "",
        form="TIME|closed",
    )
    patience: float = _option(
        "Time limit for the arm to catch up with the stream, and then for the arm's first micro-batch.",
        _PATIENCE,
        unit="seconds",
        least=0,
    )
    soak: float = _option("How long the arm must run without a crash.", _SOAK, unit="seconds", least=0)
    set_aside: bool = _option("Let the arm set rows aside, though the stream did not.", default=False)
