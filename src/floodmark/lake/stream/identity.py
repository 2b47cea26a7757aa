"""The owner of a timeline's checkpoint: the definition its stream was last started with, stored in a file in the checkpoint's folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from floodmark.core.errors import LifecycleError, StateError
from floodmark.core.fingerprint import compare
from floodmark.lake.folder.storage import read, write
from floodmark.lake.stream.checkpoint import Checkpoint, garbage
from floodmark.lifecycle.plan import Deployed, plan, stateful_step
from floodmark.spec.graph.operator import Operator
from floodmark.spec.graph.steps import FORMER_KEY_GROUPS

IDENTITY = "floodmark.json"
"""Name of the file in the checkpoint's folder."""
_MADE = "made"
_BEGAN = "began"
_OF_BUNDLES = "key_groups_of_bundles"
"""Number of key groups where they lie in bundles. ``key_groups`` is then the number of bundles: the state is that of a stream with so many key
groups, and a release that knows of no bundles resumes it as such."""
_BUNDLES = "bundles"
"""The number of bundles once more: such a release may divide the state anew, and then leaves both numbers as they were."""


class Divided(NamedTuple):
    """The number of key groups of a stream, and of the parts of its state: the key groups themselves, or the bundles in which they lie."""

    key_groups: int
    parts: int

    def fields(self) -> dict[str, int]:
        """The fields that record both."""
        of_bundles = {_OF_BUNDLES: self.key_groups, _BUNDLES: self.parts} if self.key_groups != self.parts else {}
        return {"key_groups": self.parts} | of_bundles


@dataclass(frozen=True, slots=True)
class Identity:
    """The stored owner of one checkpoint.

    Args:
        checkpoint: the checkpoint; without the file it has no owner.
    """

    checkpoint: Checkpoint

    def deployed(self) -> Deployed | None:
        """The definition the stream was last started with; None if the checkpoint has no owner."""
        identity = self._identity()
        if identity is None:
            return None
        tables = {
            name: tuple((column, kind) for column, kind in columns) for name, columns in identity["tables"].items()
        }
        return Deployed(
            version=identity["version"],
            fingerprint=identity["fingerprint"],
            graph=identity["graph"],
            tables=tables,
            code=identity.get("code", {}),
            packages=identity.get("packages", {}),
            key_groups=self.key_groups(),
        )

    def key_groups(self) -> int | None:
        """The number of key groups of the stream's state; None for a stream without state, or a checkpoint without an owner."""
        divided = self.divided()
        return None if divided is None else divided.key_groups

    def divided(self) -> Divided | None:
        """How the stream's state is divided; None as of ``key_groups``."""
        identity = self._identity()
        if identity is None or stateful_step(identity["graph"]) is None:
            return None
        parts = int(identity.get("key_groups", FORMER_KEY_GROUPS))
        bundled = identity.get(_BUNDLES) == parts
        return Divided(int(identity[_OF_BUNDLES]) if bundled else parts, parts)

    def result_keys(self) -> dict[str, tuple[str, ...]]:
        """Output -> columns that identify a result, for outputs with a ``__current`` table."""
        identity = self._identity() or {}
        return {table: tuple(columns) for table, columns in identity.get("keys", {}).items()}

    def began_as(self) -> str:
        """Version of the operator with which the stream began, if all of its results are of the same code; empty where that is not recorded."""
        return str((self._identity() or {}).get(_BEGAN, ""))

    def claim(self, operator: Operator) -> None:
        """Check that the checkpoint belongs to an operator at this version, and claim it if it has no owner.

        Raises:
            StateError: STATE-002 the owner is another operator or another program, STATE-003 another version of this operator.
        """
        self.check_owner(operator)
        if self._identity() is None:
            self.deploy(operator)

    def check_owner(self, operator: Operator) -> None:
        """Check that the checkpoint belongs to an operator at this version, or has no owner.

        A version that differs only by optional columns that no step reads becomes the owner.

        Raises:
            LifecycleError: LIFECYCLE-230, the operator declares another number of key groups.
            StateError: STATE-002 the owner is another operator or another program, STATE-003 another version of this operator.
        """
        identity = self._identity()
        if identity is None:
            if self.checkpoint.begun():
                fix = "Move the folder away; a new checkpoint is made at the next start."
                raise StateError(
                    f"checkpoint {self.checkpoint.path}",
                    "one that floodmark made",
                    "another one",
                    fix,
                    code="STATE-002",
                )
            return
        if identity["operator"] != operator.name:
            fix = f"Run {identity['operator']}, or move the folder away to begin anew."
            got = f"that of '{identity['operator']}'"
            raise StateError(
                f"checkpoint {self.checkpoint.path}", f"that of operator '{operator.name}'", got, fix, code="STATE-002"
            )
        same = compare(identity["fingerprint"], operator.fingerprint)
        if same != "same" and plan(self.deployed(), operator).resumes:
            self.deploy(operator)  # an optional column that no step reads, or nothing but another release of floodmark
        elif same != "same":
            fix = (
                f"See what has changed and what it means: floodmark plan {operator.name}. Then let the stream resume under the new code "
                f"(floodmark apply {operator.name}, with --rebuild where the plan says so), or restore the code of {identity['version']}."
            )
            got = identity["version"] + (", whose code cannot be compared" if same == "unknown" else "")
            raise StateError(f"checkpoint {self.checkpoint.path}", operator.version, got, fix, code="STATE-003")
        groups = self.key_groups()
        if operator.key_groups is not None and groups not in {None, operator.key_groups}:
            raise _other_key_groups(operator, groups)

    def restates(self) -> tuple[str, ...]:
        """The outputs that the next start restates before its first micro-batch, because an upgrade changed steps after the state."""
        return tuple((self._identity() or {}).get("restates", ()))

    def restated(self) -> None:
        """Record that all outputs are restated."""
        identity = self._identity()
        if identity is not None:
            self._write({name: value for name, value in identity.items() if name != "restates"})

    def made(self) -> tuple[str, ...]:
        """The outputs whose tables existed when the stream was last started."""
        return tuple((self._identity() or {}).get(_MADE, ()))

    def keep_made(self, tables: Iterable[str]) -> None:
        """Record which output tables exist."""
        identity, names = self._identity(), list(tables)
        if identity is not None and identity.get(_MADE) != names:
            self._write(identity | {_MADE: names})

    def hand_over(self, other: Identity) -> None:
        """Copy the identity to another checkpoint of the same stream, without the record of existing tables."""
        other._write({name: value for name, value in (self._identity() or {}).items() if name != _MADE})

    def deploy(self, operator: Operator) -> None:
        """Record an operator's current version as the owner, and which outputs its next start restates."""
        deployed = self.deployed()
        planned = None if deployed is None else plan(deployed, operator)
        restates = {*self.restates(), *(planned.restates if planned is not None else ())}
        identity: dict[str, Any] = {
            "operator": operator.name,
            "version": operator.version,
            "fingerprint": operator.fingerprint,
            "graph": operator.canonical(),
            "tables": {output.table: list(output.schema.types.items()) for output in operator.outputs},
            "keys": {output.table: list(output.keys) for output in operator.outputs if output.current},
            "code": operator.followed.digests,
            "packages": operator.followed.packages,
        }
        if planned is None or (planned.resumes and deployed is not None and self.began_as() == deployed.version):
            identity |= {_BEGAN: operator.version}
        elif self.began_as():
            identity |= {_BEGAN: self.began_as()}
        divided, step = self.divided(), operator.stateful
        if divided is None and step is not None:
            divided = Divided(step.key_groups or step.groups, step.groups)
        identity |= {} if divided is None else divided.fields()
        made = [output.table for output in operator.outputs if output.table in self.made()]
        identity |= {_MADE: made} if made else {}
        tables = [output.table for output in operator.outputs if output.table in restates]
        self._write(identity | ({"restates": tables} if tables else {}))

    def regroup(self, divided: Divided) -> None:
        """Record that the state is divided otherwise."""
        recorded = {
            name: value for name, value in (self._identity() or {}).items() if name not in {_OF_BUNDLES, _BUNDLES}
        }
        self._write(recorded | divided.fields())

    def _write(self, identity: dict[str, Any]) -> None:
        write(f"{self.checkpoint.path}/{IDENTITY}", json.dumps(identity).encode())

    def _identity(self) -> dict[str, Any] | None:
        content = read(f"{self.checkpoint.path}/{IDENTITY}")
        if content is None:
            return None
        try:
            return dict(json.loads(content))
        except (ValueError, TypeError):
            raise garbage(self.checkpoint.path, IDENTITY, content) from None


def _other_key_groups(operator: Operator, groups: int | None) -> LifecycleError:
    fix = (
        f"Leave key_groups out, or write key_groups={groups}: its stream resumes. Or divide its state among the other number, while it is stopped: "
        f"floodmark rescale {operator.name} --key-groups {operator.key_groups}"
    )
    expected, got = f"{groups} key groups, as its stream began with", f"key_groups={operator.key_groups}"
    return LifecycleError(f"operator '{operator.name}'", expected, got, fix, code="LIFECYCLE-230")
