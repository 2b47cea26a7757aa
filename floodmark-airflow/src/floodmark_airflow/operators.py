"""Verbs of floodmark as Airflow operators. Each is durable: if its worker dies, the next try goes on waiting for the same process."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator, ResumableJobMixin
from airflow.sdk.exceptions import AirflowFailException

from floodmark_airflow.errors import VerbError
from floodmark_airflow.job import Job
from floodmark_airflow.workspace import Workspace

if TYPE_CHECKING:
    from airflow.sdk import Context

_POLL_SECONDS = 1.0
_PLAIN = re.compile(r"[^A-Za-z0-9_.+-]+")


class Command(ResumableJobMixin, BaseOperator):
    """A verb with its options, as one types them after ``floodmark``.

    The verb's document is the task's result; what the verb prints while it works is in the task's log. A command that is wrong as it stands fails
    for good, any other failure is tried again as ``retries`` says. Killing the task stops the verb as Ctrl-C does.

    Args:
        workspace: where it acts.
        words: the verb, its arguments and options. Templated.
    """

    template_fields: Sequence[str] = ("words",)
    external_id_key = "floodmark_job"

    def __init__(self, *, workspace: Workspace, words: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.workspace = workspace
        self.words = list(words)
        self._job: Job | None = None

    def verb(self, context: Context) -> list[str]:  # noqa: ARG002 - other verbs read the context
        """The words of the command."""
        return list(self.words)

    def execute(self, context: Context) -> Any:
        """Run the verb, or go on waiting for it."""
        document = self.execute_resumable(context)
        return self.finished(document if document is not None else self._ended.result, context)

    def finished(self, document: dict[str, Any], context: Context) -> Any:  # noqa: ARG002 - other verbs report to the context
        """The task's result, from the verb's document."""
        return document

    @property
    def _ended(self) -> Job:
        assert self._job is not None
        return self._job

    def submit_job(self, context: Context) -> str:
        """Start the verb. Returns the name of its folder among the workspace's."""
        task = context["ti"]
        parts = (
            task.dag_id,
            context["run_id"],
            task.task_id,
            str(task.map_index),
            str(task.try_number),
            f"{time.time_ns():x}",
        )
        name = "/".join(_PLAIN.sub("-", part) for part in parts)
        command = self.workspace.command(*self.verb(context))
        self.log.info("$ %s", " ".join(command))
        self._job = Job.start(self._folder(name), command, cwd=self.workspace.folder)
        return name

    def _folder(self, name: Any) -> Path:
        return Path(self.workspace.folder) / ".floodmark" / "airflow" / str(name)

    def get_job_status(self, external_id: Any, context: Context) -> str:  # noqa: ARG002 - Airflow's signature
        """The state of a verb that an earlier try has started."""
        self._job = Job(self._folder(external_id))
        return self._job.state

    def is_job_active(self, status: str) -> bool:
        """Whether the verb still runs."""
        return status == "running"

    def is_job_succeeded(self, status: str) -> bool:
        """Whether the verb has succeeded."""
        return status == "succeeded"

    def poll_until_complete(self, external_id: Any, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        """Wait until the verb has ended, and copy what it prints to the task's log."""
        job, offset = Job(self._folder(external_id)), 0
        self._job = job
        while True:
            running = job.state == "running"
            text, offset = job.said(offset)
            for line in text.splitlines():
                self.log.info(line)
            if not running:
                break
            time.sleep(_POLL_SECONDS)
        try:
            _ = job.result
        except VerbError as error:
            if error.lasting:
                raise AirflowFailException(str(error)) from error
            raise

    def get_job_result(self, external_id: Any, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """The verb's document."""
        return Job(self._folder(external_id)).result

    def on_kill(self) -> None:
        """Stop the verb with the task."""
        if self._job is not None:
            self._job.stop()


class Land(Command):
    """Land new rows of sources: ``floodmark land``.

    Args:
        sources: their names; none: every source of the workspace. Templated.
        end: land the end of input after them.
    """

    template_fields: Sequence[str] = ("sources",)

    def __init__(self, *, sources: Sequence[str] = (), end: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sources = list(sources)
        self.end = end

    def verb(self, context: Context) -> list[str]:  # noqa: ARG002 - as of Command
        """The words of the command."""
        return ["land", *(self.sources or ["--all"]), *(["--end"] if self.end else [])]


class Run(Command):
    """Compute operators bounded: ``floodmark run``.

    Which event time, in this order: ``partition``; ``start`` and ``end``; the partition key of the DAG run; the data interval of the DAG run, if it
    is not empty. A run of a DAG that has none of them fails, and says so.

    Args:
        operators: their names, at least one. Templated.
        partition: an asset partition, or ``FIRST...LAST``. Templated.
        start: from this date or time on. Templated.
        end: up to this date or time, exclusive. Templated.
        late_rows: ``as_landed``: rows that landed late are late; ``all``: no row is late.
        force: compute again what is covered already.

    An outlet that is an asset gets an event for each partition that has been computed.
    """

    template_fields: Sequence[str] = ("operators", "partition", "start", "end")

    def __init__(
        self,
        *,
        operators: Sequence[str],
        partition: str | None = None,
        start: str | None = None,
        end: str | None = None,
        late_rows: str = "as_landed",
        force: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(operators, str) or not operators:
            msg = f"operators is a list of names, got {operators!r}"
            raise ValueError(msg)
        self.operators = list(operators)
        self.partition = partition
        self.start = start
        self.end = end
        self.late_rows = late_rows
        self.force = force

    def verb(self, context: Context) -> list[str]:
        """The words of the command."""
        how = ["--late-rows", self.late_rows, *(["--force"] if self.force else [])]
        return ["run", *self.operators, *self._interval(context), *how]

    def _interval(self, context: Context) -> list[str]:
        if self.start or self.end:
            return [word for name, at in (("--from", self.start), ("--to", self.end)) if at for word in (name, at)]
        if key := self.partition or context.get("partition_key"):
            return ["--partition", key]
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
        if start is not None and end is not None and start < end:
            return ["--from", start.isoformat(), "--to", end.isoformat()]
        msg = (
            "this run of the DAG has neither a partition key nor a data interval: schedule the DAG by CronPartitionTimetable or "
            "CronDataIntervalTimetable, launch it with a partition key, or give Run partition=, or start= and end="
        )
        raise AirflowFailException(msg)

    def finished(self, document: dict[str, Any], context: Context) -> Any:
        """The verb's document; each outlet gets an event for each computed partition of it."""
        keys = self.partition or context.get("partition_key")
        if keys and not (self.start or self.end):
            for outlet in self.outlets:
                if isinstance(outlet, Asset):
                    context["outlet_events"][outlet].add_partitions(self._keys(keys, outlet))
        return document

    def _keys(self, keys: str, outlet: Asset) -> list[str]:
        if "..." not in keys:
            return [keys]
        operator = next((name for name in self.operators if outlet.name.split("__", 1)[0] == name), self.operators[0])
        listed = self.workspace.ask("partitions", operator, "--partition", keys)["partitions"]
        return [one["key"] for one in listed] or [keys]


class Start(Command):
    """Start supervised streams with a package of the current code: ``floodmark start``. The supervisor (``floodmark supervise``) runs them.

    Args:
        operators: their names. Templated.
    """

    template_fields: Sequence[str] = ("operators",)

    def __init__(self, *, operators: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operators = list(operators)

    def verb(self, context: Context) -> list[str]:  # noqa: ARG002 - as of Command
        """The words of the command."""
        return ["start", *self.operators]


class Stop(Start):
    """Stop supervised streams at their next micro-batch boundary: ``floodmark stop``."""

    def verb(self, context: Context) -> list[str]:  # noqa: ARG002 - as of Command
        """The words of the command."""
        return ["stop", *self.operators]


class _OfOneStream(Command):
    """A verb that acts on the stream of one operator.

    Args:
        operator: its name. Templated.
        options: the verb's further options, as one types them. Templated.
    """

    template_fields: Sequence[str] = ("operator", "options")
    verb_words: Sequence[str] = ()

    def __init__(self, *, operator: str, options: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.operator = operator
        self.options = options  # a template may make the list

    def verb(self, context: Context) -> list[str]:  # noqa: ARG002 - as of Command
        """The words of the command."""
        return [*self.verb_words, self.operator, *self.options]


class Savepoint(_OfOneStream):
    """Create a savepoint of a stream: ``floodmark savepoint create``. Options: ``--note``, ``--with-downstream``, ``--keep``."""

    verb_words = ("savepoint", "create")


class Upgrade(_OfOneStream):
    """Upgrade a stream to the current code, and roll it back if the new version fails: ``floodmark apply``."""

    verb_words = ("apply",)


class Rollback(_OfOneStream):
    """Roll a stream back to a savepoint, by default the newest: ``floodmark rollback``. Options: ``--to``, ``--undo-backfills``."""

    verb_words = ("rollback",)


class Rollout(_OfOneStream):
    """Roll out the current code beside a stream, as its asset declares: ``floodmark rollout start``."""

    verb_words = ("rollout", "start")


class Partitions(BaseOperator):
    """Report the asset partitions of an operator that have become complete since the last report, each as an event of its outlets.

    Complete: its stream has passed them, or bounded runs have computed them. In a DAG with ``schedule=PartitionedAtRuntime()``, or any other. A
    report that dies before Airflow has its events is made again by the next one.

    Args:
        workspace: where the operator is.
        operator: its name. Templated.
        since: report only partitions after this one; None: from the first on. Templated.
        limit: most partitions of one report.
    """

    template_fields: Sequence[str] = ("operator", "since")

    def __init__(
        self, *, workspace: Workspace, operator: str, since: str | None = None, limit: int = 200, **kwargs: Any
    ) -> None:
        kwargs.setdefault("outlets", [workspace.asset(operator)])
        kwargs.setdefault("inlets", kwargs["outlets"])  # past events of the asset are read as those of an inlet
        super().__init__(**kwargs)
        self.workspace = workspace
        self.operator = operator
        self.since = since
        self.limit = limit

    def execute(self, context: Context) -> list[str]:
        """Report. Returns the names of the partitions."""
        asset = next(outlet for outlet in self.outlets if isinstance(outlet, Asset))
        last = self._last_reported(asset, context) or self.since
        after = [] if last is None else ["--after", last]
        listed = self.workspace.ask("partitions", self.operator, "--limit", str(self.limit), *after)["partitions"]
        keys = [one["key"] for one in listed]
        if keys:
            self.log.info("complete: %s to %s, %d partitions", keys[0], keys[-1], len(keys))
            for outlet in self.outlets:
                if isinstance(outlet, Asset):
                    context["outlet_events"][outlet].add_partitions(keys)
        return keys

    def _last_reported(self, asset: Asset, context: Context) -> str | None:
        """The last partition Airflow has an event of by this task: names of partitions sort like time."""
        store, task = context["asset_state_store"][asset], context["ti"]
        name = f"floodmark_reported/{task.dag_id}/{task.task_id}"
        stored = store.get(name)
        events = context["inlet_events"][asset].ascending(ascending=False).limit(self.limit)
        mine = [
            event.partition_key
            for event in events
            if (event.source_dag_id, event.source_task_id) == (task.dag_id, task.task_id) and event.partition_key
        ]
        last = max([*mine, *([stored] if stored else [])], default=None)
        if last is not None and last != stored:
            store.set(name, last)
        return last
