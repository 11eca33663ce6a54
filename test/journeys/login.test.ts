import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { cpuSecondsOf } from "../../bench/rig/program.ts";
import type { HashCosts } from "../../src/core/access/password-hash.ts";
import { hashPassword } from "../../src/core/identity/password.ts";
import { grant, user } from "../access/kit.ts";
import {
  checkRefusal,
  type GatewaySetup,
  openGatewaySetup,
  openSettingWith,
  select,
} from "../gateway/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { type Answer, temporaryHome } from "../kit/gateway.ts";
import { childrenOf } from "../kit/process-info.ts";
import { runWarm } from "../kit/warm-command.ts";
import {
  cheapHash,
  editInForce,
  openStaffed,
  passwordOf,
  putInForce,
  textOf,
  tokenOf,
} from "./staff.ts";

const message = "Invalid username or password";

function logIn(
  { gateway }: Pick<GatewaySetup, "gateway">,
  fields: { username: string; password: string; database?: string },
  headers: Record<string, string> = {},
): Promise<Answer> {
  return gateway.request("/login", {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(fields),
  });
}

/** Users that a refused login must not distinguish. */
const kinds = ["known", "imported", "disabled", "machine", "unknown"];

/** Enough to measure the time of a hash. */
const costly = { memory: 16_384, time: 2, parallelism: 1 };

async function openKinds(t: Test, costs: HashCosts): Promise<GatewaySetup> {
  const own = await hashPassword("known password", costs);
  const low = await hashPassword("imported password", { memory: 64, time: 1, parallelism: 1 });
  const home = temporaryHome(t);
  const records = [
    user("known", `password_hash = "${own}"\n`),
    user("imported", `password_hash = "${low}"\n`),
    user("disabled", `password_hash = "${own}"\ndisabled = true\n`),
    user("machine", ""),
    grant("known", "*", "Owner"),
  ];
  writeFileSync(path.join(home, "access_control.toml"), records.join(""), { mode: 0o600 });
  const auth = [
    `argon2_memory_cost = ${costs.memory}`,
    `argon2_time_cost = ${costs.time}`,
    `argon2_parallelism = ${costs.parallelism}`,
    "max_failures_per_user_and_address = 1000",
  ];
  return openSettingWith(t, auth.join("\n"), home);
}

const setting = await openGatewaySetup(t);

t.test("a refused login does not reveal whether the user exists", async (t) => {
  const { gateway } = setting;
  for (const name of ["alice", "disabled", "machine"]) await gateway.addUser(name, "ReadOnly");
  await editInForce(setting.gateway, (text) =>
    text
      .replace('username = "disabled"\n', "$&disabled = true\n")
      .replace(/(username = "machine"\n)password_hash = .*\n/, "$1")
      .concat(
        user("staff:ann", /password_hash = .*\n/.exec(text.slice(text.indexOf('"alice"')))?.[0]),
      )
      .concat(grant("staff:ann", "main", "ReadOnly")),
  );
  const attempts = [
    { username: "alice", password: "a wrong one" },
    { username: "alice", password: "" },
    { username: "alice", password: "x".repeat(2000) },
    { username: "alice", password: "alice password " },
    { username: "Alice", password: "alice password" },
    { username: "disabled", password: "disabled password" },
    { username: "machine", password: "machine password" },
    { username: "machine", password: "" },
    { username: "staff:ann", password: "alice password" },
    { username: "unknown", password: "unknown password" },
    { username: "__proto__", password: "unknown password" },
    { username: "no user's name", password: "whatever it is" },
    { username: "", password: "" },
    { username: "unknown", password: "unknown password", database: "main" },
  ];
  const heads = new Set<string>();
  for (const attempt of attempts) {
    const answer = await logIn(setting, attempt);
    checkRefusal(t, answer, { status: 401, code: "credentials_invalid", message });
    const headers = new Headers([...answer.headers]);
    for (const name of ["date", "x-request-id"]) headers.delete(name);
    heads.add(JSON.stringify([...headers]));
  }
  t.equal(heads.size, 1, "the headers are the same as well");
});

t.test("a login of an unknown user costs the same hashes as of a known one", async (t) => {
  const { gateway } = await openKinds(t, costly);
  const guess = (username: string) => logIn({ gateway }, { username, password: "a wrong one" });
  await guess("unknown"); // It starts the process that hashes.
  const pid = gateway.service.child.pid ?? 0;
  const pids = [pid, ...childrenOf(pid)];
  // Processor time, since elapsed time depends on other load.
  const spent = () => pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0);
  const costs = new Map<string, number>(kinds.map((kind) => [kind, 0]));
  for (let round = 0; round < 7; round++) {
    for (const [username, cost] of costs) {
      const before = spent();
      await guess(username);
      costs.set(username, cost + spent() - before);
    }
  }
  const all = [...costs.values()];
  t.ok(Math.max(...all) < 3 * Math.min(...all), JSON.stringify([...costs]));
});

t.test("a token for one database is refused for others", async (t) => {
  const { gateway, upstream } = setting;
  await gateway.addUser("bob", "ReadWrite");
  await editInForce(
    setting.gateway,
    (text) => `${text}\n[[acl]]\nusername = "bob"\ndatabase = "other"\nrole = "Owner"\n`,
  );
  const fields = { username: "bob", password: "bob password" };
  const answer = await logIn(setting, { ...fields, database: "main" });
  t.strictSame(Object.keys(answer.body), ["status", "token", "expires_in"]);
  t.match(answer.body, { status: "success", expires_in: 86_400 });
  t.equal(answer.headers.get("cache-control"), "no-store");
  const token = String(answer.body.token);
  t.match(decodePart(token, 1), { database: "main", role: "ReadWrite" });
  t.equal((await gateway.query(select, token)).status, 200);
  upstream.take();
  const other = { Select: { ...select.Select, database: "other" } };
  checkRefusal(t, await gateway.query(other, token), { status: 403, code: "token_database" });
  const both = await gateway.query({ Batch: [select, other] }, token);
  checkRefusal(t, both, { status: 403, code: "batch_member_denied" });
  t.equal(upstream.take().length, 0);

  const unlimited = decodePart(await gateway.login("bob", "bob password"), 1);
  t.match(unlimited, { database: "*", role: "Owner" }, "the widest role that bob has anywhere");
  const star = await logIn(setting, { ...fields, database: "*" });
  t.match(decodePart(String(star.body.token), 1), { database: "*", role: "Owner" });
  t.equal((await gateway.query(other, String(star.body.token))).status, 200);
});

t.test("a login for a database without a grant is denied", async (t) => {
  const { gateway } = setting;
  await gateway.addUser("carl", "ReadOnly");
  const fields = { username: "carl", password: "carl password" };
  const denied = { status: 403, message: "Insufficient permissions for this operation" };
  const other = await logIn(setting, { ...fields, database: "other" });
  checkRefusal(t, other, { ...denied, code: "no_grant" });
  const cased = await logIn(setting, { ...fields, database: "Main" });
  checkRefusal(t, cased, { ...denied, code: "database_case_mismatch" });
  const invalid = await logIn(setting, { ...fields, database: "a.b.c" });
  checkRefusal(t, invalid, { status: 400, code: "invalid_database" });
  const wrong = await logIn(setting, { ...fields, password: "a wrong one", database: "other" });
  t.equal(wrong.status, 401, "the password is judged first");

  const grant = `[[acl]]\nusername = "carl"\n`;
  const lapsed = `${grant}database = "lapsed"\nrole = "Owner"\nexpires = 2020-01-01T00:00:00Z\n`;
  const parts = `${grant}database = "parts"\ntables = ["orders"]\nrole = "ReadWrite"\n`;
  await editInForce(setting.gateway, (text) => `${text}${lapsed}${parts}`);
  const roleFor = async (database?: string) =>
    decodePart(await gateway.login("carl", fields.password, database), 1).role;
  t.equal(await roleFor("parts"), "ReadWrite", "an entry for a table is a grant");
  t.equal(await roleFor(), "ReadWrite", "and one that has expired does not count");
  const late = await logIn(setting, { ...fields, database: "lapsed" });
  checkRefusal(t, late, { status: 403, code: "grant_expired" });

  const own = /\[\[acl\]\]\nusername = "carl"\n(?:.+\n)*/g;
  await editInForce(setting.gateway, (text) => text.replace(own, ""));
  const token = await gateway.login("carl", "carl password");
  t.notOk("role" in decodePart(token, 1), "without a grant the token names no role");
  t.equal((await gateway.query(select, token)).body.code, "no_grant");
});

t.test("a login raises the costs of a hash and keeps tokens valid", async (t) => {
  const { gateway } = await openGatewaySetup(t);
  const { home, accessFile } = gateway;
  const hashParts = () => {
    const [, hash = ""] = /password_hash = "(.*)"/.exec(readFileSync(accessFile, "utf8")) ?? [];
    const [, , , costs, salt] = hash.split("$");
    return { costs, salt };
  };
  const { salt } = hashParts();
  t.equal(hashParts().costs, "m=64,t=1,p=1");
  const old = await gateway.login();
  await gateway.service.stop();

  const raised = "argon2_memory_cost = 128\nargon2_time_cost = 2\nargon2_parallelism = 1";
  const { gateway: stronger } = await openSettingWith(t, raised, home);
  await stronger.edit((text) => `${text}\nbroken`);
  t.ok(await stronger.login(), "it succeeds although the hash cannot be written");
  const line = await stronger.service.logged(({ msg }) => String(msg).includes("upgraded"));
  t.equal(line.level, "warn");
  await putInForce(stronger, textOf(stronger).replace(/\nbroken$/, ""));
  const during = await stronger.login();
  t.strictSame(hashParts(), { costs: "m=128,t=2,p=1", salt });
  const after = await stronger.login();
  for (const token of [old, during, after]) {
    t.equal((await stronger.query(select, token)).status, 200);
  }
  await stronger.service.stop();

  const { gateway: weaker } = await openGatewaySetup(t, { home });
  await weaker.login();
  t.strictSame(hashParts(), { costs: "m=128,t=2,p=1", salt }, "and is never lowered");
});

t.test("changes to a user that clear failed logins do so in every worker", async (t) => {
  // Guesses at a worker that has not read the change yet lock nobody out again.
  const auth = "max_failures_per_user_and_address = 12\nmax_failures_per_address = 10000\n";
  const { gateway } = await openStaffed(
    t,
    ["root * Owner", "rita main ReadOnly", "bob main ReadOnly"],
    { auth, config: "[server]\nworkers = 2\n" },
  );
  const root = await tokenOf(gateway, "root");
  const status = async (username: string, password: string) =>
    // A connection of its own, so that any worker may get it.
    (await logIn({ gateway }, { username, password }, { connection: "close" })).status;
  const lock = async (username: string) => {
    while ((await status(username, "a wrong one")) === 401);
  };
  await lock("bob");
  let password = passwordOf("rita");
  const run = async (command: string, input?: string) => {
    const { code, stderr } = await runWarm(gateway.home, command.split(" "), input);
    t.equal(code, 0, stderr);
  };
  const send = async (method: string, path: string, body: object) => {
    t.equal((await gateway.send(method, `/api/users/rita${path}`, body, root)).status, 200);
  };
  const ways: Record<string, () => Promise<void>> = {
    "user password": async () => {
      password = "a second one";
      await run("user password rita --password-stdin", `${password}\n`);
    },
    "user enable of an active user": () => run("user enable rita"),
    "user unlock": () => run("user unlock rita"),
    "user disable and enable": async () => {
      await run("user disable rita");
      await run("user enable rita");
    },
    "PUT password": async () => {
      password = "a third one";
      await send("PUT", "/password", { new_password: password });
    },
    "PATCH of an active user": () => send("PATCH", "", { disabled: false }),
    "PATCH of a disabled user": async () => {
      await send("PATCH", "", { disabled: true });
      await send("PATCH", "", { disabled: false });
    },
    "a pasted hash": async () => {
      password = "a fourth one";
      const hash = await cheapHash(password);
      await gateway.edit((text) =>
        text.replace(/(username = "rita"\npassword_hash = ")[^"]+/, (_, start) => start + hash),
      );
    },
    "DELETE and POST": async () => {
      await send("DELETE", "", {});
      password = "a fifth one";
      const anew = { username: "rita", password, database: "main", role: "ReadOnly" };
      t.equal((await gateway.send("POST", "/api/users", anew, root)).status, 201);
    },
    "user remove and add": async () => {
      await run("user remove rita");
      password = "a sixth one";
      await run("user add rita --password-stdin", `${password}\n`);
    },
  };
  for (const [way, unlock] of Object.entries(ways)) {
    await lock("rita");
    t.equal(await status("rita", password), 429, `locked before ${way}`);
    await unlock();
    await eventually(`${way}, at each worker`, async () => {
      const all = await Promise.all(Array.from({ length: 5 }, () => status("rita", password)));
      return all.every((one) => one === 200);
    });
  }
  t.equal(await status("bob", passwordOf("bob")), 429, "other users stay locked out");
});
