"""Models on servers with the API of OpenAI, through its package (the `agent` extra)."""

from __future__ import annotations

from pydantic_ai.models import Model as ProviderModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider


def create_on_server(model: str, url: str, key: str) -> ProviderModel:
    """Return the model of a server; without a key it is one of Ollama."""
    if not key:
        return OllamaModel(model, provider=OllamaProvider(base_url=url))
    provider = OpenAICompatibleProvider("compatible", base_url=url, api_key=key)
    return OpenAIChatModel(model, provider=provider)
