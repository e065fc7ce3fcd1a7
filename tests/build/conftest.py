from __future__ import annotations

from tests.guests.conftest import sandbox as sandbox
from tests.sandbox.conftest import place as place
