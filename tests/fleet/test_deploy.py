"""The files of deploy/: right by their schemas, hardened, and without a secret in them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from skillbelt.cli import parser
from skillbelt.fleet.join import HEAD_PORT
from skillbelt.settings import DEFAULTS
from tests.fleet.deploy_schemas import COMPOSE, RAY_CLUSTER

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VERSION = "1.33.0"


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if isinstance(one, dict)]


OBJECTS = [one for path in MANIFESTS for one in documents(path)]
CLUSTER = next(one for one in OBJECTS if one["kind"] == "RayCluster")
SERVER = next(one for one in OBJECTS if one["kind"] == "Deployment")
COMPOSED: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))


def pods() -> dict[str, dict[str, Any]]:
    head, (node,) = CLUSTER["spec"]["headGroupSpec"], CLUSTER["spec"]["workerGroupSpecs"]
    return {
        "head": head["template"],
        "node": node["template"],
        "server": SERVER["spec"]["template"],
    }


def as_pod(template: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "one", **template.get("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}


@pytest.mark.parametrize(
    "made", [one for one in OBJECTS if one["kind"] != "RayCluster"], ids=lambda one: one["kind"]
)
def test_kubernetes_accepts_each_object(made: dict[str, Any]) -> None:
    kubernetes_validate.validate(made, VERSION, strict=True)


def test_the_cluster_has_the_fields_of_kuberay() -> None:
    jsonschema.validate(CLUSTER, RAY_CLUSTER)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**CLUSTER, "spec": {**CLUSTER["spec"], "workers": []}}, RAY_CLUSTER)


@pytest.mark.parametrize("name", ["head", "node", "server"])
def test_every_pod_is_a_right_one_and_meets_the_restricted_standard(name: str) -> None:
    pod = as_pod(pods()[name])
    kubernetes_validate.validate(pod, VERSION, strict=True)
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert not [one for one in spec["volumes"] if "hostPath" in one]
    for container in spec["containers"]:
        held = container["securityContext"]
        assert held["allowPrivilegeEscalation"] is False
        assert held["readOnlyRootFilesystem"] is True
        assert held["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_the_patch_for_namespaces_makes_a_right_pod_that_still_has_no_capability() -> None:
    patched = json.loads(json.dumps(CLUSTER))
    for step in yaml.safe_load((DEPLOY / "kubernetes/namespaces-patch.yaml").read_text("utf-8")):
        *path, last = step["path"].split("/")[1:]
        at: Any = patched
        for part in path:
            at = at[int(part)] if isinstance(at, list) else at[part]
        assert (last in at) is (step["op"] == "replace")
        at[last] = step["value"]
    jsonschema.validate(patched, RAY_CLUSTER)
    template = patched["spec"]["workerGroupSpecs"][0]["template"]
    kubernetes_validate.validate(as_pod(template), VERSION, strict=True)
    assert template["spec"]["hostUsers"] is False
    held = template["spec"]["containers"][0]["securityContext"]
    assert (held["procMount"], held["capabilities"]) == ("Unmasked", {"drop": ["ALL"]})


def commands() -> Iterator[list[str]]:
    for template in pods().values():
        for container in template["spec"]["containers"]:
            yield [*container["command"], *container.get("args", [])]
    for name in ("head", "node", "server"):
        command = COMPOSED["services"][name]["command"]
        yield command if command[0] != "sh" else command[-1].partition("exec ")[2].split()


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_each_command_is_one_that_the_product_takes(command: list[str]) -> None:
    words = command[command.index("skillbelt") + 1 :]
    own, beside = words, []
    if "--" in words:
        own, beside = words[: words.index("--")], words[words.index("--") + 2 :]
    assert parser(own[0]).parse_intermixed_args(own[1:]).action == "join"
    if beside:
        assert parser(beside[0]).parse_intermixed_args(beside[1:]).http == "0.0.0.0:8765"


def test_every_workload_has_its_token_and_the_password_is_where_it_is_needed() -> None:
    for name, template in pods().items():
        (container,) = template["spec"]["containers"]
        names = {one["name"] for one in container["env"]}
        assert {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"} <= names
        assert ("SKILLBELT_STORE" in names) is (name == "server")
    for name in ("head", "node", "server"):
        assert "ray-token" in COMPOSED["services"][name]["secrets"]
        assert ("store-url" in COMPOSED["services"][name]["secrets"]) is (name == "server")


def test_the_head_has_no_rights_on_the_object_store() -> None:
    (head,) = pods()["head"]["spec"]["containers"]
    composed = set(COMPOSED["services"]["head"]["environment"])
    names = composed | {one["name"] for one in head["env"]}
    assert not [one for one in names if one.startswith(("AWS_", "SKILLBELT_OBJECTS"))]
    assert {"AWS_SECRET_ACCESS_KEY", "SKILLBELT_OBJECTS", "RAY_AUTH_TOKEN_PATH"} <= set(
        COMPOSED["services"]["server"]["environment"]
    )


def test_probes_ask_the_server_and_clients_reach_it_by_the_name_of_its_service() -> None:
    (server,) = pods()["server"]["spec"]["containers"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert server["livenessProbe"]["httpGet"]["path"] == "/health"
    assert "/health" in str(COMPOSED["services"]["server"]["healthcheck"])
    (service,) = [one["metadata"] for one in OBJECTS if one["kind"] == "Service"]
    names = [server["args"][n + 1] for n, one in enumerate(server["args"]) if one == "--host-name"]
    assert {service["name"], f"{service['name']}.{service['namespace']}"} <= set(names)


def test_a_node_is_drained_before_its_pod_ends() -> None:
    spec = pods()["node"]["spec"]
    *_, line = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    words = line.replace('"', "").split()
    drain = parser("fleet").parse_intermixed_args(words[2:])
    assert drain.action == "drain"
    assert drain.timeout < spec["terminationGracePeriodSeconds"]


def test_no_file_holds_a_secret() -> None:
    for one in OBJECTS:
        assert one["kind"] != "Secret"
    for template in pods().values():
        for variable in template["spec"]["containers"][0]["env"]:
            secret = re.search("PASSWORD|KEY|TOKEN$|STORE$", variable["name"])
            assert not secret or "secretKeyRef" in variable["valueFrom"]


def test_everything_is_closed_and_rays_ports_are_open_within_the_fleet_alone() -> None:
    policies = {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == "NetworkPolicy"}
    closed = policies["skillbelt-default-deny"]["spec"]
    assert (closed["podSelector"], closed["policyTypes"]) == ({}, ["Ingress", "Egress"])
    for name, policy in policies.items():
        for rule in policy["spec"].get("ingress", ()):
            ports = {one["port"] for one in rule.get("ports", ())}
            within = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "skillbelt"}}}]
            assert rule["from"] == within or (HEAD_PORT not in ports and ports), name


def test_every_selector_finds_a_pod() -> None:
    labels = [set(one["metadata"]["labels"].items()) for one in pods().values()]
    for made in OBJECTS:
        spec = made.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector") or {}
        wanted = set(
            selector.get("matchLabels", selector if made["kind"] == "Service" else {}).items()
        )
        assert any(wanted <= one for one in labels), made["metadata"]["name"]


def test_compose_is_a_right_file_and_every_reference_exists() -> None:
    jsonschema.validate(COMPOSED, COMPOSE)
    for name, service in COMPOSED["services"].items():
        assert set(service.get("secrets", ())) <= set(COMPOSED["secrets"]), name
        assert set(service["networks"]) <= set(COMPOSED["networks"]), name
        assert set(service.get("depends_on", ())) <= set(COMPOSED["services"]), name


def test_a_variable_that_is_not_set_is_not_given_as_an_empty_one() -> None:
    """An empty AWS_ENDPOINT_URL is no address, and empty keys hide the role of the machine."""
    for service in COMPOSED["services"].values():
        given = service.get("environment", {}).items()
        assert not [name for name, value in given if value is not None and ":-}" in value]


@pytest.mark.parametrize("name", ["head", "node", "server"])
def test_services_of_compose_are_hardened_and_publish_no_port_of_ray(name: str) -> None:
    service = COMPOSED["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == "10001:10001"
    assert all(one.startswith("127.0.0.1:") for one in service.get("ports", ()))
    assert "6379" not in str(service.get("ports", ()))


def test_settings_are_known_and_the_same_in_both_ways_to_deploy() -> None:
    written = tomllib.loads((DEPLOY / "skillbelt.toml").read_text("utf-8"))
    (config,) = [one for one in OBJECTS if one["kind"] == "ConfigMap"]
    assert written == tomllib.loads(config["data"]["config.toml"])
    assert set(written) <= set(DEFAULTS)
    assert written["project_name"]


def test_the_image_installs_what_is_locked_and_runs_as_no_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").split("\n")
    assert any("--require-hashes -r fleet.txt" in line for line in lines)
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    lock = (DEPLOY.parent / "requirements" / "fleet.txt").read_text("utf-8")
    assert re.search(r"^ray==2\.60\.", lock, re.MULTILINE)
    assert CLUSTER["spec"]["rayVersion"] in lock


def test_the_image_has_the_version_of_the_product_everywhere() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))
    name = f"skillbelt:{project['project']['version']}"
    images = [pod["spec"]["containers"][0]["image"] for pod in pods().values()]
    composed = [COMPOSED["services"][one]["image"] for one in ("head", "node", "server")]
    assert {*images, *(one.partition(":-")[2].rstrip("}") for one in composed)} == {name}
    page = (DEPLOY / "README.md").read_text("utf-8")
    for text in ((DEPLOY / "Dockerfile").read_text("utf-8"), page):
        assert set(re.findall(r"\bskillbelt:\d[\w.]*", text)) == {name}


def test_every_variable_is_one_that_a_setting_has() -> None:
    """`SKILLBELT_IMAGE` and others that only the compose file reads are not in a container."""
    known = {f"SKILLBELT_{name.upper()}" for name in DEFAULTS}
    used = {one["name"] for pod in pods().values() for one in pod["spec"]["containers"][0]["env"]}
    for service in COMPOSED["services"].values():
        used |= set(service.get("environment", ()))
        used |= set(re.findall(r"\bSKILLBELT_\w+(?==)", str(service.get("command"))))
    found = {one for one in used if one.startswith("SKILLBELT_")}
    assert {"SKILLBELT_STORE", "SKILLBELT_OBJECTS", "SKILLBELT_RAY_ADDRESS"} <= found <= known


def test_the_balancer_asks_servers_by_a_name_and_a_port_that_they_have() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    service, port = re.findall(r"server-template \S+ \d+ (\w+):(\d+)", text)[0]
    command = COMPOSED["services"][service]["command"][-1]
    assert f"--http 0.0.0.0:{port} " in command
    assert re.findall(r"uri (\S+)", text) == ["/ready"]
    balancer = COMPOSED["services"]["balancer"]
    (published,) = balancer["ports"]
    assert published.startswith("127.0.0.1:")
    (own,) = re.findall(r"bind :(\d+)", text)
    assert published.endswith(f":{own}")
    assert set(balancer["networks"]) & set(COMPOSED["services"][service]["networks"])
    # The port that clients call is in the names that the servers accept.
    outside = re.findall(r"\$\{SKILLBELT_PORT:-(\d+)\}", command + published)
    assert len(set(outside)) == 1


def test_the_folder_of_objects_is_one_that_the_image_has_and_all_share() -> None:
    default = COMPOSED["x-environment"]["SKILLBELT_OBJECTS"].partition(":-")[2].rstrip("}")
    path = default.removeprefix("file://")
    lines = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert f"install -d -o 10001 -g 10001 {path}" in lines
    for name in ("node", "server"):
        assert f"objects:{path}" in COMPOSED["services"][name]["volumes"]


def test_the_engine_is_sent_what_the_image_copies_and_nothing_else() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").split("\n")
    copied = {line.split()[1] for line in lines if re.match("COPY [^-]", line)}
    kept = (DEPLOY.parent / ".dockerignore").read_text("utf-8").split("\n")
    assert "*" in kept
    assert {line[1:] for line in kept if line.startswith("!")} == copied


def test_the_page_scales_services_that_exist() -> None:
    page = (DEPLOY / "README.md").read_text("utf-8")
    texts = page + (DEPLOY / "compose.yaml").read_text("utf-8")
    named = set(re.findall(r"--scale (\w+)=", texts))
    assert {"node", "server"} <= named <= set(COMPOSED["services"])
