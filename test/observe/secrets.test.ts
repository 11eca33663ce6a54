import { readFileSync, statSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { createLog } from "../../src/core/observe/log.ts";
import { type GatewaySetup, openGatewaySetup, select } from "../gateway/kit.ts";
import { ADMIN_PASSWORD, temporaryHome } from "../kit/gateway.ts";

const cell = "a value that only the row holds";
const rejected = "tippfehler-statt-name";

/** Sends many kinds of requests. @returns the texts that no log may contain */
async function live({ gateway, upstream }: GatewaySetup): Promise<string[]> {
  const bob = await gateway.addUser("bob", "ReadWrite");
  const admin = await gateway.login();
  const insert = { Insert: { database: "main", table: "t", values: [{ id: 1, secret: cell }] } };
  upstream.answer = (_request, response) => response.end(JSON.stringify({ data: [cell] }));
  await gateway.query(insert, bob);
  await gateway.query(select, bob);
  await gateway.query({ Insert: { ...insert.Insert, database: "other" } }, bob);
  await gateway.query({ Insert: { ...insert.Insert, extra: cell } }, bob);
  await gateway.query(`{"Insert":{"values":[{"a":"${cell}"`, bob);
  await gateway.query(select, `${bob.slice(0, -5)}AAAAA`);
  await gateway.send("POST", `/query?token=${bob}`, select);
  for (const caller of [bob, undefined]) {
    await gateway.send("DELETE", `/api/tokens/${admin}`, undefined, caller);
  }
  await gateway.send("POST", "/login", { username: rejected, password: cell });
  await gateway.send("POST", "/login", { username: "bob", password: cell });
  await gateway.send("POST", "/login", `{"username":"bob","password":"${cell}"`);
  const change = { old_password: "bob password", new_password: "bob's new password" };
  await gateway.send("PUT", "/api/users/bob/password", change, bob);
  await gateway.query(select, bob);
  const hashes = [...readFileSync(gateway.accessFile, "utf8").matchAll(/password_hash = "(.*)"/g)];
  await gateway.edit((text) => text.replace("$argon2id$", "$argon2i$"));
  await gateway.service.logged(({ msg }) => String(msg).includes("refused"));
  upstream.answer = (_request, response) => response.destroy();
  await gateway.query(select, admin);
  const parts = [bob, admin].flatMap((token) => token.split("."));
  const salts = hashes.flatMap(([, hash = ""]) => hash.split("$").slice(4));
  const passwords = [ADMIN_PASSWORD, "bob password", "bob's new password", cell, rejected];
  return [...passwords, ...parts, ...salts, "$argon2"];
}

t.test("no secret, token, hash or row is logged", async (t) => {
  const setting = await openGatewaySetup(t);
  const secrets = await live(setting);
  await setting.gateway.service.stop();
  const { output, log } = setting.gateway.service;
  t.ok(log.filter(({ audit }) => audit === true).length >= 10, "the audit is not empty");
  t.ok(secrets.length > 10);
  for (const secret of secrets) {
    t.ok(secret.length >= 7, "long enough to mean something");
    t.notOk(output.includes(secret), `without ${secret.slice(0, 12)}...`);
  }
});

t.test("an audit file contains no secret and is readable only by its owner", async (t) => {
  const home = temporaryHome(t);
  const file = path.join(home, "audit.log");
  const setting = await openGatewaySetup(t, { home, config: '[audit]\nfile = "audit.log"\n' });
  const secrets = await live(setting);
  await setting.gateway.service.stop();
  t.equal(statSync(file).mode & 0o777, 0o600);
  const audit = readFileSync(file, "utf8");
  t.ok(audit.split("\n").length > 10);
  for (const secret of secrets) t.notOk(audit.includes(secret), secret.slice(0, 12));
});

function loggedAs(err: unknown): { type: string; code?: string; stack?: string } {
  let line = "";
  const log = createLog({ write: (text) => (line += text) });
  log.child({ worker: 1 }).error({ err }, "unexpected error");
  return JSON.parse(line).err;
}

function failureOf(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}

/** An error whose message was changed after its stack was recorded. */
function changed(before: string, after: string): Error {
  const error = new Error(before);
  return Object.assign(error, { stack: error.stack, message: after });
}

/** Errors that quote input. */
const quoting: Readonly<Record<string, () => unknown>> = {
  "invalid JSON": () => failureOf(() => JSON.parse("hunter2")),
  "an invalid URL": () => failureOf(() => new URL("hunter2")),
  "a message of lines that look like calls": () => new Error("no\n    at hunter2 (a.ts:1:1)"),
  "a message that was changed": () => changed("hunter2\n    at hunter2", "no"),
  "a message that was emptied": () => changed("hunter2", ""),
  "a stack of another form": () =>
    Object.assign(new Error("no"), { stack: "no hunter2:1\n    at f (a.ts:1:1)" }),
  "a name, a code and a cause": () =>
    Object.assign(new Error("no", { cause: new Error("hunter2") }), {
      name: "no hunter2",
      code: "no hunter2",
      detail: "hunter2",
    }),
  "a string": () => "hunter2",
};

t.test("an unexpected error is logged without its message", async (t) => {
  for (const [what, make] of Object.entries(quoting)) {
    const error = make();
    t.notMatch(JSON.stringify(loggedAs(error)), "hunter2", what);
  }
  t.match(loggedAs(failureOf(() => JSON.parse("hunter2"))), {
    type: "SyntaxError",
    stack: /^ {4}at JSON\.parse .*\n {4}at .*secrets\.test/,
  });
  t.match(loggedAs(failureOf(() => new URL("hunter2"))), {
    type: "TypeError",
    code: "ERR_INVALID_URL",
    stack: /^ {4}at new URL/,
  });
  t.strictSame(loggedAs("hunter2"), { type: "string" });
});
