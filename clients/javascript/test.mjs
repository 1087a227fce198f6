/**
 * Tests of laurels.js against a server: LAURELS_URL and LAURELS_KEY (an operator's) say which; without them only those
 * that need none run. `node --experimental-websocket --test test.mjs`
 */

import assert from "node:assert/strict";
import http from "node:http";
import net from "node:net";
import { after, test } from "node:test";
import { Client, LaurelsError, newSubmissionId, parseExact, stringifyExact } from "./laurels.js";

const { LAURELS_URL: url, LAURELS_KEY: key } = process.env;
const server = { skip: url === undefined && "LAURELS_URL names no server" };
const quick = { tries: 10, totalS: 60, firstS: 0.02, mostS: 0.2 };
const closing = [];
after(() => closing.forEach((close) => close()));

async function until(condition) {
  const ends = Date.now() + 60_000;
  while (!condition()) {
    assert.ok(Date.now() < ends, "it did not come");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

let games = 0;
async function newGame(address = url) {
  const operator = new Client(url, key, { retry: quick });
  const name = `js${Date.now()}_${++games}`;
  await operator.defineGame(name, {
    dimensions: { mods: { type: "set" }, level: { type: "integer" } },
    boards: {
      best: { submit: "players", where: { ratio: { exists: false } } },
      exact: { scale: 2, where: { ratio: { exists: true } } },
      modded: { partition: ["mods", "level"] },
    },
  });
  return new Client(address, key, { game: name, retry: quick });
}

/** TCP between a client and the server that can be made faulty. */
async function newProxy() {
  const sockets = new Set();
  const proxy = { swallow: 0, refuse: false, connections: 0, cut: () => sockets.forEach((socket) => socket.destroy()) };
  const listening = net.createServer((socket) => {
    proxy.connections++;
    if (proxy.refuse) return socket.destroy();
    const behind = net.connect(new URL(url).port, "127.0.0.1");
    for (const one of [socket, behind]) {
      sockets.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        sockets.delete(one);
        socket.destroy();
        behind.destroy();
      });
    }
    socket.pipe(behind);
    behind.on("data", (data) => {
      if (proxy.swallow > 0) {
        proxy.swallow--;
        socket.destroy();
      } else {
        socket.write(data);
      }
    });
  });
  await new Promise((resolve) => listening.listen(0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${listening.address().port}`;
  closing.push(() => {
    listening.close();
    proxy.cut();
  });
  return proxy;
}

// --- exact numbers ---------------------------------------------------------------------------------------------

test("integers that are safe stay numbers, others become BigInt", () => {
  assert.deepEqual(parseExact("[0, -1, 9007199254740991, -9007199254740991]"), [0, -1, 2 ** 53 - 1, 1 - 2 ** 53]);
  assert.deepEqual(parseExact("[9007199254740992, 9223372036854775807, -9223372036854775808]"), [
    9007199254740992n,
    9223372036854775807n,
    -9223372036854775808n,
  ]);
});

test("decimals are their text", () => {
  assert.deepEqual(parseExact('{"a": 0.10, "b": [-1.5, 1e3, 1.5E-7], "c": 90071992547409.91}'), {
    a: "0.10",
    b: ["-1.5", "1e3", "1.5E-7"],
    c: "90071992547409.91",
  });
});

test("strings and keys are left alone, whatever they look like", () => {
  const strings = [
    "~",
    "~n1",
    "~n1.5",
    "~s",
    "~s~n1",
    '"',
    "\\",
    '\\"',
    '"~n1"',
    ": 1.5",
    "1.5",
    "9007199254740993",
    "\u0000\u2028",
    "\\u007en1",
    '~n"1.5',
    "\n~n2.5",
    "😀",
    "",
    ",1.5,",
    "a\\",
    "\\\\",
  ];
  for (const one of strings) {
    for (const value of [one, [one, 1], { [one]: one, x: { [one]: [one] } }, { a: [one, { b: one }] }]) {
      const text = JSON.stringify(value);
      assert.deepEqual(parseExact(text), value, text);
      assert.deepEqual(JSON.parse(stringifyExact(value)), value, text);
      assert.deepEqual(parseExact(stringifyExact([value, 2n ** 60n])), [value, 2n ** 60n], text);
    }
  }
  assert.equal(parseExact('"\\u007en1"'), "~n1");
  assert.deepEqual(parseExact('["\\u007en1.5", 1.5]'), ["~n1.5", "1.5"]);
});

test("what is no JSON is refused", () => {
  for (const text of [
    "",
    "01.5",
    "1.5.5",
    "[1.5 2.5]",
    '"~n1',
    "1.",
    ".5",
    "+1.5",
    "[9007199254740993",
    "1.5e",
    "-",
    '{"a":1.5,}',
    "NaN",
  ]) {
    assert.throws(() => parseExact(text), SyntaxError, text);
  }
});

test("any tree comes back", () => {
  let state = 12345;
  const random = (below) => (state = (state * 1103515245 + 12345) % 2147483648) % below;
  const text = () => Array.from({ length: random(6) }, () => '~ns"\\:1.5e,{}[]é\n'[random(16)]).join("");
  const tree = (depth) => {
    const kind = random(depth > 3 ? 5 : 7);
    if (kind === 0) return text();
    if (kind === 1) return random(1000) - 500;
    if (kind === 2) return BigInt(random(2 ** 30)) * 2n ** 40n + 2n ** 60n;
    if (kind === 3) return [null, true, false][random(3)];
    if (kind === 4) return -(2n ** 63n);
    if (kind === 5) return Array.from({ length: random(4) }, () => tree(depth + 1));
    return Object.fromEntries(Array.from({ length: random(4) }, () => [text(), tree(depth + 1)]));
  };
  for (let turn = 0; turn < 2000; turn++) {
    const value = tree(0);
    assert.deepEqual(parseExact(stringifyExact(value)), value);
  }
});

test("long texts are no trouble", () => {
  const many = Array.from({ length: 10_000 }, (_, n) => BigInt(n) + 2n ** 60n);
  const value = { text: '\\"é'.repeat(500_000), many };
  assert.deepEqual(parseExact(stringifyExact(value)), value);
});

test("BigInt is written exactly, what is inexact is refused", () => {
  assert.equal(
    stringifyExact({ score: 9223372036854775807n, at: 1, of: [0n, -5n] }),
    '{"score":9223372036854775807,"at":1,"of":[0,-5]}',
  );
  assert.equal(stringifyExact(new Set(["b"])), '["b"]');
  for (const bad of [2 ** 53, NaN, Infinity, -1e300]) assert.throws(() => stringifyExact({ bad }), RangeError);
});

test("submission ids are UUIDs of version 7 in time order", async () => {
  const first = newSubmissionId();
  await new Promise((resolve) => setTimeout(resolve, 5));
  const second = newSubmissionId();
  assert.match(first, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.ok(first < second);
  assert.ok(Math.abs(parseInt(first.replaceAll("-", "").slice(0, 12), 16) - Date.now()) < 60_000);
});

// --- the verbs -------------------------------------------------------------------------------------------------

test("submissions", server, async () => {
  const client = await newGame();
  const answer = await client.submit("ada", 9223372036854775807n, { metrics: { stars: 5 }, playedAt: new Date(0) });
  assert.equal(answer.score, 9223372036854775807n);
  assert.equal((await client.submission(answer.submission_id)).score, 9223372036854775807n);
  assert.equal((await client.top("best")).entries[0].score, 9223372036854775807n);
  await client.submit("bob", "90071992547409.91", { metrics: { ratio: "0.1" } });
  assert.equal((await client.top("exact")).entries[0].score, "90071992547409.91");
  const submissionId = newSubmissionId();
  const first = await client.submit("cyd", 1, { submissionId });
  assert.deepEqual(await client.submit("cyd", 1, { submissionId }), first);
  const batch = await client.submitMany(["dan", "eve"], BigInt64Array.of(1n, 2n), {
    dimensions: { mods: new Set(["dark", "slow"]), level: [1, 1] },
    answers: true,
  });
  assert.equal(batch.accepted, 2);
  assert.equal(batch.answers[1].score, 2);
  const modded = await client.top("modded", 10, { where: { mods: ["slow", "dark"], level: 1 } });
  assert.deepEqual(
    modded.entries.map((entry) => entry.player_id),
    ["eve", "dan"],
  );
  await assert.rejects(client.submitMany(["x", "y"], [1, 2n ** 63n]), { code: "out_of_range", field: "scores[1]" });
});

test("reading a board", server, async () => {
  const client = await newGame();
  const names = Array.from({ length: 30 }, (_, n) => `p${String(n).padStart(2, "0")}`);
  await client.submitMany(
    names,
    names.map((_, n) => n),
  );
  await client.setPlayer("p29", { name: "Ada", attributes: { country: "GB" } });
  const top = await client.top("best", 2, { also: ["name"] });
  assert.deepEqual(top.entries, [
    { rank: 1, position: 1, player_id: "p29", score: 29, name: "Ada" },
    { rank: 2, position: 2, player_id: "p28", score: 28 },
  ]);
  assert.equal(top.total, 30);
  const seen = [];
  for await (const page of client.pages("best", { limit: 7 }))
    seen.push(...page.entries.map((entry) => entry.position));
  assert.deepEqual(
    seen,
    Array.from({ length: 30 }, (_, n) => n + 1),
  );
  assert.equal((await client.page("best", { limit: 2, offset: 10 })).entries[0].position, 11);
  assert.deepEqual(
    (await client.range("best", 3, 5n)).entries.map((entry) => entry.score),
    [5, 4, 3],
  );
  assert.deepEqual(
    (await client.around("best", "p15", 3)).entries.map((entry) => entry.score),
    [16, 15, 14],
  );
  assert.equal((await client.entry("best", "p29")).percentile, 100);
  assert.equal(typeof (await client.entry("best", "p17")).percentile, "number");
  assert.deepEqual(
    (await client.players("best", ["p01", "p05", "-"])).map((friend) => friend.entry.player_id),
    ["p05", "p01"],
  );
  assert.equal(
    (await client.histogram("best", 3)).reduce((sum, bucket) => sum + bucket.count, 0),
    30,
  );
  assert.equal((await client.percentiles("best", [12.5, 100])).at(-1).score, 29);
  await client.remove("best", "p29");
  assert.equal((await client.top("best", 1)).entries[0].player_id, "p28");
});

test("boards, players, keys, games", server, async () => {
  const client = await newGame();
  assert.equal((await client.defineBoard("weekly", { window: { every: "week" }, policy: "sum" })).progress, 1);
  await client.defineBoard("later", { policy: "count" }, { wait: false });
  assert.ok((await client.boards()).some((board) => board.name === "weekly"));
  assert.equal((await client.boardInfo("weekly")).ready, true);
  for (const score of [1, 2, 3]) await client.submit("ada", score);
  assert.equal((await client.top("weekly", 1, { at: new Date() })).entries[0].score, 6);
  assert.equal((await client.instances("weekly"))[0].entries, 1);
  await client.dropBoard("weekly");
  await assert.rejects(client.boardInfo("weekly"), { code: "not_found", status: 404 });
  assert.equal((await client.setPlayer("ada", { name: "Ada" })).name, "Ada");
  assert.equal((await client.player("ada")).name, "Ada");
  const plays = [];
  for await (const page of client.historyPages("ada", { limit: 2 })) plays.push(...page.items);
  assert.deepEqual(
    plays.map((play) => play.score),
    [3, 2, 1],
  );
  assert.equal((await client.standings("ada"))[0].percentile, 100);
  assert.equal((await client.export("ada")).submissions.length, 3);
  await client.ban("ada", "cheating");
  assert.deepEqual(await client.bans(), ["ada"]);
  await client.unban("ada");
  assert.equal(await client.erase("ada"), 3);
  const made = await client.createKey("read", { name: "the web site" });
  assert.ok((await client.keys()).some((one) => one.key_id === made.key_id));
  const rotated = await client.rotateKey(made.key_id);
  assert.equal((await new Client(url, () => rotated.key, { game: client.game }).top("best")).total, 0);
  await assert.rejects(new Client(url, made.key, { game: client.game }).top("best"), { code: "unauthenticated" });
  await client.revokeKey(made.key_id);
  await client.dropBoard("later");
  const { token } = await client.playerToken("ada", 60);
  const player = new Client(url, token, { game: client.game });
  assert.equal((await player.submit("ada", 5)).score, 5);
  await assert.rejects(player.submit("bob", 5), { code: "forbidden" });
  assert.ok((await client.games()).some((game) => game.game === client.game));
  assert.equal((await client.gameInfo()).game, client.game);
  assert.equal((await new Client(url).health()).status, "ok");
});

test("ids may hold any character", server, async () => {
  const client = await newGame();
  for (const id of ["a/b", "ä?#%20+ &=;", "x%2Fy", "'\"\\", "日本", "~n1.5", "1.5", "..."]) {
    await client.submit(id, 7);
    assert.equal((await client.entry("best", id)).entry.player_id, id);
  }
  await assert.rejects(async () => client.entry("best", ".."), RangeError);
});

test("errors say what to mend", server, async () => {
  const client = await newGame();
  const error = await client.submit("ada", 2n ** 63n).catch((one) => one);
  assert.ok(error instanceof LaurelsError);
  assert.deepEqual([error.code, error.field, error.status], ["out_of_range", "score", 400]);
  assert.ok(error.rule && error.requestId);
  assert.throws(() => new Client("127.0.0.1"), RangeError);
  await assert.rejects(async () => new Client(url, key).boards(), RangeError);
});

// --- on the way ------------------------------------------------------------------------------------------------

test("a submission whose answer was lost counts once", server, async () => {
  const proxy = await newProxy();
  const client = await newGame(proxy.url);
  proxy.swallow = 2;
  const answer = await client.submit("ada", 10);
  assert.equal(proxy.swallow, 0);
  assert.equal(answer.changes.find((change) => change.instance.board === "best").old_rank, null);
  assert.equal((await client.history("ada")).items.length, 1);
  proxy.swallow = 1;
  await client.remove("best", "ada");
  await assert.rejects(client.remove("best", "ada"), { code: "not_found" });
  proxy.swallow = 1;
  await assert.rejects(client.createKey("read"), { code: "unreachable" });
  assert.equal((await client.keys()).length, 1);
});

test("what passes is tried again, what does not is told", async () => {
  const answers = [];
  const asked = [];
  const script = http.createServer((request, response) => {
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      asked.push({ path: request.url, body, headers: request.headers });
      const [status, headers, content] = answers.shift();
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(content);
    });
  });
  await new Promise((resolve) => script.listen(0, "127.0.0.1", resolve));
  closing.push(() => (script.closeAllConnections(), script.close()));
  const client = new Client(`http://127.0.0.1:${script.address().port}`, "lk_x", { game: "a b", retry: quick });
  const problem = (status, told) => [
    status,
    { "content-type": "application/problem+json" },
    JSON.stringify({ status, detail: "d", ...told }),
  ];
  answers.push([502, {}, "<html>"], [503, {}, ""], problem(429, { code: "rate_limited", retry_after_s: 0.01 }), [
    200,
    {},
    '{"items":[]}',
  ]);
  assert.deepEqual(await client.boards(), []);
  assert.equal(asked[0].path, "/v1/games/a%20b/boards");
  assert.equal(asked[0].headers.authorization, "Bearer lk_x");
  assert.equal(asked.length, 4);
  asked.length = 0;
  answers.push([504, {}, ""], [201, {}, '{"score":1}']);
  await client.submit("ada", 1);
  assert.equal(JSON.parse(asked[0].body).submission_id, JSON.parse(asked[1].body).submission_id);
  answers.push(problem(429, { code: "rate_limited", retry_after_s: 3600.0 }));
  await assert.rejects(client.boards(), { code: "rate_limited", retryAfterS: 3600 });
  answers.push(problem(503, { code: "not_ready" }));
  await assert.rejects(client.createKey("read"), { code: "not_ready" });
  for (const answer of [
    [500, {}, "oops"],
    [200, {}, "<html>"],
    [302, { location: "/" }, ""],
  ]) {
    answers.push(answer);
    await assert.rejects(client.boards(), { code: "unexpected_answer" });
  }
  const nobody = new Client("http://127.0.0.1:9", "", { game: "demo", retry: { tries: 2, firstS: 0.01 } });
  await assert.rejects(nobody.boards(), { code: "unreachable" });
});

// --- live ------------------------------------------------------------------------------------------------------

test("each topic follows what happens", server, async () => {
  const client = await newGame();
  await client.submitMany(["ada", "bob", "cyd"], [30n, 20n, 2n ** 60n]);
  const live = await client.follow({ retry: quick });
  closing.push(() => live.close());
  const [top, around] = [live.top("best", 2, { names: true }), live.around("best", "bob", 3)];
  const [rank, plays] = [live.rank("best", "bob"), live.submissions("bob")];
  for (const topic of [top, around, rank, plays]) {
    const update = await topic.next();
    assert.deepEqual([update.type, update.reason], ["snapshot", "start"]);
  }
  assert.deepEqual(
    top.entries.map((entry) => entry.score),
    [2n ** 60n, 30],
  );
  assert.equal(typeof rank.percentile, "number");
  await client.submit("bob", 2n ** 61n);
  for await (const update of top) {
    assert.equal(update.type, "change");
    assert.deepEqual(update.data.removed, ["ada"]);
    break;
  }
  assert.deepEqual(
    top.entries.map((entry) => entry.player_id),
    ["bob", "cyd"],
  );
  await until(() => rank.entry.rank === 1 && around.entries[0].player_id === "bob" && plays.submissions.length === 2);
  assert.deepEqual(
    plays.submissions.map((play) => play.score),
    [20, 2n ** 61n],
  );
  const seen = top.as_of;
  await until(() => top.as_of !== seen);
  await assert.rejects(live.top("nowhere").ready(), { code: "not_found" });
  top.close();
  assert.equal(await top.next(), undefined);
  live.close();
  assert.equal(
    await rank
      .next()
      .then(() => rank.next())
      .then(() => rank.ended),
    true,
  );
});

test("a cut connection goes on where it was", server, async () => {
  const direct = await newGame();
  const proxy = await newProxy();
  const live = await new Client(proxy.url, key, { game: direct.game }).follow({ retry: quick });
  closing.push(() => live.close());
  const top = await live.top("best", 50).ready();
  for (let turn = 0; turn < 4; turn++) {
    proxy.refuse = true;
    proxy.cut();
    await direct.submitMany([`p${turn}`, `p${turn + 1}`], [turn, turn * 10]);
    proxy.refuse = false;
    await until(() => top.entries.length === turn + 2);
  }
  const expected = (await direct.top("best", 50)).entries.map((entry) => entry.player_id);
  assert.deepEqual(
    top.entries.map((entry) => entry.player_id),
    expected,
  );
  assert.equal(top.gaps, 0);
  assert.ok(live.connections >= 5);
});

test("whoever may not is told at once", server, async () => {
  await assert.rejects(new Client(url, "lk_nobody", { game: "demo", retry: quick }).follow(), {
    code: "unauthenticated",
  });
  await assert.rejects(new Client(url, key, { game: "nowhere", retry: quick }).follow(), { code: "not_found" });
  const nobody = new Client("http://127.0.0.1:9", "", { game: "demo", retry: { tries: 2, firstS: 0.01 } });
  await assert.rejects(nobody.follow(), { code: "unreachable" });
});

/** A WebSocket whose server is the test. */
class Pretended {
  static all = [];
  frames = [];
  constructor() {
    Pretended.all.push(this);
    setTimeout(() => this.onopen?.());
  }
  send(text) {
    this.frames.push(JSON.parse(text));
  }
  tell(message) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
  close() {}
}

const message = (id, type, seq, score, reason) => ({
  id,
  type,
  seq,
  reason,
  resume: `e.1.${seq}`,
  as_of: "2026-12-01T12:00:00Z",
  data: { total: 1, removed: [], entries: [{ rank: 1, position: 1, player_id: "a", score }] },
});

test("a hole is never accepted, silence is noticed", async () => {
  Pretended.all.length = 0;
  const fetch = async () => new Response("{}", { headers: { "content-type": "application/json" } });
  const client = new Client("http://127.0.0.1:9", "", { game: "demo", WebSocket: Pretended, fetch });
  const live = await client.follow({ retry: quick, heartbeatS: 0.2, heartbeatsMax: 2.5 });
  const top = live.top("best");
  const [socket] = Pretended.all;
  socket.tell(message("1", "snapshot", 4, 1, "start"));
  socket.tell(message("1", "change", 5, 2));
  socket.tell(message("1", "change", 7, 3));
  socket.tell(message("1", "change", 8, 4));
  assert.equal(top.entries[0].score, 2);
  assert.deepEqual(socket.frames.slice(1), [
    { op: "unsubscribe", id: "1" },
    { op: "subscribe", id: "2", topic: { kind: "top", board: "best", limit: 10 }, resume: "e.1.5" },
  ]);
  socket.tell(message("2", "change", 5, 9));
  socket.tell(message("2", "change", 6, 5));
  assert.equal(top.entries[0].score, 5);
  await until(() => Pretended.all.length === 2 && Pretended.all[1].frames.length === 1);
  assert.equal(Pretended.all[1].frames[0].resume, "e.1.6");
  Pretended.all[1].tell(message(Pretended.all[1].frames[0].id, "snapshot", 1, 6, "gap"));
  assert.deepEqual([top.entries[0].score, top.gaps], [6, 1]);
  const id = Pretended.all[1].frames[0].id;
  for (let seq = 2; seq < 300; seq++) Pretended.all[1].tell(message(id, "change", seq, seq));
  const update = await top.next();
  assert.deepEqual([update.type, update.reason], ["snapshot", "gap"]);
  Pretended.all[1].tell({ id, type: "error", code: "not_ready", detail: "d" });
  await until(() => Pretended.all.at(-1).frames.length === 2);
  live.close();
  assert.equal(live.isConnected, false);
});
