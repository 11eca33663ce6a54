import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { ChromaStub } from "../databases/kit/chroma.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { cleanEnvironment, gatehouseCommand } from "../kit/process.ts";
import { installNothing } from "./kit.ts";

t.test("preset show prints each request that passes, and its right", async (t) => {
  const gatehouse = installNothing(t);
  const { code, stdout } = await gatehouse.run("preset show chroma");
  t.equal(code, 0);
  t.match(stdout, /^METHOD {2}PATH .* RIGHT .* NAMES BESIDES THE PATH .* PARAMETERS .* BODY\n/);
  t.match(stdout, /^POST +\/api\/v2\/tenants\/.*\/:id\/upsert +INSERT, UPDATE +.* stream$/m);
  t.notMatch(stdout, "reset");
  const json = await gatehouse.run("preset show chroma --json");
  const endpoints: unknown[] = JSON.parse(json.stdout);
  t.equal(endpoints.length, stdout.trim().split("\n").length - 1);
  t.match(endpoints[0], {
    method: "GET",
    path: "/api/v2/heartbeat",
    right: "every user",
    names: "",
    parameters: [],
    body: "none",
  });
  // A ReadWrite user may not write design documents, which run code.
  const { stdout: ofCouchdb } = await gatehouse.run("preset show couchdb");
  const changes = /^(?:PUT|DELETE|COPY) +\/:database\/(?:_design\/:ddoc|:doc)[/ ].*/gm;
  for (const line of ofCouchdb.match(changes) ?? []) t.match(line, /; CREATE for _design\//);
  const { stdout: ofOpensearch } = await gatehouse.run("preset show opensearch");
  t.match(ofOpensearch, /^GET +\/_cat\/indices +any user +lists only /m);
  t.match(ofCouchdb, /^POST +\/:database\/_bulk_docs +by document; CREATE for _design\/ /m);
});

t.test("an unknown preset and a bad URL are errors of usage", async (t) => {
  const gatehouse = installNothing(t);
  for (const [command, message] of [
    ["preset show redis", /Allowed choices are chroma, opensearch, couchdb/],
    ["preset test chroma", /required option '--url <url>' not specified/],
    ["preset test chroma --url ftp://127.0.0.1", /--url: allowed: http:\/\/host:port/],
    ["preset test chroma --url http://127.0.0.1:1/path", /--url: allowed/],
  ] as const) {
    const { code, stderr } = await gatehouse.run(command);
    t.equal(code, 2, command);
    t.match(stderr, message, command);
  }
});

t.test("preset test sends a credential in any header, and names what does not hold", async (t) => {
  const gatehouse = installNothing(t);
  const stub = await ChromaStub.open(t);
  const file = path.join(gatehouse.home, "credential");
  const flags = ["--url", stub.url, "--credential-file", file];
  writeFileSync(file, "secret\n", { mode: 0o600 });
  const bad = await gatehouse.run("preset test chroma", flags);
  t.equal(bad.code, 1);
  t.match(bad.stderr, /credential: allowed: one header, such as/);
  writeFileSync(file, "X-Chroma-Token: a secret\n", { mode: 0o600 });
  const isSent = ({ headers }: { headers: NodeJS.Dict<string | string[]> }) =>
    headers["x-chroma-token"] === "a secret";
  // A later version that does not know a path of the preset any more.
  stub.intercept = ({ url }, response) => {
    if (!url.endsWith("/healthcheck")) return false;
    response.writeHead(410).end("gone\u001b[2J");
    return true;
  };
  const { code, stdout } = await gatehouse.run("preset test chroma", flags);
  const received = stub.take();
  t.ok(received.length > 300);
  t.same(
    received.filter((one) => !isSent(one)),
    [],
  );
  t.equal(code, 1);
  t.match(stdout, /^FAIL {2}stranger gets 200 for GET \/api\/v2\/healthcheck\n {6}410 gone \[2J$/m);
  t.match(stdout, /^\d+ of \d+ checks held\n$/m);
  t.equal(
    stdout.match(/^FAIL/gm)?.length,
    stdout.match(/healthcheck$/gm)?.length,
    "all else holds",
  );
});

t.test("preset test removes its databases and files on SIGTERM", async (t) => {
  const stub = await ChromaStub.open(t);
  const databases = async () =>
    (await fetch(`${stub.url}/api/v2/tenants/default_tenant/databases`)).text();
  const before = await databases();
  const directory = temporaryHome(t);
  const child = spawn(...gatehouseCommand(["preset", "test", "chroma", "--url", stub.url]), {
    env: cleanEnvironment(directory, { TMPDIR: directory }),
  });
  const ended = once(child, "exit");
  stub.intercept = ({ method, url }) => {
    if (!child.killed && method === "POST" && url.endsWith("/upsert")) child.kill("SIGTERM");
    return false;
  };
  t.strictSame(await ended, [143, null]);
  t.equal(await databases(), before);
  t.strictSame(
    readdirSync(directory).filter((name) => name.startsWith("gatehouse-preset-")),
    [],
  );
});
