"""Online models as state: a model of river's interface, which learns row by row, declared like any state of a process function.

A model is stored as the bytes of a restricted pickle. Source: river, whose models learn by ``learn_one``; prequential evaluation.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from math import isfinite
from typing import Any

from attrs import Attribute, define, field

from floodmark.core.code import code_of, settings_of
from floodmark.core.errors import DefinitionError, StateError, UserCodeError, described, shown
from floodmark.core.fingerprint import OMITTED, SKIPPED, digest, hex_of
from floodmark.spec.keyed.state import State
from floodmark.spec.rows.checks import converting
from floodmark.spec.rows.kinds import Kind

_PLAIN = frozenset(
    {("builtins", name) for name in ("bool", "complex", "float", "frozenset", "int", "list", "dict", "set", "str")}
    | {("builtins", name) for name in ("tuple", "bytes", "bytearray", "slice", "range")}
    | {("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")}
    | {("datetime", name) for name in ("date", "datetime", "timedelta", "timezone")}
    | {("functools", "partial"), ("random", "Random"), ("decimal", "Decimal"), ("copyreg", "_reconstructor")}
    | {("builtins", "object"), ("numpy", "dtype"), ("numpy", "ndarray"), ("numpy", "float64"), ("numpy", "int64")}
    | {("numpy._core.numeric", "_frombuffer"), ("numpy._core.multiarray", "scalar")}
    | {("numpy._core.multiarray", "_reconstruct")}
    | {("numpy.random._pickle", name) for name in ("__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor")}
    | {("numpy.random._mt19937", "MT19937"), ("numpy.random._pcg64", "PCG64")}
)
"""What a stored model may name beside the package of its class: containers, numbers, generators of random numbers."""
_DEEPEST = 6
"""Levels of parts within parts of a model that ``parameters`` shows."""


class Live:
    """A model in memory while the rows of its key are processed."""

    __slots__ = ("model",)

    def __init__(self, model: Any) -> None:
        self.model = model

    def __deepcopy__(self, _: object) -> Live:
        return Live(pickle.loads(_dumped(self.model)))  # noqa: S301 - of this process; ``copy`` would share generators of random numbers


def _of_model(model: Any, _: object = None, __: object = None) -> bytes:
    """The bytes of a clone that has learned nothing."""
    lacking = [name for name in ("learn_one", "clone") if not callable(getattr(model, name, None))]
    if lacking or isinstance(model, type):
        fix = "For example linear_model.LinearRegression() or preprocessing.StandardScaler() | ... of river: pip install 'floodmark[models]'"
        got = f"the class {model.__name__}" if isinstance(model, type) else shown(model)
        raise DefinitionError("ModelState", "a model that learns by learn_one", got, fix, code="DEFINITION-440")
    if unseeded := next(_unseeded(type(model).__name__, model), None):
        got = f"{unseeded}(seed=None), which draws other numbers in each process: a restart and a replay would predict otherwise"
        raise DefinitionError("ModelState", "a seed", got, f"Set it: {unseeded}(..., seed=1).", code="DEFINITION-451")
    try:
        data = _dumped(model.clone())
        _Unpickler(io.BytesIO(data), _packages(data)).load()
    except Exception as error:
        fix = (
            "Name its functions: a lambda, or a class inside of a function, cannot be stored; define them in a module."
        )
        got = described(error)
        raise DefinitionError("ModelState", "a model that can be stored", got, fix, code="DEFINITION-441") from error
    return data


def _unseeded(name: str, value: Any) -> Iterator[str]:
    """Names of the parts of a model that draw numbers without a seed, of the parts in lists too."""
    settings_of_model = getattr(value, "_get_params", None)
    match value:
        case (type() as kind, dict() as settings):
            yield from _unseeded(kind.__name__, settings)
        case dict():
            if value.get("seed", 0) is None:
                yield name
            for part, setting in value.items():
                yield from _unseeded(str(part), setting)
        case list() | tuple():
            for part in value:
                yield from _unseeded(name, part)
        case _ if callable(settings_of_model) and not isinstance(value, type):
            yield from _unseeded(type(value).__name__, settings_of_model())


@define(eq=False, repr=False, slots=False, field_transformer=converting)
class ModelState(State):
    """A model per key that learns row by row. Each key begins with a clone of ``model``, which has learned nothing.

    Args:
        model: of river's interface: ``learn_one``, ``clone`` and ``predict_one`` or ``score_one``. Its class, its settings, the code of classes of
            yours in it and the exact release of its package are part of the version.
        most_bytes: largest stored model of a key; a larger one stops the run.
        version: of the model; with ``migrate`` another model may take the place of the one that a key has.
        migrate: function from a model of version 1 to one of version 2, such as ``lambda old: old`` after an upgrade of river that keeps its classes.

    Time: none. A stored model is kept for ever. State: the bytes of the model, by a restricted pickle: whoever can write to the lake's folder
    can choose objects of the model's package that are made when it is read, so a lake is trusted like the code.

    Example:
        >>> from river import linear_model
        >>> class Drift(ProcessFunction):
        ...     model = ModelState(linear_model.LinearRegression())
        ...     def on_element(self, row, ctx):
        ...         model = self.model.get()
        ...         yield {"expected": model.predict_one({"x": row["x"]})}
        ...         model.learn_one({"x": row["x"]}, row["y"])

    Raises:
        DefinitionError: DEFINITION-440 no model of river's interface, 441 one that cannot be stored, 451 one that draws numbers without a seed.
    """

    called = "model"
    template: bytes = field(alias="model", converter=_of_model, metadata=SKIPPED)
    most_bytes: int = field(default=1 << 24, kw_only=True, metadata=SKIPPED)
    ttl: int | None = field(default=None, init=False, metadata=OMITTED)

    @most_bytes.validator
    def _is_size(self, _: Attribute[Any], most: object) -> None:
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            fix = "Bytes, 1 or more: most_bytes=1_000_000."
            raise DefinitionError("ModelState", "a greatest size", repr(most), fix, code="DEFINITION-120")

    def __attrs_post_init__(self) -> None:
        self.packages = _packages(self.template)
        self.kind = Kind(_described(self.begun()))

    def begun(self) -> Any:
        """A model that has learned nothing."""
        return self._loaded(self.template)

    def get(self) -> Any:
        """The model of the key, which what it learns is kept of; a new key has a clone that has learned nothing."""
        cell = self._cell()
        if not isinstance(cell.raw, Live):
            cell.raw = Live(self._loaded(self.template if cell.raw is None else cell.raw))
        return cell.raw.model

    def update(self, model: Any) -> None:
        """Replace the model by another one of the same class."""
        before = type(self.begun())
        if type(model) is not before:
            fix = "Declare the other one: ModelState(model, version=2, migrate=...)."
            raise UserCodeError(
                f"state '{self.name}'", f"a {before.__name__}", type(model).__name__, fix, code="USER-005"
            )
        self._cell().raw = Live(model)

    def stored(self, raw: Any) -> bytes:
        """(value in memory) -> the bytes that lie in state.

        Raises:
            UserCodeError: USER-022, the model is larger than ``most_bytes``.
        """
        if not isinstance(raw, Live):
            return bytes(raw)
        data = _dumped(raw.model)
        if len(data) > self.most_bytes:
            fix = "Bound what it keeps (max_depth, memory limits, fewer features), or raise most_bytes."
            got = f"{len(data):,} bytes"
            where = f"state '{self.name}', a {type(raw.model).__name__}"
            raise UserCodeError(where, f"at most {self.most_bytes:,} bytes", got, fix, code="USER-022")
        return data

    def migrated(self, value: Any, version: int) -> Any:
        """See ``State.migrated``: both are bytes."""
        model = self._loaded(value)
        for number in range(version + 1, self.version + 1):
            model = self.ways[number](model)
        before = type(self.begun())
        if type(model) is not before:
            fix = (
                f"Return a {before.__name__} from migrate: a new one, model.clone(), or the old one with what it lacks."
            )
            where = f"migrate of state '{self.name}'"
            raise UserCodeError(where, f"a {before.__name__}", shown(model), fix, code="USER-005")
        return _dumped(model)

    def readable(self, raw: Any) -> dict[str, Any]:
        """The stored model for people: its parts, what they have learned as plain values, and its size in bytes."""
        model = raw.model if isinstance(raw, Live) else self._loaded(raw)
        return {"model": self.kind.text, "bytes": len(self.stored(raw)), "parameters": parameters(model)}

    def _loaded(self, data: bytes) -> Any:
        try:
            return _Unpickler(io.BytesIO(data), self.packages).load()
        except ModuleNotFoundError as error:
            fix = f"Install it where the rows are processed, on each worker: pip install {error.name}"
            raise StateError(
                f"state '{self.name}'", f"the package '{error.name}'", "none here", fix, code="STATE-070"
            ) from error
        except StateError:
            raise
        except Exception as error:
            got = f"{described(error)}"
            fix = "Install the release that it was stored with; or compute it anew: floodmark apply --rebuild"
            raise StateError(
                f"state '{self.name}'", f"a stored {self.kind.text}", got, fix, code="STATE-071"
            ) from error


class _Unpickler(pickle.Unpickler):
    """Objects of some packages, of containers and numbers."""

    def __init__(self, file: io.BytesIO, packages: frozenset[str]) -> None:
        super().__init__(file)
        self.packages = packages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return self._method
        if (module, name) not in _PLAIN and module.partition(".")[0] not in self.packages:
            fix = "A model of this class stores nothing of the kind: the file is damaged, or somebody else has written it."
            got = f"{module}.{name}"
            raise StateError("a stored model", f"objects of {', '.join(self.packages)}", got, fix, code="STATE-072")
        return super().find_class(module, name)

    def _method(self, owner: Any, name: str) -> Any:
        """A method that a model holds, such as of a generator of random numbers."""
        kind = owner if isinstance(owner, type) else type(owner)
        if name.startswith("__") or kind.__module__.partition(".")[0] not in {*self.packages, "random"}:
            fix = "A model of this class stores nothing of the kind: the file is damaged, or somebody else has written it."
            got = f"'{name}' of {kind.__module__}.{kind.__qualname__}"
            raise StateError("a stored model", "methods of the model", got, fix, code="STATE-073")
        return getattr(owner, name)


def last_part(model: Any) -> Any:
    """The part of a pipeline that predicts; the model itself if it is no pipeline."""
    while isinstance(getattr(model, "steps", None), Mapping) and model.steps:
        model = list(model.steps.values())[-1]
    return model


def parameters(model: Any) -> Any:
    """What a model has learned and is set to, as plain values: its public attributes, those of its parts within them."""
    return _shown(model, type(model).__module__.partition(".")[0], 0)


def _shown(value: Any, package: str, depth: int) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if depth > _DEEPEST:
        return type(value).__name__
    if isinstance(value, Mapping):
        return {str(key): _shown(item, package, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_shown(item, package, depth + 1) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if type(value).__module__.partition(".")[0] != package or isinstance(value, type):
        return getattr(value, "__qualname__", type(value).__name__)
    steps = getattr(value, "steps", None)
    if isinstance(steps, Mapping):
        return {str(name): _shown(step, package, depth + 1) for name, step in steps.items()}
    if hasattr(value, "to_dict"):  # weights of linear models
        return _shown(value.to_dict(), package, depth + 1)
    held = dict(_attributes(value))
    return {name: _shown(item, package, depth + 1) for name, item in held.items()} or type(value).__name__


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    own = getattr(value, "__dict__", {})
    yield from ((name, item) for name, item in own.items() if not name.startswith("_") and not callable(item))
    for name in ("weights",):
        if f"_{name}" in own:
            yield name, getattr(value, name, None)
    if not own and hasattr(value, "get"):
        yield "value", value.get()


def _dumped(model: Any) -> bytes:
    return pickle.dumps(model, protocol=5)


def _packages(data: bytes) -> frozenset[str]:
    """The top-level packages whose objects a template names, without those of Python and numpy."""
    names: set[str] = set()
    finder = _Finder(io.BytesIO(data), names)
    finder.load()
    return frozenset(name for name in names if name not in sys.stdlib_module_names and name != "numpy")


class _Finder(pickle.Unpickler):
    """Collects the packages that a template names; the template is of the definition's own process."""

    def __init__(self, file: io.BytesIO, names: set[str]) -> None:
        super().__init__(file)
        self.names = names

    def find_class(self, module: str, name: str) -> Any:
        self.names.add(module.partition(".")[0])
        return super().find_class(module, name)


def _described(model: Any) -> str:
    """The type of a model's state: its parts, the release of its package, and a digest of its settings and of code of the user's."""
    package = type(model).__module__.partition(".")[0]
    try:
        names = packages_distributions().get(package, [package])
        release = f"{names[0]} {version(names[0])}"
    except PackageNotFoundError:
        release = package
    parts = " ".join(str(model).split())
    parts = parts if len(parts) <= 80 else type(model).__name__  # noqa: PLR2004 - of a line
    settings = digest(_settings(model))
    return f"model<{parts}, {release}, {hex_of(settings)[:8]}>"


def _settings(value: Any) -> Any:
    """Settings of a model as JSON values: those that its constructor took."""
    taken: Callable[[], Any] | None = getattr(value, "_get_params", None)
    if taken is None or isinstance(value, type):
        return _setting(value)
    return {"class": code_of(type(value)), "settings": _setting(taken())}


def _setting(value: Any) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], type):
        return [code_of(value[0]), *map(_setting, value[1:])]
    if isinstance(value, Mapping):
        return {str(key): _setting(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_setting(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, type):
        return code_of(value)
    if getattr(value, "_get_params", None) is not None:
        return _settings(value)
    return settings_of({"value": value}, "ModelState")["value"]
