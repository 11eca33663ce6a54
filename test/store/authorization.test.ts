import { randomBytes } from "node:crypto";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { Client } from "pg";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { hashId } from "../../src/core/base/sealed-bytes.ts";
import type { StateStore } from "../../src/features/oauth/server/state-store.ts";
import { sweep } from "../../src/features/store/authorization-state.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { callTool, refusalOf, send } from "../journeys/mcp.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import {
  startGateway,
  type TestGateway,
  temporaryHome,
  writeConfiguration,
} from "../kit/gateway.ts";
import { caseCount } from "../kit/nightly.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { statelessCall } from "../mcp/messages.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorize, exchange, obtainTokens, refresh } from "../oauth/flow.ts";
import { authorizeUrl, postForm, register } from "../oauth/kit.ts";
import { testState } from "../oauth/state-contract.ts";
import { Wire } from "./faults/wire.ts";
import { makeStore, storeConfig } from "./kit.ts";
import { openOperator, openOwn } from "./own-replica.ts";
import { openReplicated } from "./round-robin.ts";

const list = statelessCall("tools/list");
const alice = { username: "alice", password: "alice password" };

const made = await makeStore(t, {}, await sharedServer());
const { store, replicas, balancer } = await openReplicated(t, {
  mcp: "enabled = true",
  server: await sharedServer(),
});
await balancer.addUser("alice", "ReadWrite");

/** @param refused the code of the refusal; undefined if the token is good */
async function checkEverywhere(t: Test, token: string, refused?: string): Promise<void> {
  for (const replica of replicas) t.equal(refusalOf(await send(replica, list, token)), refused);
}

function replica(at: number): TestGateway {
  return replicas[at % replicas.length] ?? balancer;
}

// `test/oauth/state-contract.ts` has each record, of files too.
t.test("each step of an OAuth login can use another replica", async (t) => {
  for (let round = 0; round < 3; round++) {
    const { clientId, accessToken, refreshToken } = await obtainTokens(balancer, alice);
    await checkEverywhere(t, accessToken);
    let current = refreshToken;
    for (let step = 0; step < 4; step++) {
      const { status, body } = await refresh({ url: balancer.url }, clientId, current);
      t.equal(status, 200);
      await checkEverywhere(t, String(body.access_token));
      current = String(body.refresh_token);
    }
    const fields = { client_id: clientId, token: current };
    t.equal((await postForm(`${replica(round).url}/oauth/revoke`, fields)).status, 200);
    await checkEverywhere(t, accessToken, "token_revoked");
    t.equal((await refresh(balancer, clientId, current)).body.error, "invalid_grant");
  }
  for (const { home } of replicas) t.notOk(existsSync(path.join(home, "oauth")));
});

t.test("commands list and disconnect apps at every replica", async (t) => {
  const [one, other] = [await obtainTokens(balancer, alice), await obtainTokens(balancer, alice)];
  const revoke = ["token", "revoke", "--client", one.clientId];
  t.match(await store.good(revoke), `Ended the access of client ${one.clientId} for alice`);
  await checkEverywhere(t, one.accessToken, "token_revoked");
  await checkEverywhere(t, other.accessToken);
  const text = await store.good(["token", "list", "--json"]);
  const listed: { client: string }[] = JSON.parse(text).apps;
  t.ok(listed.some(({ client }) => client === other.clientId));
  t.notOk(listed.some(({ client }) => client === one.clientId));
});

t.test("a password change ends the user's tokens at every replica", async (t) => {
  const { clientId, accessToken, refreshToken } = await obtainTokens(balancer, alice);
  const { status } = await replica(2).send(
    ...(["PUT", "/api/users/alice/password", { new_password: "alice password" }] as const),
    await balancer.login(),
  );
  t.equal(status, 200);
  for (const one of replicas) t.equal((await send(one, list, accessToken)).status, 401);
  t.equal((await refresh(balancer, clientId, refreshToken)).body.error, "invalid_grant");
});

t.test("without the store, the authorization server answers 503 at once", async (t) => {
  const wires: Wire[] = [];
  const settings = { mcp: "enabled = true", maxStaleness: 60, server: await sharedServer() };
  const { balancer, replicas } = await openReplicated(t, settings, async (store) => {
    const wire = await Wire.to(t, store.server.port);
    wires.push(wire);
    return [store.urlBy(wire)];
  });
  await balancer.addUser("alice", "ReadWrite");
  const { accessToken, refreshToken, clientId } = await obtainTokens(balancer, alice);
  const authorized = await authorize(balancer, alice);
  const browser = new PlainBrowser(balancer.url);
  const page = await browser.open(authorizeUrl(balancer, { client_id: clientId }));
  const login = await browser.open(`${balancer.url}/oauth/applications`);

  for (const wire of wires) wire.cut();
  await eventually("the replica has noticed", async () => {
    const { body } = await balancer.request("/readyz");
    return body.store === "unreachable";
  });
  const away = { status: 503, body: { error: "temporarily_unavailable" } };
  const answers = [
    await register(balancer),
    await exchange(balancer, authorized),
    await refresh(balancer, clientId, refreshToken),
  ];
  for (const token of [accessToken, refreshToken]) {
    const fields = { client_id: clientId, token };
    answers.push(await postForm(`${balancer.url}/oauth/revoke`, fields));
  }
  for (const answer of answers) t.match(answer, away);
  const pages = [
    await browser.open(authorizeUrl(balancer, { client_id: clientId })),
    await browser.submit(page, { ...alice, action: "login" }),
    await browser.open(page.url),
    await browser.submit(login, { ...alice, action: "login" }),
  ];
  for (const { status, text } of pages) t.match({ status, text }, { status: 503, text: /<html/ });
  for (const { headers } of [...answers, ...pages]) t.equal(headers.get("retry-after"), "1");
  for (const path of ["/oauth/jwks", "/.well-known/oauth-authorization-server"]) {
    t.equal((await balancer.request(path)).status, 200, path);
  }
  const list = statelessCall("tools/list");
  t.equal((await send(balancer, list, accessToken)).status, 200, "tokens still work");

  for (const wire of wires) wire.restore();
  await eventually("the store is reached", async () => {
    const { body } = await balancer.request("/readyz");
    return body.store === "reached";
  });
  t.equal((await exchange(balancer, authorized)).status, 200, "nothing was used up");
  for (const replica of replicas) t.equal((await send(replica, list, accessToken)).status, 200);
});

t.test("connected apps survive the move from files to the store", async (t) => {
  const port = await freePort();
  const home = temporaryHome(t);
  const upstream = await new RecordingUpstream().listen(t);
  const options = { home, port, upstream: upstream.url };
  const before = await startGateway(t, options);
  await before.addUser("alice", "ReadWrite");
  const [app, revoked] = [await obtainTokens(before, alice), await obtainTokens(before, alice)];
  const next = await refresh(before, app.clientId, app.refreshToken);
  t.equal((await callTool(before, "whoami", {}, app.accessToken)).status, 200);
  const fields = { client_id: revoked.clientId, token: revoked.accessToken };
  t.equal((await postForm(`${before.url}/oauth/revoke`, fields)).status, 200);
  await before.service.stop();

  const store = await makeStore(t, {}, await sharedServer());
  copyFileSync(path.join(store.home, "store.key"), path.join(home, "store.key"));
  const config = storeConfig(store.url, { mcp: "enabled = true" });
  writeConfiguration(home, { ...options, config });
  t.match(await runWarm(home, ["store", "import", before.accessFile]), {
    code: 0,
    stdout: /with 2 connected apps/,
  });

  const after = await startGateway(t, { ...options, config });
  t.equal((await send(after, list, app.accessToken)).status, 200);
  t.equal(refusalOf(await send(after, list, revoked.accessToken)), "token_revoked");
  t.equal((await refresh(after, revoked.clientId, revoked.refreshToken)).status, 200);
  const { stdout } = await runWarm(home, ["token", "list", "--json"]);
  t.match(
    JSON.parse(stdout).apps.find(({ client }: { client: string }) => client === app.clientId),
    { username: "alice", called: ["whoami"] },
  );
  const last = await refresh(after, app.clientId, String(next.body.refresh_token));
  t.equal(last.status, 200);
  await store.sql("update gatehouse.oauth set consumed = consumed - interval '11 seconds'");
  const stolen = await refresh(after, app.clientId, app.refreshToken);
  t.equal(stolen.body.error, "invalid_grant", "it was used before the import");
  t.equal(refusalOf(await send(after, list, String(last.body.access_token))), "token_revoked");
});

async function openTwo(t: Test): Promise<[StateStore, StateStore]> {
  const open = async () => (await openOwn(t, made)).authorization.store;
  return [await open(), await open()];
}

testState(t, async (t) => {
  await made.sql("delete from gatehouse.oauth");
  return openTwo(t);
});

t.test("a dump of the store reveals no usable secret", async (t) => {
  const state = (await openOwn(t, made)).authorization.store;
  const secret = "a-cookie-or-a-code";
  const payload = JSON.stringify({ jti: secret, params: { state: secret } });
  const record = { payload, grantId: secret, uid: secret, expires: epochSeconds() + 60 };
  for (const model of ["Session", "Interaction", "AuthorizationCode"]) {
    await state.put(model, secret, record);
  }
  await state.secret("forms", Buffer.from(secret));
  const rows = JSON.stringify(await made.sql("select * from gatehouse.oauth"));
  for (const form of ["utf8", "base64", "base64url", "hex"] as const) {
    t.notMatch(rows, Buffer.from(secret).toString(form), form);
  }
  await made.sql("update gatehouse.oauth set id = 'moved' where model = 'Session'");
  t.ok(await state.find("Interaction", secret));
  await made.sql(
    "update gatehouse.oauth o set sealed = (select sealed from gatehouse.oauth where id = 'moved') where model = 'Interaction'",
  );
  await t.rejects(state.find("Interaction", secret), /was changed in the store/);
});

t.test("after a rekey, records decrypt only with the new key", async (t) => {
  await made.sql("delete from gatehouse.oauth");
  const before = (await openOwn(t, made)).authorization.store;
  const expires = epochSeconds() + 60;
  const record = { payload: "{}", grantId: undefined, uid: undefined, expires };
  // Several batches.
  const ids = Array.from({ length: 1001 }, (_, at) => `client-${at}`);
  // Not all at once, since each statement has a few seconds, with those before it.
  const some = Array.from({ length: 11 }, (_, at) => ids.slice(at * 100, at * 100 + 100));
  for (const batch of some) await Promise.all(batch.map((id) => before.put("Client", id, record)));
  await before.noteCall("g", "select", expires);

  const keyFile = path.join(made.home, "store.key");
  const [old] = readFileSync(keyFile, "utf8").split("\n");
  const second = Buffer.alloc(32, 7).toString("base64url");
  writeFileSync(keyFile, `${second}\n${old}\n`);
  const holder = new Client({ connectionString: made.url });
  await holder.connect();
  await holder.query("begin");
  // The last one that is encrypted again, so that records beside it come before those that are done.
  const last =
    "select from gatehouse.oauth where model = 'Client' order by id desc limit 1 for update";
  await holder.query(last);
  const rekeyed = made.good(["store", "rekey"]);
  const isWaiting = "select from pg_locks where not granted";
  await eventually("a wait", async () => (await made.sql(isWaiting)).length > 0);
  const beside = Array.from({ length: 50 }, (_, at) => `beside-${at}`);
  await Promise.all(beside.map((id) => before.put("Client", id, record)));
  await holder.end();
  t.match(await rekeyed, "1051 records", "a rekey waits for a locked row and delays no other");
  t.match(await made.good(["store", "rekey"]), " 0 records");
  writeFileSync(keyFile, `${second}\n`);
  const after = (await openOwn(t, made)).authorization.store;
  let found = 0;
  for (const batch of [...some, beside]) {
    const records = await Promise.all(batch.map((id) => after.find("Client", id)));
    found += records.filter((record) => record !== undefined).length;
  }
  t.equal(found, ids.length + beside.length, "also of a replica that still had the old key");
  await t.rejects(before.find("Client", "client-0"), /a key that is not in store.key_file/);
});

t.test("expired records are deleted in batches", async (t) => {
  const { store } = await openOwn(t, made);
  await made.sql("delete from gatehouse.oauth");
  await made.sql(`insert into gatehouse.oauth (model, id, sealed, expires)
    select 'Interaction', 'i' || n, '', clock_timestamp() + (2100 - n) * interval '-1 second'
    from generate_series(1, 2200) as n`);
  await sweep(store.database.query);
  t.match(await made.sql("select count(*)::int as count from gatehouse.oauth"), [{ count: 100 }]);
});

// Codes and refresh tokens that are sent to two replicas at once.
//      node test/store/authorization.test.ts --times 10000

const { values } = parseArgs({
  options: { times: { type: "string", default: String(caseCount(24, 200)) } },
});
const times = Number(values.times);
const LANES = 16;

t.setTimeout(3_600_000);

function two(round: number): TestGateway[] {
  return replicas.filter((_, at) => at !== round % replicas.length);
}

/** Runs `once` for each round, in several lanes. */
async function run(once: (round: number, lane: number) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async (_: unknown, number: number) => {
    while (next < times) await once(next++, number);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

/** Lets a user consent once. The result makes token requests with copies of that code. */
async function openCodes(): Promise<() => Promise<Record<string, string>>> {
  const { callback, clientId, verifier, redirectUri } = await authorize(balancer, alice);
  const { store: state } = (await openOperator(t, store)).authorization;
  const code = callback.searchParams.get("code") ?? "";
  const issued = JSON.parse((await state.find("AuthorizationCode", hashId(code)))?.payload ?? "");
  const grant = JSON.parse((await state.find("Grant", issued.grantId))?.payload ?? "");

  async function put(model: string, id: string, content: object, grantId?: string): Promise<void> {
    const expires = epochSeconds() + 60;
    const payload = JSON.stringify({ ...content, exp: expires });
    await state.put(model, id, { payload, grantId, uid: undefined, expires });
  }

  return async () => {
    const [next, grantId] = [randomBytes(32), randomBytes(32)].map((id) =>
      id.toString("base64url"),
    );
    if (next === undefined || grantId === undefined) throw new Error("no ids");
    await put("Grant", grantId, { ...grant, jti: grantId });
    await put("AuthorizationCode", hashId(next), { ...issued, grantId }, grantId);
    return {
      grant_type: "authorization_code",
      client_id: clientId,
      code: next,
      code_verifier: verifier,
      redirect_uri: redirectUri,
      resource: `${balancer.url}/mcp`,
    };
  };
}

type Answered = Awaited<ReturnType<typeof postForm>>;

const unreachable: Answered = { status: 503, body: {}, headers: new Headers() };

/**
 * Sends a token request to two replicas at once. On a busy machine, a replica may lose its store or
 * close an idle connection that the request uses.
 */
function race(round: number, form: Record<string, string>): Promise<Answered[]> {
  const send = ({ url }: TestGateway) =>
    postForm(`${url}/oauth/token`, form).catch(() => unreachable);
  return Promise.all(two(round).map(send));
}

function isUnreachable({ status }: Answered): boolean {
  return status === unreachable.status;
}

t.test("of two replicas that receive a code at once, one issues tokens", async (t) => {
  const makeCode = await openCodes();
  const found = { won: 0, ended: 0, disagreed: 0, unreachable: 0 };
  await run(async (round) => {
    const answers = await race(round, await makeCode());
    const won = answers.filter(({ status }) => status === 200);
    const lost = answers.filter(({ body }) => body.error === "invalid_grant");
    if (won.length === 1 && lost.length === 1) found.won++;
    else if (won.length < 2 && answers.some(isUnreachable)) found.unreachable++;
    if (round % 8 > 0) return;
    // A reused code ends its tokens, at all replicas or at none.
    const token = String(won[0]?.body.access_token);
    const judge = (replica: TestGateway) => send(replica, list, token).catch(() => unreachable);
    const judged = await Promise.all(two(round).map(judge));
    const statuses = new Set(judged.map(({ status }) => status));
    if (statuses.has(200) && statuses.has(401)) found.disagreed++;
    else if (statuses.has(401)) found.ended++;
  });
  t.comment(JSON.stringify({ times, ...found }));
  t.match(found, { won: times - found.unreachable, disagreed: 0 });
  t.ok(found.unreachable < times / 2);
});

t.test("a refresh token works at two replicas at once", async (t) => {
  const found = { answered: 0, distinct: 0, unreachable: 0 };
  const families: Awaited<ReturnType<typeof obtainTokens>>[] = [];
  await eventually("each has a family of its own", async () => {
    const family = await obtainTokens(balancer, alice).catch(() => undefined);
    if (family !== undefined) families.push(family);
    return families.length === LANES;
  });
  await run(async (round, lane) => {
    const { clientId, refreshToken } = families[lane] ?? { clientId: "", refreshToken: "" };
    const answers = await race(round, {
      grant_type: "refresh_token",
      client_id: clientId,
      refresh_token: refreshToken,
      resource: `${balancer.url}/mcp`,
    });
    const tokens = answers.flatMap(({ body }) => body.refresh_token ?? []).map(String);
    if (tokens.length === 2) found.answered++;
    else if (answers.some(isUnreachable)) found.unreachable++;
    if (new Set([...tokens, refreshToken]).size === 3) found.distinct++;
    const [next] = tokens;
    const family = families[lane];
    if (family !== undefined && next !== undefined)
      families[lane] = { ...family, refreshToken: next };
  });
  t.comment(JSON.stringify({ times, ...found }));
  const answered = times - found.unreachable;
  t.match(found, { answered, distinct: answered });
  t.ok(found.unreachable < times / 2);
  const text = await store.good(["token", "list", "--json"]);
  const listed: { client: string }[] = JSON.parse(text).apps;
  for (const { clientId } of families) {
    t.equal(listed.filter(({ client }) => client === clientId).length, 1, "one family");
  }
});
