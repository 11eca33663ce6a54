import { readFileSync, renameSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import t, { type Test } from "tap";
import { decide } from "../../src/access/policy.ts";
import { type Role, roles } from "../../src/access/roles.ts";
import { grantOn } from "../../src/access/snapshot.ts";
import { grant, user } from "../access/kit.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { runCommand } from "../kit/process.ts";
import {
  cheapHash,
  insertRefusal,
  openStaffed,
  passwordOf,
  snapshotOn,
  textOf,
  tokenOf,
  untilInForce,
} from "./staff.ts";

/** What one of those who write the file does next. */
type Step =
  | {
      readonly by: "editor in place" | "editor by rename";
      readonly at: number;
      readonly role: Role;
    }
  | { readonly by: "api" | "command line"; readonly role: Role; readonly removes: boolean };

const role = fc.constantFrom(...roles);
const at = fc.double({ min: 0, max: 1, noNaN: true });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      by: fc.constantFrom("editor in place" as const, "editor by rename" as const),
      at,
      role,
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({ by: fc.constant("api" as const), role, removes: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ by: fc.constant("command line" as const), role, removes: fc.boolean() }),
  },
);

/** Everybody who writes one gateway's access file, and what must be in it by now. */
class Writers {
  readonly #gateway: TestGateway;
  readonly #token: string;
  #count = 0;
  #inFlight: Promise<void>[] = [];
  /** The role on `main` that each user must have; undefined for one that was removed. */
  readonly expected = new Map<string, Role | undefined>();
  readonly comments: string[] = [];

  constructor(gateway: TestGateway, token: string) {
    this.#gateway = gateway;
    this.#token = token;
  }

  async take(step: Step): Promise<void> {
    const name = `user-${this.#count++}`;
    if ("at" in step) await this.#edit(name, step);
    else if (step.by === "api") this.#inFlight.push(this.#useApi(name, step));
    else this.#inFlight.push(this.#useCommands(name, step));
  }

  /** Waits until nobody is writing. */
  async rest(): Promise<void> {
    await Promise.all(this.#inFlight.splice(0));
  }

  async #useApi(name: string, { role, removes }: { role: Role; removes: boolean }): Promise<void> {
    const account = { username: name, password: passwordOf(name), role, database: "main" };
    const made = await this.#gateway.send("POST", "/api/users", account, this.#token);
    if (made.status !== 201) throw new Error(made.text);
    this.expected.set(name, role);
    if (!removes || role === "Owner") return;
    const gone = await this.#gateway.send("DELETE", `/api/users/${name}`, undefined, this.#token);
    if (gone.status !== 200) throw new Error(gone.text);
    this.expected.set(name, undefined);
  }

  async #useCommands(name: string, { role, removes }: { role: Role; removes: boolean }) {
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

  /** In a quiet moment: a comment somewhere between two tables, and a user with a grant below. */
  async #edit(name: string, { by, at, role }: Extract<Step, { at: number }>): Promise<void> {
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

/** Holds the file against all that was done. */
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

/** Holds what the gateway decides against what the file says. */
async function checkGateway(t: Test, gateway: TestGateway, token: string): Promise<void> {
  await untilInForce(gateway);
  const snapshot = snapshotOn(gateway);
  const headers = { authorization: `Bearer ${token}` };
  const { text } = await gateway.request("/api/access", { headers });
  const written = [...snapshot.grants.values()].flatMap((grants) => [...grants.values()]);
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

t.test("whoever writes, nobody's change is lost and the gateway obeys the file", async (t) => {
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
  await fc.assert(property, { numRuns: 10, endOnFailure: true });
  t.ok(writers.comments.length > 0);
});
