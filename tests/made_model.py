"""A model of a server with the API of OpenAI, made once by the process that forks.

Its packages import a part, load prices and build schemas only for the first model.
"""

from __future__ import annotations

from skillbelt.agent.openai_models import create_on_server

create_on_server("any", "http://127.0.0.1:9/v1", "none")
