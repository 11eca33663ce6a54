import { readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { runCommand } from "../kit/process.ts";
import { insert, select } from "../kit/queries.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import type { KeptConnection } from "./kept-connection.ts";
import { openStaffed, passwordOf, soon, tokenOf } from "./staff.ts";
import { connectToEach, servedBy, workerOf } from "./supervised.ts";

const names = ["ann", "ben", "cid", "dan", "eve", "fay", "gus", "hal"];
/** Whom hand edits end; the first is enough, unless the machine is busy. */
const edited = ["ivy", "jim", "kim", "lee", "mia"];
const owners = [...edited, ...names].map((name) => `${name} main Owner`);
const grants = ["root * Owner", "rita main ReadOnly", ...owners];
const COUNT = 2;
const { gateway, upstream } = await openStaffed(t, grants, {
  ...servedBy(COUNT, { server: 'trusted_proxies = ["127.0.0.1"]' }),
});
const root = await tokenOf(gateway, "root");
const connections = await connectToEach(t, gateway, root, COUNT);

// What this ends is revoked for good a while later; see below.
const ofIvy = await tokenOf(gateway, "ivy");
await gateway.edit((text) => text.replaceAll('username = "ivy"', 'username = "iva"'));

/** What each worker says to an Insert, on a connection that was open before. */
async function answersOfAll(token: string): Promise<(string | undefined)[]> {
  const ask = async (kept: KeptConnection) => {
    const { code, isReused } = await kept.send("POST", "/query", token, insert);
    if (!isReused) throw new Error("the connection was not kept");
    return code;
  };
  return Promise.all(connections.map(ask));
}

/** What all workers say if they agree. */
const all = (code: string | undefined) => connections.map(() => code);

t.test("several processes serve on one port, and each line of the log names its own", async (t) => {
  const workers = new Set<number>();
  for (const kept of connections) {
    const { requestId, status } = await kept.send("GET", "/api/me", root);
    t.equal(status, 200);
    workers.add(await workerOf(gateway, requestId));
  }
  t.strictSame([...workers], [1, 2]);
  const { worker, workers: count } = await gateway.service.logged(({ url }) => url !== undefined);
  t.strictSame([worker, count], [undefined, COUNT]);
});

t.test("every worker holds everybody to its role", async (t) => {
  const rita = await tokenOf(gateway, "rita");
  const ann = await tokenOf(gateway, "ann");
  upstream.take();
  for (const kept of connections) {
    t.equal((await kept.send("POST", "/query", rita, select)).status, 200);
    t.equal((await kept.send("POST", "/query", rita, insert)).code, "role_insufficient");
    t.equal((await kept.send("POST", "/query", ann, insert)).status, 200);
    const elsewhere = insert.replace('"main"', '"side"');
    t.equal((await kept.send("POST", "/query", ann, elsewhere)).code, "no_grant");
    t.equal((await kept.send("POST", "/query", "a.b.c", insert)).code, "token_invalid");
  }
  t.equal(upstream.take().length, 2 * COUNT);
});

const changes: [what: string, name: string, code: string, act: (token: string) => unknown][] = [
  [
    "a logout",
    "ann",
    "token_revoked",
    (token) => gateway.send("POST", "/logout", undefined, token),
  ],
  [
    "the end of all tokens",
    "ben",
    "token_revoked",
    () => gateway.send("DELETE", "/api/users/ben/tokens", undefined, root),
  ],
  [
    "a user's removal",
    "cid",
    "user_gone",
    () => gateway.send("DELETE", "/api/users/cid", undefined, root),
  ],
  [
    "a demotion",
    "dan",
    "role_insufficient",
    () => gateway.send("PUT", "/api/access/dan/main", { role: "ReadOnly" }, root),
  ],
  [
    "another password",
    "eve",
    "token_revoked",
    (token) => {
      const content = { old_password: passwordOf("eve"), new_password: "an entirely new one" };
      return gateway.send("PUT", "/api/users/eve/password", content, token);
    },
  ],
];
for (const [what, name, code, act] of changes) {
  t.test(`${what} is in force everywhere when it is answered`, async (t) => {
    const token = await tokenOf(gateway, name);
    t.strictSame(await answersOfAll(token), all(undefined));
    t.match(await act(token), { status: 200 });
    t.strictSame(await answersOfAll(token), all(code));
  });
}

t.test("an edit of the file and a command are in force everywhere soon", async (t) => {
  const [gus, hal] = [await tokenOf(gateway, "gus"), await tokenOf(gateway, "hal")];
  const isRefused = (token: string) => async () =>
    (await answersOfAll(token)).every((code) => code === "token_revoked");
  await gateway.edit((text) => text.replace('username = "gus"\n', "$&disabled = true\n"));
  await soon(t, "the edit", isRefused(gus));
  await runCommand(gateway.home, ["token", "revoke", "--user", "hal"]);
  await soon(t, "the revocation", isRefused(hal));
});

t.test("wrong guesses are counted together, and so is who waits", async (t) => {
  const body = JSON.stringify({ username: "fay", password: "a wrong one" });
  const headers = { "Content-Type": "application/json", "X-Forwarded-For": "203.0.113.7" };
  const guess = wireRequest("POST /login", { ...headers, Connection: "close" }, body);
  const answers = await Promise.all(
    Array.from({ length: 60 }, async () => {
      const wire = await Wire.open(gateway.url);
      wire.send(guess);
      return wire.untilClosed();
    }),
  );
  const count = (pattern: RegExp) => answers.filter((answer) => pattern.test(answer)).length;
  t.equal(count(/^HTTP\/1\.1 401 /), 10);
  t.equal(count(/"too_many_attempts"|"login_busy"/), 50);
  const ids = answers.map((answer) => /^X-Request-Id: (.+)\r$/im.exec(answer)?.[1] ?? "");
  const workers = await Promise.all(ids.map((id) => workerOf(gateway, id)));
  t.equal(new Set(workers).size, COUNT, "all of them were asked");
});

t.test("SIGHUP has every worker read its files again", async (t) => {
  const refused = ({ msg }: Record<string, unknown>) =>
    String(msg).startsWith("access file refused");
  const before = gateway.service.log.filter(refused).length;
  await gateway.edit((text) => `${text}broken`);
  for (const worker of [1, 2]) {
    await gateway.service.logged((line) => refused(line) && line.worker === worker);
  }
  gateway.service.child.kill("SIGHUP");
  const isRefusedAgain = (worker: number) =>
    gateway.service.log.filter((line) => refused(line) && line.worker === worker).length > 1;
  await gateway.service.logged(() => [1, 2].every(isRefusedAgain));
  t.ok(gateway.service.log.filter(refused).length >= before + 4);
  await gateway.edit((text) => text.replace(/broken$/, ""));
});

t.test("what a hand edit ends is made lasting by one of them alone", async (t) => {
  t.strictSame(await answersOfAll(ofIvy), all("user_gone"));
  const file = path.join(gateway.home, "revocations");
  const linesOf = (name: string) =>
    readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => line.includes(`"${name}"`)).length;
  const found: number[] = [];
  for (const name of edited) {
    if (name !== "ivy") {
      await gateway.edit((text) =>
        text.replaceAll(`username = "${name}"`, `username = "${name}a"`),
      );
    }
    await eventually("it is revoked", () => linesOf(name) > 0);
    // The turn of the second comes half a second after that of the first, which may be late.
    await delay(700);
    found.push(linesOf(name));
    if (found.includes(1)) break;
  }
  t.ok(found.includes(1), `${found}`);
});
