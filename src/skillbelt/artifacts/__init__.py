"""Artifacts: versioned files of a conversation that outlive their workspace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skillbelt.artifacts.disk import DiskArtifacts
from skillbelt.artifacts.objects import ObjectArtifacts
from skillbelt.artifacts.protocol import (
    Artifact,
    ArtifactStore,
    SessionArtifacts,
    parse_reference,
    read,
    reference,
)
from skillbelt.objects.remote import open_once

if TYPE_CHECKING:
    from skillbelt.settings import Settings

__all__ = [
    "ARTIFACT_FOLDER",
    "Artifact",
    "ArtifactStore",
    "SessionArtifacts",
    "open_artifacts",
    "parse_reference",
    "read",
    "reference",
]

ARTIFACT_FOLDER = "artifacts"


def open_artifacts(settings: Settings, url: str = "") -> ArtifactStore:
    """Return the artifact store at a URL such as `s3://bucket`, else that in the state folder.

    Without a URL it is in the object store of the deployment, if the setting `objects` names
    one. Nothing is opened or created before it is needed.
    """
    if url:
        return ObjectArtifacts.from_url(url)
    if settings.objects:
        return ObjectArtifacts(open_once(settings.objects), ARTIFACT_FOLDER)
    return DiskArtifacts(os.path.join(settings.state_dir, ARTIFACT_FOLDER))
