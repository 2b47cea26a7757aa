"""A deployment on Kubernetes: manifests for `kubectl apply -k`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.cli.deployment import image
from floodmark.cli.deployment.installation import (
    CONTROL_DATABASE,
    DAGSTER_DATABASE,
    LOOPBACK,
    PASSWORD,
    POSTGRES_PORT,
    SPARK,
    USER,
    Database,
    Installation,
    Process,
    as_yaml,
)
from floodmark.control.processes.supervisor import GRACE_SECONDS
from floodmark.engines.spark.setup.master import is_cluster

POSTGRES_IMAGE = "postgres:17"
NAMESPACE = "floodmark"
SECRET = "floodmark"  # noqa: S105 - the name of a secret
_CONFIG, _POSTGRES, _CLAIM, _ACCOUNT = "floodmark", "postgres", "floodmark", "floodmark"
_KUBERNETES_MASTER = "k8s://"
_ENDING_SECONDS = int(GRACE_SECONDS) + 30
"""Time from SIGTERM to SIGKILL for a pod: what a driver is given to stop, and some more."""
_PASSWORD_FOLDER = "/run/secrets/postgres"  # noqa: S105 - a folder
_HARDENED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
DATABASE = Database(host=_POSTGRES, port=POSTGRES_PORT, user=USER, name=CONTROL_DATABASE, deployed=True)
"""The PostgreSQL that comes with the deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a cluster is told beside the workspace.

    Args:
        image: name of the image of the workspace.
        storage_class: class of the shared volume, which several nodes mount at once; None for the cluster's default.
        size: of each volume.
        supervisors: number of supervisors, of which one works.
    """

    image: str
    storage_class: str | None = None
    size: str = "20Gi"
    supervisors: int = 2


def spark_settings(installation: Installation, cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Spark's settings in a pod whose executors are elsewhere; none for a master on one machine."""
    master = installation.opened.workspace.settings.master
    if not installation.is_spark or not is_cluster(master):
        return ()
    address = ("spark.driver.host", "$(POD_IP)")
    if not master.startswith(_KUBERNETES_MASTER):
        return (address,)
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim"
    shared = tuple(
        pair
        for number, folder in enumerate(installation.folders)
        for pair in (
            (f"{volume}.shared-{number}.options.claimName", _CLAIM),
            (f"{volume}.shared-{number}.mount.path", str(folder)),
            (f"{volume}.shared-{number}.mount.subPath", _part(installation, folder)),
        )
    )
    return (
        address,
        ("spark.kubernetes.namespace", "$(POD_NAMESPACE)"),
        ("spark.kubernetes.driver.pod.name", "$(POD_NAME)"),
        ("spark.kubernetes.container.image", cluster.image),
        ("spark.kubernetes.authenticate.executor.serviceAccountName", f"{_ACCOUNT}-executor"),
        *shared,
    )


def files(installation: Installation, cluster: Cluster, folder: str) -> Mapping[str, str]:
    """Name -> text of all files.

    Args:
        installation: the workspace.
        cluster: the cluster.
        folder: in which the files are written, for the commands in their README.
    """
    manifests: dict[str, list[dict[str, Any]]] = {
        "namespace.yaml": [_object("v1", "Namespace", NAMESPACE)],
        "config.yaml": [_config(installation)],
        "storage.yaml": [_claim(cluster)],
        "roles.yaml": _roles(installation),
        "supervisor.yaml": _supervisor(installation, cluster),
        "dagster.yaml": _dagster(installation, cluster),
    }
    if installation.database.deployed:
        manifests["postgres.yaml"] = _postgres(cluster)
    if installation.listen != LOOPBACK:
        manifests["services.yaml"] = _services(installation)
    labels = [{"pairs": {"app.kubernetes.io/part-of": installation.name}, "includeSelectors": False}]
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "labels": labels,
        "resources": sorted(manifests),
    }
    return {
        "kustomization.yaml": as_yaml(kustomization),
        **{name: "---\n".join(map(as_yaml, objects)) for name, objects in manifests.items()},
        **image.files(installation),
        "README.md": _readme(installation, cluster, folder),
    }


def _object(api: str, kind: str, name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **parts}


def _config(installation: Installation) -> dict[str, Any]:
    data = {"dagster.yaml": installation.dagster_settings(), "workspace.yaml": installation.code_locations()}
    return _object("v1", "ConfigMap", _CONFIG, data=data)


def _claim(cluster: Cluster) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": cluster.size}}}
    named = {} if cluster.storage_class is None else {"storageClassName": cluster.storage_class}
    return _object("v1", "PersistentVolumeClaim", _CLAIM, spec={**spec, **named})


def _roles(installation: Installation) -> list[dict[str, Any]]:
    """Accounts of the pods; only drivers whose executors are pods may do anything in the cluster."""
    account = _object("v1", "ServiceAccount", _ACCOUNT, automountServiceAccountToken=False)
    if not _has_executor_pods(installation):
        return [account]
    rule = {
        "apiGroups": [""],
        "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"],
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": f"{_ACCOUNT}-driver"}
    return [
        account,
        _object("v1", "ServiceAccount", f"{_ACCOUNT}-executor", automountServiceAccountToken=False),
        _object("rbac.authorization.k8s.io/v1", "Role", f"{_ACCOUNT}-driver", rules=[rule]),
        _object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            f"{_ACCOUNT}-driver",
            subjects=[{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": NAMESPACE}],
            roleRef=role,
        ),
    ]


def _supervisor(installation: Installation, cluster: Cluster) -> list[dict[str, Any]]:
    supervisor, *_ = installation.processes()
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": _selector("supervisor")}
    spread = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": apart}]
        }
    }
    pod = _pod(installation, [_container(installation, cluster, supervisor)], affinity=spread)
    budget = {"maxUnavailable": 1, "selector": _selector("supervisor")}
    return [
        _deployment("supervisor", pod, cluster.supervisors, {"type": "RollingUpdate"}),
        _object("policy/v1", "PodDisruptionBudget", "supervisor", spec=budget),
    ]


def _dagster(installation: Installation, cluster: Cluster) -> list[dict[str, Any]]:
    """One pod, so that its processes reach each other on loopback."""
    _, *dagster = installation.processes()
    pod = _pod(installation, [_container(installation, cluster, process) for process in dagster])
    return [_deployment("dagster", pod, 1, {"type": "Recreate"})]


def _deployment(name: str, pod: dict[str, Any], replicas: int, strategy: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": _labels(name)}, "spec": pod}
    spec = {"replicas": replicas, "strategy": strategy, "selector": _selector(name), "template": template}
    return _object("apps/v1", "Deployment", name, spec=spec)


def _pod(installation: Installation, containers: list[dict[str, Any]], **parts: Any) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": "shared", "persistentVolumeClaim": {"claimName": _CLAIM}},
        {"name": "config", "configMap": {"name": _CONFIG}},
        {"name": "temporary", "emptyDir": {}},
    ]
    for number, (_, paths) in enumerate(_secret_folders(installation)):
        items = [{"key": path.name, "path": path.name} for path in paths]
        volumes.append({"name": f"secrets-{number}", "secret": {"secretName": SECRET, "items": items}})
    unprivileged = {
        "runAsNonRoot": True,
        "runAsUser": image.USER_ID,
        "runAsGroup": image.USER_ID,
        "fsGroup": image.USER_ID,
    }
    return {
        "serviceAccountName": _ACCOUNT,
        "automountServiceAccountToken": _has_executor_pods(installation),
        "securityContext": {**unprivileged, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": _ENDING_SECONDS,
        **parts,
        "containers": containers,
        "volumes": volumes,
    }


def _container(installation: Installation, cluster: Cluster, process: Process) -> dict[str, Any]:
    home = installation.dagster_home
    mounts = [
        *(
            {"name": "shared", "mountPath": str(path), "subPath": _part(installation, path)}
            for path in installation.folders
        ),
        {"name": "temporary", "mountPath": "/tmp"},  # noqa: S108 - in a container of its own
        *(
            {"name": "config", "mountPath": str(home / name), "subPath": name, "readOnly": True}
            for name in ("dagster.yaml", "workspace.yaml")
        ),
        *(
            {"name": f"secrets-{number}", "mountPath": str(folder), "readOnly": True}
            for number, (folder, _) in enumerate(_secret_folders(installation))
        ),
    ]
    probe = {"exec": {"command": list(process.probe)}, "timeoutSeconds": 30}
    return {
        "name": process.name,
        "image": cluster.image,
        "args" if installation.is_spark else "command": list(process.command),  # an image with Spark has an entry point
        "workingDir": str(installation.root),
        "env": _environment(installation, cluster),
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
        "securityContext": _HARDENED,
        "startupProbe": {**probe, "periodSeconds": 10, "failureThreshold": 30},
        "livenessProbe": {**probe, "periodSeconds": 60, "failureThreshold": 3},
        "volumeMounts": mounts,
    }


def _environment(installation: Installation, cluster: Cluster) -> list[dict[str, Any]]:
    pairs = spark_settings(installation, cluster)
    variables = {**installation.variables, "DAGSTER_HOME": str(installation.dagster_home), "HOME": "/home/floodmark"}
    of_pod = (
        {"POD_IP": "status.podIP", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"} if pairs else {}
    )
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in of_pod.items()),
        *({"name": name, "value": text} for name, text in variables.items()),
        *([{"name": SPARK, "value": json.dumps(pairs)}] if pairs else []),
        *(
            {"name": name, "valueFrom": {"secretKeyRef": {"name": SECRET, "key": name}}}
            for name in installation.secrets
        ),
    ]


def _postgres(cluster: Cluster) -> list[dict[str, Any]]:
    password = {"name": "password", "secret": {"secretName": SECRET, "items": [{"key": PASSWORD, "path": PASSWORD}]}}
    variables = {
        "POSTGRES_USER": USER,
        "POSTGRES_DB": CONTROL_DATABASE,
        "POSTGRES_PASSWORD_FILE": f"{_PASSWORD_FOLDER}/{PASSWORD}",
        "PGDATA": "/var/lib/postgresql/data/files",
    }
    ready = {
        "exec": {"command": ["pg_isready", "-h", LOOPBACK, "-U", USER, "-d", CONTROL_DATABASE]},
        "timeoutSeconds": 5,
    }
    container = {
        "name": _POSTGRES,
        "image": POSTGRES_IMAGE,
        "env": [{"name": name, "value": text} for name, text in variables.items()],
        "ports": [{"containerPort": POSTGRES_PORT}],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
        "securityContext": _HARDENED,
        "readinessProbe": {**ready, "periodSeconds": 5},
        "livenessProbe": {**ready, "periodSeconds": 30, "initialDelaySeconds": 60, "failureThreshold": 5},
        "volumeMounts": [
            {"name": "data", "mountPath": "/var/lib/postgresql/data"},
            {"name": "password", "mountPath": _PASSWORD_FOLDER, "readOnly": True},
            {"name": "databases", "mountPath": "/docker-entrypoint-initdb.d", "readOnly": True},
        ],
    }
    own = 999  # the user of the image
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": own,
            "runAsGroup": own,
            "fsGroup": own,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [password, {"name": "databases", "configMap": {"name": f"{_POSTGRES}-databases"}}],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": cluster.size}}}
    spec = {
        "serviceName": _POSTGRES,
        "replicas": 1,
        "selector": _selector(_POSTGRES),
        "template": {"metadata": {"labels": _labels(_POSTGRES)}, "spec": pod},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
    }
    clients = [{"podSelector": _selector(name)} for name in ("supervisor", "dagster")]
    allowed = {"from": clients, "ports": [{"port": POSTGRES_PORT}]}
    policy = {"podSelector": _selector(_POSTGRES), "policyTypes": ["Ingress"], "ingress": [allowed]}
    databases = {"dagster.sql": f"CREATE DATABASE {DAGSTER_DATABASE} OWNER {USER};\n"}
    return [
        _object("v1", "ConfigMap", f"{_POSTGRES}-databases", data=databases),
        _service(_POSTGRES, _POSTGRES, POSTGRES_PORT),
        _object("apps/v1", "StatefulSet", _POSTGRES, spec=spec),
        _object("networking.k8s.io/v1", "NetworkPolicy", _POSTGRES, spec=policy),
    ]


def _services(installation: Installation) -> list[dict[str, Any]]:
    pods = {"supervisor": "supervisor", "webserver": "dagster"}
    return [
        _service(one.name, pods[one.name], one.port)
        for one in installation.processes()
        if one.port is not None and one.name in pods
    ]


def _service(name: str, pod: str, port: int) -> dict[str, Any]:
    return _object(
        "v1", "Service", name, spec={"selector": _labels(pod), "ports": [{"port": port, "targetPort": port}]}
    )


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": name}


def _selector(name: str) -> dict[str, Any]:
    return {"matchLabels": _labels(name)}


def _has_executor_pods(installation: Installation) -> bool:
    settings = installation.opened.workspace.settings
    return installation.is_spark and settings.master.startswith(_KUBERNETES_MASTER)


def _part(installation: Installation, folder: Path) -> str:
    """(shared folder) -> its part of the shared volume."""
    return str(folder.relative_to(installation.root) if folder.is_relative_to(installation.root) else folder).strip("/")


def _secret_folders(installation: Installation) -> Sequence[tuple[Path, list[Path]]]:
    """(folder, files of secrets in it), mounted as a folder, so that a renewed secret is seen."""
    paths = [Path(text) for text in installation.secret_files]
    return [
        (folder, [path for path in paths if path.parent == folder])
        for folder in sorted({path.parent for path in paths})
    ]


def _readme(installation: Installation, cluster: Cluster, folder: str) -> str:
    return "\n".join(_readme_lines(installation, cluster, folder)) + "\n"


def _readme_lines(installation: Installation, cluster: Cluster, folder: str) -> Iterable[str]:
    supervisor, _, webserver, _ = installation.processes()
    here = shlex.quote(folder)
    values = [f"--from-literal={name}=..." for name in installation.secrets]
    values += [f"--from-file={Path(path).name}=..." for path in installation.secret_files]
    yield f"# {installation.name} on Kubernetes"
    yield ""
    yield "Written by `floodmark deploy kubernetes`. In the folder of the workspace:"
    yield ""
    yield "```console"
    yield f"$ {image.build_command(folder, cluster.image)}"
    yield f"$ docker push {cluster.image}"
    yield f"$ kubectl apply -f {here}/namespace.yaml"
    if values:
        yield f"$ kubectl -n {NAMESPACE} create secret generic {SECRET} {' '.join(values)}"
    yield f"$ kubectl apply -k {here}"
    yield f"$ kubectl -n {NAMESPACE} exec deploy/supervisor -- floodmark start --all --environment {installation.opened.environment}"
    yield f"$ kubectl -n {NAMESPACE} port-forward deploy/dagster {webserver.port}"
    yield f"$ kubectl -n {NAMESPACE} port-forward deploy/supervisor {supervisor.port}"
    yield "```"
    yield ""
    if not installation.database.deployed:
        yield f"PostgreSQL at `{installation.database.host}` needs two databases of `{installation.database.user}`: `{installation.database.name}` and `{DAGSTER_DATABASE}`."
        yield ""
    yield f"The volume `{_CLAIM}` is mounted by pods on several nodes: its class must offer ReadWriteMany. It holds:"
    yield ""
    yield from (f"- `{path}`" for path in installation.folders)
