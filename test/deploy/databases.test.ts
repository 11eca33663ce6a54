import { readdirSync } from "node:fs";
import t, { type Test } from "tap";
import { ask, type PlainAnswer } from "../kit/client.ts";
import { startGateway } from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { type Case, type Database, databases, startDatabase } from "./databases.ts";
import { deployed, deployedPath, fill } from "./programs.ts";

type Asker = (request: Case) => Promise<PlainAnswer>;

/** A gateway of the example as it stands, but for the database's port, and a way to ask it. */
async function openExample(t: Test, { name, url }: Database, upstream: string): Promise<Asker> {
  const config = fill(deployed(`examples/${name}.toml`), { [url]: upstream });
  const gateway = await startGateway(t, { config });
  const tokens: Record<string, string> = {
    admin: await gateway.login(),
    reader: await gateway.addUser("reader", "ReadOnly"),
    writer: await gateway.addUser("writer", "ReadWrite"),
  };
  return async ({ who, line, body }) => {
    const [method, path] = line.split(" ");
    const token = tokens[who];
    const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    const content = body === undefined ? {} : { body };
    return ask(`${gateway.url}${path}`, { ...(method ? { method } : {}), headers, ...content });
  };
}

t.test("each file of deploy/examples is tried here", async (t) => {
  const files = readdirSync(deployedPath("examples"));
  t.strictSame(files.sort(), databases.map(({ name }) => `${name}.toml`).sort());
});

for (const database of databases) {
  const { name, cases } = database;
  t.test(`${name}: who may sends their own bytes up, and nobody else any`, async (t) => {
    const upstream = await new RecordingUpstream().listen();
    t.teardown(() => upstream.close());
    const send = await openExample(t, database, upstream.url);
    for (const request of cases) {
      const what = `${request.who}: ${request.line}`;
      const { status } = await send(request);
      t.equal(status, request.status, `${what} is ${request.status}`);
      const received = upstream.take();
      const seen = received.map(({ method, url, body }) => [`${method} ${url}`, `${body}`]);
      const expected = [[request.line, request.body ?? ""]];
      t.strictSame(seen, request.answer === undefined ? [] : expected, what);
      t.notOk(received[0]?.headers.authorization, "the token stays here");
    }
  });

  t.test(`${name}: the database itself answers so, where it is installed`, async (t) => {
    const url = await startDatabase(t, database);
    if (url === undefined) {
      t.pass(`this machine has no ${database.programs.join(" and ")}`);
      return;
    }
    const send = await openExample(t, database, url);
    for (const request of cases) {
      const { status, body } = await send(request);
      const what = `${request.who}: ${request.line}`;
      t.equal(status, request.status, `${what} is ${request.status}`);
      if (request.answer !== undefined) t.match(`${body}`, request.answer, what);
    }
  });
}
