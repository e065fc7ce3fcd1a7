"""Schemas of the fields that deploy/ uses: of a RayCluster by KubeRay's own definition (ray.io/v1,

`headGroupSpec` and `workerGroupSpecs`, whose required fields and types are those there), and of
compose files by the Compose Specification.
"""

from __future__ import annotations

from typing import Any


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


TEXT, NUMBER, FLAG, ANY = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, True
TEXTS = {"type": "array", "items": TEXT}
STRINGS = {"type": "object", "additionalProperties": TEXT}
TEMPLATE = closed(["spec"], metadata={"type": "object"}, spec={"type": "object"})
_GROUP = {"rayStartParams": STRINGS, "template": TEMPLATE}
RAY_CLUSTER = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata=closed(["name"], name=TEXT, namespace=TEXT, annotations=STRINGS, labels=STRINGS),
    spec=closed(
        ["headGroupSpec"],
        rayVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        enableInTreeAutoscaling=FLAG,
        suspend=FLAG,
        authOptions=closed([], mode={"enum": ["disabled", "token"]}, secretName=TEXT),
        headGroupSpec=closed(["template"], serviceType=TEXT, enableIngress=FLAG, **_GROUP),
        workerGroupSpecs={
            "type": "array",
            "items": closed(
                ["groupName", "minReplicas", "maxReplicas", "template"],
                groupName=TEXT,
                replicas=NUMBER,
                minReplicas=NUMBER,
                maxReplicas=NUMBER,
                idleTimeoutSeconds=NUMBER,
                suspend=FLAG,
                **_GROUP,
            ),
        },
    ),
)

_DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m|h)$"}
_SIZE = {"type": "string", "pattern": r"^\d+[bkmg]$"}
_MOUNT = closed(
    ["type", "target"],
    type={"enum": ["bind", "volume", "tmpfs"]},
    source=TEXT,
    target=TEXT,
    read_only=FLAG,
)
_SERVICE = closed(
    ["image"],
    image=TEXT,
    command={"anyOf": [TEXT, TEXTS]},
    user=TEXT,
    read_only=FLAG,
    cap_drop=TEXTS,
    security_opt=TEXTS,
    pids_limit=NUMBER,
    shm_size=_SIZE,
    restart={"enum": ["no", "always", "on-failure", "unless-stopped"]},
    stop_grace_period=_DURATION,
    tmpfs=TEXTS,
    networks=TEXTS,
    # Without a value: the one where compose runs, and none if there is none.
    environment={"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    secrets=TEXTS,
    volumes={"type": "array", "items": {"anyOf": [TEXT, _MOUNT]}},
    ports=TEXTS,
    depends_on={
        "type": "object",
        "additionalProperties": closed(
            ["condition"], condition={"enum": ["service_started", "service_healthy"]}
        ),
    },
    healthcheck=closed(
        ["test"],
        test={**TEXTS, "contains": {"enum": ["CMD", "CMD-SHELL"]}},
        start_period=_DURATION,
        interval=_DURATION,
        timeout=_DURATION,
        retries=NUMBER,
    ),
)
COMPOSE = {
    **closed(
        ["services"],
        name=TEXT,
        services={"type": "object", "additionalProperties": _SERVICE},
        networks={"type": "object"},
        volumes={"type": "object"},
        secrets={"type": "object", "additionalProperties": closed(["file"], file=TEXT)},
    ),
    "patternProperties": {"^x-": ANY},
}
