"""The image of a workspace: a Dockerfile, and what is left out of the image."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from floodmark.cli.deployment.installation import Installation, python_version

FOLDER = "/workspace"
"""Folder of the workspace in the image."""
USER_ID = 10001
_LEFT_OUT = (".git", ".venv", "**/__pycache__", "*.egg-info", ".pytest_cache", ".env")
_EXECUTOR = """\
#!/bin/sh
# Spark's executors on Kubernetes begin with the word `executor`; everything else is a command of its own.
if [ "$1" != executor ]; then exec "$@"; fi
SPARK_HOME=$(python -c 'import pyspark; print(*pyspark.__path__)')
env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p' > /tmp/java_options
set -- -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "${SPARK_EXTRA_CLASSPATH:-}:$SPARK_HOME/jars/*"
while IFS= read -r option; do set -- "$@" "$option"; done < /tmp/java_options
exec java "$@" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \\
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \\
  --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
"""


def files(installation: Installation) -> Mapping[str, str]:
    """Name -> text of the files from which the image is built, in the folder of the workspace."""
    written = {"Dockerfile": _dockerfile(installation), "Dockerfile.dockerignore": _ignored(installation)}
    return {**written, "entrypoint.sh": _EXECUTOR} if installation.is_spark else written


def build_command(folder: str, image: str) -> str:
    """The command that builds the image, in the folder of the workspace, from files in another folder."""
    return shlex.join(
        ["docker", "build", "-f", f"{folder}/Dockerfile", "--build-context", f"deployment={folder}", "-t", image, "."]
    )


def _dockerfile(installation: Installation) -> str:
    lines = [f"FROM python:{python_version()}-slim"]
    if installation.is_spark:
        lines += [
            "RUN apt-get update && apt-get install -y --no-install-recommends openjdk-21-jre-headless procps && rm -rf /var/lib/apt/lists/*",
            "COPY --from=deployment --chmod=755 entrypoint.sh /usr/local/bin/entrypoint",
        ]
    packages = " ".join(shlex.quote(text) for text in installation.requirements())
    lines += [
        f"RUN pip install --no-cache-dir {packages}",
        f"RUN useradd --uid {USER_ID} --create-home floodmark",
        "ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1",
        f"USER {USER_ID}",
    ]
    if installation.is_spark:
        lines.append("RUN python -m floodmark.engines.spark.setup.jars")
    lines += [f"COPY --chown={USER_ID} . {FOLDER}", f"WORKDIR {FOLDER}"]
    if installation.is_spark:
        lines.append('ENTRYPOINT ["/usr/local/bin/entrypoint"]')
    return "\n".join(lines) + "\n"


def _ignored(installation: Installation) -> str:
    shared = [str(path.relative_to(FOLDER)) for path in installation.folders if path.is_relative_to(FOLDER)]
    return "\n".join((*_LEFT_OUT, *shared)) + "\n"
