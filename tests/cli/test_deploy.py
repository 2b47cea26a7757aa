"""What deploy writes: valid by the schemas of Kubernetes and Compose and by systemd, each fact as the code has it, no secret in any file."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import compose_spec
import kubernetes_validate
import pytest
import yaml
from click.testing import Result
from packaging.requirements import Requirement
from ports import free_port
from postgres import data_folder, database, serving

from floodmark.cli.deployment import compose, installation, kubernetes, systemd
from floodmark.cli.shell import session
from floodmark.cli.shell.invocation import Invocation
from floodmark.cli.shell.loading import open_workspace
from floodmark.cli.verbs.deploy import KINDS
from floodmark.control.processes.supervisor import GRACE_SECONDS, LEASE
from floodmark.control.serving.server import LIVE, PORT
from floodmark.control.state.store import Store

from .conftest import forget_modules

KUBERNETES = "1.37.0"
"""Version whose schemas are used."""
DIRECTIVES = {
    "Unit": {"Description", "Wants", "After", "PartOf", "StartLimitIntervalSec"},
    "Install": {"WantedBy"},
    "Service": {
        *(
            "User",
            "WorkingDirectory",
            "EnvironmentFile",
            "ExecStart",
            "Restart",
            "RestartSec",
            "KillMode",
            "TimeoutStopSec",
        ),
        *(
            "NoNewPrivileges",
            "PrivateTmp",
            "ProtectSystem",
            "ProtectHome",
            "ProtectKernelTunables",
            "ProtectControlGroups",
        ),
        *("RestrictSUIDSGID", "ReadWritePaths"),
    },
}
"""Section of a unit -> directives in it, of those that systemd knows."""
Deployed = Callable[..., Path]


@pytest.fixture
def deployed(shop: Path, verb: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """Deploy the shop. Returns the folder."""
    monkeypatch.setenv("FLOODMARK_ENGINE", "embedded")

    def write(kind: str, *options: str) -> Path:
        folder = shop / "deployment" / kind
        result = verb("deploy", kind, str(folder), *options)
        assert result.exit_code == 0, result.output
        return folder

    return write


def objects(folder: Path) -> Iterator[dict[str, Any]]:
    """The objects that the kustomization names."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    manifests = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == manifests
    for name in kustomization["resources"]:
        yield from yaml.safe_load_all((folder / name).read_text("utf-8"))


def named(folder: Path, kind: str, name: str) -> dict[str, Any]:
    return next(one for one in objects(folder) if one["kind"] == kind and one["metadata"]["name"] == name)


def pods(folder: Path) -> dict[str, dict[str, Any]]:
    """Workload -> its pod."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in objects(folder)
        if one["kind"] in {"Deployment", "StatefulSet"}
    }


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Section -> directive -> values of a unit."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in filter(None, path.read_text("utf-8").splitlines()):
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        else:
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return sections


@pytest.mark.feature("O2")
def test_every_object_is_valid_by_the_schemas_of_kubernetes(deployed: Deployed) -> None:
    folder = deployed("kubernetes", "--listen", installation.ANYWHERE)
    kinds = [one["kind"] for one in objects(folder)]
    for one in objects(folder):
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    assert {"Deployment", "StatefulSet", "Service", "ServiceAccount", "PersistentVolumeClaim"} < set(kinds)
    wrong = named(folder, "Deployment", "supervisor") | {"spec": {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def test_everything_that_an_object_names_is_there(deployed: Deployed) -> None:
    folder = deployed("kubernetes")
    written = {(one["kind"], one["metadata"]["name"]) for one in objects(folder)}
    for name, pod in pods(folder).items():
        volumes = {one["name"]: one for one in pod["volumes"]}
        claims = {"data"} if name == "postgres" else set()
        for one in volumes.values():
            assert "configMap" not in one or ("ConfigMap", one["configMap"]["name"]) in written
            assert (
                "persistentVolumeClaim" not in one
                or ("PersistentVolumeClaim", one["persistentVolumeClaim"]["claimName"]) in written
            )
        assert "serviceAccountName" not in pod or ("ServiceAccount", pod["serviceAccountName"]) in written
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes) | claims
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
    config = named(folder, "ConfigMap", "floodmark")["data"]
    storage = yaml.safe_load(config["dagster.yaml"])["storage"]["postgres"]["postgres_db"]
    assert ("Service", storage["hostname"]) in written
    assert storage["password"] == {"env": "PGPASSWORD"}


def test_the_compose_file_is_valid_by_its_specification(deployed: Deployed) -> None:
    text = (deployed("compose") / "compose.yaml").read_text("utf-8")
    file = compose_spec.PyCompose.from_yaml(text)
    for check in (
        file.validate,
        file.validate_volumes,
        file.validate_secrets,
        file.validate_networks,
        file.validate_configs,
    ):
        check()
    with pytest.raises(ValueError, match="helthcheck"):
        compose_spec.PyCompose.from_yaml(text.replace("healthcheck", "helthcheck", 1))


def dockerfile(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, arguments) of a Dockerfile, lines that are continued joined."""
    for line in filter(None, re.sub(r"\\\n\s*", " ", text).splitlines()):
        instruction, _, arguments = line.partition(" ")
        assert instruction in {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT"}, line
        yield instruction, arguments


@pytest.mark.parametrize("name", ["embedded", "spark"])
@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_the_dockerfile_has_instructions_sources_and_requirements_that_exist(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch, shop: Path, verb: Callable[..., Result], kind: str, name: str
) -> None:
    monkeypatch.setenv("FLOODMARK_ENGINE", name)
    folder = shop / "deployment" / f"{kind}_{name}"
    assert verb("deploy", kind, str(folder)).exit_code == 0
    steps = list(dockerfile((folder / "Dockerfile").read_text("utf-8")))
    assert steps[0] == ("FROM", f"python:{sys.version_info.major}.{sys.version_info.minor}-slim")
    users = [arguments for instruction, arguments in steps if instruction == "USER"]
    assert users == ["10001"]
    for instruction, arguments in steps:
        if instruction == "RUN":
            assert subprocess.run(["sh", "-n", "-c", arguments], check=False).returncode == 0, arguments
            if arguments.startswith("pip install"):
                words = [word for word in shlex.split(arguments)[2:] if not word.startswith("--")]
                assert {Requirement(word).name for word in words} >= {"floodmark"}
            if arguments.startswith("python -m "):
                assert importlib.util.find_spec(arguments.split()[2]) is not None
        if instruction == "COPY":
            flags = [word for word in arguments.split() if word.startswith("--")]
            source, target = arguments.split()[len(flags) :]
            context = folder if "--from=deployment" in flags else shop
            assert (context / source).exists()
            assert target.startswith("/")
        if instruction == "ENTRYPOINT":
            assert json.loads(arguments) == ["/usr/local/bin/entrypoint"]
            assert subprocess.run(["sh", "-n", str(folder / "entrypoint.sh")], check=False).returncode == 0
    ignored = (folder / "Dockerfile.dockerignore").read_text("utf-8").split()
    assert {".git", ".venv", ".env"} <= set(ignored)


def test_the_units_are_those_that_systemd_takes(deployed: Deployed) -> None:
    folder = deployed("systemd")
    units = [*folder.glob("*.service"), *folder.glob("*.target")]
    for path in units:
        for section, directives in unit(path).items():
            assert set(directives) <= DIRECTIVES[section], path
    services = {path.name for path in folder.glob("*.service")}
    assert set(unit(folder / "floodmark.target")["Unit"]["Wants"][0].split()) == services
    for path in folder.glob("*.service"):
        program, *_ = shlex.split(unit(path)["Service"]["ExecStart"][0])
        assert Path(program).is_file()
        assert set(unit(path)["Unit"]["After"][0].split()) <= {*services, "network-online.target", "postgresql.service"}
    if verify := shutil.which(
        "systemd-analyze"
    ):  # of a machine that has systemd: it names what it does not know on stderr
        done = subprocess.run([verify, "verify", *map(str, units)], capture_output=True, text=True, check=False)
        assert not [line for line in done.stderr.splitlines() if str(folder) in line], done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_ports_databases_and_commands_are_those_of_the_code(deployed: Deployed, kind: str) -> None:
    commands = {name: shlex.join(words) for name, words in command_lines(deployed(kind), kind).items()}
    assert f"--metrics-port {PORT}" in commands["supervisor"]
    assert "--stand-by" in commands["supervisor"]
    assert f"-p {session.PORT}" in commands["webserver"]
    assert f"-p {installation.CODE_PORT}" in commands["code"]
    assert "daemon run" in commands["daemon"]


def command_lines(folder: Path, kind: str) -> Mapping[str, list[str]]:
    """Process -> its command line."""
    if kind == "kubernetes":
        containers = [one for pod in pods(folder).values() for one in pod["containers"]]
        return {one["name"]: one.get("command", one.get("args", [])) for one in containers}
    if kind == "compose":
        services = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))["services"]
        return {name: one.get("command", []) for name, one in services.items()}
    paths = {path.stem.removeprefix("floodmark-"): path for path in folder.glob("*.service")}
    return {name: shlex.split(unit(path)["Service"]["ExecStart"][0]) for name, path in paths.items()}


def test_pods_are_probed_without_their_store_and_have_time_to_stop(deployed: Deployed) -> None:
    folder = deployed("kubernetes")
    supervisor = pods(folder)["supervisor"]
    assert supervisor["terminationGracePeriodSeconds"] > GRACE_SECONDS
    assert f"127.0.0.1:{PORT}{LIVE}" in supervisor["containers"][0]["livenessProbe"]["exec"]["command"][-1]
    assert named(folder, "Deployment", "supervisor")["spec"]["replicas"] == 2
    assert all("livenessProbe" in one for pod in pods(folder).values() for one in pod["containers"])


def test_listeners_are_on_loopback_unless_told(deployed: Deployed) -> None:
    assert not [
        one
        for one in objects(deployed("kubernetes"))
        if one["kind"] == "Service" and one["metadata"]["name"] != "postgres"
    ]
    for kind in ("kubernetes", "systemd"):
        for words in command_lines(deployed(kind), kind).values():
            addresses = [after for word, after in pairwise(words) if word in {"-h", "--metrics-host"}]
            assert set(addresses) <= {"127.0.0.1"}
    services = yaml.safe_load((deployed("compose") / "compose.yaml").read_text("utf-8"))["services"]
    published = [port for one in services.values() for port in one.get("ports", [])]
    assert len(published) == 2
    assert all(port.startswith("127.0.0.1:") for port in published)
    opened = [
        one["metadata"]["name"]
        for one in objects(deployed("kubernetes", "--listen", installation.ANYWHERE, "--overwrite"))
        if one["kind"] == "Service"
    ]
    assert sorted(opened) == ["postgres", "supervisor", "webserver"]


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_are_named_and_in_no_file(
    shop: Path, deployed: Deployed, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_URL", "https://hooks.example.com/T0PSECRET")
    monkeypatch.setenv("LAKE_KEY", "an-id-T0PSECRET")
    monkeypatch.setenv("FLOODMARK_LAKE", "s3://sales/lake")
    with (shop / "assets" / "orders.py").open("a", encoding="utf-8") as assets:
        assets.write("\nfrom floodmark import Alert, Env, Webhook\n\nalert = Alert(Webhook(Env('HOOK_URL')))\n")
    resources = shop / "resources" / "settings.py"
    store = "store=Store(access_key=Env('LAKE_KEY'), secret_key=SecretFile('/run/secrets/lake/secret_key'))"
    resources.write_text(
        resources.read_text("utf-8")
        .replace("from floodmark import Settings", "from floodmark import Env, SecretFile, Settings, Store")
        .replace("environment=environment,", f"environment=environment, {store},", 1)
    )
    folder = deployed(kind)
    texts = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert not [name for name, content in texts.items() if "T0PSECRET" in content]
    assert "HOOK_URL" in texts["README.md"]
    if kind == "kubernetes":
        supervisor = pods(folder)["supervisor"]["containers"][0]
        references = {
            one["name"]: one["valueFrom"]["secretKeyRef"]["key"]
            for one in supervisor["env"]
            if "secretKeyRef" in one.get("valueFrom", {})
        }
        assert references == {name: name for name in ("HOOK_URL", "LAKE_KEY", "PGPASSWORD")}
        assert "/run/secrets/lake" in {mount["mountPath"] for mount in supervisor["volumeMounts"]}
        assert {"name": "FLOODMARK_LAKE", "value": "s3://sales/lake"} in supervisor["env"]


def test_shared_folders_are_those_of_the_workspace(deployed: Deployed, shop: Path) -> None:
    mounts = {one["mountPath"] for one in pods(deployed("kubernetes"))["supervisor"]["containers"][0]["volumeMounts"]}
    assert {"/workspace/lake-prod", "/workspace/inbox/orders", "/workspace/.floodmark"} < mounts
    ignored = (deployed("kubernetes") / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert {"lake-prod", "inbox/orders", ".floodmark"} < set(ignored)
    written = unit(deployed("systemd") / "floodmark-supervisor.service")["Service"]["ReadWritePaths"][0].split()
    assert written == [f"{shop}/.floodmark", f"{shop}/inbox/orders", f"{shop}/lake-prod"]


@pytest.mark.feature("O1")
def test_drivers_of_spark_may_make_pods_where_their_executors_are_pods(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [one for one in objects(deployed("kubernetes")) if one["kind"] == "Role"]
    monkeypatch.setenv("FLOODMARK_ENGINE", "spark")
    monkeypatch.setenv("FLOODMARK_MASTER", "k8s://https://kubernetes.default.svc")
    folder = deployed("kubernetes", "--image", "registry/shop:7", "--overwrite")
    for one in objects(folder):
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    rules = named(folder, "Role", "floodmark-driver")["rules"]
    assert "create" in rules[0]["verbs"]
    supervisor = pods(folder)["supervisor"]
    assert supervisor["automountServiceAccountToken"] is True
    variables = [one["name"] for one in supervisor["containers"][0]["env"]]
    assert variables.index("POD_IP") < variables.index("FLOODMARK_SPARK"), "Kubernetes replaces what stands before"
    pairs = dict(yaml.safe_load(supervisor["containers"][0]["env"][variables.index("FLOODMARK_SPARK")]["value"]))
    assert pairs["spark.kubernetes.container.image"] == "registry/shop:7"
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim"
    paths = {text for name, text in pairs.items() if name.startswith(volume) and name.endswith(".mount.path")}
    assert "/workspace/lake-prod" in paths
    done = subprocess.run(["sh", "-n", str(folder / "entrypoint.sh")], check=False)
    assert done.returncode == 0
    assert (
        subprocess.run(
            [str(folder / "entrypoint.sh"), "echo", "a word"], capture_output=True, text=True, check=True
        ).stdout
        == "a word\n"
    )


@pytest.mark.parametrize("database", [kubernetes.DATABASE, compose.DATABASE, systemd.DATABASE])
def test_the_url_of_the_control_store_names_what_is_deployed(database: installation.Database) -> None:
    url = installation.control_url(database)
    assert installation._database(url, database) == database
    elsewhere = installation._database("postgresql+psycopg://me@db.example.com/sales", database)
    assert (elsewhere.host, elsewhere.user, elsewhere.name, elsewhere.deployed) == (
        "db.example.com",
        "me",
        "sales",
        False,
    )


def test_a_postgresql_elsewhere_is_used_and_none_is_deployed(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_CONTROL", "postgresql+psycopg://sales@db.example.com/control")
    assert set(pods(deployed("kubernetes"))) == {"supervisor", "dagster"}
    assert "postgres" not in yaml.safe_load((deployed("compose") / "compose.yaml").read_text("utf-8"))["services"]
    assert "postgresql.service" not in (deployed("systemd") / "floodmark-supervisor.service").read_text("utf-8")
    assert "db.example.com" in (deployed("kubernetes") / "config.yaml").read_text("utf-8")


def supervise(words: list[str], environment: Mapping[str, str], port: int) -> subprocess.Popen[str]:
    """A supervisor as its unit starts it, but for its port."""
    ported = [str(port) if word == str(PORT) else word for word in words]
    variables = os.environ | environment
    return subprocess.Popen(ported, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def says(process: subprocess.Popen[str], text: str) -> None:
    """Read lines of a process up to one with a text."""
    assert process.stdout is not None
    lines = list[str]()
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    raise AssertionError("".join(lines))


def test_a_unit_of_a_supervisor_stands_by_takes_over_and_its_probe_answers(
    shop: Path, deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with data_folder() as data, serving(data) as server, ExitStack() as stack:
        monkeypatch.setenv("FLOODMARK_CONTROL", database(server, "control"))
        folder = deployed("systemd")
        words = shlex.split(unit(folder / "floodmark-supervisor.service")["Service"]["ExecStart"][0])
        lines = (folder / "floodmark.env").read_text("utf-8").splitlines()
        environment = {name: text.strip('"') for name, _, text in (line.partition("=") for line in lines)}
        assert environment["FLOODMARK_CONTROL"] == os.environ["FLOODMARK_CONTROL"]
        (_, probe), *_ = [(one.name, one.probe) for one in deployment_of(shop).processes()]
        running = list[subprocess.Popen[str]]()
        for port in (free_port(), free_port()):
            process = supervise(words, environment, port)
            stack.callback(process.wait)
            stack.callback(process.kill)
            says(process, "once no other supervisor is at work")
            asked = [part.replace(str(PORT), str(port)) for part in probe]
            assert subprocess.run(asked, check=False).returncode == 0
            running.append(process)
        store, (first, second) = Store(environment["FLOODMARK_CONTROL"]), running
        until(lambda: f"process {first.pid}," in (store.holder(LEASE) or ""))
        first.terminate()
        assert first.wait(120) == 0
        until(lambda: f"process {second.pid}," in (store.holder(LEASE) or ""))
        second.terminate()
        assert second.wait(120) == 0
        assert subprocess.run(asked, capture_output=True, check=False).returncode != 0


def until(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.05)


def deployment_of(shop: Path) -> installation.Installation:
    """The shop as it is deployed under systemd."""
    opened = open_workspace(Invocation(environment="prod"))
    return installation.install(
        opened, root=shop, database=systemd.DATABASE, listen=installation.LOOPBACK, python=sys.executable
    )


def drop(path: Path, *lines: str) -> None:
    """Take lines out of a file."""
    path.write_text(
        "".join(
            line
            for line in path.read_text("utf-8").splitlines(keepends=True)
            if not any(part in line for part in lines)
        )
    )


def test_a_control_store_that_serves_one_machine_is_refused(shop: Path, verb: Callable[..., Result]) -> None:
    drop(shop / "resources" / "settings.py", "control=variables.control")
    result = verb("deploy", "kubernetes", "d")
    assert result.exit_code == 1
    assert re.search(
        r"SETUP-100 .*expected: a control store in PostgreSQL.* FLOODMARK_CONTROL", " ".join(result.output.split())
    )
    assert not (shop / "d").exists()


def test_a_password_in_the_url_is_refused(
    shop: Path, verb: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_CONTROL", "postgresql+psycopg://floodmark:T0PSECRET@db/floodmark")
    result = verb("deploy", "compose", "d")
    assert "SETUP-101" in result.output
    assert "T0PSECRET" not in result.output
    assert not (shop / "d").exists()


def test_files_that_differ_are_replaced_on_request_alone(deployed: Deployed, verb: Callable[..., Result]) -> None:
    folder = deployed("systemd")
    assert deployed("systemd") == folder, "the same files again are no conflict"
    (folder / "floodmark.target").write_text("mine")
    result = verb("deploy", "systemd", str(folder))
    assert "SETUP-102" in result.output
    assert "floodmark.target" in result.output
    assert (folder / "floodmark.target").read_text() == "mine"
    deployed("systemd", "--overwrite")
    assert (folder / "floodmark.target").read_text() != "mine"


def test_settings_that_take_none_of_spark_are_refused_where_executors_are_pods(
    shop: Path, verb: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_MASTER", "k8s://https://kubernetes.default.svc")
    drop(shop / "resources" / "settings.py", "spark=variables.spark")
    result = verb("deploy", "kubernetes", "d")
    assert "SETUP-103" in result.output
    assert "FLOODMARK_SPARK" in result.output


def test_a_workspace_without_a_module_for_dagster_is_refused(shop: Path, verb: Callable[..., Result]) -> None:
    (shop / "workspace.yaml").write_text("load_from: []\n")
    assert "SETUP-104" in verb("deploy", "systemd", "d").output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nomad", "d"), "'nomad' is not one of 'kubernetes', 'systemd', 'compose'"),
        (("kubernetes",), "Missing argument 'DIR'"),
        (("systemd", "d", "--image", "shop:1"), "--image says nothing to systemd"),
        (("compose", "d", "--storage-class", "nfs"), "--storage-class says nothing to compose"),
        (("kubernetes", "d", "--listen", "everywhere"), "expected an IP address"),
        (("kubernetes", "d", "--lake", "other"), "set FLOODMARK_LAKE"),
    ],
)
def test_a_wrong_use_is_refused_in_a_sentence(
    shop: Path, verb: Callable[..., Result], arguments: tuple[str, ...], why: str
) -> None:
    result = verb("deploy", *arguments)
    assert result.exit_code == 2
    assert why in result.output
    assert not (shop / "d").exists()


def test_the_environment_is_prod_unless_another_is_named(deployed: Deployed) -> None:
    words = command_lines(deployed("systemd"), "systemd")["supervisor"]
    assert words[0] == str(Path(sys.executable).parent / "floodmark")
    assert words[words.index("--environment") + 1] == "prod"
    forget_modules()
    words = command_lines(deployed("systemd", "--environment", "dev", "--overwrite"), "systemd")["supervisor"]
    assert words[words.index("--environment") + 1] == "dev"
