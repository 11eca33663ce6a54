/**
 * Runs the suite of the preset, random requests, nano and PouchDB against PouchDB Server. With
 * `GATEHOUSE_COUCHDB=http://user:password@host:port`, also against that CouchDB, in databases whose
 * names begin with `gatehouse_test_`.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import * as z from "zod";
import { CouchWalk, walkBoth } from "../databases/kit/couch-walk.ts";
import { checkSuite } from "../databases/kit/open.ts";
import { passwordOf, staffedHome } from "../journeys/staff.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";

const run = promisify(execFile);
const root = path.join(import.meta.dirname, "../..");
const place = path.join(root, "node_modules/.cache/couchdb-1");
const packages = [
  "nano@11.0.7",
  "pouchdb-adapter-http@9.0.0",
  "pouchdb-adapter-memory@9.0.0",
  "pouchdb-core@9.0.0",
  "pouchdb-find@9.0.0",
  "pouchdb-mapreduce@9.0.0",
  "pouchdb-replication@9.0.0",
  "pouchdb-server@4.2.0",
];
const DATABASE = "gatehouse_test_shop";
const OTHER = "gatehouse_test_other";

async function install(): Promise<void> {
  if (existsSync(path.join(place, "node_modules/pouchdb-server"))) return;
  // LevelDB and SQLite, which it could store in, are compiled.
  const flags = ["--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"];
  await run("npm", ["install", "--prefix", place, ...flags, ...packages]);
}

interface Server {
  readonly url: string;
  readonly authorization: string | undefined;
}

async function startPouch(t: Test): Promise<Server> {
  const port = await freePort();
  const program = path.join(place, "node_modules/pouchdb-server/bin/pouchdb-server");
  const flags = ["--in-memory", "--port", String(port), "--host", "127.0.0.1"];
  const child = spawn(process.execPath, [program, ...flags], {
    stdio: "ignore",
    cwd: temporaryHome(t),
  });
  t.teardown(async () => {
    child.kill();
    if (child.exitCode === null) await once(child, "close");
  });
  const url = `http://127.0.0.1:${port}`;
  await eventually("PouchDB Server responds", async () => {
    const answer = await fetch(url).catch(() => undefined);
    return answer?.ok === true;
  });
  return { url, authorization: undefined };
}

function configured(): Server | undefined {
  const { GATEHOUSE_COUCHDB: written } = process.env;
  if (written === undefined) return undefined;
  const { origin, username, password } = new URL(written);
  const encoded = Buffer.from(`${username}:${password}`).toString("base64");
  return { url: origin, authorization: username === "" ? undefined : `Basic ${encoded}` };
}

async function send({ url, authorization = "" }: Server, method: string, database: string) {
  const headers = authorization === "" ? {} : { authorization };
  await ask(`${url}/${database}`, { method, headers });
}

async function openGateway(t: Test, { url, authorization }: Server): Promise<TestGateway> {
  const home = await staffedHome(t, [
    "root * Owner",
    `reader ${DATABASE} ReadOnly`,
    `writer ${DATABASE} ReadWrite`,
    `builder ${DATABASE} DbAdmin`,
    `owner ${DATABASE} Owner`,
  ]);
  let credential = "";
  if (authorization !== undefined) {
    writeFileSync(path.join(home, "credential"), authorization, { mode: 0o600 });
    credential = 'credential = { header = "Authorization", file = "credential" }\n';
  }
  return startGateway(t, {
    home,
    auth: 'accept = ["bearer", "basic"]',
    upstream: url,
    config: `preset = "couchdb"\n${credential}`,
  });
}

async function checkServer(t: Test, { url, authorization }: Server): Promise<void> {
  if (authorization === undefined) return checkSuite(t, "couchdb", url, 2500);
  const file = path.join(temporaryHome(t), "header");
  writeFileSync(file, `Authorization: ${authorization}`, { mode: 0o600 });
  await checkSuite(t, "couchdb", url, 2500, ["--credential-file", file]);
}

const line = z.object({ fact: z.string(), holds: z.boolean(), found: z.string().optional() });

async function checkClients(t: Test, server: Server): Promise<void> {
  const gateway = await openGateway(t, server);
  for (const name of [DATABASE, OTHER]) await send(server, "PUT", name);
  t.teardown(async () => {
    for (const name of [DATABASE, OTHER]) await send(server, "DELETE", name);
  });
  const program = path.join(import.meta.dirname, "couchdb-clients.js");
  const flags = [program, place, gateway.url, DATABASE, OTHER];
  const { stdout } = await run(process.execPath, flags, { timeout: 120_000 });
  const facts = stdout.trim().split("\n");
  t.ok(facts.length >= 30, "it checks something");
  for (const one of facts) {
    const { fact, holds, found } = line.parse(JSON.parse(one));
    t.ok(holds, fact, { found });
  }
}

const servers: Record<string, (t: Test) => Promise<Server>> = { "PouchDB Server": startPouch };
const given = configured();
if (given !== undefined) servers.CouchDB = async () => given;

await install();
for (const [name, start] of Object.entries(servers)) {
  t.test(`${name} behind its preset`, { timeout: 600_000 }, async (t) => {
    const server = await start(t);
    await t.test("every check of the suite holds", (t) => checkServer(t, server));
    await t.test("nano and PouchDB work as docs/couchdb.md says", (t) => checkClients(t, server));
  });
}

t.test("nothing tells that another database exists", { timeout: 600_000 }, async (t) => {
  const gateways: string[] = [];
  const tokens: string[] = [];
  for (const databases of [[DATABASE], ["a-first", DATABASE, OTHER, "zulu"]]) {
    const server = await startPouch(t);
    for (const name of databases) await send(server, "PUT", name);
    const gateway = await openGateway(t, server);
    gateways.push(gateway.url);
    tokens.push(`Basic ${Buffer.from(`owner:${passwordOf("owner")}`).toString("base64")}`);
  }
  const [one = "", other = ""] = gateways;
  const [token = "", otherToken = ""] = tokens;
  const walk = new CouchWalk(DATABASE, 20261129);
  const statuses = await walkBoth([one, other], [token, otherToken], walk, 1500);
  for (const status of [200, 201, 403, 404, 409]) {
    t.ok(statuses.get(status), `some answers are ${status}`);
  }
});
