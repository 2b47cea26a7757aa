"""Advice inside Dagster: on errors, in place of the command line's advice where that does not fit; and links to the jobs that act on a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from floodmark.core.errors import FloodmarkError

if TYPE_CHECKING:
    from floodmark.control.state.records import Deployment

_REBUILD = "launch the job upgrade with rebuild: true, which computes everything beside the stream and switches"
_FIXES = {
    "LIFECYCLE-003": (
        "Its stream holds it: launch the job stop with streams: [{name}], then this again, and the job start when it is done. "
        "A stream that runs in a terminal is stopped there, with Ctrl-C."
    ),
    "LIFECYCLE-005": (
        "Let the stream of '{name}' get further first: materialize its sources (job start lets the stream run), and launch this again. "
        "Or choose earlier partitions."
    ),
    "LIFECYCLE-030": "Launch the job start with streams: [{name}], and this again once the stream has committed a micro-batch.",
    "LIFECYCLE-050": "Launch the job start with streams: [{name}].",
    "LIFECYCLE-053": "Start one in a terminal: floodmark supervise, or floodmark up, which brings one along. Then launch this again.",
    "LIFECYCLE-054": "Wait for the run that does it, or terminate that run. One that was killed is over 15 seconds later.",
    "PLAN-002": (
        "If a stream writes the table, " + _REBUILD + ". If no stream does, replace the whole table in a terminal: "
        "floodmark run {name} --force (without --from and --to)."
    ),
    "PLAN-003": (
        "If a stream writes the table, " + _REBUILD + ". If no stream does, divide the whole table anew in a terminal: "
        "floodmark run {name} --force (without --from and --to)."
    ),
    "STATE-003": "Launch the job upgrade with operator: {name}; or restore the code, and launch the job start.",
}
_ONLY = {"LIFECYCLE-003": "It is the stream", "LIFECYCLE-030": "Start it"}
"""Code with several causes -> the beginning of the command line's advice on the cause that ``_FIXES`` is about."""
_LANDS = (
    "Its stream lands its rows as they come: there is nothing to launch. To land by hand, launch the job stop with streams: [{name}] first, "
    "and the job start when it is done."
)
_ANEW = "Launch the job upgrade with rebuild: true, which computes everything beside the stream and switches."
_FORWARD = "Accept it: launch the job upgrade with forward_only: true. Or: "


def advice(error: FloodmarkError, operator: str) -> str:
    """The next step for a user of Dagster; the command line's advice if ``_FIXES`` has no other.

    Args:
        error: the error of a step or a job.
        operator: the operator or source of the step or job; empty if unknown.
    """
    if error.code == "PLAN-011":
        return (_FORWARD if "--forward-only" in error.fix else "") + _ANEW
    fix = _FIXES.get(error.code)
    if fix is None or not operator or not error.fix.startswith(_ONLY.get(error.code, "")):
        return error.fix
    return (_LANDS if error.where.startswith("source ") else fix).format(name=operator)


# ---- links to launchpads, as Dagster knows no actions on assets

_OPS = {
    "start": ("start_streams", "streams"),
    "restart": ("restart_streams", "streams"),
    "stop": ("stop_streams", "streams"),
    "savepoint": ("save_stream", "operator"),
    "upgrade": ("upgrade_stream", "operator"),
}
"""Job -> its step, and the field of the step's config that names the stream."""


def repository_of_run(run: dg.DagsterRun) -> str:
    """Where the definitions of a run are, as in Dagster's addresses; empty if the run was not launched by a server."""
    if run.remote_job_origin is None:
        return ""
    repository = run.remote_job_origin.repository_origin
    return f"{repository.repository_name}@{repository.code_location_origin.location_name}"


def repository_of_sensor(context: dg.SensorEvaluationContext) -> str:
    """Where the definitions of a sensor are, as in Dagster's addresses; empty if no daemon evaluates it."""
    origin = context.code_location_origin
    return "" if origin is None else f"{context.repository_name}@{origin.location_name}"


def links(repository: str, stream: Deployment) -> dict[str, Any]:
    """Metadata of a stream's asset: a link to the launchpad of each job that fits the stream now.

    Args:
        repository: of the definitions; empty for none, so that there are no links.
        stream: of the asset.
    """
    if not repository:
        return {}
    jobs = ["start"] if stream.desired == "stopped" else ["restart", "stop"]
    jobs += ["savepoint", "upgrade"] if stream.kind == "operator" else []
    return {f"job {job}": dg.MetadataValue.url(_address(repository, job, stream.operator)) for job in jobs}


def _address(repository: str, job: str, name: str) -> str:
    step, field = _OPS[job]
    value = json.dumps([name] if field == "streams" else name)
    text = quote(f"ops:\n  {step}:\n    config:\n      {field}: {value}\n", safe="")
    return f"/locations/{quote(repository, safe='@')}/jobs/{job}/playground/setup?config={text}"
