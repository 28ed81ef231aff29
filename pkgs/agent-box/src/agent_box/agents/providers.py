"""Environment variables by which agents of many vendors find a model provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Named one by one: any *_API_KEY would do for somebody's search tool as well, and a prompt would
# be spent on an agent that has no model to talk to.
_VARIABLES = (
    *("AI_GATEWAY_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_OAUTH_TOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AZURE_API_KEY"),
    *("AZURE_OPENAI_API_KEY", "BASETEN_API_KEY", "CEREBRAS_API_KEY", "CLOUDFLARE_API_KEY"),
    *("COHERE_API_KEY", "COPILOT_GITHUB_TOKEN", "DEEPINFRA_API_KEY", "DEEPSEEK_API_KEY"),
    *("FIREWORKS_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "HF_TOKEN", "KIMI_API_KEY", "META_API_KEY"),
    *("MINIMAX_API_KEY", "MISTRAL_API_KEY", "MOONSHOT_API_KEY", "NVIDIA_API_KEY"),
    *("OPENAI_API_KEY", "OPENCODE_API_KEY", "OPENROUTER_API_KEY", "PERPLEXITY_API_KEY"),
    *("TOGETHER_API_KEY", "XAI_API_KEY", "XIAOMI_API_KEY", "ZAI_API_KEY", "ZHIPU_API_KEY"),
)


def in_environment(env: Mapping[str, str]) -> bool:
    """Return whether the environment names the credentials of a provider."""
    return any(env.get(key) for key in _VARIABLES)
