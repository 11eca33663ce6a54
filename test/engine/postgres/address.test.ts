import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pino } from "pino";
import t from "tap";
import { startEngine } from "../../../src/engine/engine.ts";
import { parseAddress, passwordIn } from "../../../src/engine/postgres/address.ts";
import { query, selectAll, temporaryDirectory } from "../kit.ts";
import { sharedServer, silentServer, startOn } from "./kit.ts";
import { startService } from "./service.ts";

const log = pino({ level: "silent" });
const listen = "127.0.0.1:0";

t.test("a line of a password file counts for what it names", async (t) => {
  const place = { host: "db.example", port: 5432, user: "ann:a", database: "shop" };
  const fits = ["db.example:5432:shop:ann\\:a:p\\:w\\\\d", "*:*:*:*:p\\:w\\\\d"];
  for (const line of fits) t.equal(passwordIn(`# all\n\n${line}\n`, place), "p:w\\d", line);
  const others = ["other:5432:shop:ann\\:a:x", "db.example:5433:*:*:x", "#*:*:*:*:x", "*:*:*:*"];
  for (const line of others) t.equal(passwordIn(line, place), undefined, line);
  t.equal(passwordIn("localhost:*:*:*:x", { ...place, host: "/run/postgresql" }), "x");
});

t.test("the password comes from the URL, the environment or a private file", async (t) => {
  const server = await sharedServer();
  await server.requirePassword("ann", "hunter2");
  const home = temporaryDirectory(t);
  const file = path.join(home, ".pgpass");
  writeFileSync(file, "127.0.0.1:*:*:ann:hunter2\n", { mode: 0o600 });
  const url = server.url().replace("gatehouse@", "ann@");
  const ways: [string, NodeJS.ProcessEnv][] = [
    [url.replace("ann@", "ann:hunter2@"), {}],
    [url, { PGPASSWORD: "hunter2" }],
    [url, { PGPASSFILE: file }],
  ];
  for (const [url, env] of ways) {
    const { service, address } = await startService(t, url, env);
    t.match(await query(address, selectAll("t")), { status: 404 });
    const command = readFileSync(`/proc/${service.child.pid}/cmdline`, "utf8");
    t.notMatch(command + service.output, /hunter2/, "nobody sees it in the list of processes");
  }
  chmodSync(file, 0o644);
  await t.rejects(startService(t, url, { PGPASSFILE: file }), /refuses the engine/);
});

t.test(
  "a URL or a server that cannot be used ends the start without telling the password",
  async (t) => {
    const server = await sharedServer();
    const cases: [string, RegExp][] = [
      ["postgres://ann:hunter2@[::bad/x", /is invalid/],
      ["postgres://ann:hunter2@db/x?sslmod=verify-full", /unknown parameter "sslmod"; use host/],
      ["postgres://ann:hunter2@db/x?sslmode=verify_full", /unknown sslmode; use disable, /],
      ["postgres://ann:hunter2@db/x?connect_timeout=0", /invalid connect_timeout: use 1 to 9999/],
      ["postgres://ann:hunter2@db/x?sslrootcert=/nowhere", /cannot be read: \/nowhere\./],
      [server.url("nowhere").replace("@", ":hunter2@"), /"nowhere" does not exist/],
      [server.url().replace("gatehouse@", "nobody:hunter2@"), /"nobody" does not exist/],
    ];
    for (const [url, message] of cases) {
      const error = await startEngine({ url, listen, log }).then(
        () => undefined,
        (error: unknown) => String(error),
      );
      t.match(error, message);
      t.notMatch(error, /hunter2/);
    }
  },
);

t.test("a URL says by which name the server knows the engine", async (t) => {
  const server = await sharedServer();
  const { address } = await startOn(t, `${server.url()}?application_name=shop+gateway`);
  t.match(await query(address, selectAll("t")), { status: 404 });
  const sessions = await server.sql("select application_name as name from pg_stat_activity");
  t.ok(sessions.some(({ name }) => name === "shop gateway"));
});

t.test("a URL says how long a server may take to take a connection", async (t) => {
  const { port, whenLeft } = await silentServer(t);
  const url = `postgres://ann@127.0.0.1:${port}/shop`;
  t.equal(parseAddress(url).connectTimeoutMs, undefined);
  t.equal(parseAddress(`${url}?connect_timeout=1`).connectTimeoutMs, 1000);
  await startOn(t, `${url}?connect_timeout=1`);
  await whenLeft;
});
