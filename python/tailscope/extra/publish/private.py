"""Private parts of texts: rules of ours, and beside them those of detect-secrets."""

from __future__ import annotations

import base64
import binascii
import os
import pwd
import re
import socket
from contextlib import suppress
from functools import cache, lru_cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.high_entropy_strings import (
    Base64HighEntropyString,
    HexHighEntropyString,
)
from detect_secrets.plugins.ip_public import IPPublicDetector
from detect_secrets.plugins.keyword import DENYLIST
from detect_secrets.plugins.npm import NpmDetector
from detect_secrets.settings import default_settings, get_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REMOVED = "(removed)"
FOLDER = "folder"
ACCOUNT = "account"
ARGUMENT = "argument of a program"
NAMED = "named like a secret"
_SOMEWHERE = "…"

_SYSTEM = ("sys", "proc", "dev", "usr", "lib", "bin", "sbin", "boot")
"""Folders that every machine has: what lies in them says nothing about whose it is."""
_HOMES = ("home", "Users")

_KEYS = (
    "access|account|activation|api|auth|client|crypto?|database|db|decryption|encryption|licen[cs]e"
    r"|luks\.?|master|pre-?shared|private|service|session|shared|sign(?:ing)?|ssh|storage|tls|wep|wifi"
    "|wpa"
)
_WORDS = "|".join(
    (
        *DENYLIST,
        r"pass(?:word|wd|phrase|code|key)",
        r"(?:ssh|pg|(?<![a-z]))pass(?![a-z])",
        r"(?:wpa|(?<![a-z]))psk(?![a-z])",
        r"(?<![a-z])pw(?![a-z])",
        r"secret|token|credential|authorization",
        rf"(?:{_KEYS})[-_ ]?key",
        r"(?<![a-z])(?:o?auth2?|bearer|cookies?|creds?|jwt)(?![a-z])",
        r"sess(?:ion)?[-_]?id(?![a-z])",
        r"(?<![\w.])sig(?!\w)",
        r"(?:amz|goog)-signature",
        r"snmp[-_ ]?community",
    )
)
"""Parts of names of secrets: ``auth`` is one, ``author`` and ``tcp_syncookies`` are none."""
_NAME_AROUND = r"[\w-]{0,64}"
_VALUE = (
    r"(?!(?:yes|no|true|false|on|off|none|null)(?![^\s,;&]))"
    rf"({re.escape(REMOVED)}|\\?\"[^\"]*\"|\\?'[^']*'"
    r"|[^\s,;&]+)"
)
"""A value; that of a setting that is on or off is no secret."""

SECRET_NAME = re.compile(rf"(?i){_WORDS}")
SECRET_OPTION = re.compile(rf"(?i)-{{1,2}}{_NAME_AROUND}(?:{_WORDS}){_NAME_AROUND}")

_NAMED_VALUE = re.compile(
    rf"(?i)((?:{_WORDS}){_NAME_AROUND}(?:\\?[\"'])?\s*(?:=>|[=:])\s*"
    rf"|(?<!\S)-{{1,2}}{_NAME_AROUND}(?:{_WORDS}){_NAME_AROUND}\s+(?!-)){_VALUE}"
)
_NAMED_ELEMENT = re.compile(
    rf"(?i)(<[\w:-]{{0,64}}(?:{_WORDS})[\w:-]{{0,64}}(?:\s[^<>]*)?>)[^<]+(?=</)"
)
_NAMED_NEXT = re.compile(
    r"(?i)((?<![\w-])(?:password|passwd|passphrase|passcode|pwd|psk|secret|token)\s+)"
    r"(?=\S*[a-z])(?=\S*\d)(?!\d[\d.,]*[a-z/%]*(?!\S))\S{6,}"
)
"""The name of a secret, followed by a word that is neither one of a language nor a quantity."""
_HEADER = re.compile(
    r"(?i)((?:authorization|(?<![a-z])cookie2?)(?:\\?[\"'])?\s*[=:]\s*"
    r"|(?<!\S)-{1,2}[\w-]{0,64}authorization\s+)[^\n]+"
)
"""Its scheme and what follows: any number of words, up to the end of the line."""
_BEARER = re.compile(rf"(?i)((?<![\w-])bearer\s+)(?!{re.escape(REMOVED)})[\w.~+/-]+=*")
_BASIC = re.compile(r"(?i)((?<![\w-])basic\s+)([a-z0-9+/]{4,}={0,2})")
_PRIVATE_KEY = re.compile(
    r"(?s)-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}.*?(?:-{4,5} ?END [^-]*-{4,5}|\Z)"
    r"|PuTTY-User-Key-File-\d.*"
)
_FORM = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[oprsu]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|hf_[A-Za-z0-9]{8,}|npm_[A-Za-z0-9]{16,}"
    r"|sk-[\w-]{16,}|[rs]k_(?:live|test)_\w{8,}|pypi-[\w-]{16,}|dckr_pat_[\w-]{8,}|dop_v1_\w{8,}"
    r"|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|AIza[\w-]{30,}|ya29\.[\w-]{8,}|hv[bs]\.[\w-]{8,}"
    r"|tskey-[\w-]{8,}|AGE-SECRET-KEY-1\w+|eyJ[\w-]{8,}(?:\.[\w-]*)*"
    r"|\$(?:1|2[aby]|5|6|7|y|apr1)\$[\w./$=,]{8,})"
)
"""Tokens and hashes of passwords that begin as no other word does, where the rules of
detect-secrets know another length, or nothing."""

_USER_IN_ADDRESS = re.compile(r"(?<=://)(?:[^/\s@]+|[^/\s@:]+:[^\s@]{0,200})@")
_AT = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-][\w.-]*")
_LOGIN = re.compile(
    r"((?<![A-Za-z])(?:USER|LOGNAME|SUDO_USER|HOSTNAME|(?i:login))=|(?i:user[-_]?name)\s*[=:]\s*)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
)
_HOME_OF = re.compile(r"(?<![\w/~.])~[a-z_][\w-]*(?![\w/-])")
_IN_HOMES = re.compile(r"(?:(?<=/home/)|(?<=/Users/))[^/\s\"'(…]+")

_PATH = re.compile(r"(?<![\w.)\]/…])(~[\w.-]*)?((?:/[^\s/,:;=\"'()\[\]{}<>|&]+)+/?)")
_QUOTED_PATH = re.compile(r"([\"'])([~/][^\"'\n]*)\1")
_FILE_ADDRESS = re.compile(r"(?i)(?<=file://)[^/\s]*(/[^\s\"'<>]*)")
_WINDOWS_PATH = re.compile(r"(?i)(?<![a-z0-9])[a-z]:(\\[^\s\"'<>|]+)")

_PROGRAMS = {
    "curl": "EUbu",
    "ipmitool": "PUk",
    "ldapsearch": "w",
    "mariadb": "p",
    "mysql": "p",
    "mysqladmin": "p",
    "mysqldump": "p",
    "redis-cli": "a",
    "smbclient": "U",
    "snmpget": "AXc",
    "snmpwalk": "AXc",
    "sshpass": "p",
    "unzip": "P",
    "zip": "P",
}
"""Programs, and the letters of their options that are followed by a secret or an account."""
_ENDS = frozenset("|;&\n")
_LINE_GOES_ON = "\\\n"
_SHELL_WORD = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|\\\n|[^\s|;&]+|[|;&\n]")
_USER_OPTION = re.compile(r"-[Uu]|--(?:proxy-)?user(?:name)?")
_ANYTHING = re.compile(r"(?s).+")
_WITH_PASSWORD = re.compile(r"(?s)(?!\d+:\d+\Z|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:)[^:]+:(?!/).+")
"""A name with a password: neither two numbers, nor the address of a card or of a page."""

_RANDOM_FROM_BITS = 4.0
"""Shannon entropy of a character, from which a word looks random."""
_LONG_WORD = re.compile(r"(?<![\w+/-])(?!/)[\w+/-]{20,}={0,2}", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_ALREADY = re.compile(rf"{_NAME_AROUND}(?:\\?[\"'])?\s*(?:=>|[=:>])?\s*{re.escape(REMOVED)}")
_PUBLIC_ADDRESS = IPPublicDetector()
_BASE64_WORD = Base64HighEntropyString()
_HEX_WORD = HexHighEntropyString()


_PASSES = 5
"""Passes through the rules: what one leaves, another one before it may know."""


class _Rule(NamedTuple):
    what: str
    """Kind of text that it takes out."""
    applied: Callable[[str], str]


@lru_cache(maxsize=1 << 15)
def without_private(text: str) -> tuple[str, tuple[str, ...]]:
    """A text without what is private, and what that was."""
    found: list[str] = []
    for _ in range(_PASSES):
        before = text
        for rule in _rules():
            left = rule.applied(text)
            if left != text:
                found.append(rule.what)
            text = left
        if text == before:
            break
    return text, tuple(dict.fromkeys(found))


@cache
def _rules() -> tuple[_Rule, ...]:
    """All rules, in their order."""
    return (
        _Rule("user of an address", partial(_USER_IN_ADDRESS.sub, "")),
        _Rule("private key", partial(_PRIVATE_KEY.sub, REMOVED)),
        _Rule("authorization or cookie", partial(_HEADER.sub, rf"\1{REMOVED}")),
        _Rule("authorization or cookie", partial(_BEARER.sub, rf"\1{REMOVED}")),
        _Rule("authorization or cookie", partial(_BASIC.sub, _without_basic)),
        _Rule(NAMED, partial(_NAMED_VALUE.sub, rf"\1{REMOVED}")),
        _Rule(NAMED, partial(_NAMED_ELEMENT.sub, rf"\1{REMOVED}")),
        _Rule(NAMED, partial(_NAMED_NEXT.sub, rf"\1{REMOVED}")),
        _Rule(ARGUMENT, _without_arguments),
        _Rule("token, by its form", partial(_FORM.sub, REMOVED)),
        *_kept_rules(),
        _Rule(ACCOUNT, partial(_AT.sub, REMOVED)),
        _Rule(ACCOUNT, partial(_LOGIN.sub, rf"\1{REMOVED}")),
        _Rule(FOLDER, _without_paths),
        _Rule(ACCOUNT, partial(_HOME_OF.sub, f"~{REMOVED}")),
        _Rule(ACCOUNT, partial(_IN_HOMES.sub, REMOVED)),
    )


def _kept_rules() -> Iterator[_Rule]:
    """Yield the rules of detect-secrets that know a secret by its form; none asks the network.

    An address is no secret, and that of npm is quadratic: what it finds is named like a secret.
    """
    others = (IPPublicDetector, NpmDetector)
    with default_settings():
        plugins = get_plugins()
    for plugin in plugins:
        if isinstance(plugin, RegexBasedDetector) and not isinstance(plugin, others):
            for pattern in plugin.denylist:
                yield _Rule(plugin.secret_type, partial(pattern.sub, _without_secret))


def _without_secret(match: re.Match[str]) -> str:
    """Some patterns match what stands around a secret as well."""
    return match[0].replace(match[0].strip(" \t\r\n=:\"'"), REMOVED, 1)


def _without_basic(match: re.Match[str]) -> str:
    """Remove what decodes to a user and a password; ``basic forwarding`` does not."""
    try:
        is_account = b":" in base64.b64decode(match[2] + "=" * (-len(match[2]) % 4), validate=True)
    except binascii.Error:
        is_account = False
    return f"{match[1]}{REMOVED}" if is_account else match[0]


def _without_arguments(text: str) -> str:
    if not re.search(r"(?<!\S)-", text):
        return text
    words = [*_SHELL_WORD.finditer(text)]
    parts, end = [], 0
    for word, left in zip(words, without_arguments([word[0] for word in words]), strict=True):
        parts += [text[end : word.start()], left]
        end = word.end()
    return "".join([*parts, text[end:]])


def without_arguments(words: Sequence[str]) -> list[str]:
    """Words of commands without accounts and secrets of programs whose options are known."""
    found: list[str] = []
    letters = ""
    awaited: re.Pattern[str] | None = None
    for word in words:
        if word == _LINE_GOES_ON:
            left = word
        elif awaited is not None and word not in _ENDS and awaited.fullmatch(word):
            left, awaited = REMOVED, None
        else:
            letters = "" if word in _ENDS else _PROGRAMS.get(_program(word), letters)
            left, awaited = _option(word, letters)
        found.append(left)
    return found


def _program(word: str) -> str:
    return word.strip("\"'").rpartition("/")[2]


def _option(word: str, letters: str) -> tuple[str, re.Pattern[str] | None]:
    """An option without its secret; or what to take out of the next word."""
    if letters and (match := re.match(rf"(?s)(-[A-Za-z]*?[{letters}])(.*)", word)):
        return (f"{match[1]}{REMOVED}", None) if match[2] else (word, _ANYTHING)
    if _USER_OPTION.fullmatch(word):
        return word, _WITH_PASSWORD
    name, _, value = word.partition("=")
    if _USER_OPTION.fullmatch(name) and _WITH_PASSWORD.fullmatch(value):
        return f"{name}={REMOVED}", None
    return word, None


def _without_paths(text: str) -> str:
    if _is_path(text):
        return _without_folders(text)
    # A home may have a blank in it, which ends a path elsewhere.
    text = text.replace(_home(), "~/")
    text = _FILE_ADDRESS.sub(lambda match: _without_folders(match[1]), text)
    text = _WINDOWS_PATH.sub(lambda match: _without_folders(re.sub(r"\\+", "/", match[1])), text)
    text = _QUOTED_PATH.sub(lambda match: f"{match[1]}{_without_paths(match[2])}{match[1]}", text)
    return _PATH.sub(lambda match: _without_folders(match[0]), text)


@cache
def _home() -> str:
    return f"{Path.home()}/"


def _is_path(text: str) -> bool:
    """Return whether a text is one path and nothing else: it may hold blanks then."""
    return text.startswith(("/", "~/")) and "\n" not in text and " /" not in text[1:]


def _without_folders(path: str) -> str:
    parts = path.rstrip("/").split("/")
    if parts[0] == "" and len(parts) > 1 and parts[1] in _SYSTEM:
        return path
    is_home = len(parts) > 1 and parts[-2] in _HOMES
    return f"{_SOMEWHERE}/{REMOVED if is_home else parts[-1]}"


@lru_cache(maxsize=1 << 15)
def odd_in(text: str) -> tuple[tuple[str, str], ...]:
    """Return what is left in a text and may be private after all: why, and the word."""
    return tuple(_odd_in(text))


def _odd_in(text: str) -> Iterator[tuple[str, str]]:
    if not SECRET_OPTION.fullmatch(text):
        for match in SECRET_NAME.finditer(text):
            is_verb = match[0].lower() == "pass"
            if not is_verb and not _ALREADY.match(text, match.end()):
                yield "names a secret", match[0]
    for match in _LONG_WORD.finditer(text):
        if _is_random(match[0]):
            yield "looks random", match[0]
    for address in _PUBLIC_ADDRESS.analyze_string(text):
        if ip_address(address.partition(":")[0]).is_global:
            yield "public address", address
    for name in _own_names():
        if re.search(rf"(?i)(?<![\w-]){re.escape(name)}(?![\w-])", text):
            yield "name of this machine or of its user", name


def _is_random(word: str) -> bool:
    if _HEX.fullmatch(word):
        return _HEX_WORD.calculate_shannon_entropy(word) > _HEX_WORD.entropy_limit
    is_mixed = all(re.search(kind, word) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return is_mixed and _BASE64_WORD.calculate_shannon_entropy(word) > _RANDOM_FROM_BITS


@cache
def _own_names() -> tuple[str, ...]:
    found = {socket.gethostname(), os.environ.get("SUDO_USER", "")}
    with suppress(KeyError):
        found.add(pwd.getpwuid(os.getuid()).pw_name)
    return tuple(sorted(name for name in found - {"root", "localhost"} if len(name) > 2))
