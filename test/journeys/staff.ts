/** Gateways over an access file of a test's own, with everybody in it who has a part to play. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import { parseAccessFile } from "../../src/access/parse.ts";
import type { Snapshot } from "../../src/access/snapshot.ts";
import { hashPassword } from "../../src/identity/password.ts";
import { grant, user } from "../access/kit.ts";
import { openSetting, type Setting } from "../gateway/kit.ts";
import { ask } from "../kit/client.ts";
import { eventually } from "../kit/eventually.ts";
import { type RunOptions, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { insert, queryHeaders } from "../kit/queries.ts";
import { runWarm } from "../kit/warm-command.ts";

const costs = { memory: 64, time: 1, parallelism: 1 };

/** The password of everybody in a staffed gateway. */
export function passwordOf(username: string): string {
  return `${username} password`;
}

/** A hash of a password, at costs that suit tests. */
export function cheapHash(password: string): Promise<string> {
  return hashPassword(password, costs);
}

/** An access file of grants that are written `user database role`; everybody has a password. */
export async function staffFile(grants: readonly string[]): Promise<string> {
  const entries = grants.map((entry) => entry.split(" "));
  const names = new Set(entries.map(([name = ""]) => name));
  const users = await Promise.all(
    Array.from(names, async (name) =>
      user(name, `password_hash = "${await cheapHash(passwordOf(name))}"`),
    ),
  );
  const acl = entries.map(([name = "", database = "", role = ""]) => grant(name, database, role));
  return [...users, ...acl].join("");
}

/** A service directory with these grants. */
export async function staffedHome(t: Test, grants: readonly string[], more = ""): Promise<string> {
  const home = temporaryHome(t);
  const text = `${await staffFile(grants)}${more}`;
  writeFileSync(path.join(home, "access_control.toml"), text, { mode: 0o600 });
  return home;
}

/** A running gateway with these grants, and the database behind it. */
export async function openStaffed(
  t: Test,
  grants: readonly string[],
  options: RunOptions & { more?: string } = {},
): Promise<Setting> {
  const { more, ...rest } = options;
  return openSetting(t, { home: await staffedHome(t, grants, more), ...rest });
}

/** Logs somebody in; the token is for one database if one is named. */
export function tokenOf(gateway: TestGateway, name: string, database?: string): Promise<string> {
  return gateway.login(name, passwordOf(name), database);
}

/** The access file's text as it is. */
export function textOf(gateway: TestGateway): string {
  return readFileSync(gateway.accessFile, "utf8");
}

/** The access file as it is, parsed. */
export function snapshotOn(gateway: TestGateway): Snapshot {
  return parseAccessFile(textOf(gateway), gateway.accessFile);
}

/** Resolves when the gateway decides by what its access file says. */
export async function untilInForce(gateway: TestGateway): Promise<void> {
  const { version } = snapshotOn(gateway);
  await eventually("the file is in force", async () => {
    const { body } = await gateway.request("/readyz");
    return body.access_version === version && body.access_file === "fresh";
  });
}

/** Writes the access file in place, as an editor does, and waits until it is in force. */
export async function putInForce(gateway: TestGateway, text: string): Promise<void> {
  writeFileSync(gateway.accessFile, text);
  await untilInForce(gateway);
}

/**
 * Opens something with a token of bob's that expires six seconds later; where the machine is too
 * busy for that, with one that lives longer. @returns when it expires, too, in seconds
 */
export async function openBriefly<Opened>(
  gateway: TestGateway,
  open: (token: string) => Promise<Opened>,
): Promise<{ opened: Opened; exp: number }> {
  for (let seconds = 6; ; seconds *= 2) {
    const flags = ["token", "issue", "bob", "--expires", `${seconds}s`];
    const token = (await runWarm(gateway.home, flags)).stdout.trim();
    const { exp } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
    try {
      return { opened: await open(token), exp };
    } catch (error) {
      if (seconds > 60) throw error;
    }
  }
}

/** Checks that `isSo` becomes true. */
export async function soon(t: Test, what: string, isSo: () => boolean | Promise<boolean>) {
  await eventually(what, isSo);
  t.pass(what);
}

/** The refusal of an Insert into `main` on a connection of its own; undefined if it went through. */
export async function insertRefusal(gateway: TestGateway, token: string) {
  const headers = queryHeaders(token);
  const answer = await ask(`${gateway.url}/query`, { method: "POST", headers, body: insert });
  return JSON.parse(answer.body.toString()).code;
}

/** Waits for an answer that must be a success. */
export async function succeed(answer: Promise<{ status: number; text: string }>): Promise<void> {
  const { status, text } = await answer;
  if (status !== 200) throw new Error(`${status}: ${text}`);
}
