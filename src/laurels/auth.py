"""Who asks, and what they may: API keys, player tokens, signatures of requests. No I/O; times come in as microseconds.

An API key is `lk_<key id>_<secret>`. Of its secret only the SHA-256 is kept, except of a key of role `signer`: that one
is never sent, it signs player tokens (JWT, HS256) and requests, and checking an HMAC needs the secret itself.
"""

import base64
import hashlib
import heapq
import hmac
import re
import secrets
import threading
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from laurels.errors import Forbidden, InvalidInput, LaurelsError, NotFound, RateLimited, Unauthenticated
from laurels.windows import from_us, to_us

KeyRole: TypeAlias = Literal["operator", "admin", "server", "read", "signer"]
Role: TypeAlias = Literal["operator", "admin", "server", "read", "signer", "player"]

KEY = re.compile(r"lk_([a-z2-7]{12})_([A-Za-z0-9_-]{43})")
TOKEN = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{43})")
SIGNATURE = re.compile(r"t=([0-9]{1,12}),n=([A-Za-z0-9_-]{16,64}),k=([a-z2-7]{12}),v1=([0-9a-f]{64})")

ISSUER = "laurels"
TOKEN_S_MAX = 86_400
TOKEN_BYTES_MAX = 4_096
TOKEN_AHEAD_S = 60  # how far the clock of whoever made a token may be ahead
SIGNATURE_S = 300
SIGNATURE_AHEAD_S = 5
NONCES_MAX = 100_000  # of one key
KNOWN_MAX = 65_536
SECOND = 1_000_000
NEVER = 2**63 - 1

_REACH: dict[Role, int] = {"player": 0, "read": 1, "server": 2, "admin": 3, "operator": 4}


class ApiKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is listed: everything but its secret. `game` is None of an operator's only."""

    key_id: str
    game: str | None
    role: KeyRole
    name: str = ""
    created_at: datetime
    expires_at: datetime | None = None


class KeptKey:
    """A key as the store keeps it: `proof` is the SHA-256 of its secret, of a signer the secret itself. No encoder
    takes it, and it shows the key only, so that a proof never gets anywhere by accident."""

    __slots__ = ("expires_us", "key", "proof")

    def __init__(self, key: ApiKey, proof: bytes) -> None:
        self.key = key
        self.proof = proof
        self.expires_us = NEVER if key.expires_at is None else to_us(key.expires_at)

    def __repr__(self) -> str:
        return f"KeptKey({self.key!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptKey) and self.key == other.key and hmac.compare_digest(self.proof, other.proof)

    def __hash__(self) -> int:
        return hash(self.key)


class Principal(Struct, frozen=True, kw_only=True):
    """Who asks: the holder of a key, or a player with a token, for whom `key_id` is the key that signed it."""

    kind: Literal["key", "player"]
    game: str | None
    role: Role
    key_id: str
    player_id: str | None = None
    expires_us: int = NEVER


# --- what a role may ------------------------------------------------------------------------------------------


def may(principal: Principal, needed: Role, game: str | None) -> bool:
    """Whether a principal has at least a role in a game (None: everywhere). `player` is what all of the game may."""
    if principal.role == "operator":
        return needed in _REACH
    if game is None or principal.game != game or needed not in _REACH:
        return False
    return _REACH.get(principal.role, -1) >= _REACH[needed]


def may_read_player(principal: Principal, game: str, player_id: str) -> bool:
    """Whether a principal may read what is kept of a player: a key of the game may, and the player."""
    return may(principal, "read", game) or (
        may(principal, "player", game) and principal.kind == "player" and principal.player_id == player_id
    )


def require(principal: Principal, needed: Role, game: str | None) -> None:
    """Raise Forbidden unless a principal has at least a role in a game."""
    if not may(principal, needed, game):
        where = "everywhere" if game is None else f"in game {game!r}"
        raise Forbidden(f"needs the role {needed} {where}, and this is a {principal.role}")


# --- making keys, tokens, signatures --------------------------------------------------------------------------


def new_secret() -> str:
    """A random secret of a key: 32 bytes as text."""
    return secrets.token_urlsafe(32)


def new_key_id() -> str:
    """A random id of a key."""
    return base64.b32encode(secrets.token_bytes(8))[:12].decode().lower()


def new_key(
    role: KeyRole, game: str | None, name: str, now_us: int, expires_at: datetime | None = None
) -> tuple[KeptKey, str]:
    """A new key and its text, which is nowhere else. Raises InvalidInput for what makes no key."""
    if role not in ("operator", "admin", "server", "read", "signer"):
        raise InvalidInput("role", role, "must be operator, admin, server, read or signer")
    if (game is None) is not (role == "operator"):
        raise InvalidInput("game", game, "an operator's key has no game, every other key has one")
    if expires_at is not None:
        if not isinstance(expires_at, datetime) or expires_at.tzinfo is None:
            raise InvalidInput("expires_at", expires_at, "must be a datetime with a time zone")
        if to_us(expires_at) <= now_us:
            raise InvalidInput("expires_at", expires_at, "must be in the future")
    key = ApiKey(
        key_id=new_key_id(), game=game, role=role, name=name, created_at=from_us(now_us), expires_at=expires_at
    )
    return with_new_secret(key)


def with_new_secret(key: ApiKey) -> tuple[KeptKey, str]:
    """A key with a new random secret, and its text."""
    secret = new_secret()
    return KeptKey(key, _proof(key.role, secret)), f"lk_{key.key_id}_{secret}"


def signing_secret(text: str) -> tuple[str, bytes]:
    """The key id and the bytes that sign, from the text of a signer's key: what follows `lk_<key id>_`, as ASCII."""
    match = KEY.fullmatch(text)
    if match is None:
        raise Unauthenticated("is not the text of a key")
    return match[1], match[2].encode()


def signed_token(key_id: str, secret: bytes, game: str, player_id: str, iat: int, exp: int) -> str:
    """A player's token, as a game's server makes it with a signer's key. `iat` and `exp` are Unix seconds."""
    claims = {"iss": ISSUER, "aud": game, "sub": player_id, "iat": iat, "exp": exp}
    return str(_jwt().encode(claims, secret, algorithm="HS256", headers={"kid": key_id}))


def signature_header(key_id: str, secret: bytes, t: int, nonce: str, method: str, raw_path: str, body: bytes) -> str:
    """The header `Laurels-Signature` of a request. `t` is Unix seconds, `nonce` 16 to 64 characters, new each time."""
    return f"t={t},n={nonce},k={key_id},v1={_signature(secret, t, nonce, method, raw_path, body)}"


def _signature(secret: bytes, t: int, nonce: str, method: str, raw_path: str, body: bytes) -> str:
    signed = f"{t}.{nonce}.{method}.{raw_path}.".encode() + body
    return hmac.digest(secret, signed, "sha256").hex()


def _proof(role: KeyRole, secret: str) -> bytes:
    return secret.encode() if role == "signer" else hashlib.sha256(secret.encode()).digest()


def _jwt() -> Any:
    try:
        import jwt
    except ImportError as error:
        raise LaurelsError("player tokens need PyJWT: pip install 'laurels[server]'") from error
    return jwt


# --- telling who it is ----------------------------------------------------------------------------------------


class _Header(Struct, forbid_unknown_fields=True):
    """The header of a player's token: nothing else may stand in it, no key and no other algorithm."""

    alg: Literal["HS256"]
    kid: str
    typ: Literal["JWT"] = "JWT"


class _Claims(Struct):
    """What a player's token says."""

    iss: Literal["laurels"]
    aud: str
    sub: str
    iat: int
    exp: int
    nbf: int = 0


class Keyring:
    """All keys, in memory. What was authenticated is remembered by its text, so that a hot key or token costs one
    look-up; a key that is put, replaced or removed is forgotten there at once. Safe on any thread."""

    def __init__(self, keys: Iterable[KeptKey] = (), *, started_us: int = 0) -> None:
        self._keys = {kept.key.key_id: kept for kept in keys}
        self._started_us = started_us
        self._known: dict[str, Principal] = {}
        self._nonces: dict[str, _Nonces] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._keys)

    # --- keys -----------------------------------------------------------------------------------------------

    def get(self, key_id: str) -> KeptKey:
        """A key by its id. NotFound if there is none."""
        kept = self._keys.get(key_id)
        if kept is None:
            raise NotFound("key", key_id)
        return kept

    def list(self, game: str | None = None) -> list[ApiKey]:
        """The keys of a game, or all of them, the oldest first."""
        found = [kept.key for kept in list(self._keys.values()) if game is None or kept.key.game == game]
        return sorted(found, key=lambda key: (key.created_at, key.key_id))

    def put(self, kept: KeptKey) -> None:
        """A key is new, or has a new secret: what its earlier one proved counts no more."""
        with self._lock:
            self._keys[kept.key.key_id] = kept
            self._forget({kept.key.key_id})

    def remove(self, key_id: str) -> None:
        """A key is no more, nor is what it proved or signed."""
        with self._lock:
            self._keys.pop(key_id, None)
            self._forget({key_id})

    def replace(self, keys: Iterable[KeptKey]) -> None:
        """These are all keys there are."""
        with self._lock:
            before, self._keys = self._keys, {kept.key.key_id: kept for kept in keys}
            self._forget({key_id for key_id, kept in before.items() if self._keys.get(key_id) != kept})

    def _forget(self, key_ids: set[str]) -> None:
        for text, principal in list(self._known.items()):
            if principal.key_id in key_ids:
                self._known.pop(text, None)
        for key_id in key_ids:
            self._nonces.pop(key_id, None)

    # --- keys and tokens as they are sent -------------------------------------------------------------------

    def authenticate(self, text: str, now_us: int) -> Principal:
        """Who sends this key or player's token. Unauthenticated if it is neither, or is no longer good."""
        principal = self._known.get(text)
        if principal is not None and now_us < principal.expires_us:
            return principal
        if len(text) > TOKEN_BYTES_MAX:
            raise Unauthenticated("the token is too long")
        kept, principal = self._of_key(text, now_us) if text.startswith("lk_") else self._of_token(text, now_us)
        with self._lock:
            if self._keys.get(principal.key_id) is kept:  # it was not revoked meanwhile
                self._known.pop(text, None)
                while len(self._known) >= KNOWN_MAX:
                    self._known.pop(next(iter(self._known)))
                self._known[text] = principal
        return principal

    def _of_key(self, text: str, now_us: int) -> tuple[KeptKey, Principal]:
        match = KEY.fullmatch(text)
        kept = None if match is None else self._keys.get(match[1])
        if match is None or kept is None:
            raise Unauthenticated("the key is not known, or was revoked")
        key = kept.key
        if key.role == "signer":
            raise Unauthenticated("a signer's key signs; it is never sent")
        if not hmac.compare_digest(hashlib.sha256(match[2].encode()).digest(), kept.proof):
            raise Unauthenticated("the key is not known, or was revoked")
        if now_us >= kept.expires_us:
            raise Unauthenticated("the key has expired")
        return kept, Principal(kind="key", game=key.game, role=key.role, key_id=key.key_id, expires_us=kept.expires_us)

    def _of_token(self, text: str, now_us: int) -> tuple[KeptKey, Principal]:
        match = TOKEN.fullmatch(text)
        if match is None or not all(map(_is_canonical, match.groups())):
            raise Unauthenticated("the token is not one of a player, nor a key")
        try:
            header = msgspec.json.decode(base64.urlsafe_b64decode(_padded(match[1])), type=_Header)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            raise Unauthenticated("the token's header must name alg HS256 and a kid, and nothing else") from None
        kept = self._signer(header.kid, now_us, "token")
        jwt = _jwt()
        options = dict.fromkeys(("verify_exp", "verify_iat", "verify_nbf"), False)  # by our clock, below
        try:
            plain = jwt.decode(
                text,
                kept.proof,
                algorithms=["HS256"],
                audience=kept.key.game,
                issuer=ISSUER,
                options={**options, "require": ["iss", "aud", "sub", "iat", "exp"]},
            )
            claims = msgspec.convert(plain, _Claims)
        except (jwt.PyJWTError, ValueError, RecursionError, msgspec.MsgspecError):
            raise Unauthenticated("the token's signature or claims are wrong") from None
        if not 0 < claims.exp - claims.iat <= TOKEN_S_MAX:
            raise Unauthenticated(f"the token must expire within {TOKEN_S_MAX} seconds after it was made")
        if max(claims.iat, claims.nbf) * SECOND > now_us + TOKEN_AHEAD_S * SECOND:
            raise Unauthenticated("the token was made in the future")
        if now_us >= claims.exp * SECOND:
            raise Unauthenticated("the token has expired")
        if not claims.sub or claims.aud != kept.key.game:
            raise Unauthenticated("the token's signature or claims are wrong")
        return kept, Principal(
            kind="player",
            game=kept.key.game,
            role="player",
            key_id=header.kid,
            player_id=claims.sub,
            expires_us=min(claims.exp * SECOND, kept.expires_us),
        )

    def _signer(self, key_id: str, now_us: int, what: str) -> KeptKey:
        kept = self._keys.get(key_id)
        if kept is None or kept.key.role != "signer":
            raise Unauthenticated(f"the {what} is signed by no key that there is")
        if now_us >= kept.expires_us:
            raise Unauthenticated(f"the key that signed the {what} has expired")
        return kept

    def player_token(self, key_id: str, player_id: str, now_us: int, expires_in_s: int) -> tuple[str, datetime]:
        """A token for a player of a signer's game, and when it expires."""
        if isinstance(expires_in_s, bool) or not isinstance(expires_in_s, int) or not 1 <= expires_in_s <= TOKEN_S_MAX:
            raise InvalidInput("expires_in_s", expires_in_s, f"must be from 1 to {TOKEN_S_MAX}")
        kept = self._signer(key_id, now_us, "token")
        assert kept.key.game is not None
        iat = now_us // SECOND
        exp = iat + expires_in_s
        token = signed_token(key_id, kept.proof, kept.key.game, player_id, iat, exp)
        return token, from_us(min(exp * SECOND, kept.expires_us))

    # --- signatures of requests -----------------------------------------------------------------------------

    def check_signature(self, header: str, method: str, raw_path: str, body: bytes, game: str, now_us: int) -> ApiKey:
        """The key of the game that signed a request. Unauthenticated if none did, it is too old, or it was seen before.

        Nonces are not kept over a restart, so what was signed before this process began is refused, and, because a
        signer's clock may be some seconds ahead, what was signed in its first seconds.
        """
        match = SIGNATURE.fullmatch(header)
        if match is None:
            raise Unauthenticated("the signature must be like t=<seconds>,n=<nonce>,k=<key id>,v1=<hex>")
        t, nonce, key_id = int(match[1]), match[2], match[3]
        kept = self._signer(key_id, now_us, "request")
        right = _signature(kept.proof, t, nonce, method, raw_path, body)
        if not hmac.compare_digest(right, match[4]) or kept.key.game != game:
            raise Unauthenticated("the signature is wrong")
        if t * SECOND > now_us + SIGNATURE_AHEAD_S * SECOND:
            raise Unauthenticated("the signature was made in the future: set the clock")
        if t * SECOND <= now_us - SIGNATURE_S * SECOND:
            raise Unauthenticated(f"the signature is older than {SIGNATURE_S} seconds")
        if t * SECOND < self._started_us + SIGNATURE_AHEAD_S * SECOND:
            raise Unauthenticated("the signature is older than this server: sign the request again")
        with self._lock:
            if not self._nonces.setdefault(key_id, _Nonces()).is_new(nonce, t + SIGNATURE_S, now_us // SECOND):
                raise Unauthenticated("the signature was used before")
        return kept.key


class _Nonces:
    """What one key signed lately, until it is too old to be taken anyway."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._ends: list[tuple[int, str]] = []

    def is_new(self, nonce: str, until_s: int, now_s: int) -> bool:
        while self._ends and self._ends[0][0] < now_s:
            self._seen.discard(heapq.heappop(self._ends)[1])
        if nonce in self._seen:
            return False
        if len(self._seen) >= NONCES_MAX:
            wait = float(max(1, self._ends[0][0] - now_s + 1))
            raise RateLimited(f"one key signs at most {NONCES_MAX} requests in {SIGNATURE_S} seconds", wait)
        self._seen.add(nonce)
        heapq.heappush(self._ends, (until_s, nonce))
        return True


def _padded(part: str) -> str:
    return part + "=" * (-len(part) % 4)


def _is_canonical(part: str) -> bool:
    """Whether text is the one way to write its bytes, so that one token has one text."""
    try:
        return base64.urlsafe_b64encode(base64.urlsafe_b64decode(_padded(part))).rstrip(b"=").decode() == part
    except ValueError:
        return False
