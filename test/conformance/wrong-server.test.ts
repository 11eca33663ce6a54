import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import t, { type Test } from "tap";
import { z } from "zod";
import { connectTo } from "../../src/features/conformance/run.ts";
import { type Answer, databaseFiles, freshEngine, query } from "../engine/kit.ts";
import { freePort } from "../kit/free-port.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { cleanEnvironment, gatehouseCommand } from "../kit/process.ts";
import { runWarm } from "../kit/warm-command.ts";

type Handle = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

async function serve(t: Test, handle: Handle): Promise<string> {
  const server = createServer((request, response) => {
    handle(request, response).catch((error) => response.destroy(error));
  });
  const port = await listening(t, server);
  return `http://127.0.0.1:${port}`;
}

function run(t: Test, ...flags: string[]) {
  return runWarm(temporaryHome(t), ["upstream", "test", ...flags]);
}

type Distort = (body: string, answer: Answer) => { status: number; type: string; text: string };

async function distorted(t: Test, distort: Distort) {
  const { engine, directory } = await freshEngine(t);
  const url = await serve(t, async (request, response) => {
    const body = await text(request);
    const { status, type, text: answer } = distort(body, await query(engine.address, body));
    response.writeHead(status, { "content-type": type }).end(answer);
  });
  return { url, directory };
}

const report = z.object({
  level: z.string(),
  cases: z.number(),
  failures: z.array(
    z.object({
      section: z.string(),
      name: z.string(),
      sent: z.string(),
      expected: z.object({ status: z.number(), answer: z.string() }),
      got: z.object({ status: z.number(), answer: z.string() }),
      difference: z.string(),
    }),
  ),
});

const faults: readonly [asked: RegExp, from: RegExp, to: string, difference: RegExp][] = [
  [/"cmp": "!=", "value": 20/, /\{"id":1\},/, '{"id":1},{"id":3},', /^data has 3 elements, not 2$/],
  [/"cmp": "LIKE", "value": "a____"/, /\{"id":1\}/, '{"id":"1"}', /^data\[0\]\.id is "1", not 1$/],
  [
    /"first name", "cmp": "="/,
    /9223372036854775807/,
    "9223372036854775808",
    /775808, not .*775807$/,
  ],
  [/"age", "id"/, /"age":31,"id":1/, '"id":1,"age":31', /has the keys id, age, not age, id$/],
  [
    /"from": "people", "columns": \["shoe"\]/,
    /unknown_column/,
    "no_column",
    /^code is "no_column"/,
  ],
  [/"limit": 0/, /"data":\[\]/, '"rows":[]', /^rows is not expected$/],
  [/"limit": 1000/, /\}$/, "", /^the body is no JSON$/],
];

t.test("each wrong response is reported with what was sent, expected and received", async (t) => {
  const { url, directory } = await distorted(t, (body, { status, text }) => {
    const [, from = /^$/, to = ""] = faults.find(([asked]) => asked.test(body)) ?? [];
    return { status, type: "application/json; charset=utf-8", text: text.replace(from, to) };
  });
  const { code, stdout } = await run(t, "--url", url, "--json");
  t.equal(code, 1);
  const { level, cases, failures } = report.parse(JSON.parse(stdout));
  t.equal(level, "core");
  t.ok(cases > 100);
  t.equal(failures.length, faults.length);
  for (const [asked, , , difference] of faults) {
    const failure = failures.find(({ sent }) => asked.test(sent));
    t.match(failure?.difference, difference);
    t.equal(failure?.expected.status, failure?.got.status);
  }
  t.strictSame(databaseFiles(directory), ["main.sqlite"], "its databases are dropped");
});

t.test("the report as text has the same content", async (t) => {
  const { url } = await distorted(t, (body, { status, text }) => {
    const isWrong = body.includes("persons");
    const type = body.includes('"DESC"') ? "text/plain" : "application/json";
    return { status: isWrong ? 200 : status, type, text };
  });
  const { code, stdout } = await run(t, "--url", url);
  t.equal(code, 1);
  t.match(stdout, /^FAIL {2}Tables and rows \(1 of \d+ failed\)$/m);
  t.match(stdout, /^ {2}a table that is not there is refused: the status is 200, not 404$/m);
  t.match(
    stdout,
    /^ {4}sent {6}\{"Select": \{"database": "conformance_[0-9a-f]{8}_0", "from": "persons"/m,
  );
  t.match(stdout, /^ {4}expected {2}404 \{"status": "error"/m);
  t.match(stdout, /^ {4}got {7}200 \{"status":"error"/m);
  t.match(stdout, /the Content-Type is "text\/plain", not application\/json$/m);
  t.match(stdout, /^ok {4}Conditions \(\d+\)$/m);
  t.match(stdout, /^\d+ cases at level core, \d failed$/m);
});

t.test("a server without queries fails each section at its start", async (t) => {
  let asked = 0;
  const url = await serve(t, async (request, response) => {
    await text(request);
    asked++;
    response.writeHead(404, { "content-type": "text/html" }).end("<h1>Not found</h1>");
  });
  const { code, stdout } = await run(t, "--url", url, "--level", "full");
  t.equal(code, 1);
  t.match(stdout, /the section's database is created: the status is 404, not 200/);
  t.match(stdout, /^FAIL {2}Tables and rows \(2 of 2 failed\)$/m, "no others were run");
  t.match(stdout, /^(\d+) cases at level full, \1 failed$/m);
  t.ok(asked < 50, `${asked} requests`);
});

t.test("Ctrl-C ends the run after the current section and its databases are dropped", async (t) => {
  const child = Promise.withResolvers<ChildProcess>();
  const { engine, directory } = await freshEngine(t);
  const url = await serve(t, async (request, response) => {
    const body = await text(request);
    if (/CreateTable.*"things"/.test(body)) (await child.promise).kill("SIGINT");
    const answer = await query(engine.address, body);
    response.writeHead(answer.status, { "content-type": "application/json" }).end(answer.text);
  });
  const command = gatehouseCommand(["upstream", "test", "--url", url]);
  const process = spawn(...command, { env: cleanEnvironment(temporaryHome(t)) });
  child.resolve(process);
  const printed = text(process.stdout);
  const [code] = await once(process, "exit");
  t.equal(code, 130);
  t.match(await printed, /^ok {4}Conditions/m);
  t.notMatch(await printed, /Joins/);
  t.strictSame(databaseFiles(directory), ["main.sqlite"]);
});

t.test("no response at all is exit status 1 with the reason", async (t) => {
  const port = await freePort();
  const refused = await run(t, "--url", `http://127.0.0.1:${port}`);
  t.match(refused, { code: 1, stderr: /no response from http:\/\/127.0.0.1:\d+: .*ECONNREFUSED/ });
  const missing = await run(t, "--url", "unix:/nonexistent/db.sock");
  t.match(missing, { code: 1, stderr: /no response from unix:\/nonexistent\/db.sock: .*ENOENT/ });
});

t.test("a server that does not answer is reported as such", async (t) => {
  const url = await serve(t, async () => {});
  const { timeout } = AbortSignal;
  t.intercept(AbortSignal, "timeout", { value: () => timeout.call(AbortSignal, 50) });
  await t.rejects(
    connectTo(url, undefined)("{}"),
    /^timed out after 60 seconds; check the address/,
  );
});

t.test("invalid arguments are exit status 2", async (t) => {
  for (const flags of [
    [],
    ["--url", "ftp://127.0.0.1"],
    ["--url", "http://user:secret@127.0.0.1"],
    ["--url", "http://127.0.0.1/query"],
    ["--url", "http://127.0.0.1", "--level", "half"],
  ]) {
    const { code, stderr } = await run(t, ...flags);
    t.equal(code, 2, flags.join(" "));
    t.notMatch(stderr, "secret");
  }
});
