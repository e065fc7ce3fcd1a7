"""What the pages show, as operations of the JSON API."""

from __future__ import annotations

from skillbelt.serving.endpoints import ENDPOINTS, Endpoint

ALL_ENDPOINTS: tuple[Endpoint, ...] = ENDPOINTS
