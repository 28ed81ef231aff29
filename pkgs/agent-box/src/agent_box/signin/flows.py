"""The sign-ins that the box can guide, as data. A new one is one entry here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

GITHUB = "github"
"""The one flow that belongs to no agent."""

_MODEL_VENDORS = (
    *("anthropic.com", "chatgpt.com", "claude.ai", "claude.com", "github.com", "kimi.com"),
    *("opencode.ai", "openai.com", "openrouter.ai", "accounts.google.com", "x.ai"),
)
# On GitHub anybody can publish, so there it is one address.
_SIGN_IN_PAGE = (
    r"^https://github\.com/login/device\b|^https://(?!github\.com/)[^/]+/(.*/)?(oauth|device|auth)"
)
_MODEL_KEYS = ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")
_PROVIDERS = ("anthropic", "openai", "github-copilot", "openrouter")


@dataclass(frozen=True)
class Flow:
    """How one CLI signs in."""

    id: str
    label: str
    login: tuple[str, ...]
    """Arguments of the sign-in. `{provider}` stands for what the user chose of `providers`."""
    status: tuple[str, ...]
    """Arguments of the question whether somebody is signed in."""
    hosts: tuple[str, ...]
    """The vendor's hosts, subdomains included: no other URL is ever shown."""
    page: str
    """Pattern of the sign-in page's address, to tell it from help pages of the same host."""
    credential: tuple[str, str]
    """Where the CLI keeps its credential: a variable that moves the directory ("" for none),
    and the path below it or, without it, the path below the home after a `:`."""
    any_page: bool = False
    """Whether another page of these hosts will do when none matches: never where anybody can
    publish, as on GitHub."""
    program: str = ""
    """Name on the PATH for a CLI that is no agent of the box."""
    code_prompt: str | None = None
    """Pattern of the line that asks for a code or key; None for a CLI that takes none."""
    shows_code: bool = False
    """Whether it shows a one-time code to be typed on the vendor's page."""
    clears: tuple[str, ...] = ()
    """Variables that the CLI must not see, or it would not sign in."""
    shadows: tuple[str, ...] = ()
    """Variables that win over the stored sign-in."""
    providers: tuple[str, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    """Questions that have one answer only: pattern of the last line, and keys for tmux."""
    only_file: bool = False
    """Whether its answer counts nothing but the file of its credential: without that it need not
    be asked, which takes a second of a processor."""
    staged: bool = False
    """The CLI drops its credential when it starts to sign in: let it do so in another place."""
    done: str | None = None
    """What its last screen must say, for a CLI that ends with 0 in any case."""

    def credential_path(self, env: Mapping[str, str], home: Path) -> Path:
        """Return the file of the credential."""
        variable, path = self.credential
        below, _, usual = path.partition(":")
        if variable and env.get(variable):
            return Path(env[variable]) / below
        return home / usual


FLOWS = {
    flow.id: flow
    for flow in (
        Flow(
            id="claude",
            label="Claude",
            login=("auth", "login"),
            status=("auth", "status"),
            hosts=("claude.com", "claude.ai", "anthropic.com"),
            page=r"/oauth/",
            any_page=True,
            credential=("CLAUDE_CONFIG_DIR", ".credentials.json:.claude/.credentials.json"),
            code_prompt=r"Paste code here|[Pp]aste the (authorization )?code",
            clears=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
            shadows=("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY"),
        ),
        Flow(
            id="codex",
            label="Codex",
            login=("login", "-c", 'cli_auth_credentials_store="file"', "--device-auth"),
            status=("login", "status"),
            hosts=("openai.com", "chatgpt.com"),
            page=r"/device",
            any_page=True,
            credential=("CODEX_HOME", "auth.json:.codex/auth.json"),
            shows_code=True,
            clears=("OPENAI_API_KEY", "CODEX_API_KEY"),
            shadows=("OPENAI_API_KEY", "CODEX_API_KEY"),
            staged=True,
        ),
        Flow(
            id=GITHUB,
            label="GitHub",
            program="gh",
            login=(
                *("auth", "login", "--hostname", "github.com", "--git-protocol", "https"),
                *("--web", "--scopes", "repo,read:org,workflow"),
            ),
            status=("auth", "status", "--hostname", "github.com"),
            hosts=("github.com",),
            page=r"^https://github\.com/login/device\b",
            credential=("GH_CONFIG_DIR", "hosts.yml:.config/gh/hosts.yml"),
            shows_code=True,
            clears=("GH_TOKEN", "GITHUB_TOKEN"),
            shadows=("GH_TOKEN", "GITHUB_TOKEN"),
            answers=(
                (r"^\W*Press Enter to open", "Enter"),
                (r"Authenticate Git with your GitHub credentials\?", "Enter"),
                (r"re-authenticate\?", "y Enter"),
            ),
        ),
        Flow(
            id="opencode",
            label="OpenCode",
            login=("auth", "login", "--provider", "{provider}"),
            status=("auth", "list"),
            hosts=_MODEL_VENDORS,
            page=_SIGN_IN_PAGE,
            credential=(
                "XDG_DATA_HOME",
                "opencode/auth.json:.local/share/opencode/auth.json",
            ),
            code_prompt=r"API key|[Pp]aste (the|your) .*code",
            shows_code=True,
            clears=_MODEL_KEYS,
            shadows=_MODEL_KEYS,
            providers=_PROVIDERS,
            only_file=True,
            done=r"Login successful|Done",
        ),
        Flow(
            id="pi",
            label="Pi",
            login=("auth", "login", "{provider}", "--no-browser"),
            status=("--list-models",),
            hosts=_MODEL_VENDORS,
            page=_SIGN_IN_PAGE,
            credential=("PI_CODING_AGENT_DIR", "auth.json:.pi/agent/auth.json"),
            code_prompt=r"API key|[Pp]aste (the|your|your authorization) .*(code|URL)",
            shows_code=True,
            clears=_MODEL_KEYS,
            shadows=_MODEL_KEYS,
            answers=((r"GitHub Enterprise URL/domain \(blank", "Enter"),),
            providers=("anthropic", "openai-codex", "github-copilot", "openrouter"),
        ),
    )
}
"""Every flow by its id, in the order of the card."""
