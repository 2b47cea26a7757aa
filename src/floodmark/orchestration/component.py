"""A workspace as a component of Dagster: what ``build_definitions`` is for Python, for a ``defs.yaml``."""

# no `from __future__ import annotations` here: Dagster reads the annotations of a component itself

from importlib import import_module
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from floodmark.core.errors import DefinitionError, closest
from floodmark.orchestration.definitions import build_definitions
from floodmark.spec.workspace import Workspace


class _Scaffolder(dg.Scaffolder):
    """``dg scaffold defs floodmark.orchestration.FloodmarkComponent flights`` writes a ``defs.yaml`` that loads."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        dg.scaffold_component(request, {"workspace": "definitions:workspace", "environment": "dev"})


@dg.scaffold_with(_Scaffolder)
class FloodmarkComponent(dg.Component, dg.Model, dg.Resolvable):
    """All sources and operators of a workspace as assets, with their checks, jobs, schedules and sensors, as of ``build_definitions``."""

    workspace: Annotated[
        str,
        Field(
            description="MODULE:NAME of the workspace, or of the function that makes it of the name of an environment.",
            examples=["definitions:workspace"],
        ),
    ]
    environment: Annotated[str, Field(description="What such a function is given.")] = "dev"
    root: Annotated[
        str, Field(description="The folder that relative paths of the settings start from; relative to the project.")
    ] = "."

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions.

        Raises:
            DefinitionError: DEFINITION-302, no workspace under that name.
        """
        return build_definitions(self._workspace(), root=context.project_root / self.root)

    def _workspace(self) -> Workspace:
        module, _, name = self.workspace.partition(":")
        where, expected = (
            "component FloodmarkComponent, workspace",
            "MODULE:NAME of a workspace or of a function that makes it",
        )
        example = 'For example "definitions:workspace".'
        if not module or not name:
            raise DefinitionError(where, expected, repr(self.workspace), example, code="DEFINITION-302")
        try:
            names = vars(import_module(module))
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            raise DefinitionError(where, expected, f"no module '{module}'", example, code="DEFINITION-302") from None
        made = names.get(name)
        if callable(made) and not isinstance(made, Workspace):
            made = made(self.environment)
        if not isinstance(made, Workspace):
            got = (
                f"'{name}' of {module}, which is {type(made).__name__}" if name in names else f"no '{name}' in {module}"
            )
            fix = f"{closest(name, names)}{example}"
            raise DefinitionError(where, expected, got, fix, code="DEFINITION-302")
        return made
