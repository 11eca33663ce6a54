/** URLs, passwords and certificates of PostgreSQL and MySQL servers. */
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pino } from "pino";
import t, { type Test } from "tap";
import { parseAddress as parseMysql } from "../../src/engine/mysql/address.ts";
import { parseAddress as parsePostgres, passwordIn } from "../../src/engine/postgres/address.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { query, refusal, selectAll } from "./kit.ts";
import { sharedServer as sharedMysql } from "./mysql/kit.ts";
import { LyingServer } from "./mysql/lying-server.ts";
import { sharedServer as sharedPostgres, silentServer, startOn } from "./postgres/kit.ts";
import { startService } from "./postgres/service.ts";
import { startEngine } from "./server.ts";

const log = pino({ level: "silent" });
const start = (url: string) => startEngine({ url, log });
const select = selectAll("t");

t.test("a URL names the server and the user", async (t) => {
  t.match(parseMysql("mysql://a%40b:p%3Aw@db.example/"), {
    host: "db.example",
    port: 3306,
    user: "a@b",
    password: "p:w",
    ssl: undefined,
  });
  t.match(parseMysql("mysql://app@[::1]:3307"), { host: "::1", port: 3307 });
  t.match(parseMysql("mysql://app@localhost?socket=/run/s"), { socketPath: "/run/s" });
  const ssl = { rejectUnauthorized: true, verifyIdentity: true };
  t.match(parseMysql("mysql://app@db?ssl-mode=verify_identity"), { ssl });
});

t.test("an unusable URL or server ends the start without showing the password", async (t) => {
  const server = await sharedPostgres();
  const cases: [string, RegExp][] = [
    ["mysql://app:hunter2@[::bad/", /is invalid/],
    ["mysql://:hunter2@db/", /names no user/],
    ["mysql://app:hunter2@db/shop", /names a database/],
    ["mysql://app:hunter2@db/?multipleStatements=true", /unknown parameter "multipleStatements"/],
    ["mysql://app:hunter2@db/?ssl-mode=PREFERRED", /unknown ssl-mode/],
    ["mysql://app:hunter2@127.0.0.1/?ssl-mode=VERIFY_IDENTITY", /needs a host name/],
    ["mysql://app:hunter2@db/?connect-timeout=2s", /invalid connect-timeout: use 1 to 9999/],
    ["mysql://app:hunter2@db/?ssl-ca=/nowhere", /cannot be read: ssl-ca=\/nowhere/],
    ["mysql://app:%ffhunter2@db/", /percent-encode special/],
    ["postgres://ann:hunter2@[::bad/x", /is invalid/],
    ["postgres://ann:hunter2@db/x?sslmod=verify-full", /unknown parameter "sslmod"; use host/],
    ["postgres://ann:hunter2@db/x?sslmode=verify_full", /unknown sslmode; use disable, /],
    ["postgres://ann:hunter2@db/x?connect_timeout=0", /invalid connect_timeout: use 1 to 9999/],
    ["postgres://ann:hunter2@db/x?sslrootcert=/nowhere", /cannot be read: \/nowhere\./],
    [server.url("nowhere").replace("@", ":hunter2@"), /"nowhere" does not exist/],
    [server.url().replace("gatehouse@", "nobody:hunter2@"), /"nobody" does not exist/],
  ];
  for (const [url, message] of cases) {
    const error = await start(url).then(String, String);
    t.match(error, message);
    t.notMatch(error, /hunter2/);
  }
});

t.test("a password that is not percent-encoded is refused, and no piece of it shown", async (t) => {
  const passwords = [
    "p@ss/w:rd#%",
    "12/34@5",
    "12?34@5",
    "12?sslmode=34",
    "34#5",
    "34%",
    "3%4@5",
    "@34",
  ];
  for (const password of passwords) {
    for (const [scheme, path] of [
      ["postgres", "shop"],
      ["postgresql", ""],
      ["mysql", ""],
    ]) {
      const error = await start(`${scheme}://app:${password}@host/${path}`).then(String, String);
      t.match(error, /is invalid: percent-encode special characters .* @ \(%40\)/, password);
      t.notMatch(error.replace(/\(%.*\)/, ""), /[34]|host/, password);
    }
  }
  const encoded = "app:p%40ss%2Fw%3Ard%23%25@host";
  const password = "p@ss/w:rd#%";
  t.match(parseMysql(`mysql://${encoded}/`), { host: "host", user: "app", password });
  const address = parsePostgres(`postgres://${encoded}/db`);
  t.match(address, { host: "host", user: "app", database: "db" });
  t.equal(await address.password("db"), password);
});

t.test("the driver prints nothing about an sslmode, and verifies in all but two", async (t) => {
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on("warning", note);
  t.teardown(() => process.off("warning", note));
  const sslOf = (mode: string) => parsePostgres(`postgres://app@db/shop?sslmode=${mode}`).ssl;
  for (const mode of ["prefer", "require", "verify-ca", "verify-full"]) t.same(sslOf(mode), {});
  t.same(sslOf("no-verify"), { rejectUnauthorized: false });
  t.equal(sslOf("disable"), false);
  await new Promise(setImmediate);
  t.same(warnings, []);
});

t.test("a line of a password file matches by its fields", async (t) => {
  const login = { host: "db.example", port: 5432, user: "ann:a", database: "shop" };
  const fits = ["db.example:5432:shop:ann\\:a:p\\:w\\\\d", "*:*:*:*:p\\:w\\\\d"];
  for (const line of fits) t.equal(passwordIn(`# all\n\n${line}\n`, login), "p:w\\d", line);
  const others = ["other:5432:shop:ann\\:a:x", "db.example:5433:*:*:x", "#*:*:*:*:x", "*:*:*:*"];
  for (const line of others) t.equal(passwordIn(line, login), undefined, line);
  t.equal(passwordIn("localhost:*:*:*:x", { ...login, host: "/run/postgresql" }), "x");
});

/** Starts engines with the password `hunter2` and checks that other users cannot see it. */
async function checkPassword(t: Test, sources: [string, NodeJS.ProcessEnv][]): Promise<void> {
  for (const [url, env] of sources) {
    const { service, address } = await startService(t, url, env);
    t.match(await query(address, select), { status: 404 });
    const command = readFileSync(`/proc/${service.child.pid}/cmdline`, "utf8");
    t.notMatch(command + service.output, /hunter2/, "not in the list of processes");
  }
}

t.test("PostgreSQL's password is in the URL, the environment or a private file", async (t) => {
  const server = await sharedPostgres();
  await server.requirePassword("ann", "hunter2");
  const file = path.join(temporaryHome(t), ".pgpass");
  writeFileSync(file, "127.0.0.1:*:*:ann:hunter2\n", { mode: 0o600 });
  const url = server.url().replace("gatehouse@", "ann@");
  await checkPassword(t, [
    [url.replace("ann@", "ann:hunter2@"), {}],
    [url, { PGPASSWORD: "hunter2" }],
    [url, { PGPASSFILE: file }],
  ]);
  chmodSync(file, 0o644);
  await t.rejects(
    startService(t, url, { PGPASSFILE: file }),
    /refuses the connection to database postgres: it requires a password/,
  );
});

t.test("MySQL's password is in the URL or the environment", async (t) => {
  const server = await sharedMysql();
  await server.sql("create user ann@'127.0.0.1' identified by 'hunter2'");
  const url = server.url.replace("root@", "ann@");
  await checkPassword(t, [
    [url.replace("ann@", "ann:hunter2@"), {}],
    [url, { MYSQL_PWD: "hunter2" }],
  ]);
  await t.rejects(start(url.replace("ann@", "ann:hunter3@")), {
    message: /^MySQL on 127.0.0.1:\d+ refuses the connection of user ann: (?!.*hunter3)/,
  });
  await t.rejects(start(url), {
    message:
      /refuses the connection of user ann without a password, since \$MYSQL_PWD is not set: /,
  });
});

t.test("a URL sets the name by which PostgreSQL knows the engine", async (t) => {
  const server = await sharedPostgres();
  const { address } = await startOn(t, `${server.url()}?application_name=shop+gateway`);
  t.match(await query(address, select), { status: 404 });
  const sessions = await server.sql("select application_name as name from pg_stat_activity");
  t.ok(sessions.some(({ name }) => name === "shop gateway"));
});

t.test("a URL limits how long connecting may take", async (t) => {
  t.equal(parsePostgres("postgres://ann@127.0.0.1/shop").connectTimeoutMs, undefined);
  for (const [url, parse] of [
    ["postgres://ann@127.0.0.1:PORT/shop?connect_timeout=1", parsePostgres],
    ["mysql://app@127.0.0.1:PORT/?connect-timeout=1", parseMysql],
  ] as const) {
    const { port, whenLeft } = await silentServer(t);
    t.equal(parse(url.replace("PORT", String(port))).connectTimeoutMs, 1000);
    await startOn(t, url.replace("PORT", String(port)));
    await whenLeft;
  }
});

t.test("a server with an unverified certificate gets no query", async (t) => {
  const server = await sharedMysql();
  for (const mode of ["VERIFY_CA", "VERIFY_IDENTITY"]) {
    const url = `mysql://root@localhost:${server.port}/?ssl-mode=${mode}`;
    const { address } = await startOn(t, url);
    const answer = await query(address, select);
    t.match(answer, refusal(503, "database_unavailable"));
    t.equal(answer.headers["retry-after"], "1");
  }
  const { address } = await startOn(t, server.tlsUrl);
  t.match(await query(address, select), { status: 404 });
});

t.test("a MySQL server that requests a local file gets nothing", async (t) => {
  const file = path.join(temporaryHome(t), "private");
  writeFileSync(file, "hunter2");
  const liar = new LyingServer(file);
  const port = await liar.listen();
  t.teardown(() => liar.close());
  await start(`mysql://app@127.0.0.1:${port}/`).then(
    (engine) => engine.close(),
    () => {},
  );
  t.equal((liar.clientFlags ?? 0xff) & 0x80, 0, "the client offers no local files");
  t.equal((liar.clientFlags ?? -1) & 0x1_0000, 0, "and no multiple statements");
  t.ok(liar.hasAsked, "the server requested the file anyway");
  t.notMatch(liar.received, /hunter2/);
});
