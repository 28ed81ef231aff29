"""Lets `python -m agent_box.session_cli` stand for the installed command."""

from __future__ import annotations

import sys

from agent_box.session_cli import main

sys.exit(main())
