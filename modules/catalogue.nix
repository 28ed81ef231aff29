# The agents that a box knows: the attribute of the package, and the program in it.
# Each has an adapter of the same name in pkgs/agent-box/src/agent_box/agents.
{
  claude = {
    package = "claude-code";
    program = "claude";
  };
  codex = {
    package = "codex";
    program = "codex";
  };
  opencode = {
    package = "opencode";
    program = "opencode";
  };
  pi = {
    package = "pi-coding-agent";
    program = "pi";
  };
}
