import { appendFileSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import t, { type Test } from "tap";
import { entriesIn } from "../../src/core/access/entries.ts";
import { holderText, readHolder } from "../../src/core/access/grant.ts";
import { decide, isAdministrator } from "../../src/core/access/policy.ts";
import { type Role, roles } from "../../src/core/access/roles.ts";
import type { Snapshot } from "../../src/core/access/snapshot.ts";
import { changeAccessFile } from "../../src/core/access/write.ts";
import { accessFile, grant, grantOn, refusedBy, user } from "../access/kit.ts";
import type { Answer, TestGateway } from "../kit/gateway.ts";
import { caseCount } from "../kit/nightly.ts";
import { runCommand } from "../kit/process.ts";
import {
  cheapHash,
  insertRefusal,
  openStaffed,
  passwordOf,
  putInForce,
  snapshotOn,
  textOf,
  tokenOf,
  untilInForce,
} from "./staff.ts";

interface Step {
  readonly by: "editor in place" | "editor by rename" | "api" | "command line";
  /** Where an editor inserts a comment, from 0 to 1. */
  readonly at: number;
  readonly role: Role;
  readonly removes: boolean;
}

const by = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom<Step["by"]>("editor in place", "editor by rename") },
  { weight: 5, arbitrary: fc.constant<Step["by"]>("api") },
  { weight: 1, arbitrary: fc.constant<Step["by"]>("command line") },
);
const at = fc.double({ min: 0, max: 1, noNaN: true });
const step: fc.Arbitrary<Step> = fc.record({
  by,
  at,
  role: fc.constantFrom(...roles),
  removes: fc.boolean(),
});

class Writers {
  readonly #gateway: TestGateway;
  readonly #token: string;
  #count = 0;
  #inFlight: Promise<void>[] = [];
  readonly expected = new Map<string, Role | undefined>();
  readonly comments: string[] = [];

  constructor(gateway: TestGateway, token: string) {
    this.#gateway = gateway;
    this.#token = token;
  }

  async take(step: Step): Promise<void> {
    const name = `user-${this.#count++}`;
    if (step.by === "api") this.#inFlight.push(this.#useApi(name, step));
    else if (step.by === "command line") this.#inFlight.push(this.#useCommands(name, step));
    else await this.#edit(name, step);
  }

  async rest(): Promise<void> {
    await Promise.all(this.#inFlight.splice(0));
  }

  async #useApi(name: string, { role, removes }: Step): Promise<void> {
    const account = { username: name, password: passwordOf(name), role, database: "main" };
    const made = await this.#gateway.send("POST", "/api/users", account, this.#token);
    if (made.status !== 201) throw new Error(made.text);
    this.expected.set(name, role);
    if (!removes || role === "Owner") return;
    const gone = await this.#gateway.send("DELETE", `/api/users/${name}`, undefined, this.#token);
    if (gone.status !== 200) throw new Error(gone.text);
    this.expected.set(name, undefined);
  }

  async #useCommands(name: string, { role, removes }: Step): Promise<void> {
    const run = async (...flags: string[]) => {
      const { code, stderr } = await runCommand(this.#gateway.home, flags);
      if (code !== 0) throw new Error(stderr);
    };
    await run("access", "grant", `idp:${name}`, "main", role);
    this.expected.set(`idp:${name}`, role);
    if (!removes) return;
    await run("access", "revoke", `idp:${name}`, "main", "--force");
    this.expected.set(`idp:${name}`, undefined);
  }

  async #edit(name: string, { by, at, role }: Step): Promise<void> {
    const hash = await cheapHash(passwordOf(name));
    await this.rest();
    const { accessFile } = this.#gateway;
    const tables = readFileSync(accessFile, "utf8").split(/^(?=\[\[)/m);
    const comment = `# ${name} was written by hand`;
    tables.splice(Math.floor(at * tables.length), 0, `${comment}\n`);
    const record = user(name, `password_hash = "${hash}" # by hand`);
    const text = `${tables.join("")}\n${record}${grant(name, "main", role)}`;
    const isRename = by === "editor by rename";
    writeFileSync(isRename ? `${accessFile}~` : accessFile, text, { mode: 0o600 });
    if (isRename) renameSync(`${accessFile}~`, accessFile);
    this.comments.push(comment);
    this.expected.set(name, role);
  }
}

function checkFile(t: Test, gateway: TestGateway, { expected, comments }: Writers): void {
  const snapshot = snapshotOn(gateway);
  for (const [name, role] of expected) {
    t.equal(grantOn(snapshot, name, "main")?.role, role, name);
    const hasRecord = role !== undefined && !name.includes(":");
    t.equal(snapshot.users.has(name), hasRecord);
  }
  const text = textOf(gateway);
  for (const comment of comments) t.ok(text.includes(`${comment}\n`), comment);
}

/** Checks that the gateway decides by the file. */
async function checkGateway(t: Test, gateway: TestGateway, token: string): Promise<void> {
  await untilInForce(gateway);
  const snapshot = snapshotOn(gateway);
  const { text } = await gateway.get("/api/access", token);
  const written = [...snapshot.grants.values()]
    .flatMap((grants) => [...entriesIn(grants)])
    .map(({ holder, ...entry }) => ({ username: holderText(holder), ...entry }));
  t.strictSame(JSON.parse(text).access, written, "the gateway lists what is in the file");
  const samples = [...snapshot.users.values()].slice(-4);
  for (const { username, passwordHash } of samples) {
    if (passwordHash === undefined) continue;
    const subject = { username, tokenDatabase: "*" };
    const { allowed } = decide(snapshot, subject, "INSERT", "main");
    const refusal = await insertRefusal(gateway, await tokenOf(gateway, username));
    t.equal(refusal === undefined, allowed, `${username} may insert: ${allowed}`);
  }
}

t.test("concurrent changes from API, commands and editors are all kept and in force", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "olga main Owner"]);
  const root = await tokenOf(gateway, "root");
  const writers = new Writers(gateway, root);
  const many = fc.array(step, { minLength: 15, maxLength: 15 });
  const property = fc.asyncProperty(many, async (steps) => {
    for (const next of steps) await writers.take(next);
    await writers.rest();
    checkFile(t, gateway, writers);
    await checkGateway(t, gateway, root);
  });
  await fc.assert(property, { numRuns: caseCount(4, 20), endOnFailure: true });
  t.ok(writers.comments.length > 0);
});

function administratorsIn(snapshot: Snapshot): string[] {
  return [...snapshot.users.values()]
    .filter(({ username, disabled }) => !disabled && isAdministrator(snapshot, { username }))
    .map(({ username }) => username);
}

function oust(way: number, gateway: TestGateway, token: string, name: string): Promise<Answer> {
  switch (way % 4) {
    case 0:
      return gateway.send("PUT", `/api/access/${name}/*`, { role: "ReadOnly" }, token);
    case 1:
      return gateway.send("DELETE", `/api/access/${name}/*`, undefined, token);
    case 2:
      return gateway.send("DELETE", `/api/users/${name}`, undefined, token);
    default:
      return gateway.send("PATCH", `/api/users/${name}`, { disabled: true }, token);
  }
}

t.test("one administrator remains if two remove each other", async (t) => {
  const { gateway } = await openStaffed(t, ["ann * Owner", "ben * Owner"]);
  const text = textOf(gateway);
  for (let round = 0; round < caseCount(4, 20); round++) {
    const [ann, ben] = [await tokenOf(gateway, "ann"), await tokenOf(gateway, "ben")];
    const answers = await Promise.all([
      oust(round, gateway, ann, "ben"),
      oust(round + Math.floor(round / 4), gateway, ben, "ann"),
    ]);
    const statuses = answers.map(({ status }) => status);
    t.equal(statuses.filter((status) => status === 200).length, 1, `round ${round}: ${statuses}`);
    t.equal(administratorsIn(snapshotOn(gateway)).length, 1);
    await putInForce(gateway, text);
  }
});

t.test("one administrator remains if both give up their role at once", async (t) => {
  const { gateway } = await openStaffed(t, ["ann * Owner", "ben * Owner"]);
  const text = textOf(gateway);
  const [ann, ben] = [await tokenOf(gateway, "ann"), await tokenOf(gateway, "ben")];
  for (let round = 0; round < caseCount(4, 10); round++) {
    const answers = await Promise.all([
      gateway.send("DELETE", "/api/access/ann/*", undefined, ann),
      gateway.send("DELETE", "/api/access/ben/*", undefined, ben),
    ]);
    t.strictSame(answers.map(({ status }) => status).sort(), [200, 409]);
    t.equal(administratorsIn(snapshotOn(gateway)).length, 1);
    await putInForce(gateway, text);
  }
});

t.test("a user that is demoted while granting grants nothing afterwards", async (t) => {
  const names = Array.from({ length: 24 }, (_, number) => `user-${number}`);
  const grants = [
    "root * Owner",
    "dora main DbAdmin",
    ...names.map((name) => `${name} side ReadOnly`),
  ];
  const { gateway } = await openStaffed(t, grants);
  const text = textOf(gateway);
  const dora = await tokenOf(gateway, "dora");
  const give = (name: string) =>
    gateway.send("PUT", `/api/access/${name}/main`, { role: "ReadWrite" }, dora);
  const between = { passed: 0, refused: 0 };
  // Repeated until the demotion falls between the grants.
  const hasMissed = () => between.passed === 0 || between.refused === 0;
  for (let round = 0; round < 5 || (round < 50 && hasMissed()); round++) {
    const early = names.slice(0, 12).map(give);
    await Promise.race(early);
    // The marker is written with the demotion, so its position shows which grants came later.
    const demotion = changeAccessFile(gateway.accessFile, () => [
      {
        kind: "set-grant",
        grant: { holder: readHolder("dora"), database: "main", role: "ReadOnly" },
      },
      {
        kind: "add-grant",
        grant: { holder: readHolder("idp:marker"), database: "main", role: "ReadOnly" },
      },
    ]);
    // In sequence, since parallel grants share a write.
    const late: Answer[] = [];
    for (const name of names.slice(12)) late.push(await give(name));
    const answers = [...(await Promise.all(early)), ...late];
    await demotion;
    const written = snapshotOn(gateway);
    const lines = textOf(gateway).split("\n");
    const marker = lines.indexOf('username = "idp:marker"');
    for (const [number, { status }] of answers.entries()) {
      const name = names[number] ?? "";
      const role = grantOn(written, name, "main")?.role;
      t.equal(role !== undefined, status === 200, "what was answered is what was done");
      if (role !== undefined) t.ok(lines.lastIndexOf(`username = "${name}"`) < marker, name);
      between[status === 200 ? "passed" : "refused"]++;
    }
    t.equal((await give("user-0")).status, 403, "and nothing is granted from then on");
    await putInForce(gateway, text);
  }
  t.notOk(hasMissed(), "the demotion fell between grants");
});

t.test("a login with the old password during its change is not valid", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const root = await tokenOf(gateway, "root");
  let password = passwordOf("bob");
  for (let round = 0; round < 6; round++) {
    const next = `password number ${round}`;
    const logIn = (tried: string) =>
      gateway.send("POST", "/login", { username: "bob", password: tried });
    const change = () =>
      gateway.send("PUT", "/api/users/bob/password", { new_password: next }, root);
    const byHand = () =>
      runCommand(gateway.home, ["user", "password", "bob", "--password-stdin"], { input: next });
    const olds = Array.from({ length: 3 }, () => logIn(password));
    const changing = round % 3 === 2 ? byHand() : change();
    olds.push(logIn(password), logIn(password));
    const news = [logIn(next), logIn(next)];
    await changing;
    const [before, after] = [await Promise.all(olds), await Promise.all(news)];
    await untilInForce(gateway);
    for (const { body } of before) {
      if (body.token === undefined) continue;
      t.equal(await insertRefusal(gateway, String(body.token)), "token_revoked");
    }
    t.equal((await logIn(password)).status, 401, "the old password opens nothing");
    for (const { status } of after) t.ok(status === 200 || status === 401);
    const fresh = String((await logIn(next)).body.token);
    t.equal(await insertRefusal(gateway, fresh), undefined, "a login after the change is good");
    password = next;
  }
});

t.test("tokens of a removed user do not work for a new user of the same name", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const root = await tokenOf(gateway, "root");
  const account = { username: "bob", password: passwordOf("bob"), role: "ReadWrite" };
  const make = () => gateway.send("POST", "/api/users", account, root);
  for (let round = 0; round < caseCount(3, 8); round++) {
    const earlier = await tokenOf(gateway, "bob");
    const [removed, made] = await Promise.all([
      gateway.send("DELETE", "/api/users/bob", undefined, root),
      make(),
      insertRefusal(gateway, earlier),
    ]);
    t.equal(removed.status, 200);
    if (made.status !== 201) t.equal((await make()).status, 201, "at the latest afterwards");
    t.equal(await insertRefusal(gateway, earlier), "token_revoked");
    t.equal(await insertRefusal(gateway, await tokenOf(gateway, "bob")), undefined);
  }
});

t.test("an operator's edit during a write is not overwritten", async (t) => {
  const file = accessFile(t, user("root") + grant("root", "*", "Owner"));
  const added = { holder: readHolder("idp:alice"), database: "main", role: "ReadOnly" } as const;
  let judged = 0;
  const written = await changeAccessFile(file, () => {
    // The file has been read by now, and is edited before it is replaced.
    if (judged++ === 0) appendFileSync(file, "# saved by hand\n");
    return [{ kind: "add-grant", grant: added }];
  });
  t.equal(judged, 2, "the change is judged again, by what was saved");
  t.match(written.bytes.toString(), "# saved by hand\n");
  t.equal(grantOn(written.snapshot, "idp:alice", "main")?.role, "ReadOnly");

  const refusal = await refusedBy(
    changeAccessFile(file, () => {
      appendFileSync(file, "# saved again\n");
      return [{ kind: "remove-grant", grant: added }];
    }),
  );
  t.equal(refusal.code, "busy", "a file that never stands still is left to its operator");
});
