"""Keys, tokens, signatures: who asks, and what they may."""

import base64
import hmac
import json
import sys
from datetime import timedelta

import jwt
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurels import auth
from laurels.auth import (
    Keyring,
    Principal,
    may,
    may_read_player,
    new_key,
    require,
    signature_header,
    signed_token,
    signing_secret,
    with_new_secret,
)
from laurels.cursors import Cursors
from laurels.errors import Forbidden, InvalidCursor, InvalidInput, LaurelsError, NotFound, RateLimited, Unauthenticated
from laurels.windows import from_us

SECOND = 1_000_000
NOW_S = 1_800_000_000
NOW = NOW_S * SECOND
NONCE = "0123456789abcdef"
CLAIMS = {"iss": "laurels", "aud": "g", "sub": "amy", "iat": NOW_S, "exp": NOW_S + 3_600}

SERVER, SERVER_TEXT = new_key("server", "g", "", NOW)
SIGNER, SIGNER_TEXT = new_key("signer", "g", "", NOW)
OTHER_SIGNER, OTHER_TEXT = new_key("signer", "other", "", NOW)
OPERATOR, OPERATOR_TEXT = new_key("operator", None, "", NOW)
KEY_ID, SECRET = signing_secret(SIGNER_TEXT)
TOKEN = signed_token(KEY_ID, SECRET, "g", "amy", NOW_S, NOW_S + 3_600)


def keyring() -> Keyring:
    return Keyring([SERVER, SIGNER, OTHER_SIGNER, OPERATOR], started_us=NOW - 3_600 * SECOND)


# --- keys -------------------------------------------------------------------------------------------------------


def test_a_key_tells_who_sends_it():
    ring = keyring()
    for _ in range(2):  # also when it is remembered
        principal = ring.authenticate(SERVER_TEXT, NOW)
        assert (principal.kind, principal.game, principal.role) == ("key", "g", "server")
        assert principal.key_id == SERVER.key.key_id
    assert ring.authenticate(OPERATOR_TEXT, NOW).game is None


def test_no_secret_is_shown_or_kept():
    kept, text = new_key("admin", "g", "mine", NOW)
    secret = text.split("_", 2)[2]
    assert secret.encode() not in kept.proof
    for shown in (repr(kept), str(kept), repr(SIGNER), str(SIGNER)):
        assert "proof" not in shown
        assert SECRET.decode() not in shown
    with pytest.raises(TypeError):
        msgspec.json.encode(kept)
    for wrong in (SERVER_TEXT[:-1], SIGNER_TEXT, TOKEN[:-5]):
        with pytest.raises(Unauthenticated) as error:
            keyring().authenticate(wrong, NOW)
        assert wrong not in str(error.value)


def test_a_key_that_is_revoked_or_rotated_counts_no_more():
    ring = keyring()
    ring.authenticate(SERVER_TEXT, NOW)
    ring.authenticate(TOKEN, NOW)
    rotated, text = with_new_secret(SERVER.key)
    ring.put(rotated)
    with pytest.raises(Unauthenticated):
        ring.authenticate(SERVER_TEXT, NOW)
    assert ring.authenticate(text, NOW).role == "server"
    ring.remove(KEY_ID)
    with pytest.raises(Unauthenticated, match="no key"):
        ring.authenticate(TOKEN, NOW)
    ring.replace([OPERATOR])
    with pytest.raises(Unauthenticated):
        ring.authenticate(text, NOW)
    assert [key.key_id for key in ring.list()] == [OPERATOR.key.key_id]
    with pytest.raises(NotFound):
        ring.get(KEY_ID)


def test_a_key_expires_also_when_it_is_remembered():
    kept, text = new_key("read", "g", "", NOW, from_us(NOW + 10 * SECOND))
    ring = Keyring([kept])
    assert ring.authenticate(text, NOW + 10 * SECOND - 1).role == "read"
    with pytest.raises(Unauthenticated, match="expired"):
        ring.authenticate(text, NOW + 10 * SECOND)


@pytest.mark.parametrize(
    ("role", "game", "expires_at", "field"),
    [
        ("king", "g", None, "role"),
        ("player", "g", None, "role"),
        ("operator", "g", None, "game"),
        ("server", None, None, "game"),
        ("server", "g", from_us(NOW), "expires_at"),
        ("server", "g", from_us(NOW + SECOND).replace(tzinfo=None), "expires_at"),
    ],
)
def test_what_makes_no_key(role, game, expires_at, field):
    with pytest.raises(InvalidInput) as error:
        new_key(role, game, "", NOW, expires_at)
    assert error.value.field == field


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(auth, "KNOWN_MAX", 10)
    ring = keyring()
    for number in range(30):
        ring.authenticate(signed_token(KEY_ID, SECRET, "g", f"p{number}", NOW_S, NOW_S + 60), NOW)
    assert len(ring._known) == 10


# --- what they may ----------------------------------------------------------------------------------------------


def test_roles_reach_what_is_below_them_in_their_game():
    order = ["player", "read", "server", "admin", "operator"]
    for held, role in enumerate(order):
        game = None if role == "operator" else "g"
        principal = Principal(kind="key", game=game, role=role, key_id="k")
        for needed, needed_role in enumerate(order):
            assert may(principal, needed_role, "g") is (held >= needed)
            assert may(principal, needed_role, "other") is (role == "operator")
            assert may(principal, needed_role, None) is (role == "operator")
    signer = Principal(kind="key", game="g", role="signer", key_id="k")
    assert not any(may(signer, needed, "g") for needed in [*order, "signer"])
    with pytest.raises(Forbidden, match="needs the role admin"):
        require(Principal(kind="key", game="g", role="server", key_id="k"), "admin", "g")


def test_players_read_themselves():
    amy = keyring().authenticate(TOKEN, NOW)
    assert may_read_player(amy, "g", "amy")
    assert not may_read_player(amy, "g", "bob")
    assert not may_read_player(amy, "other", "amy")
    assert may_read_player(Principal(kind="key", game="g", role="read", key_id="k"), "g", "bob")


# --- players' tokens --------------------------------------------------------------------------------------------


def test_a_token_tells_the_player():
    ring = keyring()
    principal = ring.authenticate(TOKEN, NOW)
    assert (principal.kind, principal.game, principal.role, principal.player_id) == ("player", "g", "player", "amy")
    assert principal.key_id == KEY_ID
    assert ring.authenticate(TOKEN, NOW + 3_599 * SECOND) == principal
    with pytest.raises(Unauthenticated, match="expired"):
        ring.authenticate(TOKEN, NOW + 3_600 * SECOND)
    made, expires_at = ring.player_token(KEY_ID, "bob", NOW, 60)
    assert ring.authenticate(made, NOW).player_id == "bob"
    assert expires_at == from_us(NOW) + timedelta(seconds=60)
    for bad in (0, 86_401, True, 1.5):
        with pytest.raises(InvalidInput):
            ring.player_token(KEY_ID, "bob", NOW, bad)


def made(claims, header=None, secret=SECRET):
    return jwt.encode(claims, secret, algorithm="HS256", headers={"kid": KEY_ID, **(header or {})})


def of_algorithm(name, digest=None):
    """A token that says it is of another algorithm, rightly signed by it."""
    parts = [{"alg": name, "typ": "JWT", "kid": KEY_ID}, CLAIMS]
    text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    signature = hmac.digest(SECRET, text.encode(), digest) if digest else b""
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "lk_",
        "\ud800",
        "x" * 5_000,
        "." * 3_000,
        SIGNER_TEXT,
        OPERATOR_TEXT + "x",
        of_algorithm("none"),
        of_algorithm("none", "sha256"),
        of_algorithm("HS512", "sha512"),
        of_algorithm("HS512", "sha256"),
        made(CLAIMS, secret=b"x" * 43),
        made(CLAIMS, header={"kid": "aaaaaaaaaaaa"}),
        made(CLAIMS, header={"kid": SERVER.key.key_id}, secret=SERVER.proof),
        made(CLAIMS, header={"kid": OTHER_SIGNER.key.key_id}, secret=OTHER_SIGNER.proof),
        made(CLAIMS, header={"crit": ["exp"]}),
        made(CLAIMS, header={"jku": "https://example.com"}),
        made({**CLAIMS, "aud": "other"}),
        made({**CLAIMS, "aud": ["g", "other"]}),
        made({**CLAIMS, "iss": "somebody"}),
        made({**CLAIMS, "sub": ""}),
        made({**CLAIMS, "exp": NOW_S + 86_401}),
        made({**CLAIMS, "exp": NOW_S}),
        made({**CLAIMS, "exp": NOW_S - 1, "iat": NOW_S - 60}),
        made({**CLAIMS, "iat": NOW_S + 61}),
        made({**CLAIMS, "nbf": NOW_S + 61}),
        made({**CLAIMS, "exp": float("inf")}),
        *(made({name: value for name, value in CLAIMS.items() if name != left_out}) for left_out in CLAIMS),
    ],
)
def test_no_other_token_is_taken(token):
    with pytest.raises(Unauthenticated):
        keyring().authenticate(token, NOW)


CHARACTERS = st.sampled_from("ABCZabcz0189-_.+/= \n") | st.characters()


@given(
    text=st.sampled_from([TOKEN, SERVER_TEXT]),
    at=st.integers(0, 400),
    change=st.text(CHARACTERS, max_size=3),
    length=st.integers(0, 3),
)
def test_no_changed_token_is_taken(text, at, change, length):
    at %= len(text) + 1
    changed = text[:at] + change + text[at + length :]
    if changed == text:
        return
    with pytest.raises(Unauthenticated):
        keyring().authenticate(changed, NOW)


@given(st.text(max_size=300) | st.text("lk_.abcdefghij234567-", max_size=80))
def test_no_text_makes_anything_else_go_wrong(text):
    for call in (
        lambda: keyring().authenticate(text, NOW),
        lambda: keyring().check_signature(text, "POST", "/", b"", "g", NOW),
    ):
        with pytest.raises(Unauthenticated):
            call()


# --- signatures -------------------------------------------------------------------------------------------------


def signed(t=NOW_S, nonce=NONCE, method="POST", path="/v1/games/g/submissions", body=b"{}", text=SIGNER_TEXT):
    return signature_header(*signing_secret(text), t, nonce, method, path, body)


def check(ring, header, method="POST", path="/v1/games/g/submissions", body=b"{}", game="g", now=NOW):
    return ring.check_signature(header, method, path, body, game, now)


def test_a_signature_counts_once():
    ring = keyring()
    assert check(ring, signed()) == SIGNER.key
    with pytest.raises(Unauthenticated, match="before"):
        check(ring, signed())
    with pytest.raises(Unauthenticated, match="before"):
        check(ring, signed(t=NOW_S + 1))
    check(ring, signed(nonce=NONCE + "2"))
    assert check(ring, signed(t=NOW_S + 400), now=NOW + 400 * SECOND)  # the first is too old to be taken anyway


@pytest.mark.parametrize(
    ("header", "request_"),
    [
        (signed(), {"body": b"{ }"}),
        (signed(), {"method": "PUT"}),
        (signed(), {"path": "/v1/games/g/submissions/x"}),
        (signed(), {"game": "other"}),
        (signed(text=OTHER_TEXT), {}),
        (signed(text=SERVER_TEXT), {}),
        (signed(t=NOW_S - 300), {}),
        (signed(t=NOW_S + 6), {}),
        (signed(nonce="short"), {}),
        (signed().upper(), {}),
        (signed() + "\n", {}),
    ],
)
def test_no_other_signature_is_taken(header, request_):
    ring = keyring()
    with pytest.raises(Unauthenticated):
        check(ring, header, **request_)
    assert check(ring, signed())  # and what was refused used no nonce up


def test_what_was_signed_before_the_start_is_refused():
    ring = Keyring([SIGNER], started_us=NOW)
    with pytest.raises(Unauthenticated, match="this server"):
        check(ring, signed(t=NOW_S - 1))
    with pytest.raises(Unauthenticated, match="this server"):
        check(ring, signed(t=NOW_S + 4))  # it could have been taken before, from a clock that is ahead
    assert check(ring, signed(t=NOW_S + 5), now=NOW + 5 * SECOND)


def test_nonces_are_bounded(monkeypatch):
    monkeypatch.setattr(auth, "NONCES_MAX", 3)
    ring = keyring()
    for number in range(3):
        check(ring, signed(nonce=f"{NONCE}{number}"))
    with pytest.raises(RateLimited) as error:
        check(ring, signed(nonce=NONCE))
    assert error.value.retry_after_s == 301
    later = NOW_S + 301
    assert check(ring, signed(t=later, nonce=NONCE), now=later * SECOND)


@given(at=st.integers(0, 200), change=st.characters())
def test_no_changed_signature_is_taken(at, change):
    header = signed()
    at %= len(header)
    changed = header[:at] + change + header[at + 1 :]
    if changed != header:
        with pytest.raises(Unauthenticated):
            check(keyring(), changed)


# --- cursors ----------------------------------------------------------------------------------------------------

CURSORS = Cursors(b"s" * 32)
CURSOR = CURSORS.to_text("g", 7)


def test_a_cursor_comes_back():
    assert CURSORS.from_text(CURSOR, tuple[str, int]) == ("g", 7)
    assert Cursors(b"s" * 32).from_text(CURSOR, tuple[str, int]) == ("g", 7)
    with pytest.raises(InvalidCursor):
        Cursors(b"t" * 32).from_text(CURSOR, tuple[str, int])
    with pytest.raises(InvalidCursor):
        CURSORS.from_text(CURSOR, tuple[int, int])


@given(at=st.integers(0, 100), change=st.text(CHARACTERS, max_size=3), length=st.integers(0, 3))
def test_no_changed_cursor_is_taken(at, change, length):
    at %= len(CURSOR) + 1
    changed = CURSOR[:at] + change + CURSOR[at + length :]
    if changed != CURSOR:
        with pytest.raises(InvalidCursor):
            CURSORS.from_text(changed, tuple[str, int])


def test_without_pyjwt_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jwt", None)
    assert keyring().authenticate(SERVER_TEXT, NOW).role == "server"
    with pytest.raises(LaurelsError, match=r"laurels\[server\]"):
        keyring().authenticate(TOKEN, NOW)
