import { chmodSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import t, { type Test } from "tap";
import { user } from "../access/kit.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import {
  type Answer,
  auditOf,
  startGateway,
  type TestGateway,
  temporaryHome,
} from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { longestTurn, measuredEnvironment } from "../kit/loop-time.ts";
import { insert, select } from "../kit/queries.ts";
import { LONGEST_STALL_MS } from "../kit/stall.ts";
import { tables } from "../kit/tables.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { callTool, refusalOf, send } from "./mcp.ts";
import {
  insertRefusal,
  openStaffed,
  passwordOf,
  putInForce,
  staffedHome,
  textOf,
  tokenOf,
} from "./staff.ts";
import { connectToEach, servedBy } from "./supervised.ts";

const people = [
  "root * Owner",
  "alice main ReadWrite",
  "alice other ReadOnly",
  "bob main ReadWrite",
];

let asked = 0;
const introspection = createServer((_, response) => {
  asked++;
  response.end('{"active":true}');
});
const secretFile = path.join(temporaryHome(t), "secret");
writeFileSync(secretFile, "secret", { mode: 0o600 });
const issuer = `
[[issuers]]
issuer = "https://login.example.com"
prefix = "staff"
opens = ["query", "mcp"]
audience = "gatehouse"
jwks_file = "${path.join(temporaryHome(t), "jwks.json")}"
introspection = { url = "http://127.0.0.1:${await listening(t, introspection)}", client_id = "g", client_secret_file = "${secretFile}" }
`;

async function run(gateway: TestGateway, ...flags: string[]): Promise<string> {
  const { code, stdout, stderr } = await runWarm(gateway.home, flags);
  if (code !== 0) throw new Error(`${flags.join(" ")}: ${stderr}`);
  return stdout.trim();
}

function issue(gateway: TestGateway, ...flags: string[]): Promise<string> {
  return run(gateway, "token", "issue", ...flags, "--opaque");
}

interface Listed {
  readonly id: string;
  readonly name?: string;
  readonly user: string;
  readonly last_used?: string;
}

function listedIn({ text }: Pick<Answer, "text">): Listed[] {
  return JSON.parse(text).tokens;
}

async function listOf(gateway: TestGateway, token: string): Promise<Listed[]> {
  return listedIn(await gateway.get("/api/tokens", token));
}

async function idOf(gateway: TestGateway, token: string): Promise<string> {
  const { body } = await gateway.get("/api/me", token);
  return JSON.parse(JSON.stringify(body.token)).id;
}

const routes = tables("routes", [{ path: "/db/:database", access: "SELECT" }]);
const { gateway, upstream } = await openStaffed(t, people, {
  auth: 'accept = ["bearer", "basic", "apikey", "header:X-Api-Key"]',
  config: routes,
  more: `${user("robot", "")}\n[[groups]]\nname = "readers"\nmembers = ["robot"]\n
[[acl]]\ngroup = "readers"\ndatabase = "main"\nrole = "ReadOnly"\n
[[boundaries]]\nusername = "bob"\ndatabase = "main"\nvia = "mcp"\nrole = "ReadOnly"\n`,
});
const root = await tokenOf(gateway, "root");

t.test("an opaque token opens at once what a login token opens", async (t) => {
  const token = await issue(gateway, "alice", "--name", "nightly");
  t.match(token, /^gh_[\w-]{43}$/);
  const encoded = Buffer.from(`anyone:${token}`).toString("base64");
  const ways: Record<string, Record<string, string>> = {
    bearer: { Authorization: `Bearer ${token}` },
    basic: { Authorization: `Basic ${encoded}` },
    apikey: { Authorization: `ApiKey ${token}` },
    header: { "X-Api-Key": token },
  };
  for (const [way, headers] of Object.entries(ways)) {
    const all = { "Content-Type": "application/json", ...headers };
    const query = await ask(`${gateway.url}/query`, { method: "POST", headers: all, body: select });
    t.equal(query.status, 200, way);
    t.equal((await ask(`${gateway.url}/db/main`, { headers })).status, 200, way);
    t.equal((await ask(`${gateway.url}/db/third`, { headers })).status, 403, way);
    for (const { headers: sent } of upstream.take()) {
      t.equal(sent["x-gatehouse-user"], "alice", way);
      t.notMatch(JSON.stringify(sent), token, "it does not go upstream");
    }
  }
  const me = await gateway.get("/api/me", token);
  t.match(me.body, { user: { username: "alice" }, token: { name: "nightly", database: "*" } });
  const mcp = await send(gateway, statelessCall("tools/list"), token);
  t.equal(mcp.status, 200);
  const line = await auditOf(gateway, me);
  t.match(line, { user: "alice", tokenId: await idOf(gateway, token) });
});

t.test("the rights of an opaque token are those of its user at every moment", async (t) => {
  const limited = await issue(gateway, "alice", "--database", "main");
  t.equal(await insertRefusal(gateway, limited), undefined);
  const other = { Select: { database: "other", from: "t", columns: ["*"] } };
  t.equal((await gateway.query(other, limited)).body.code, "token_database");
  const member = await issue(gateway, "robot");
  t.equal((await gateway.query(select, member)).status, 200, "by a group");
  t.equal(await insertRefusal(gateway, member), "role_insufficient");
  const bound = await issue(gateway, "bob");
  t.equal(await insertRefusal(gateway, bound), undefined, "a boundary of MCP");
  const row = { database: "main", table: "t", values: [{ id: 1 }] };
  const called = await callTool(gateway, "insert", row, bound);
  t.equal(refusalOf(called), "role_insufficient", "and its tools obey it");

  const text = textOf(gateway);
  await putInForce(gateway, text.replace('members = ["robot"]', "members = []"));
  t.equal((await gateway.query(select, member)).body.code, "no_grant");
  await putInForce(gateway, text);
});

t.test("only the hash of a token is stored, and nothing is logged", async (t) => {
  const token = await issue(gateway, "alice");
  t.equal(await insertRefusal(gateway, token), undefined);
  await gateway.get("/api/me", `${token.slice(0, -1)}_`);
  for (const caller of [root, undefined]) {
    await gateway.send("DELETE", `/api/tokens/${token}`, undefined, caller);
  }
  const file = path.join(gateway.home, "tokens");
  t.equal(statSync(file).mode & 0o777, 0o600);
  const text = readFileSync(file, "utf8");
  t.notMatch(text, token);
  const digest: string = JSON.parse(text.trim().split("\n").at(-1) ?? "").sha256;
  t.match(digest, /^[\w-]{43}$/);
  const listed = await run(gateway, "token", "list", "--json");
  await auditOf(gateway, await gateway.get("/api/me", root));
  for (const output of [listed, gateway.service.output]) {
    t.notMatch(output, token);
    t.notMatch(output, token.slice(0, -1));
    t.notMatch(output, digest);
  }
});

t.test("GET /api/tokens lists own tokens, for administrators all", async (t) => {
  const [ofAlice, ofBob] = [
    await issue(gateway, "alice", "--name", "listed"),
    await issue(gateway, "bob", "--name", "listed"),
  ];
  const jwt = await run(
    gateway,
    "token",
    "issue",
    "alice",
    "--name",
    "signed",
    "--database",
    "main",
  );
  const own = await listOf(gateway, ofAlice);
  t.ok(own.every((one) => one.user === "alice"));
  t.match(own[0], { name: "signed", database: "main", issued: /Z$/, expires: /Z$/ });
  t.notOk(own.some((one) => "sha256" in one || "cred" in one));
  const all = await listOf(gateway, root);
  t.ok(all.some((one) => one.user === "bob" && one.name === "listed"));
  t.strictSame(
    (await listOf(gateway, jwt)).map(({ name }) => name),
    ["signed", undefined],
    "a limited token shows those with its limit",
  );
  const seen = own.find((one) => one.name === "listed");
  t.match(seen?.last_used ?? (await listOf(gateway, ofAlice))[1]?.last_used, /Z$/);
  const bobs = await idOf(gateway, ofBob);
  const refused = await gateway.send("DELETE", `/api/tokens/${bobs}`, undefined, ofAlice);
  t.match(refused, { status: 404, body: { code: "token_not_found" } });
  t.equal(await insertRefusal(gateway, ofBob), undefined);
});

t.test("a revoked token is refused before the answer, and leaves the list", async (t) => {
  const token = await issue(gateway, "alice");
  const jwt = await run(gateway, "token", "issue", "alice");
  for (const [dead, by] of [
    [token, token],
    [jwt, root],
  ] as const) {
    const id = await idOf(gateway, dead);
    const answer = await gateway.send("DELETE", `/api/tokens/${id}`, undefined, by);
    t.equal(answer.status, 200);
    t.match(await auditOf(gateway, answer), {
      changes: [{ change: "token revoked", user: "alice", token: id }],
    });
    t.equal(await insertRefusal(gateway, dead), "token_revoked");
    t.notOk((await listOf(gateway, root)).some((one) => one.id === id));
    const again = await gateway.send("DELETE", `/api/tokens/${id}`, undefined, root);
    t.equal(again.status, 404);
  }
  const ended = await issue(gateway, "alice");
  t.equal((await gateway.send("POST", "/logout", undefined, ended)).status, 200);
  t.equal(await insertRefusal(gateway, ended), "token_revoked");
});

t.test("a token ends with the password and with disabling, and does not revive", async (t) => {
  const patch = (disabled: boolean) =>
    gateway.send("PATCH", "/api/users/bob", { disabled }, root).then(({ status }) => status);
  const first = await issue(gateway, "bob");
  t.equal(await patch(true), 200);
  t.equal(await insertRefusal(gateway, first), "token_revoked");
  t.equal(await patch(false), 200);
  t.equal(await insertRefusal(gateway, first), "token_revoked");
  t.notOk((await listOf(gateway, root)).some((one) => one.user === "bob"));

  const second = await issue(gateway, "bob");
  t.equal(await insertRefusal(gateway, second), undefined);
  const body = { new_password: passwordOf("bob") };
  t.equal((await gateway.send("PUT", "/api/users/bob/password", body, root)).status, 200);
  t.equal(await insertRefusal(gateway, second), "token_revoked", "also with the same password");
});

t.test("a token of a user who was added in the same second can be revoked", async (t) => {
  await run(gateway, "user", "add", "kim", "--no-password");
  const token = await issue(gateway, "kim");
  await run(gateway, "token", "revoke", "--user", "kim");
  const codeOf = async () => (await gateway.get("/api/me", token)).body.code;
  await eventually("it is revoked", async () => (await codeOf()) === "token_revoked");
  t.notOk((await listOf(gateway, root)).some((one) => one.user === "kim"));
});

t.test("a token ends with its user, also if the name is added again", async (t) => {
  await run(gateway, "user", "add", "sam", "--no-password");
  const token = await issue(gateway, "sam");
  const codeOf = async () => (await gateway.get("/api/me", token)).body.code;
  await eventually("it opens", async () => (await codeOf()) === undefined);
  await run(gateway, "user", "remove", "sam");
  await eventually("the user is gone", async () => (await codeOf()) === "user_gone");
  await run(gateway, "user", "add", "sam", "--no-password");
  await eventually("it is revoked", async () => (await codeOf()) === "token_revoked");
  t.notOk((await listOf(gateway, root)).some((one) => one.user === "sam"));
});

t.test("a token that is not in the file opens nothing, nor does a broken file", async (t) => {
  const token = await issue(gateway, "alice");
  t.equal(await insertRefusal(gateway, token), undefined);
  const file = path.join(gateway.home, "tokens");
  const text = readFileSync(file, "utf8");
  writeFileSync(file, `${text}${token}\n`, { mode: 0o600 });
  const { reason } = await gateway.service.logged(({ msg }) => /issued tokens/.test(String(msg)));
  t.match(String(reason), /tokens:\d+: is not an issued token$/);
  t.equal(await insertRefusal(gateway, token), undefined);
  rmSync(file);
  await eventually(
    "it is unknown",
    async () => (await insertRefusal(gateway, token)) === "token_invalid",
  );
  writeFileSync(file, text, { mode: 0o600 });
  await eventually("it is back", async () => (await insertRefusal(gateway, token)) === undefined);
});

t.test("the audit names the user and the token of a refused token", async (t) => {
  await run(gateway, "user", "add", "eve", "--no-password");
  const check = async (flags: readonly string[], reason: string, detail?: string) => {
    const token = await issue(gateway, "eve", ...flags);
    const known = await gateway.get("/api/me", token);
    const { tokenId } = await auditOf(gateway, known);
    const jwt = await run(gateway, "token", "issue", "eve", ...flags);
    return async () => {
      await eventually("both are refused", async () =>
        (await Promise.all([token, jwt].map((one) => gateway.get("/api/me", one)))).every(
          ({ body }) => body.code === reason,
        ),
      );
      const line = await auditOf(gateway, await gateway.get("/api/me", token));
      t.strictSame([line.user, line.tokenId, line.detail], ["eve", tokenId, detail], reason);
      const mcp = await send(gateway, statelessCall("tools/list"), jwt);
      t.match(await auditOf(gateway, mcp), { user: "eve", tokenId: /./, reason });
    };
  };
  const expired = await check(["--expires", "2s"], "token_expired");
  const revoked = await check([], "token_revoked", "revoked");
  await expired();
  await run(gateway, "token", "revoke", "--user", "eve");
  await revoked();
  const gone = await check([], "user_gone");
  await run(gateway, "user", "remove", "eve");
  await gone();
});

t.test("a broken file of tokens stops the start", async (t) => {
  const home = await staffedHome(t, people);
  writeFileSync(path.join(home, "tokens"), "nonsense\n", { mode: 0o600 });
  await t.rejects(startGateway(t, { home }), /tokens:1: is not an issued token/);
  chmodSync(path.join(home, "tokens"), 0o666);
  await t.rejects(startGateway(t, { home }), /tokens: its group or others may write it/);
});

t.test("tokens beside 60,000 others do not stall the event loop", async (t) => {
  const home = await staffedHome(t, people);
  const measured = await startGateway(t, { home, env: measuredEnvironment(home) });
  await issue(measured, "alice");
  const line = readFileSync(path.join(home, "tokens"), "utf8");
  const others = Array.from({ length: 60_000 }, (_, number) =>
    line.replace(/[\w-]{36}/, `${number}`),
  );
  writeFileSync(path.join(home, "tokens"), others.join(""), { mode: 0o600 });
  const turns: number[] = [];
  do {
    const token = await issue(measured, "bob");
    await measured.get("/api/me", token);
    await longestTurn(home);
    t.equal((await measured.get("/api/me", await issue(measured, "bob"))).status, 200);
    t.equal((await listOf(measured, token)).length, 2 * turns.length + 2);
    turns.push(await longestTurn(home));
  } while (turns.length < 5 && Math.min(...turns) >= LONGEST_STALL_MS);
  t.ok(Math.min(...turns) < LONGEST_STALL_MS, `the longest turns took ${turns} ms`);
});

t.test("an expired token is refused as expired", async (t) => {
  const token = await issue(gateway, "alice", "--expires", "1s");
  await eventually(
    "it has expired",
    async () => (await insertRefusal(gateway, token)) === "token_expired",
  );
  t.equal((await send(gateway, statelessCall("tools/list"), token)).body.code, "token_expired");
});

t.test("no part of an opaque token is sent to an issuer with introspection", async (t: Test) => {
  writeFileSync(/jwks_file = "(.*)"/.exec(issuer)?.[1] ?? "", '{"keys":[]}', { mode: 0o600 });
  const { gateway } = await openStaffed(t, people, { config: issuer });
  const token = await issue(gateway, "alice");
  t.equal(await insertRefusal(gateway, token), undefined);
  for (const wrong of [token.slice(0, -1), `${token}x`, token.replace(/.$/, "_")]) {
    t.equal(await insertRefusal(gateway, wrong), "token_invalid");
    t.equal((await send(gateway, statelessCall("tools/list"), wrong)).status, 401);
  }
  t.equal(asked, 0);
  await insertRefusal(gateway, "another-opaque-token");
  t.equal(asked, 1);
});

t.test("every worker knows a token at once, and refuses it once it is revoked", async (t) => {
  const { gateway } = await openStaffed(t, people, servedBy(2));
  const root = await tokenOf(gateway, "root");
  const connections = await connectToEach(t, gateway, root, 2);
  const codesOf = (token: string) =>
    Promise.all(
      connections.map(async (kept) => (await kept.send("POST", "/query", token, insert)).code),
    );
  for (const revoker of connections) {
    const token = await issue(gateway, "alice");
    t.strictSame(await codesOf(token), [undefined, undefined]);
    const id = await idOf(gateway, token);
    t.equal((await revoker.send("DELETE", `/api/tokens/${id}`, root)).code, undefined);
    t.strictSame(await codesOf(token), ["token_revoked", "token_revoked"]);
  }
  const token = await issue(gateway, "alice");
  await codesOf(token);
  await eventually("each worker lists its last use", async () => {
    const [first] = await listOf(gateway, root);
    return first?.last_used !== undefined;
  });
});
