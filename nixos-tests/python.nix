# Python with everything that both packages and their unit tests import.
{ python3 }:
python3.withPackages (
  packages: with packages; [
    asyncinotify
    hypothesis
    msgspec
    pexpect
    pytest
    pytest-asyncio
    pytest-xdist
    pyyaml
    requests
    tenacity
  ]
)
