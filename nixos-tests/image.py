# Boots the image that people build, and looks for what the README promises of it.
machine = create_machine("@start@", name="image")


def test() -> None:
    machine.start(allow_reboot=True)

    machine.wait_for_unit("multi-user.target")
    machine.wait_for_unit("agent-box-agent.service")
    machine.wait_for_unit("agent-box-supervisor-agent.service")

    ls = "su agent --login --command 'agent-box-session ls'"

    with subtest("the seed session is there"):
        machine.wait_until_succeeds(f"{ls} | grep --word-regexp main", timeout=120)

    with subtest("the console is the agent's"):
        machine.wait_until_succeeds("loginctl list-sessions --no-legend | grep 'agent .*tty1'")

    with subtest("the edge asks for a login"):
        machine.wait_for_unit("caddy.service")
        ask = "curl --silent --insecure --output /dev/null --write-out '%{http_code}' https://localhost/"
        machine.wait_until_succeeds(f"test $({ask}) = 401", timeout=120)

    with subtest("the disk is as large as the machine's"):
        machine.succeed("test $(df --output=size --block-size=1G / | tail -n 1) -ge 14")

    with subtest("nothing failed"):
        failed = machine.succeed("systemctl --failed --no-legend --plain")
        assert failed.strip() == "", failed

    with subtest("sessions outlive a reboot"):
        machine.succeed("su agent --login --command 'agent-box-session add kept --agent shell'")
        machine.reboot()
        machine.wait_for_unit("agent-box-supervisor-agent.service")
        machine.wait_until_succeeds(f"{ls} | grep --word-regexp kept", timeout=120)


try:
    test()
finally:
    # The driver ends the machines that it made itself only, and waits for all.
    machine.crash()
