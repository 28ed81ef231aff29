"""agent-box-notify: asks the cloud for notices and carries out what follows from them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time

from agent_box import config
from agent_box.errors import AgentBoxError
from agent_box.notify import ec2
from agent_box.notify.tell import tell
from agent_box.notify.watch import Notice, Start, Step, Stop, Tell, Watch

log = logging.getLogger(__name__)

SELDOM = 60.0
"""Seconds between two looks for what is announced days ahead."""

FIRST_RETRY, LAST_RETRY = 1.0, 30.0
"""Seconds between attempts to reach the service: it may come up after the machine."""

SYSTEMCTL_TIMEOUT = 90.0


class Monitor:
    """Polls the metadata service of one machine."""

    def __init__(self, box: config.Box, cloud: config.Cloud, metadata: ec2.Metadata) -> None:
        self.box = box
        self.cloud = cloud
        self.metadata = metadata
        self.watch = Watch(cloud.grace_period, cloud.message)
        self.spot: bool | None = None
        """Whether the machine can be taken away; None until that is known."""
        self._looked = float("-inf")
        self._retry = FIRST_RETRY

    def once(self) -> float:
        """Look once, act, and return the seconds until the next look."""
        try:
            self._look()
        except ec2.MetadataError as error:
            log.log(logging.WARNING if self.spot else logging.INFO, "metadata service: %s", error)
            self._carry_out(self.watch.due(time.time()))
            self._retry = min(self._retry * 2, LAST_RETRY)
            return min(self._retry, self.cloud.poll_interval) if self.spot else self._retry
        self._retry = FIRST_RETRY
        return self.cloud.poll_interval if self.spot else SELDOM

    def _look(self) -> None:
        if self.spot is None:
            self.spot = self.metadata.get("instance-life-cycle") == "spot"
            log.info("a Spot instance" if self.spot else "not a Spot instance")
        if self.spot:
            found = ec2.interruption(self.metadata)
            self._carry_out(self.watch.seen(found, time.time()))
        if time.monotonic() - self._looked < SELDOM:
            return
        # What is only told never keeps the notice above from being seen.
        notices: list[Notice] = ec2.maintenance(self.metadata)
        if self.spot and (recommended := ec2.rebalance(self.metadata)) is not None:
            notices.append(recommended)
        self._looked = time.monotonic()
        for notice in notices:
            self._carry_out(self.watch.heard(notice))

    def _carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Tell(text):
                    tell(self.box, text, min(20.0, self.cloud.grace_period / 2))
                    os.sync()
                case Stop():
                    log.warning("stopping the sessions of all users")
                    self._systemctl("stop")
                    os.sync()
                case Start():
                    log.info("starting the sessions of all users again")
                    self._systemctl("start")

    def _systemctl(self, verb: str) -> None:
        units = [f"agent-box-{user}.service" for user in self.box.users]
        try:
            subprocess.run(["systemctl", verb, *units], check=True, timeout=SYSTEMCTL_TIMEOUT)
        except (OSError, subprocess.SubprocessError) as error:
            log.error("systemctl %s: %s", verb, error)


def main() -> int:
    """Watch until the machine goes; exit 0 at once where there is nothing to watch."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        box = config.load()
    except AgentBoxError as error:
        sys.stderr.write(f"agent-box-notify: {error}\n")
        return error.exit_code
    if box.cloud is None or (box.cloud.provider == "auto" and not ec2.is_ec2()):
        log.info("not on EC2: nothing to watch")
        return 0
    monitor = Monitor(box, box.cloud, ec2.Metadata())
    while True:
        time.sleep(monitor.once())


if __name__ == "__main__":
    sys.exit(main())
