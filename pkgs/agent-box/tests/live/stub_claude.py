"""A stand-in for claude that tests can steer.

It keeps the promises that the runtime relies on: `--session-id` and `--resume`, the prompt after
`--`, and a transcript as soon as there is a message. Lines typed into it are commands.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def option(argv, name):
    return argv[argv.index(name) + 1] if name in argv else None


def transcript(conversation):
    path = Path(os.environ["HOME"], ".claude/projects/x", f"{conversation}.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def append(path, item):
    with path.open("a") as file:
        file.write(json.dumps(item) + "\n")


def record(conversation, kind, text):
    message = {"role": "user", "content": text}
    append(transcript(conversation), {"type": "user", "message": message, kind: text})


def obey(command, conversation):
    word, _, rest = command.strip().partition(" ")
    if word == "exit":
        sys.exit(int(rest))
    if word == "abandon":
        # Leave a child that keeps the terminal open.
        subprocess.Popen(["setsid", "sleep", "60"])
        os._exit(int(rest))
    if word == "deaf":
        time.sleep(0.2)
    elif word == "run":
        subprocess.run(rest, shell=True, check=False)
    elif word == "say":
        record(conversation, "said", rest)
    elif word == "prompt":
        record(conversation, "said", command.strip())
    elif word == "print":
        print(rest.replace("\\n", "\n"), flush=True)
    elif word == "later":
        seconds, _, command = rest.partition(" ")
        time.sleep(float(seconds))
        obey(command, conversation)
        return
    elif word == "work":
        # As a spinner does.
        for _ in range(10 * int(rest)):
            print(".", end="", flush=True)
            time.sleep(0.1)
    print(f"did {word}", flush=True)


def main():
    argv = sys.argv[1:]
    head = argv[: argv.index("--")] if "--" in argv else argv
    prompt = argv[argv.index("--") + 1] if "--" in argv else None
    resumed = option(head, "--resume")
    conversation = resumed or option(head, "--session-id")
    name = os.environ.get("AGENT_BOX_SESSION", "?")
    stub = Path(os.environ["HOME"], "stub")
    stub.mkdir(exist_ok=True)
    append(
        stub / f"{conversation}.launches",
        {
            "name": name,
            "resumed": bool(resumed),
            "pid": os.getpid(),
            "prompt": prompt,
            "env": os.environ.get("FROM_ENV_FILE"),
            "at": time.time(),
        },
    )
    print(f"stub {'resumed' if resumed else 'fresh'} {conversation}", flush=True)
    try:
        todo = (stub / f"{name}.start").read_text()
    except OSError:
        todo = ""
    if prompt is not None:
        if "slow" in todo:
            time.sleep(0.05)
        record(conversation, "prompt", prompt)
    for command in todo.splitlines():
        obey(command, conversation)
    for line in sys.stdin:
        obey(line, conversation)


main()
