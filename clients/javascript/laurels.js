/**
 * A client of a Laurels server, for browsers and Node 20 or newer. No dependencies, no build step.
 *
 * Answers are what the server sends, with its names. Numbers are exact: an integer beyond 2^53 comes as a BigInt, a
 * decimal as its text. Instants are text (RFC 3339).
 */

/**
 * @typedef {number | bigint | string} Score A number, a BigInt, or the digits of a decimal as text.
 * @typedef {string | number | boolean | Iterable<string>} DimensionValue
 * @typedef {{board: string, partition?: Object<string, any>, window_start?: string, window_end?: string,
 *   window_label?: string}} InstanceName
 * @typedef {{rank: number, position: number, player_id: string, score: Score, name?: string, order?:
 *   Object<string, any>, submission?: Submission}} Entry
 * @typedef {{submission_id: string, player_id: string, score: Score, accepted_at: string, played_at?: string,
 *   dimensions?: Object<string, any>, metrics?: Object<string, Score>}} Submission
 * @typedef {{instance: InstanceName, counted: boolean, old_score: ?Score, new_score: ?Score, old_rank: ?number,
 *   new_rank: ?number, old_position: ?number, new_position: ?number, total: number}} EntryChange
 * @typedef {{submission_id: string, player_id: string, score: Score, accepted_at: string, changes: EntryChange[]}}
 *   Answer
 * @typedef {{instance: InstanceName, as_of: string, total: number, entries: Entry[], next?: string,
 *   previous?: string}} Entries
 * @typedef {{instance: InstanceName, total: number, percentile: number, entry: Entry}} Standing
 * @typedef {{where?: Object<string, DimensionValue>, at?: Date | string, also?: ("name"|"order"|"submission")[]}} Read
 *   Which instance of a board, and what to tell of its entries besides rank, position, player_id and score.
 * @typedef {{tries?: number, totalS?: number, firstS?: number, mostS?: number}} Retry At most so many tries within so
 *   many seconds; the waits double from `firstS` to `mostS`.
 * @typedef {{type: "snapshot" | "change", seq: number, as_of: string, reason?: string, data: any}} Update A snapshot's
 *   `reason` is start; gap (updates before it are missing); window, board (what was shown before is over).
 */

// --- exact numbers ---------------------------------------------------------------------------------------------

// The tokens of JSON that matter: strings, with the colon if they are keys, and numbers.
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/g;

/**
 * JSON.parse, but integers beyond 2^53 come as BigInt and decimals as their text.
 *
 * Such numbers are put in quotes with ~n in front before JSON.parse sees them; strings that could be taken for one get
 * ~s in front.
 * @param {string} text
 * @returns {any}
 */
export function parseExact(text) {
  let marked = false;
  const quoted = text.replace(TOKENS, (token, colon, fraction, exponent) => {
    if (token[0] === '"') {
      if (colon !== undefined || (token[1] !== "~" && token[1] !== "\\")) return token;
      marked = true;
      return `"~s${token.slice(1)}`;
    }
    if (
      fraction === undefined &&
      exponent === undefined &&
      (token.length < 16 || Number.isSafeInteger(Number(token)))
    ) {
      return token;
    }
    marked = true;
    return `"~n${token}"`;
  });
  if (!marked) return JSON.parse(text);
  return JSON.parse(quoted, (_, value) => {
    if (typeof value !== "string" || value[0] !== "~") return value;
    const rest = value.slice(2);
    return value[1] === "s" || /[.eE]/.test(rest) ? rest : BigInt(rest);
  });
}

/**
 * JSON.stringify, but a BigInt is written as the number it is, and a number that is not exact is refused.
 * @param {any} value
 * @returns {string}
 */
export function stringifyExact(value) {
  let marked = false;
  const text = JSON.stringify(value, (_, one) => {
    if (typeof one === "bigint") {
      marked = true;
      return `~n${one}`;
    }
    if (typeof one === "string" && one[0] === "~") {
      marked = true;
      return `~s${one}`;
    }
    if (typeof one === "number" && (!Number.isFinite(one) || (Number.isInteger(one) && !Number.isSafeInteger(one)))) {
      throw new RangeError(`${one} is not exact; give a BigInt, or a decimal's digits as text`);
    }
    return one instanceof Set ? [...one] : one;
  });
  if (!marked) return text;
  return text.replace(TOKENS, (token, colon) => {
    if (colon !== undefined || !token.startsWith('"~')) return token;
    return token[2] === "n" ? token.slice(3, -1) : `"${token.slice(3)}`;
  });
}

/**
 * A submission id: a UUIDv7, random and in time order.
 * @returns {string}
 */
export function newSubmissionId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const now = Date.now();
  for (let place = 0; place < 6; place++) bytes[place] = Math.floor(now / 2 ** (8 * (5 - place))) % 256;
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

// --- errors ----------------------------------------------------------------------------------------------------

/**
 * What the server refuses, and what goes wrong on the way. `code` is stable: those of the server, and `unreachable`,
 * `unexpected_answer`. `field` and `rule` say what to mend.
 */
export class LaurelsError extends Error {
  /**
   * @param {string} code
   * @param {string} detail
   * @param {{status?: number, field?: string, rule?: string, retry_after_s?: number, request_id?: string, cause?:
   *   any}} [more]
   */
  constructor(code, detail, more = {}) {
    super(detail, more.cause === undefined ? undefined : { cause: more.cause });
    this.name = "LaurelsError";
    this.code = code;
    this.status = more.status;
    this.field = more.field;
    this.rule = more.rule;
    this.retryAfterS = more.retry_after_s === undefined ? undefined : Number(more.retry_after_s);
    this.requestId = more.request_id;
  }
}

// --- the client ------------------------------------------------------------------------------------------------

const BUSY = [502, 503, 504];
const RETRY = { tries: 8, totalS: 30, firstS: 0.1, mostS: 5 };
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

/** How long to wait after try `number`, counted from 1; random, so that clients do not come back all at once. */
const waitS = (retry, number) =>
  (0.5 + Math.random() / 2) * Math.min(retry.mostS, retry.firstS * 2 ** Math.min(number - 1, 60));

/** A segment of a path, which may hold any character. */
function segment(text) {
  if (text === "." || text === "..") throw new RangeError(`an id ${text} can't be asked for from JavaScript`);
  return encodeURIComponent(text);
}

/** A value as queries have it. */
function textOf(value) {
  if (value instanceof Date) return value.toISOString();
  if (typeof value === "object" && value !== null) return [...value].join(",");
  return String(value);
}

/**
 * The parameters that say which instance, and what of its entries.
 * @param {Read} read
 * @returns {Object<string, any>}
 */
function instance({ where, at, also } = {}) {
  const query = { at };
  for (const [name, value] of Object.entries(where ?? {})) query[`where.${name}`] = value;
  if (also?.length) query.fields = ["rank", "position", "player_id", "score", ...also];
  return query;
}

/** A share or a progress, which is no score: a plain number. */
const plain = (object, name) => {
  if (object?.[name] !== undefined && object[name] !== null) object[name] = Number(object[name]);
  return object;
};
const items = (answer) => answer.items;
const column = (values) => (values === undefined ? undefined : Array.from(values));

export class Client {
  /**
   * @param {string} url Of the server, such as https://scores.example.
   * @param {string | (() => string)} [key] An API key or a player's token, or a function that gives one that counts
   *   now.
   *   In a browser it should be a player's token.
   * @param {{game?: string, timeoutS?: number, retry?: Retry, WebSocket?: any, fetch?: typeof fetch}} [options]
   *   `WebSocket` is needed for live updates where there is no global one (Node 20).
   */
  constructor(url, key = "", options = {}) {
    if (!/^https?:\/\//.test(url)) throw new RangeError(`${url}: a url begins with http:// or https://`);
    this.url = url.replace(/\/+$/, "");
    this.key = key;
    this.game = options.game;
    this.timeoutS = options.timeoutS ?? 10;
    this.retry = { ...RETRY, ...options.retry };
    this.options = options;
  }

  /**
   * The same client for another game.
   * @param {string} name
   * @returns {Client}
   */
  forGame(name) {
    return new Client(this.url, this.key, { ...this.options, game: name });
  }

  // Submissions

  /**
   * Submit one play: durable, and counted on every board that it feeds, when this resolves. It counts once, however
   * often
   * it had to be sent.
   * @param {string} playerId
   * @param {Score} score
   * @param {{dimensions?: Object<string, DimensionValue>, metrics?: Object<string, Score>, submissionId?: string,
   *   playedAt?: Date | string}} [more]
   * @returns {Promise<Answer>}
   */
  submit(playerId, score, { dimensions, metrics, submissionId, playedAt } = {}) {
    const body = { player_id: playerId, score, submission_id: submissionId ?? newSubmissionId() };
    Object.assign(body, { played_at: playedAt, dimensions, metrics });
    return this.#send("POST", this.#inGame("submissions"), { body, repeatable: true });
  }

  /**
   * Submit plays as columns, up to 10,000: all are accepted, or none. A dimension or metric may be one value for all.
   * @param {Iterable<string>} playerIds
   * @param {Iterable<Score>} scores
   * @param {{submissionIds?: Iterable<?string>, playedAt?: Iterable<?(Date | string)>,
   *   dimensions?: Object<string, any>, metrics?: Object<string, any>, answers?: boolean}} [more]
   * @returns {Promise<{accepted: number, submission_ids: string[], answers?: Answer[]}>}
   */
  submitMany(playerIds, scores, { submissionIds, playedAt, dimensions, metrics, answers } = {}) {
    const player_ids = column(playerIds);
    const ids = column(submissionIds) ?? player_ids.map(() => null);
    const inColumns = (values) =>
      values &&
      Object.fromEntries(
        Object.entries(values).map(([name, value]) => [
          name,
          value instanceof Set
            ? player_ids.map(() => [...value])
            : ArrayBuffer.isView(value)
              ? Array.from(/** @type {any} */ (value))
              : value,
        ]),
      );
    const body = {
      player_ids,
      scores: column(scores),
      submission_ids: ids.map((id) => id ?? newSubmissionId()),
      played_at: column(playedAt),
      dimensions: inColumns(dimensions),
      metrics: inColumns(metrics),
    };
    const query = { answers: answers ? true : undefined };
    return this.#send("POST", this.#inGame("submissions", "batch"), { query, body, repeatable: true });
  }

  /**
   * A submission by its id.
   * @param {string} submissionId
   * @returns {Promise<Submission>}
   */
  submission(submissionId) {
    return this.#send("GET", this.#inGame("submissions", submissionId));
  }

  // Reading boards

  /**
   * The first entries.
   * @param {string} board
   * @param {number} [limit]
   * @param {Read} [read]
   * @returns {Promise<Entries>}
   */
  top(board, limit = 10, read = {}) {
    return this.#read([board, "top"], read, { limit });
  }

  /**
   * A page: from the top, from a cursor of another page, or from an offset. `pages` goes through all.
   * @param {string} board
   * @param {Read & {limit?: number, cursor?: string, offset?: number}} [read]
   * @returns {Promise<Entries>}
   */
  page(board, { limit = 25, cursor, offset, ...read } = {}) {
    return this.#read([board, "entries"], read, { limit, cursor, offset });
  }

  /**
   * All pages of a board instance, from the top.
   * @param {string} board
   * @param {Read & {limit?: number}} [read]
   * @returns {AsyncGenerator<Entries>}
   */
  async *pages(board, { limit = 100, ...read } = {}) {
    let cursor;
    do {
      const page = await this.page(board, { limit, cursor, ...read });
      yield page;
      cursor = page.next;
    } while (cursor);
  }

  /**
   * The entries with low <= score <= high.
   * @param {string} board
   * @param {Score} low
   * @param {Score} high
   * @param {number} [limit]
   * @param {Read} [read]
   * @returns {Promise<Entries>}
   */
  range(board, low, high, limit = 100, read = {}) {
    return this.#read([board, "range"], read, { low, high, limit });
  }

  /**
   * So many entries, with the player in the middle.
   * @param {string} board
   * @param {string} playerId
   * @param {number} [limit]
   * @param {Read} [read]
   * @returns {Promise<Entries>}
   */
  around(board, playerId, limit = 11, read = {}) {
    return this.#read([board, "entries", playerId, "around"], read, { limit });
  }

  /**
   * A player's entry.
   * @param {string} board
   * @param {string} playerId
   * @param {Read} [read]
   * @returns {Promise<Standing>}
   */
  entry(board, playerId, read = {}) {
    const shape = (answer) => plain(answer, "percentile");
    return this.#read([board, "entries", playerId], read, {}, shape);
  }

  /**
   * Remove a player's entry: what they have submitted so far no longer counts in this instance.
   * @param {string} board
   * @param {string} playerId
   * @param {Read} [read]
   * @returns {Promise<void>}
   */
  remove(board, playerId, read = {}) {
    return this.#send("DELETE", this.#inGame("boards", board, "entries", playerId), { query: instance(read) });
  }

  /**
   * Those of a list of players who have an entry, ranked among themselves and on the board.
   * @param {string} board
   * @param {Iterable<string>} playerIds
   * @param {Read} [read]
   * @returns {Promise<{rank: number, position: number, entry: Entry}[]>}
   */
  players(board, playerIds, read = {}) {
    const body = { player_ids: column(playerIds) };
    const options = { query: instance(read), body, repeatable: true, shape: (answer) => answer.friends };
    return this.#send("POST", this.#inGame("boards", board, "players"), options);
  }

  /**
   * How many entries have which score, lowest first.
   * @param {string} board
   * @param {number} [buckets]
   * @param {Read} [read]
   * @returns {Promise<{low: Score, high: Score, count: number}[]>}
   */
  histogram(board, buckets = 20, read = {}) {
    return this.#read([board, "histogram"], read, { buckets }, (answer) => answer.buckets);
  }

  /**
   * Which score is better than or equal to so many percent of the entries.
   * @param {string} board
   * @param {number[]} [percentiles]
   * @param {Read} [read]
   * @returns {Promise<{percentile: number, score: Score, position: number}[]>}
   */
  percentiles(board, percentiles = [50, 75, 90, 99], read = {}) {
    const shape = (answer) => answer.percentiles.map((one) => plain(one, "percentile"));
    return this.#read([board, "percentiles"], read, { percentiles }, shape);
  }

  // Boards

  /**
   * All boards, ready or being built.
   * @returns {Promise<Object[]>}
   */
  boards() {
    const shape = (answer) => answer.items.map((board) => plain(board, "progress"));
    return this.#send("GET", this.#inGame("boards"), { shape });
  }

  /**
   * A board as it stands.
   * @param {string} board
   * @returns {Promise<Object>}
   */
  boardInfo(board) {
    return this.#send("GET", this.#inGame("boards", board), { shape: (answer) => plain(answer, "progress") });
  }

  /**
   * Define a board, or change it. Resolves when it is complete, or, with `wait: false`, when it is begun.
   * @param {string} board
   * @param {Object} definition
   * @param {{wait?: boolean}} [options]
   * @returns {Promise<Object>}
   */
  defineBoard(board, definition, { wait = true } = {}) {
    const options = { body: definition, query: wait ? {} : { wait }, shape: (answer) => plain(answer, "progress") };
    return this.#send("PUT", this.#inGame("boards", board), options);
  }

  /**
   * Forget a board; the submissions stay.
   * @param {string} board
   * @returns {Promise<void>}
   */
  dropBoard(board) {
    return this.#send("DELETE", this.#inGame("boards", board));
  }

  /**
   * The instances that have entries.
   * @param {string} board
   * @returns {Promise<{instance: InstanceName, entries: number}[]>}
   */
  instances(board) {
    return this.#send("GET", this.#inGame("boards", board, "instances"), { shape: items });
  }

  // Players

  /**
   * What is known of a player apart from plays.
   * @param {string} playerId
   * @returns {Promise<Object>}
   */
  player(playerId) {
    return this.#send("GET", this.#inGame("players", playerId));
  }

  /**
   * Set what is shown of a player, instead of what was there.
   * @param {string} playerId
   * @param {{name?: string, attributes?: Object<string, string>}} profile
   * @returns {Promise<Object>}
   */
  setPlayer(playerId, { name, attributes } = {}) {
    return this.#send("PUT", this.#inGame("players", playerId), { body: { name, attributes } });
  }

  /**
   * A page of a player's submissions, newest first. `historyPages` goes through all.
   * @param {string} playerId
   * @param {{limit?: number, cursor?: string}} [page]
   * @returns {Promise<{items: Submission[], next: ?string}>}
   */
  history(playerId, { limit = 50, cursor } = {}) {
    return this.#send("GET", this.#inGame("players", playerId, "submissions"), { query: { limit, cursor } });
  }

  /**
   * All pages of a player's submissions.
   * @param {string} playerId
   * @param {{limit?: number}} [page]
   * @returns {AsyncGenerator<{items: Submission[], next: ?string}>}
   */
  async *historyPages(playerId, { limit = 100 } = {}) {
    let cursor;
    do {
      const page = await this.history(playerId, { limit, cursor });
      yield page;
      cursor = page.next;
    } while (cursor);
  }

  /**
   * A player's entries across boards.
   * @param {string} playerId
   * @returns {Promise<Standing[]>}
   */
  standings(playerId) {
    const shape = (answer) => answer.items.map((one) => plain(one, "percentile"));
    return this.#send("GET", this.#inGame("players", playerId, "entries"), { shape });
  }

  /**
   * All that is kept of a player.
   * @param {string} playerId
   * @returns {Promise<Object>}
   */
  export(playerId) {
    const shape = (answer) => {
      answer.entries.forEach((one) => plain(one, "percentile"));
      return answer;
    };
    return this.#send("GET", this.#inGame("players", playerId, "export"), { shape });
  }

  /**
   * Erase everything that is kept of a player.
   * @param {string} playerId
   * @returns {Promise<number>} How many submissions.
   */
  erase(playerId) {
    return this.#send("DELETE", this.#inGame("players", playerId), { shape: (answer) => answer?.submissions });
  }

  /**
   * Who is hidden from the boards.
   * @returns {Promise<string[]>}
   */
  bans() {
    return this.#send("GET", this.#inGame("bans"), { shape: (answer) => answer.items.map((one) => one.player_id) });
  }

  /**
   * Hide a player from all boards.
   * @param {string} playerId
   * @param {string} [reason]
   * @returns {Promise<void>}
   */
  ban(playerId, reason = "") {
    return this.#send("PUT", this.#inGame("bans", playerId), { body: { reason } });
  }

  /**
   * Show a player again, as if never hidden.
   * @param {string} playerId
   * @returns {Promise<void>}
   */
  unban(playerId) {
    return this.#send("DELETE", this.#inGame("bans", playerId));
  }

  // Keys and tokens

  /**
   * The keys of the game, without their secrets.
   * @returns {Promise<Object[]>}
   */
  keys() {
    return this.#send("GET", this.#inGame("keys"), { shape: items });
  }

  /**
   * Make a key. Its text is told this once, so this is not sent again when the answer is lost.
   * @param {"admin" | "server" | "read" | "signer"} role
   * @param {{name?: string, expiresAt?: Date | string}} [more]
   * @returns {Promise<{key_id: string, key: string}>}
   */
  createKey(role, { name = "", expiresAt } = {}) {
    return this.#send("POST", this.#inGame("keys"), { body: { role, name, expires_at: expiresAt } });
  }

  /**
   * Give a key a new secret.
   * @param {string} keyId
   * @returns {Promise<{key_id: string, key: string}>}
   */
  rotateKey(keyId) {
    return this.#send("POST", this.#inGame("keys", keyId, "rotate"));
  }

  /**
   * End a key at once.
   * @param {string} keyId
   * @returns {Promise<void>}
   */
  revokeKey(keyId) {
    return this.#send("DELETE", this.#inGame("keys", keyId));
  }

  /**
   * A token with which one player reads, and submits for themselves where boards allow it.
   * @param {string} playerId
   * @param {number} [expiresInS]
   * @returns {Promise<{token: string, expires_at: string}>}
   */
  playerToken(playerId, expiresInS = 3600) {
    const body = { player_id: playerId, expires_in_s: expiresInS };
    return this.#send("POST", this.#inGame("tokens"), { body, repeatable: true });
  }

  // Games and the server

  /**
   * All games to an operator, to others their own.
   * @returns {Promise<Object[]>}
   */
  games() {
    return this.#send("GET", ["v1", "games"], { shape: items });
  }

  /**
   * The client's game.
   * @returns {Promise<Object>}
   */
  gameInfo() {
    return this.#send("GET", this.#inGame());
  }

  /**
   * Create a game, or change it.
   * @param {string} name
   * @param {Object} [definition]
   * @returns {Promise<Object>}
   */
  defineGame(name, definition = {}) {
    return this.#send("PUT", ["v1", "games", name], { body: definition });
  }

  /**
   * Whether the server can take submissions.
   * @returns {Promise<{status: string, detail?: string}>}
   */
  health() {
    return this.#send("GET", ["health", "ready"], { statuses: [503] });
  }

  /**
   * Follow boards and players as they change, over one connection that is made again whenever it breaks. Resolves when
   * there is a connection. `close` it at the end.
   * @param {{heartbeatS?: number, heartbeatsMax?: number, retry?: Retry}} [options] A connection that is silent for
   *   `heartbeatS` is asked whether anybody is there, and after `heartbeatsMax` times as long it is dead.
   * @returns {Promise<Live>}
   */
  async follow(options = {}) {
    const Socket = this.options.WebSocket ?? globalThis.WebSocket;
    if (Socket === undefined)
      throw new TypeError("there is no WebSocket here; give one: new Client(url, key, { WebSocket })");
    const target = `ws${this.url.slice(4)}${this.#path(this.#inGame("live"))}`;
    const address = () => (this.#key() ? `${target}?access_token=${encodeURIComponent(this.#key())}` : target);
    // A browser does not say why a handshake failed; an ordinary request of the same game does.
    const refusal = () => this.#once("GET", this.#path(this.#inGame()), {}, this.timeoutS);
    const live = new Live(() => new Socket(address()), refusal, options, this.retry);
    await live.opened;
    return live;
  }

  // Sending

  #key() {
    return typeof this.key === "function" ? this.key() : this.key;
  }

  #inGame(...path) {
    if (this.game === undefined) throw new RangeError("name the game: new Client(url, key, { game })");
    return ["v1", "games", this.game, ...path];
  }

  #path(path) {
    return `/${path.map(segment).join("/")}`;
  }

  #read(path, read, query, shape) {
    return this.#send("GET", this.#inGame("boards", ...path), { query: { ...query, ...instance(read) }, shape });
  }

  /**
   * Send a request, again if need be.
   * @param {string} method
   * @param {string[]} path
   * @param {{query?: Object<string, any>, body?: any, repeatable?: boolean, statuses?: number[],
   *   shape?: (answer: any) => any}} [options]
   * @returns {Promise<any>}
   */
  async #send(
    method,
    path,
    { query = {}, body, repeatable = method !== "POST", statuses = [], shape = (a) => a } = {},
  ) {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const texts = new URLSearchParams(given.map(([name, value]) => [name, textOf(value)])).toString();
    const target = this.#path(path) + (texts && `?${texts}`);
    const content = body === undefined ? undefined : stringifyExact(body);
    const ends = Date.now() + this.retry.totalS * 1000;
    let mayHaveArrived = false;
    for (let number = 1; ; number++) {
      const left = (ends - Date.now()) / 1000;
      const { answer, failure: error } = await this.#once(
        method,
        target,
        { content, statuses },
        Math.min(this.timeoutS, left),
      );
      if (error === undefined) return shape(answer);
      if (error.status === 404 && method === "DELETE" && mayHaveArrived) return shape(undefined);
      const passes =
        error.status === 429 || (repeatable && (error.code === "unreachable" || BUSY.includes(error.status)));
      if (!passes) throw error;
      mayHaveArrived ||= error.status !== 429;
      const wait = Math.max(waitS(this.retry, number), error.retryAfterS ?? 0);
      if (number >= this.retry.tries || Date.now() + wait * 1000 >= ends) throw error;
      await sleep(wait);
    }
  }

  /**
   * One try: the answer, or what was the matter.
   * @param {string} method
   * @param {string} target
   * @param {{content?: string, statuses?: number[]}} options
   * @param {number} timeoutS
   * @returns {Promise<{answer?: any, failure?: LaurelsError}>}
   */
  async #once(method, target, { content, statuses = [] }, timeoutS) {
    const headers = { accept: "application/json" };
    if (content !== undefined) headers["content-type"] = "application/json";
    const key = this.#key();
    if (key) headers.authorization = `Bearer ${key}`;
    if (globalThis.process?.versions?.node) headers["user-agent"] = "laurels-javascript";
    const fetching = this.options.fetch ?? globalThis.fetch;
    let response;
    let text;
    try {
      const signal = AbortSignal.timeout(Math.max(1, timeoutS * 1000));
      response = await fetching(this.url + target, { method, headers, body: content, signal, redirect: "manual" });
      text = await response.text();
    } catch (cause) {
      const why = cause?.cause?.message ?? cause?.message;
      return { failure: new LaurelsError("unreachable", `${method} ${target}: ${why}`, { cause }) };
    }
    const isProblem = response.headers.get("content-type")?.startsWith("application/problem+json");
    try {
      if (!isProblem && (response.ok || statuses.includes(response.status))) {
        return { answer: text === "" ? undefined : parseExact(text) };
      }
      if (isProblem) {
        const { code, detail, ...more } = parseExact(text);
        return { failure: new LaurelsError(code, detail, more) };
      }
    } catch {
      // not JSON: told below
    }
    const header = response.headers.get("retry-after") ?? "";
    const retry_after_s = /^\d+$/.test(header.trim()) ? Number(header) : undefined;
    const more = { status: response.status, retry_after_s };
    const isBusy = response.status === 429 || BUSY.includes(response.status);
    const code = isBusy ? "unreachable" : "unexpected_answer";
    return { failure: new LaurelsError(code, `${method} ${target} was answered with status ${response.status}`, more) };
  }
}

// --- live updates ----------------------------------------------------------------------------------------------

const UPDATES_MAX = 256; // that wait for a reader
const RECENT = 10; // submissions that are kept
const KINDS = {
  top: { total: 0, entries: [] },
  around: { total: 0, entries: [] },
  rank: { total: 0, entry: null, percentile: null },
  submissions: { submissions: [] },
};

/**
 * Something that is followed. `for await (const update of topic)` gives its updates; its state is always that of the
 * last
 * message: `total` and `entries` (top, around), `total`, `entry` and `percentile` (rank), `submissions`, oldest first.
 * `gaps` counts how often updates were missing.
 */
export class Topic {
  #live;
  /** @type {number} */
  total;
  /** @type {Entry[]} Of top and around. */
  entries;
  /** @type {?Entry} Of rank. */
  entry;
  /** @type {?number} Of rank. */
  percentile;
  /** @type {Submission[]} Of submissions, oldest first. */
  submissions;
  #updates = [];
  #readers = [];

  constructor(live, spec) {
    this.#live = live;
    this.spec = spec;
    /** @type {string | undefined} The instant of which the state is true. */
    this.as_of = undefined;
    this.resume = undefined;
    this.seq = 0;
    this.gaps = 0;
    this.ended = false;
    /** @type {LaurelsError | undefined} */
    this.error = undefined;
    this.failures = 0;
    Object.assign(this, structuredClone(KINDS[spec.kind]));
  }

  /**
   * Wait for the first snapshot. Rejects with what is the matter if there will be none.
   * @returns {Promise<Topic>}
   */
  async ready() {
    while (this.as_of === undefined && !this.ended) await this.#news();
    if (this.error) throw this.error;
    return this;
  }

  /**
   * The next update; undefined when there will be none.
   * @returns {Promise<Update | undefined>}
   */
  async next() {
    while (this.#updates.length === 0 && !this.ended) await this.#news();
    if (this.#updates.length > 0) return this.#updates.shift();
    if (this.error) throw this.error;
    return undefined;
  }

  async *[Symbol.asyncIterator]() {
    for (let update = await this.next(); update !== undefined; update = await this.next()) yield update;
  }

  /** Follow it no more. */
  close() {
    this.#live._leave(this);
  }

  #news() {
    return new Promise((resolve) => this.#readers.push(resolve));
  }

  #wake() {
    for (const resolve of this.#readers.splice(0)) resolve();
  }

  /** A message has come. False, and nothing is changed, if it is not the next one. */
  _take(told) {
    if (told.type === "change" && this.resume !== undefined && told.seq <= this.seq) return true; // known already
    const startsAnew = told.type === "snapshot" && (told.reason === "start" || told.reason === "gap");
    if (!startsAnew && (this.resume === undefined || told.seq !== this.seq + 1)) return false;
    this.#absorb(told.type === "snapshot", told.data);
    this.seq = told.seq;
    this.resume = told.resume;
    this.as_of = told.as_of;
    this.failures = 0;
    if (told.reason === "gap") this.gaps++;
    const { type, seq, as_of, reason, data } = told;
    this.#updates.push({ type, seq, as_of, reason, data });
    if (this.#updates.length > UPDATES_MAX) {
      // nobody takes them: what is there now instead
      this.gaps++;
      const whole = Object.fromEntries(Object.keys(KINDS[this.spec.kind]).map((name) => [name, this[name]]));
      this.#updates = [{ type: "snapshot", seq, as_of, reason: "gap", data: whole }];
    }
    this.#wake();
    return true;
  }

  #absorb(isSnapshot, data) {
    if (this.spec.kind === "rank") {
      Object.assign(this, plain(data, "percentile"));
    } else if (this.spec.kind === "submissions") {
      this.submissions = [...(isSnapshot ? [] : this.submissions), ...data.submissions].slice(-RECENT);
    } else {
      const byPlayer = new Map(isSnapshot ? [] : this.entries.map((entry) => [entry.player_id, entry]));
      for (const playerId of data.removed ?? []) byPlayer.delete(playerId);
      for (const entry of data.entries) byPlayer.set(entry.player_id, entry);
      this.entries = [...byPlayer.values()].sort((one, other) => one.position - other.position);
      this.total = data.total;
    }
  }

  _end(error) {
    if (!this.ended) this.error = error;
    this.ended = true;
    this.#wake();
  }
}

/** Topics followed together. Got from `client.follow()`. */
export class Live {
  #connect;
  #refusal;
  #retry;
  #heartbeatMs;
  #silenceMs;
  #topics = new Map(); // with the id that each has on this connection
  #byId = new Map();
  #numbers = 0;
  #socket;
  #silence;
  #again;
  #closed = false;
  #error;
  #settle;

  /** Made by `client.follow()`. */
  constructor(connect, refusal, { heartbeatS = 15, heartbeatsMax = 2.5, retry = {} }, defaults) {
    this.#connect = connect;
    this.#refusal = refusal;
    this.#retry = { ...defaults, ...retry };
    this.#heartbeatMs = heartbeatS * 1000;
    this.#silenceMs = heartbeatS * heartbeatsMax * 1000;
    /** How often it was connected. */
    this.connections = 0;
    this.opened = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));
    this.opened.catch(() => {});
    this.#open(1, Date.now() + this.#retry.totalS * 1000);
  }

  /**
   * Follow the first entries of a board instance; without `at`, from window to window.
   * @param {string} board
   * @param {number} [limit]
   * @param {Read & {names?: boolean}} [read]
   * @returns {Topic}
   */
  top(board, limit = 10, read = {}) {
    return this.#follow({ kind: "top", board, limit }, read);
  }

  /**
   * Follow the entries around a player.
   * @param {string} board
   * @param {string} playerId
   * @param {number} [limit]
   * @param {Read & {names?: boolean}} [read]
   * @returns {Topic}
   */
  around(board, playerId, limit = 11, read = {}) {
    return this.#follow({ kind: "around", board, player_id: playerId, limit }, read);
  }

  /**
   * Follow a player's rank.
   * @param {string} board
   * @param {string} playerId
   * @param {Read & {names?: boolean}} [read]
   * @returns {Topic}
   */
  rank(board, playerId, read = {}) {
    return this.#follow({ kind: "rank", board, player_id: playerId }, read);
  }

  /**
   * Follow a player's submissions.
   * @param {string} playerId
   * @returns {Topic}
   */
  submissions(playerId) {
    return this.#follow({ kind: "submissions", player_id: playerId }, {});
  }

  /** Whether there is a connection now. */
  get isConnected() {
    return this.#socket !== undefined;
  }

  /** Follow nothing any more. */
  close() {
    this.#fail(undefined);
  }

  /**
   * @param {Object} spec
   * @param {Read & {names?: boolean}} read
   */
  #follow(spec, { where, at, names }) {
    const topic = new Topic(this, { ...spec, where, at, names });
    if (this.#closed) {
      topic._end(this.#error);
      return topic;
    }
    this.#topics.set(topic, "");
    this.#subscribe(topic);
    return topic;
  }

  _leave(topic) {
    const id = this.#topics.get(topic);
    this.#topics.delete(topic);
    if (this.#byId.delete(id)) this.#send({ op: "unsubscribe", id });
    topic._end(undefined);
  }

  /** Under an id that was never used, so that what was sent under the one before is told apart. */
  #subscribe(topic) {
    if (!this.#topics.has(topic) || this.#socket === undefined) return;
    const id = String(++this.#numbers);
    this.#topics.set(topic, id);
    this.#byId.set(id, topic);
    this.#send({ op: "subscribe", id, topic: topic.spec, resume: topic.resume });
  }

  #send(frame) {
    this.#socket?.send(stringifyExact(frame));
  }

  #received(text) {
    const told = parseExact(text);
    if (told.type === "heartbeat") {
      for (const topic of this.#byId.values()) {
        if (topic.as_of !== undefined && Date.parse(told.as_of) >= Date.parse(topic.as_of)) topic.as_of = told.as_of;
      }
      return;
    }
    const topic = this.#byId.get(told.id);
    if (topic === undefined) return; // one that was left, or a pong
    if (told.type === "error") {
      this.#byId.delete(told.id);
      if (told.code === "not_ready" || told.code === "internal" || told.code.startsWith("store_")) {
        setTimeout(
          () => this.#byId.has(this.#topics.get(topic)) || this.#subscribe(topic),
          waitS(this.#retry, ++topic.failures) * 1000,
        );
      } else {
        this.#topics.delete(topic);
        topic._end(new LaurelsError(told.code, told.detail, told));
      }
    } else if (!topic._take(told)) {
      this.#byId.delete(told.id);
      this.#send({ op: "unsubscribe", id: told.id });
      this.#subscribe(topic);
    }
  }

  #open(number, ends) {
    let socket;
    let isOver = false;
    let heard = Date.now();
    const began = heard;
    const over = async () => {
      if (isOver || this.#closed) return;
      isOver = true;
      clearTimeout(this.#silence);
      const wasOpen = this.#socket !== undefined;
      this.#socket = undefined;
      this.#byId.clear();
      const wasSteady = wasOpen && Date.now() - began > this.#retry.mostS * 1000;
      const next = wasSteady ? 1 : number + 1;
      if (!wasOpen) {
        const { failure } = await this.#refusal();
        if (this.#closed) return;
        const isLaurels = failure?.code !== "unexpected_answer" || this.connections === 0;
        if (isLaurels && [401, 403, 404].includes(failure?.status)) return this.#fail(failure);
      }
      const wait = waitS(this.#retry, next) * 1000;
      if (this.connections === 0 && (next > this.#retry.tries || Date.now() + wait >= ends)) {
        return this.#fail(new LaurelsError("unreachable", "live updates can't be connected to"));
      }
      this.#again = setTimeout(() => this.#open(next, ends), wait);
    };
    const drop = () => {
      socket.onmessage = socket.onclose = socket.onerror = socket.onopen = null;
      socket.close();
      over();
    };
    const listen = () => {
      clearTimeout(this.#silence);
      const left = heard + this.#silenceMs - Date.now();
      if (left <= this.#heartbeatMs) {
        this.#silence = setTimeout(drop, left);
      } else {
        this.#silence = setTimeout(() => {
          this.#send({ op: "ping" });
          listen();
        }, this.#heartbeatMs);
      }
    };
    try {
      socket = this.#connect();
    } catch {
      over();
      return;
    }
    listen();
    socket.onopen = () => {
      if (this.#closed) return socket.close();
      this.#socket = socket;
      this.connections++;
      for (const topic of this.#topics.keys()) this.#subscribe(topic);
      this.#settle.resolve();
      listen();
    };
    socket.onmessage = (event) => {
      if (isOver || this.#closed) return;
      heard = Date.now();
      listen();
      try {
        this.#received(event.data);
      } catch {
        drop(); // it says what nobody understands; begin anew
      }
    };
    socket.onclose = over;
    socket.onerror = over;
  }

  #fail(error) {
    this.#closed = true;
    this.#error = error;
    clearTimeout(this.#silence);
    clearTimeout(this.#again);
    for (const topic of this.#topics.keys()) topic._end(error);
    this.#topics.clear();
    this.#byId.clear();
    this.#socket?.close();
    this.#socket = undefined;
    this.#settle.reject(error ?? new LaurelsError("unreachable", "closed"));
  }
}
