"""What is private in texts goes, whatever it looks like; figures, checksums and names stay."""

from __future__ import annotations

import json
import secrets
import socket
import string
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from detect_secrets.plugins.keyword import DENYLIST
from hypothesis import given
from hypothesis import strategies as st

from tailscope.extra.publish.neutral import REMOVED, Review, neutral, neutral_text
from tailscope.extra.publish.private import SECRET_NAME, odd_in, without_private
from tailscope.host.knobs.catalogue import KNOBS

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[3] / "docs"
EXPERIMENT = Path(__file__).parents[3] / "experiments" / "schema.json"

X = "hunter2hunter"
"""The secret of most texts."""

GITHUB, HUGGING_FACE = f"ghp_{'a1B2' * 9}", f"hf_{'Zy9x' * 8}"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"MYSQL_PWD={X} mysql lab", X),
        (f"pwd={X}", X),
        (f"DbPwd: {X}", X),
        (f"wpa_psk={X}", X),
        (f"psk={X}", X),
        (f"psk: '{X} {X}'", X),
        (f"//registry.example/:_authToken={X}", X),
        (f"--auth={X}", X),
        (f"--auth {X} next", X),
        (f"auth: {X}", X),
        (f"--oauth2-bearer {X}", X),
        (f"encryption_key={X}", X),
        (f"EncryptionKey: {X}", X),
        (f"--signing-key={X}", X),
        (f"rd.luks.key={X}", X),
        (f"PresharedKey = {X}", X),
        (f"https://store.example/f?sv=1&sig={X}&se=2", X),
        (f"https://s3.example/f?X-Amz-Signature={X}", X),
        (f"Bearer {X}", X),
        (f"curl -H 'X: Bearer {X}' https://lab", X),
        ("Basic amFuZTpodW50ZXIy", "amFuZTpodW50ZXIy"),
        (f"Cookie: session={X}; more={X}", X),
        (f"Set-Cookie: a={X}", X),
        (f"--cookie {X}", X),
        (f"PHPSESSID={X}", X),
        (f"curl -u jane:{X} https://lab/x", X),
        (f"curl -su jane:{X} https://lab/x", X),
        (f"/usr/bin/curl -ujane:{X} https://lab/x", X),
        (f'curl -u "jane:{X} {X}" https://lab/x', X),
        (f"curl \\\n  -u \\\n  jane:{X}", X),
        (f"wget --user=jane:{X} https://lab/x", X),
        (f"http --proxy-user jane:{X} lab", X),
        (f"sshpass -p {X} ssh lab", X),
        (f"sshpass -p{X} ssh lab", X),
        (f"mysqldump -h lab -p{X} runs", X),
        (f"redis-cli -a {X} get x", X),
        (f"ipmitool -H bmc -U root -P {X} dcmi power reading", X),
        (f"true; ipmitool -P {X} sol", X),
        (f"snmpwalk -v2c -c {X} lab", X),
        (f"clone with {GITHUB} please", GITHUB),
        ("ghp_abcdefghij0123", "ghp_abcdefghij0123"),
        ("github_pat_11ABCDEFG_abcdefghij", "abcdefghij"),
        (f"login {HUGGING_FACE}", HUGGING_FACE),
        ("glpat-abcdefghij0123456789", "abcdefghij0123456789"),
        ("sk-ant-api03-abcdefghijklmnop", "abcdefghijklmnop"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("xoxb-123456789012-abcdefghij", "abcdefghij"),
        ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnop"),
        (f"seen {JWT} there", JWT),
        ("root:$6$salt$abcdefghijklmnop:1::", "abcdefghijklmnop"),
        (f"<password>{X}</password>", X),
        (f"<snmpCommunity name='a'><authKey x='1'>{X}</authKey>", X),
        (f'{{\\"token\\": \\"{X} {X}\\"}}', X),
        (f"password => {X}", X),
        (f"machine lab login jane password {X}", X),
        (f"enable secret {X}", X),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc\n-----END PGP PRIVATE KEY BLOCK-----", "abc"),
        ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nabc\n---- END SSH2 X ----", "abc"),
        ("PuTTY-User-Key-File-3: ssh-rsa\nabc", "abc"),
        (f"postgres://jane:{X}/{X}@db/x", X),
        (f"postgres://jane:{X}@{X}@db/x", X),
        ("file:///home/jane", "jane"),
        ("file:///home/jane/run/x.pcap", "jane"),
        ("file://lab3/home/jane/x", "lab3"),
        ("/home/jane", "jane"),
        ("in ../home/jane/x", "jane"),
        ("lab3:/home/jane/x.pcap", "jane"),
        ("PATH=/usr/bin:/home/jane/bin", "jane"),
        ("sftp:/" + "/lab/home/" + "jane/x", "jane"),
        ("read '/data/jane doe/x.pcap' twice", "doe"),
        ("in ~jane and", "jane"),
        ("C:\\Users\\jane\\x.pcap", "jane"),
        ("C:\\\\Users\\\\jane", "jane"),
        ("USER=jane SUDO_USER=jane run", "jane"),
        ("username: jane", "jane"),
    ],
)
def test_secrets_go(text: str, secret: str) -> None:
    left = neutral_text(text)
    assert secret not in left
    assert neutral_text(left) == left


@pytest.mark.parametrize(
    "words",
    [
        ["curl", "-s", "-u", f"jane:{X}", "lab"],
        ["/usr/bin/curl", f"-ujane:{X}"],
        ["x", "--user", f"jane:{X}"],
        ["x", f"--user=jane:{X}"],
        ["sshpass", "-p", X, "ssh"],
        ["ipmitool", "-P", X],
        ["x", "--auth", X],
        ["bash", "-c", f"curl -u jane:{X} lab"],
        [["mysql", f"-p{X}"], ["x"]],
        ["x", {"psk": X, "sig": X, "MYSQL_PWD": X, "auth": [X], "cookies": {"a": X}}],
        ["x", {"user": X, "username": X, "ssh": X}],
    ],
)
def test_secrets_of_command_lines_go(words: list[Any]) -> None:
    left = neutral(words)
    assert X not in json.dumps(left)
    assert REMOVED in json.dumps(left)
    assert neutral(left) == left


@pytest.mark.parametrize("word", DENYLIST)
def test_names_of_the_kept_rules_are_known(word: str) -> None:
    for name in (word.replace("?", ""), word.replace("_?", "").upper()):
        assert neutral_text(f"LAB_{name}=abc def") == f"LAB_{name}={REMOVED} def"
        assert neutral({name: "abc"}) == {name: REMOVED}


@pytest.mark.parametrize(
    "text",
    [
        "quiet nohz_full=1 isolcpus=managed_irq,1 module.sig_enforce=1 net.ipv4.tcp_syncookies=1",
        "BOOT_IMAGE=/boot/vmlinuz-6.1.0-18-amd64 root=UUID=0f5e8a3c-6a5e-4d55-9d4e-0c8f4e2b7a11 ro",
        "usbcore.authorized_default=1 secretmem.enable=1 random.trust_cpu=on ima_hash=sha256",
        "author: the authors of limbo2022",
        "basic forwarding between two ports",
        "rate=10k,dut_options.batch=32,r=1",
        "--vdev=net_memif0,role=server,id=0",
        "testpmd -u 0000:01:00.0 -- -i --rxq=2",
        "docker run -u 1000:1000 --cpus 2",
        "signal=SIGTERM sigma_ns: 12 significance=0.05",
        "p99.9 is 3.137 µs at 10 packets/s (1/2 of them)",
        "packet keys: 52 bytes; key=payload",
        "hosts: 192.168.1.0/24 routes to 0000:01:00.0",
        "a token bucket of 10kbit",
        "the password is asked for",
        "passwords: yes, honor-pass-rules: no; --auth none",
        "~10k packets/s, or ~5 %",
        "tailscope 0.1.0 (9f57e0b73aefa59e605422cc9e904eceafca0cc8)",
        "Intel(R) Xeon(R) CPU E5-2620 v4 @ 2.10GHz",
        "GenuineIntel-6-4F-1 microcode 0xb000040",
        "DPDK 22.11.4 / suricata-7.0.3, libpcap-1.10.4-1+b1",
        "https:/" + "/docs.kernel.org/timers/no_hz.html",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ],
)
def test_what_is_not_private_stays(text: str) -> None:
    assert neutral_text(text) == text


@given(st.binary(min_size=16, max_size=64), st.sampled_from(["{}", "sha256: {}", "12,345  {}"]))
def test_checksums_stay(digest: bytes, form: str) -> None:
    text = form.format(digest.hex())
    assert neutral_text(text) == text
    record = {"files": {"summary.json": {"size_bytes": 1, "sha256": digest.hex()}}}
    review = Review()
    assert neutral(record, review=review, where="run.json") == record
    assert not review.removed
    assert not review.odd


@given(st.uuids())
def test_identifiers_stay(number: Any) -> None:
    assert neutral_text(f"root=UUID={number}") == f"root=UUID={number}"
    assert not [*odd_in(f"root=UUID={number}")]


@given(st.text(alphabet=st.sampled_from("ab1:/~@=-'\" .\\\n(é…") | st.characters(), max_size=60))
def test_whatever_the_text_what_is_left_stays(text: str) -> None:
    left = neutral_text(text)
    assert neutral_text(left) == left


def test_nobody_is_asked_whether_a_secret_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of detect-secrets can: they would send the secret to its issuer."""

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", asked)
    monkeypatch.setattr(socket, "getaddrinfo", asked)
    for text in ("AKIAIOSFODNN7EXAMPLE", f"sk_live_{'a1B2' * 6}", "0123456789:" + "a1B2c" * 7):
        without_private.cache_clear()
        assert neutral_text(f"x {text} y") == f"x {REMOVED} y"


@pytest.mark.parametrize("unit", ["a", "/", "-", "secret-", "'", "://", "a@", "<token", "eyJ"])
def test_a_long_word_takes_no_longer_than_a_long_text(unit: str) -> None:
    def seconds(part: str) -> float:
        without_private.cache_clear()
        before = time.process_time()
        neutral_text(part * (60_000 // len(part)))
        return time.process_time() - before

    assert seconds(unit) < 30 * seconds("two words ")


def _properties(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for each in schema.values():
            yield from _properties(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _properties(each)


def test_no_field_of_ours_is_called_like_a_secret() -> None:
    """What it holds would be lost, and a number could not be read back."""
    paths = [
        EXPERIMENT,
        *DOCS.glob("reference/schemas/*.json"),
        *DOCS.glob("extra/*/schemas/*.json"),
    ]
    names = {name for path in paths for name in _properties(json.loads(path.read_text()))}
    assert len(names) > 300
    assert not {
        name for name in {*names, *(knob.name for knob in KNOBS)} if SECRET_NAME.search(name)
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a token bucket", "names a secret: token"),
        ("--set password", "names a secret: password"),
        ("key 8f434346648f6b96df89dda901c5176b", "looks random: 8f434346648f6b96df89dda901c5176b"),
        ("x Kq3vT9pLw2ZbN8rXc5Yd7Hs1 y", "looks random: Kq3vT9pLw2ZbN8rXc5Yd7Hs1"),
        ("to 8.8.8.8:53", "public address: 8.8.8.8:53"),
    ],
)
def test_what_looks_odd_is_said(text: str, why: str) -> None:
    assert [f"{reason}: {word}" for reason, word in odd_in(text)] == [why]


def test_random_words_are_odd() -> None:
    letters = string.ascii_letters + string.digits
    words = ["".join(secrets.choice(letters) for _ in range(40)) for _ in range(100)]
    assert sum(bool([*odd_in(f"x {word} y")]) for word in words) >= 95


@pytest.mark.parametrize(
    "text",
    [
        "--password",
        f"--password={REMOVED}",
        "rules pass, drop, or reject",
        f"TOKEN: {REMOVED}",
        "to 192.168.1.1, 10.0.0.1, 198.18.0.1 and 127.0.0.1",
        "/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_memif.so",
        "--vdev=net_memif0,socket=…/memif",
        "BOOT_IMAGE=/boot/vmlinuz-6.1.0-18-amd64 root=/dev/sda1 ro quiet",
    ],
)
def test_what_is_usual_is_not_odd(text: str) -> None:
    assert not [*odd_in(text)]


def test_the_name_of_this_machine_is_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailscope.extra.publish import private

    private.odd_in.cache_clear()
    monkeypatch.setattr(private, "_own_names", lambda: ("lab3",))
    assert [shown for _, shown in odd_in("on LAB3.")] == ["lab3"]
    assert not [*odd_in("on lab33")]


def test_a_review_says_where_and_what() -> None:
    review = Review()
    record = {
        "dut": {"configuration": ["curl", "-u", f"jane:{X}", "/opt/jane/x", f"a\npsk={X}\nb"]},
        "options": {"psk": X, "note": "a token bucket"},
        "hosts": {"dut": {"ssh": "lab3"}},
    }
    neutral([record, record], review=review, where="run.json")
    removed = {
        (each.where, each.shown): (each.what, count) for each, count in review.removed.items()
    }
    assert removed == {
        ("run.json[].dut.configuration[]", REMOVED): (("argument of a program",), 2),
        ("run.json[].dut.configuration[]", "…/x"): (("folder",), 2),
        ("run.json[].dut.configuration[]", f"psk={REMOVED}"): (("named like a secret",), 2),
        ("run.json[].options.psk", REMOVED): (("named like a secret",), 2),
        ("run.json[].hosts.dut.ssh", REMOVED): (("account",), 2),
    }
    ((odd, count),) = review.odd.items()
    assert (odd.where, odd.shown, odd.why, count) == (
        "run.json[].options.note",
        "a token bucket",
        ("names a secret: token",),
        2,
    )
