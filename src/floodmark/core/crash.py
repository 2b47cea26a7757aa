"""Named places where a test may kill the process, so that every gap between two writes is tried."""

from __future__ import annotations

import os
import signal
import sys
from types import MappingProxyType

VARIABLE = "FLOODMARK_CRASH_AT"
"""Environment variable that names the point at which to die: ``landing.after_log``, or ``landing.after_log:2`` for the second hit of the point."""

POINTS = MappingProxyType(
    {
        "landing": (
            "landing.before_create",
            "landing.after_create",
            "landing.before_recover",
            "landing.after_recover",
            "landing.before_quarantine",
            "landing.after_quarantine",
            "landing.before_log",
            "landing.after_log",
            "landing.before_end",
            "landing.after_end",
            "landing.before_files",
            "landing.after_files",
        ),
        "freeze": (
            "freeze.before_write",
            "freeze.after_write",
            "thaw.before_write",
            "thaw.after_write",
        ),
        "reopen": (
            "reopen.before_log",
            "reopen.after_log",
        ),
        "landed": (
            "landed.before_file",
            "landed.before_commit",
            "landed.after_commit",
        ),
        "model": (
            "model.before_commit",
            "model.after_commit",
            "model.after_save",
        ),
        "compaction": (
            "compaction.before_commit",
            "compaction.after_commit",
        ),
        "markers": (
            "markers.before_commit",
            "markers.after_commit",
        ),
        "replay": (
            "replay.before_mark",
            "replay.after_mark",
            "replay.before_log",
            "replay.after_log",
        ),
        "micro_batch": (
            "micro_batch.before_evaluate",
            "micro_batch.before_side",
            "micro_batch.after_side",
            "micro_batch.before_main",
            "micro_batch.after_main",
            "micro_batch.before_progress",
            "micro_batch.after_progress",
            "micro_batch.before_current",
            "micro_batch.after_current",
        ),
        "beside": ("micro_batch.after_files",),
        "shorten": (
            "shorten.after_checksum",
            "shorten.after_plan",
            "shorten.after_passed",
            "shorten.after_first",
            "shorten.after_place",
            "rewrite.after_checksum",
        ),
        "embedded": (
            "embedded.before_files",
            "embedded.after_files",
            "embedded.before_merge",
            "embedded.after_merge",
            "embedded.before_state",
            "embedded.after_state",
            "embedded.before_commit",
            "embedded.after_commit",
            "embedded.before_mark",
        ),
        "transfer": (
            "step.save",
            "step.convert",
            "transfer.after_export",
            "step.make_current",
            "step.fence",
        ),
        "checkpoint": (
            "checkpoint.before_file",
            "checkpoint.after_file",
        ),
        "early": ("early.after_merge",),
        "comparison": (
            "comparison.before_totals",
            "comparison.before_commit",
            "comparison.after_files",
            "comparison.after_commit",
            "comparison.after_removal",
        ),
        "comparison_merge": (
            "comparison.before_merge",
            "comparison.after_merge",
        ),
        "tick": (
            "tick.before_record",
            "tick.after_record",
        ),
        "savepoint": (
            "savepoint.before_copy",
            "savepoint.before_versions",
            "savepoint.before_manifest",
            "savepoint.after_manifest",
            "savepoint.after_rename",
        ),
        "import": ("savepoint.taking_in",),
        "delete": ("savepoint.deleting",),
        "step": (
            "step.stop",
            "step.save",
            "step.compute",
            "step.follow",
            "step.define",
            "step.widen",
            "step.restore_state",
            "step.empty",
            "step.restore_values",
            "step.note_revision",
            "step.append_difference",
            "step.restore_table",
            "step.seek",
            "step.make_current",
            "step.leave",
            "step.fork",
            "step.regroup",
            "step.repartition",
            "step.convert",
            "step.fence",
            "step.deploy",
            "step.verify",
            "step.erase",
            "step.discard",
            "step.purge",
            "step.done",
        ),
        "switch": (
            "switch.before_journal",
            "step.restore_state",
            "step.restore_values",
            "step.restore_table",
            "step.make_current",
            "step.done",
            "switch.after_journal",
        ),
        "action": (
            "step.save",
            "step.define",
            "step.widen",
            "step.deploy",
            "step.verify",
        ),
        "forget": (
            "step.erase",
            "forget.before_journal",
            "forget.after_journal",
            "forget.before_rows",
            "forget.after_rows",
            "step.compute",
            "switch.before_journal",
            "step.restore_state",
            "step.restore_table",
            "step.make_current",
            "switch.after_journal",
            "step.discard",
            "savepoint.deleting",
            "forget.after_savepoint",
            "step.purge",
            "vacuum.after_file",
            "forget.after_statistics",
            "forget.after_table",
            "step.done",
            "forget.after_record",
        ),
        "graft": (
            "graft.before_files",
            "graft.before_commit",
        ),
        "difference": (
            "difference.before_write",
            "step.note_revision",
            "step.append_difference",
            "difference.before_files",
            "difference.before_commit",
            "difference.after_commit",
        ),
        "fork": (
            "fork.before_tables",
            "fork.after_table",
            "fork.after_state",
        ),
        "experiment": (
            "experiment.after_record",
            "experiment.after_fork",
            "experiment.after_arm",
            "experiment.after_rule",
            "experiment.after_arms",
        ),
        "experiment_end": (
            "experiment.after_state",
            "experiment.after_withdrawal",
        ),
        "rollout": (
            "rollout.begun",
            "rollout.shadowed",
            "rollout.asking",
            "rollout.judged",
            "rollout.promoted",
            "rollout.watched",
        ),
        "rollout_end": (
            "rollout.stopping",
            "rollout.failed",
            "rollout.taken_back",
        ),
        "alert": (
            "alert.before_change",
            "alert.after_change",
            "alert.before_send",
            "alert.after_send",
            "alert.after_record",
        ),
        "gate": (
            "gate.before_close",
            "gate.after_close",
            "gate.before_release",
            "gate.after_record",
            "gate.after_release",
        ),
        "verdict": (
            "verdict.before_write",
            "verdict.after_write",
        ),
        "move": (
            "step.leave",
            "step.fork",
            "step.fence",
            "step.done",
        ),
        "rescale": (
            "step.restore_state",
            "step.repartition",
            "step.make_current",
            "step.fence",
        ),
        "regroup": (
            "step.save",
            "step.regroup",
            "rescale.before_regroup",
            "transfer.after_export",
            "step.make_current",
            "step.fence",
        ),
        "upgrade": (
            "step.define",
            "step.widen",
            "step.done",
        ),
        "restate": (
            "restate.before_commit",
            "restate.after_commit",
            "restate.before_mark",
            "restate.after_mark",
        ),
        "removal": (
            "removal.before_rename",
            "removal.after_rename",
        ),
        "vacuum": (
            "vacuum.before_mark",
            "vacuum.after_mark",
            "vacuum.after_file",
            "vacuum.before_seen",
        ),
        "expiry": (
            "expiry.before_checkpoint",
            "expiry.after_checkpoint",
            "expiry.before_files",
            "expiry.after_file",
        ),
        "delivery": (
            "delivery.before_rows",
            "delivery.after_clear",
            "delivery.after_batch",
            "delivery.before_position",
            "delivery.before_commit",
            "delivery.after_commit",
            "delivery.before_note",
            "delivery.after_note",
        ),
        "replica": (
            "replica.before_origin",
            "replica.after_origin",
            "replica.before_clear",
            "replica.after_log",
            "replica.before_files",
            "replica.after_file",
            "replica.after_files",
            "replica.before_checkpoint",
            "replica.after_checkpoint",
            "replica.before_entry",
            "replica.after_entry",
            "replica.before_savepoint",
        ),
        "adoption": (
            "adoption.before_tables",
            "adoption.after_table",
            "adoption.after_tables",
        ),
        "superstep": (
            "superstep.before_done",
            "superstep.after_done",
            "superstep.after_result",
        ),
        "bounded": (
            "bounded.before_side",
            "bounded.after_side",
            "bounded.before_current",
            "bounded.after_current",
            "bounded.before_main",
            "bounded.after_main",
        ),
    }
)
"""Kind of writer -> its points, in the order in which the writer reaches them."""

_hits: dict[str, int] = {}


def point(name: str) -> None:
    """Kill this process if ``FLOODMARK_CRASH_AT`` names this point and this hit of the point; otherwise do nothing.

    Raises:
        ValueError: ``name`` is not in POINTS: a crash test could never reach it.
    """
    if not any(name in names for names in POINTS.values()):
        msg = f"'{name}' is no crash point; add it to floodmark.core.crash.POINTS"
        raise ValueError(msg)
    wanted, _, count = os.environ.get(VARIABLE, "").partition(":")
    if wanted != name:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] == int(count or 1):
        _die()


def _die() -> None:
    """Send SIGKILL to the JVM that this process started, if any, and then to this process, so that no clean-up runs."""
    spark = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark")
    context = getattr(getattr(spark, "SparkContext", None), "_active_spark_context", None)
    java = getattr(getattr(context, "_gateway", None), "proc", None)
    if java is not None:
        os.kill(java.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
