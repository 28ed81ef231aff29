"""Agents of a few lines of shell, for guests in which Python takes seconds to start.

Each keeps its conversations as the CLI whose place it takes does, as far as agent-box looks: the
same files, written in the same steps, and left to the kernel until that brings them to the disk.
What is not known is not resumed. Kickoff prompts are told by their beginning, `KICKOFF`; whatever
else is said is not written down.

opencode's database is kept by `churn.py`, which hears from `STORE` what to write: no program that
could is quick to start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent_box_harness.churn import AGENTS, KICKOFF, STORE

if TYPE_CHECKING:
    from agent_box_harness.box import Box

PATH = "/opt/brief-agent"

SOURCE = r"""#!/bin/sh
agent=${0##*/} id='' resumes='' prompt='' file=''
while [ $# -gt 0 ]; do
  case $agent$1 in
    claude--session-id|pi--session-id) id=$2; shift ;;
    claude--resume|opencode--session) id=$2 resumes=yes; shift ;;
    claude--) prompt=$2; break ;;
    codexresume) resumes=yes ;;
    codex--)
      if [ "$resumes" ]; then id=$2 prompt=$3; else prompt=$2; fi
      break ;;
    opencode--prompt=*) prompt=${1#*=} ;;
    pi--extension) shift ;;
    pi--*) ;;
    pi*) prompt=$1 ;;
  esac
  shift
done

# The file of the conversation, if there is one with a beginning.
seek() {
  for file; do
    if [ -e "$file" ] && read -r line <"$file" && [ "$line" ]; then return; fi
  done
  file=''
}
write() {
  printf '%s\n' "$1" >>"$file"
}
refuse() {
  echo "$1"
  exit 1
}
# Directory, time and milliseconds of a new file.
begin() {
  set -- $(date -u '+%Y/%m/%d %Y-%m-%dT%H-%M-%S %s%3N')
  day=$1 time=$2 millis=$(printf %012x "$3")
}

case $agent in
claude)
  file=$HOME/.claude/projects/-home-alice/$id.jsonl
  said=''
  if [ -e "$file" ]; then
    [ "$resumes" ] || refuse "$id is in use"
    while read -r line; do
      case $line in *'"user"'*) said=yes ;; esac
    done <"$file"
  fi
  if [ "$resumes" ] && [ ! "$said" ]; then refuse "nothing known of $id"; fi ;;
codex)
  if [ "$resumes" ]; then
    seek "$HOME"/.codex/sessions/*/*/*/rollout-*-"$id".jsonl
    [ "$file" ] || refuse "nothing known of $id"
  fi ;;
pi) seek "$HOME"/.pi/agent/sessions/--home-alice--/*_"$id".jsonl ;;
opencode) [ ! "$resumes" ] || echo "resume $id" >@store@ ;;
esac

case $prompt in
*'@kickoff@'*)
  case $agent in
  claude)
    [ -s "$file" ] || write '{"type":"mode","mode":"normal"}'
    write '{"type":"user","message":{"role":"user","content":"'"$prompt"'"}}' ;;
  codex)
    if [ ! "$file" ]; then
      begin
      read -r id </proc/sys/kernel/random/uuid
      id=${millis%????}-${millis#????????}-7${id#*-*-?}
      place=$HOME/.codex/sessions/$day
      [ -d "$place" ] || mkdir -p "$place"
      file=$place/rollout-$time-$id.jsonl
      write '{"type":"session_meta","payload":{"id":"'$id'","cwd":"'"$PWD"'","source":"cli"}}'
    fi
    write '{"type":"event_msg","payload":{"type":"user_message","message":"'"$prompt"'"}}' ;;
  pi)
    if [ ! "$file" ]; then
      begin
      file=$HOME/.pi/agent/sessions/--home-alice--/$time-$$_$id.jsonl
      write '{"type":"session","version":3,"id":"'"$id"'","cwd":"'"$PWD"'"}'
    fi
    text='[{"type":"text","text":"'"$prompt"'"}]'
    write '{"type":"message","message":{"role":"user","content":'"$text"'}}' ;;
  opencode) echo "say $PWD $prompt" >@store@ ;;
  esac ;;
esac
echo "at work: $prompt"
exec cat
""".replace("@store@", STORE).replace("@kickoff@", KICKOFF)


def install(box: Box) -> None:
    """Put them into the places of the CLIs."""
    links = [box.agent_link(agent) for agent in AGENTS]
    made = "; ".join(f"mkdir -p {Path(link).parent}; ln -sfn {PATH} {link}" for link in links)
    box.succeed(
        f"cat >{PATH}; chmod 755 {PATH}; rm -f {STORE}; mkfifo -m 666 {STORE}; {made}",
        stdin=SOURCE,
    )


def furnish(box: Box, user: str) -> None:
    """Put into a user's home what they need there."""
    for agent in AGENTS:
        box.sign_in(user, agent)
    box.as_user(
        user, "mkdir -p .claude/projects/-home-alice .pi/agent/sessions/--home-alice--"
    ).check()
