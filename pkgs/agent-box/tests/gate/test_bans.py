"""Who is banned, as fail2ban's action notes it."""

from __future__ import annotations

from agent_box.gate import unbans


def test_the_latest_ban_comes_first_and_nonsense_is_passed_over(tmp_path):
    path = tmp_path / "list"
    path.write_text(
        "203.0.113.7 1700000000.5 3600\nbroken\n2001:db8:7:1::/64 1700000100 -1\n"
        "999.1.1.1 1 2\n203.0.113.7 1700000200 7200\n203.0.113.8 1700000050 x\n"
    )
    found = unbans.current(path)
    assert [(ban["address"], ban["unban"], ban["until"]) for ban in found] == [
        ("2001:db8:7:1::/64", "2001:db8:7:1::", None),
        ("203.0.113.7", "203.0.113.7", 1700007400.0),
    ]


def test_where_nothing_bans_nobody_is_banned(tmp_path):
    assert unbans.current(tmp_path / "list") == []
