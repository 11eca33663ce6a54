import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pino } from "pino";
import t from "tap";
import { startEngine } from "../../../src/engine/engine.ts";
import { parseAddress } from "../../../src/engine/mysql/address.ts";
import { query, selectAll, temporaryDirectory } from "../kit.ts";
import { silentServer, startOn } from "../postgres/kit.ts";
import { startService } from "../postgres/service.ts";
import { sharedServer } from "./kit.ts";
import { LyingServer } from "./lying-server.ts";

const log = pino({ level: "silent" });
const listen = "127.0.0.1:0";

t.test("a URL says whom to reach, and as whom", async (t) => {
  t.match(parseAddress("mysql://a%40b:p%3Aw@db.example/"), {
    host: "db.example",
    port: 3306,
    user: "a@b",
    password: "p:w",
    ssl: undefined,
  });
  t.match(parseAddress("mysql://app@[::1]:3307"), { host: "::1", port: 3307 });
  t.match(parseAddress("mysql://app@localhost?socket=/run/s"), { socketPath: "/run/s" });
  t.match(parseAddress("mysql://app@db?ssl-mode=verify_identity"), {
    ssl: { rejectUnauthorized: true, verifyIdentity: true },
  });
});

t.test("a URL that would not be obeyed is refused, without a word of its password", async (t) => {
  const cases: [string, RegExp][] = [
    ["mysql://app:hunter2@[::bad/", /is invalid/],
    ["mysql://:hunter2@db/", /names no user/],
    ["mysql://app:hunter2@db/shop", /names a database/],
    ["mysql://app:hunter2@db/?multipleStatements=true", /unknown parameter "multipleStatements"/],
    ["mysql://app:hunter2@db/?ssl-mode=PREFERRED", /unknown ssl-mode/],
    ["mysql://app:hunter2@127.0.0.1/?ssl-mode=VERIFY_IDENTITY", /needs a host name/],
    ["mysql://app:hunter2@db/?connect-timeout=2s", /invalid connect-timeout: use 1 to 9999/],
    ["mysql://app:hunter2@db/?ssl-ca=/nowhere", /cannot be read: ssl-ca=\/nowhere/],
    ["mysql://app:hunter2%@db/", /percent-encoded/],
  ];
  for (const [url, message] of cases) {
    t.throws(() => parseAddress(url), message);
    await t.rejects(startEngine({ url, listen, log }), { message: /^(?!.*hunter2)/ });
  }
});

t.test("a URL says how long a server may take to take a connection", async (t) => {
  const { port, whenLeft } = await silentServer(t);
  const url = `mysql://app@127.0.0.1:${port}/?connect-timeout=1`;
  t.equal(parseAddress(url).connectTimeoutMs, 1000);
  await startOn(t, url);
  await whenLeft;
});

t.test("the password comes from the URL or the environment, and nobody sees it", async (t) => {
  const server = await sharedServer();
  await server.sql("create user ann@'127.0.0.1' identified by 'hunter2'");
  const url = server.url.replace("root@", "ann@");
  const ways: [string, NodeJS.ProcessEnv][] = [
    [url.replace("ann@", "ann:hunter2@"), {}],
    [url, { MYSQL_PWD: "hunter2" }],
  ];
  for (const [url, env] of ways) {
    const { service, address } = await startService(t, url, env);
    t.match(await query(address, selectAll("t")), { status: 404 });
    const command = readFileSync(`/proc/${service.child.pid}/cmdline`, "utf8");
    t.notMatch(command + service.output, /hunter2/, "nobody sees it in the list of processes");
  }
  const wrong = url.replace("ann@", "ann:hunter3@");
  await t.rejects(startEngine({ url: wrong, listen, log }), {
    message: /^MySQL on 127.0.0.1:\d+ refuses the engine for ann: (?!.*hunter3)/,
  });
});

t.test("a server whose certificate nobody vouches for is not spoken to", async (t) => {
  const server = await sharedServer();
  for (const mode of ["VERIFY_CA", "VERIFY_IDENTITY"]) {
    const url = `mysql://root@localhost:${server.port}/?ssl-mode=${mode}`;
    const { address } = await startOn(t, url);
    t.match(await query(address, selectAll("t")), { body: { code: "database_unavailable" } });
  }
  const { address } = await startOn(t, server.tlsUrl);
  t.match(await query(address, selectAll("t")), { status: 404 });
});

t.test("a server that asks for a file of this machine gets nothing of it", async (t) => {
  const home = temporaryDirectory(t);
  const file = path.join(home, "private");
  writeFileSync(file, "hunter2");
  const liar = new LyingServer(file);
  const port = await liar.listen();
  t.teardown(() => liar.close());
  await startEngine({ url: `mysql://app@127.0.0.1:${port}/`, listen, log }).then(
    (engine) => engine.close(),
    () => {},
  );
  t.equal((liar.clientFlags ?? 0xff) & 0x80, 0, "the client offers no local files");
  t.equal((liar.clientFlags ?? -1) & 0x1_0000, 0, "nor several statements at a time");
  t.ok(liar.hasAsked, "it was asked all the same");
  t.notMatch(liar.received, /hunter2/);
});
