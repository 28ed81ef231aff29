"""The developer tools that work inside a session: one table, asserted and shown in docs/."""

from __future__ import annotations

from dataclasses import dataclass

from agent_box_harness.internet import WORLD

BEGIN, END = "<!-- tools -->", "<!-- /tools -->"
"""Markers of the table in the page."""


@dataclass(frozen=True)
class Tool:
    """One promise about a tool."""

    name: str
    script: str
    """Shell script, run in an empty directory inside a session; exit status 0 = it works."""
    works: bool = True
    note: str = ""
    """For the page: the limit of the promise, or why it is blocked."""
    user: str = "bob"
    """Whose sandbox: bob's is the stricter one, alice may run one command as root."""


_ADDON = """\
cat >package.json <<'EOF'
{"name": "addon", "version": "1.0.0", "scripts": {"install": "node-gyp rebuild"}, "gypfile": true}
EOF
cat >binding.gyp <<'EOF'
{"targets": [{"target_name": "addon", "sources": ["addon.c"]}]}
EOF
cat >addon.c <<'EOF'
#include <node_api.h>
static napi_value answer(napi_env env, napi_callback_info info) {
    napi_value value;
    napi_create_int32(env, 42, &value);
    return value;
}
NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "answer", NAPI_AUTO_LENGTH, answer, NULL, &function);
    napi_set_named_property(env, exports, "answer", function);
    return exports;
}
EOF
"""

_SSH = f"""\
mkdir -p ~/.ssh
rm -f ~/.ssh/probe
ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/probe
cat ~/.ssh/probe.pub >>~/.ssh/authorized_keys
rm -rf ~/origin
git init -q ~/origin
git -C ~/origin -c user.name=x -c user.email=x@localhost commit -q --allow-empty -m first
export GIT_SSH_COMMAND='ssh -i ~/.ssh/probe -o BatchMode=yes -o StrictHostKeyChecking=no'
git clone -q "ssh://$(id -un)@{WORLD}$HOME/origin" copy
test "$(git -C copy log --format=%s)" = first
"""

TOOLS = (
    Tool("node", "test $(node -e 'console.log([1, 2].map((x) => x * 21)[1])') = 42"),
    Tool(
        "npm install of a native package",
        _ADDON + "npm_config_nodedir=/usr npm install --offline --no-audit --no-fund >log 2>&1 || "
        "{ cat log; exit 1; }\n"
        "test $(node -p 'require(\"./build/Release/addon.node\").answer()') = 42",
        note="compiles with node-gyp",
    ),
    Tool(
        "python with cffi",
        "python3 -c 'import cffi; f = cffi.FFI(); f.cdef(\"int abs(int);\"); "
        'assert f.dlopen(None).abs(-1) == 1; g = f.callback("int(int)", lambda x: x + 1); '
        "assert g(1) == 2'",
        note="calls and callbacks",
    ),
    Tool("python -m venv", "python3 -m venv --without-pip v && v/bin/python -c 'import ssl'"),
    Tool("gcc, make", "echo 'int main(void) { return 0; }' >a.c; make -s a && ./a"),
    Tool("cargo build", "cargo init -q --name probe . && cargo build -q --offline && "
         "target/debug/probe"),
    Tool("go build", "printf 'module probe\\n' >go.mod; "
         "printf 'package main\\nfunc main() { println(\"x\") }\\n' >main.go; "
         "GOFLAGS=-mod=mod GOTOOLCHAIN=local go build -o probe . && ./probe"),
    Tool("strace", "strace -f -o log true && grep -q execve log"),
    Tool("git over ssh", _SSH, note="to any other machine"),
    Tool("unshare with a host name", "test \"$(unshare -Ur --uts sh -c "
         "'hostname inner; hostname')\" = inner"),
    Tool("user, mount and pid namespaces", "unshare -Urmpf --mount-proc sh -c 'test $$ = 1'"),
    Tool("bwrap", "bwrap --ro-bind / / --unshare-all true", note="the build of nixpkgs; one that "
         "was told to assume a new kernel, like that of Debian forky, needs `openat2`, which "
         "`RestrictSUIDSGID` blocks"),
    Tool("tar, zip", "echo x >f; tar -czf f.tar.gz f; tar -xzf f.tar.gz; test -s f"),
    Tool("tmux", "tmux -L probe -f /dev/null new-session -d 'touch done; sleep 0.1'; "
         "until [ -e done ]; do sleep 0.1; done", note="a server of one's own"),
    Tool("sudo of an allowed command", "sudo -n /run/current-system/sw/bin/systemctl reload "
         "agent-box-sudo-probe.service", note="exactly as listed", user="alice"),
    Tool("sudo without a list", "sudo -n true", works=False, note="`NoNewPrivileges`"),
    Tool("chmod u+s", "touch f && chmod u+s f", works=False, note="`RestrictSUIDSGID`"),
    Tool("perf, bpf", "python3 -c 'import ctypes; l = ctypes.CDLL(None); "
         "assert l.syscall(298, 0, 0, -1, -1, 0) >= 0 or l.syscall(321, 0, 0, 0) >= 0'",
         works=False, note="system call filter"),
    Tool("systemctl, systemd-run", "systemctl is-active dbus.socket || systemd-run --user true",
         works=False, note="the buses are hidden"),
    Tool("mount, chroot outside of a namespace of one's own", "mount -t tmpfs none . || chroot /",
         works=False, note="no capabilities"),
)  # fmt: skip


def markdown() -> str:
    """The table as docs/security.md shows it."""
    rows = ["| tool | inside a session | |", "| --- | --- | --- |"]
    rows += (
        f"| {tool.name} | {'works' if tool.works else 'blocked'} | {tool.note} |" for tool in TOOLS
    )
    return "\n".join(rows)


def between_markers(readme: str) -> str:
    """The table that a page holds; empty where it has none."""
    _, _, rest = readme.partition(BEGIN)
    return rest.partition(END)[0].strip()
